package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/google/go-cmp/cmp"

	"kagami/client"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
	"kagami/test/kafka/stub"
)

// crashEnd is what a run comes to.
type crashEnd struct {
	Looks      []crashLook
	Copied     []Batch  // below mirroredTo
	Tail       []string // what follows: kinds, with pid or value
	TailEpochs []int32
	States     []string           // of __mirror_state, in order
	DLE        int32              // at the end
	Stored     map[string][]int64 // value -> offsets, of the tail
}

// crashLook is the partition's description after a step.
type crashLook struct {
	Name string
	client.DescribedPartition
}

// same is what of a look must not differ between runs.
func (l crashLook) same() string {
	return fmt.Sprintf("%s: %s, LME %d, %d failures, %d open transactions, %d records cut, the last %d to %d, gap %d to %d", l.Name, l.State,
		l.LastMirrorEpoch, l.RetryAttempt, l.OpenTransactions, l.CutRecords, l.CutFrom, l.CutTo, l.GapFrom, l.GapTo)
}

// read adds what the stopped node's files say.
func (w *crashWorld) read() error {
	var start int64
	w.source.Read(func(s *stub.State) { start = s.Topics[crashTopic].Partitions[0].LogStart })
	log, err := readLog(filepath.Join(w.node.DataDir(), crashTopic+"-0"))
	if err != nil {
		return err
	}
	end := &w.end
	end.Stored = map[string][]int64{}
	for rest := log; len(rest) > 0; {
		h, whole, next, err := batch.Next(rest)
		if err == nil {
			err = batch.CheckCRC(whole)
		}
		if err != nil {
			return fmt.Errorf("log at byte %d: %w", len(log)-len(rest), err)
		}
		rest = next
		switch {
		case h.BaseOffset < start: // below the log start, not yet deleted
		case h.BaseOffset < w.mirroredTo:
			one, err := splitBatches(whole)
			if err != nil {
				return err
			}
			end.Copied = append(end.Copied, one...)
		default:
			if err := end.addOurs(h, whole); err != nil {
				return err
			}
		}
	}
	end.States, _, err = mirrorStates(w.node.DataDir())
	return err
}

func (end *crashEnd) addOurs(h batch.Header, whole []byte) error {
	end.TailEpochs = append(end.TailEpochs, h.LeaderEpoch)
	if h.IsControl() {
		c, err := batch.ParseControl(whole)
		if err != nil {
			return err
		}
		end.Tail = append(end.Tail, strings.TrimSuffix(fmt.Sprintf("%s of %d", c.Type, h.ProducerID), " of -1"))
		return nil
	}
	for r, err := range batch.Records(whole) {
		if err != nil {
			return err
		}
		end.Tail = append(end.Tail, string(r.Value))
		end.Stored[string(r.Value)] = append(end.Stored[string(r.Value)], r.Offset)
	}
	return nil
}

// sourceBatches is the source's log up to the last stop.
func (w *crashWorld) sourceBatches() ([]Batch, error) {
	var b []byte
	w.source.Read(func(s *stub.State) { b = s.Topics[crashTopic].Partitions[0].Bytes() })
	all, err := splitBatches(b)
	return slices.DeleteFunc(all, func(b Batch) bool { return b.Base >= w.mirroredTo }), err
}

func readLog(folder string) ([]byte, error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.log"))
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
	var out []byte
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		out = append(out, b...)
	}
	return out, nil
}

// mirrorStates lists what was ever stored of the mirror, states by name and
// last mirror epochs as "LME n", and counts the keys that have a value.
func mirrorStates(data string) (list []string, live int, err error) {
	log, err := readLog(filepath.Join(data, messages.MirrorStateTopic+"-0"))
	if err != nil {
		return nil, 0, err
	}
	keys := map[string]bool{}
	for len(log) > 0 {
		_, whole, rest, err := batch.Next(log)
		if err != nil {
			return list, 0, err // or the node is writing there
		}
		log = rest
		for r, err := range batch.Records(whole) {
			if err != nil {
				return list, 0, err
			}
			keys[string(r.Key)] = r.Value != nil
			text, err := stateText(r)
			if err != nil {
				return list, 0, err
			}
			list = append(list, text)
		}
	}
	for _, on := range keys {
		if on {
			live++
		}
	}
	return list, live, nil
}

func stateText(r batch.Record) (string, error) {
	kind, err := wire.MirrorStateType(r.Key)
	switch {
	case err != nil:
		return "", err
	case r.Value == nil:
		return "tombstone", nil
	case kind == wire.RecordTypeLastMirrorEpochs:
		v := wire.NewPtrLastMirrorEpochsValue()
		if err := v.ReadFrom(r.Value); err != nil {
			return "", err
		}
		text := "LME"
		for _, t := range v.Topics {
			for _, p := range t.Partitions {
				text += fmt.Sprintf(" %d", p.LastMirrorEpoch)
			}
		}
		return text, nil
	default:
		v := wire.NewPtrMirrorPartitionStateValue()
		if err := v.ReadFrom(r.Value); err != nil {
			return "", err
		}
		text := messages.State(v.State).String()
		if cause, ok := r.Header("cause"); ok && v.State == int8(messages.StateFailed) {
			text += " (" + string(cause) + ")"
		}
		return text, nil
	}
}

// lmesPerStop counts the LME records between each STOPPING and its STOPPED: it is
// to be written once, however often the stop was run again.
func lmesPerStop(states []string) (counts []int) {
	stopping := false
	for _, s := range states {
		switch {
		case s == messages.StateStopping.String() && !stopping:
			stopping = true
			counts = append(counts, 0)
		case s == messages.StateStopped.String():
			stopping = false
		case strings.HasPrefix(s, "LME") && len(counts) > 0:
			counts[len(counts)-1]++
		}
	}
	return counts
}

// judge compares a run with the undisturbed one. A crash may cost an epoch more,
// or spare one (where a batch was refused and the refresh had asked already);
// nothing else may be different.
func (w *crashWorld) judge(s *crashScenario, base crashEnd) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	got := w.end
	check(len(base.Looks) == len(got.Looks), "%d looks, want %d", len(got.Looks), len(base.Looks))
	last := messages.NoEpoch
	for i := range min(len(base.Looks), len(got.Looks)) {
		check(base.Looks[i].same() == got.Looks[i].same(), "after %s\nundisturbed: %s\ncrashed:     %s", base.Looks[i].Name, base.Looks[i].same(), got.Looks[i].same())
		last = got.Looks[i].LastMirrorEpoch
	}
	check(cmp.Equal(withoutRetries(base.States), withoutRetries(got.States)), "states (-undisturbed +crashed):\n%s",
		cmp.Diff(withoutRetries(base.States), withoutRetries(got.States)))
	check(cmp.Equal(s.lmes, lmesPerStop(got.States)), "LME records per stop: %v, want %v", lmesPerStop(got.States), s.lmes)
	check(cmp.Equal(s.tail, got.Tail), "tail (-want +got):\n%s", cmp.Diff(s.tail, got.Tail))
	want, err := w.sourceBatches()
	check(err == nil && cmp.Equal(want, got.Copied), "copied batches differ (-source +node): %v\n%s", err, cmp.Diff(want, got.Copied))
	check(slices.IsSorted(got.TailEpochs), "epochs go back: %v", got.TailEpochs)
	for _, e := range got.TailEpochs {
		check(e > last && e <= got.DLE, "epoch %d of ours, LME %d, DLE %d", e, last, got.DLE)
	}
	check(got.DLE >= base.DLE-1-s.spare && got.DLE <= base.DLE+int32(w.crashes)+s.spare, "DLE %d after %d crashes, undisturbed %d", got.DLE, w.crashes, base.DLE)
	for _, a := range w.acked {
		if slices.Contains(s.tail, a.value) {
			check(slices.Equal(got.Stored[a.value], []int64{a.offset}), "%q is at %v, acknowledged at %d", a.value, got.Stored[a.value], a.offset)
		}
	}
	if len(errs) > 0 {
		errs = append(errs, fmt.Errorf("%d crashes, states %v", w.crashes, got.States), errors.New(w.node.process.Tail(80)))
	}
	return errors.Join(errs...)
}

// withoutRetries leaves out what a crash may add, a state that is written again
// or a failure that is retried, and what it may spare: the metadata refresh of the
// new process may raise the epoch before a batch needs it.
func withoutRetries(states []string) []string {
	return slices.Compact(slices.DeleteFunc(slices.Clone(states), func(s string) bool {
		return s == messages.StateEpochFencing.String() || strings.HasPrefix(s, messages.StateFailed.String())
	}))
}
