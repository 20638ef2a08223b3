package persistence_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
	"kagami/persistence/faultfs"
	"kagami/persistence/logtest"
)

var crashTP = messages.TopicPartition{Topic: "t", Partition: 0}

// lineage is what a log should hold: every batch since the last restart at an
// offset, in order, with the log start.
type lineage struct {
	base    int64 // where the log was restarted last
	start   int64
	batches [][]byte
}

func (l lineage) end() int64 {
	end := l.base
	if n := len(l.batches); n > 0 {
		h, _ := batch.ParseHeader(l.batches[n-1])
		end = h.LastOffset() + 1
	}
	return max(end, l.start)
}

func (l lineage) twin(tb testing.TB, end, start int64) persistence.Log {
	tb.Helper()
	twin := persistence.NewMemoryLog(persistence.Info{}, crashConfig)
	_, err := twin.RestartAt(l.base)
	require.NoError(tb, err)
	for _, b := range l.batches {
		if h, _ := batch.ParseHeader(b); h.LastOffset() < end {
			_, err := twin.Append(b, persistence.AppendOptions{})
			require.NoError(tb, err)
		}
	}
	require.NoError(tb, twin.RaiseLogStart(min(start, twin.End())))
	return twin
}

var crashSeeds = flag.Uint64("crash.seeds", 1, "histories of the crash test")

var crashConfig = persistence.Config{SegmentBytes: 700, IndexIntervalBytes: 100}

// history is a run of operations on a log, with what must hold after a crash.
type history struct {
	t       testing.TB
	rng     *rand.Rand
	script  *logtest.Script
	log     persistence.Log
	now     lineage
	before  lineage // when the operation under way began
	durable int64   // everything below must survive a loss of power
	died    int64   // everything below must survive the death of the process
	what    string
	lost    bool
	stop    error        // what ends it; default ErrCrashed
	redo    func() error // repeats the last operation, if it is a cut
}

func split(b []byte) (out [][]byte) {
	for len(b) > 0 {
		_, whole, rest, _ := batch.Next(b)
		out, b = append(out, whole), rest
	}
	return out
}

// step does one operation; false after the crash.
func (h *history) step(kind int) bool {
	h.before, h.redo = h.now, nil
	end := h.now.end()
	var err error
	switch kind {
	case 0:
		to := end - int64(h.rng.IntN(12))
		h.what = fmt.Sprint("truncate ", to)
		if to < h.now.start {
			return true
		}
		after := h.now
		after.batches = nil
		for _, b := range h.now.batches {
			if hd, _ := batch.ParseHeader(b); hd.LastOffset() < to {
				after.batches = append(after.batches, b)
			}
		}
		h.now = after
		h.durable, h.died = min(h.durable, after.end()), min(h.died, after.end())
		h.redo = func() error { _, err := h.log.Truncate(to); return err }
		err = h.redo()
	case 1:
		h.what = "restart"
		h.now = lineage{base: end + 5, start: end + 5}
		h.redo = func() error { _, err := h.log.RestartAt(end + 5); return err }
		err = h.redo()
		if err == nil {
			h.durable, h.died = end+5, end+5
		}
	case 2:
		to := h.now.start + h.rng.Int64N(end-h.now.start+1)
		h.what = fmt.Sprint("raise ", to)
		h.now.start = max(h.now.start, to)
		err = h.log.RaiseLogStart(to)
	case 3:
		h.what = "retain"
		p := persistence.RetentionPolicy{Millis: -1, Bytes: 1500, HighWatermark: end}
		_, err = h.log.ApplyRetention(h.t.Context(), p)
		if h.now.start = max(h.now.start, h.log.LogStart()); err != nil {
			h.now.start = end // it is written down before it can be seen
		}
	case 4:
		h.what = "flush"
		do := h.log.Flush
		if h.rng.IntN(2) == 0 {
			h.what, do = "sync", h.log.Sync
		}
		if err = do(); err == nil {
			h.durable = end
		}
	default:
		h.what = "append"
		b := h.script.Batches(end)
		h.now.batches = append(slices.Clip(h.now.batches), split(b)...)
		if _, err = h.log.Append(b, persistence.AppendOptions{}); err == nil {
			h.died = h.now.end()
		}
	}
	if err != nil {
		stop := h.stop
		if stop == nil {
			stop = faultfs.ErrCrashed
		}
		require.ErrorIs(h.t, err, stop, h.what)
	}
	return err == nil
}

// check holds the recovered log against what may and must be there.
func (h *history) check(got persistence.Log, loss faultfs.Loss) {
	h.t.Helper()
	floor := h.durable
	if loss == faultfs.LoseNothing {
		floor = h.died
	}
	content := logtest.Contents(h.t, got, 1<<20)
	var why error
	for _, l := range []lineage{h.now, h.before} {
		if err := l.matches(got, content, floor); err != nil {
			why = errors.Join(why, err)
			continue
		}
		twin := l.twin(h.t, got.End(), got.LogStart())
		if twin.LogStart() != got.LogStart() {
			h.lost = true // nothing is left: the log start survived, and unsynced batches below it didn't
			return
		}
		logtest.Compare(h.t, twin, got)
		h.now = lineage{base: l.base, start: got.LogStart()}
		for _, b := range l.batches {
			if hd, _ := batch.ParseHeader(b); hd.LastOffset() < got.End() {
				h.now.batches = append(h.now.batches, b)
			}
		}
		return
	}
	h.t.Fatalf("after %s: %v", h.what, why)
}

func (l lineage) matches(got persistence.Log, content []byte, floor int64) error {
	start, end := got.LogStart(), got.End()
	switch {
	case start < l.base || start > l.start:
		return fmt.Errorf("log start %d, want %d to %d", start, l.base, l.start)
	case end > l.end() && end > start:
		return fmt.Errorf("end %d beyond %d", end, l.end())
	case end < min(floor, l.end()):
		return fmt.Errorf("end %d, flushed was %d", end, floor)
	}
	var want []byte
	last := l.base
	for _, b := range l.batches {
		h, _ := batch.ParseHeader(b)
		if h.LastOffset() < end {
			last = h.LastOffset() + 1
			if h.LastOffset() >= start {
				want = append(want, b...)
			}
		}
	}
	if !bytes.Equal(want, content) || max(last, start) != end {
		return fmt.Errorf("content of %d to %d differs, %d and %d bytes", start, end, len(want), len(content))
	}
	return nil
}

func openCrash(tb testing.TB, fsys *faultfs.FS) (*persistence.Manager, persistence.Log, error) {
	tb.Helper()
	m, err := persistence.Open(tb.Context(), "/data", options(fsys))
	if err != nil {
		return nil, nil, err
	}
	l, err := m.Open(tb.Context(), crashTP, crashConfig)
	if errors.Is(err, persistence.ErrNotFound) {
		info := persistence.Info{TopicPartition: crashTP, Key: messages.PartitionKey{TopicID: messages.TopicID{9}, CreatedAt: 3}}
		l, err = m.Create(tb.Context(), info, crashConfig)
	}
	return m, l, err
}

// kinds of operations: appends are the most, all others come often enough.
func nextKind(rng *rand.Rand) int { return rng.IntN(14) }

// runCrash runs one history until the crash, restarts, checks, and goes on: with
// a crash during the recovery too if again is set.
func runCrash(t *testing.T, seed uint64, at int, loss faultfs.Loss, again int) (effects int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	chance := rand.New(rand.NewPCG(seed, uint64(at)))
	fsys := faultfs.New()
	fsys.CrashAt = at
	h := &history{t: t, rng: rng, script: logtest.NewScript(rng)}
	m, l, err := openCrash(t, fsys)
	if err == nil {
		h.log = l
		for range 20 {
			if !h.step(nextKind(rng)) {
				break
			}
		}
		if !fsys.Crashed() {
			err = m.Close()
			if err == nil {
				h.durable = h.now.end()
			}
			h.before = h.now
		}
	} else {
		require.ErrorIs(t, err, faultfs.ErrCrashed)
	}
	effects = fsys.Effects()
	if again > 0 {
		fsys = fsys.Restart(loss, chance)
		fsys.CrashAt = again
		_, _, _ = openCrash(t, fsys)
	}
	fsys = fsys.Restart(loss, chance)
	_, l, err = openCrash(t, fsys)
	require.NoError(t, err, "after %s", h.what)
	if h.check(l, loss); h.lost {
		return effects
	}
	// go on, lose power once more
	h.log, h.durable, h.died = l, 0, 0
	for range 6 {
		require.True(t, h.step(5))
	}
	require.NoError(t, l.Flush())
	h.durable, h.died, h.before = h.now.end(), h.now.end(), h.now
	h.what = "six appends and a flush"
	fsys = fsys.Restart(faultfs.LoseUnsynced, nil)
	_, l, err = openCrash(t, fsys)
	require.NoError(t, err)
	h.check(l, faultfs.LoseUnsynced)
	return effects
}

// TestCrashAtEveryEffect (C29): whatever effect is the last one before a crash,
// and whatever a loss of power takes of what wasn't synced, the log opens as a
// prefix of what was appended, with everything flushed, nothing that was cut,
// and side files that agree with the batches.
func TestC29CrashAtEveryEffect(t *testing.T) {
	for _, loss := range []faultfs.Loss{faultfs.LoseNothing, faultfs.LoseUnsynced, faultfs.LoseSome} {
		t.Run(loss.String(), func(t *testing.T) {
			for seed := range *crashSeeds {
				total := runCrash(t, seed, 0, loss, 0)
				for at := 1; at <= total; at++ {
					ok := t.Run(fmt.Sprintf("seed=%d/at=%d", seed, at), func(t *testing.T) {
						runCrash(t, seed, at, loss, 0)
						if at%3 == 0 { // and another one during the recovery
							runCrash(t, seed, at, loss, 1+at/3%19)
						}
					})
					if !ok {
						return
					}
				}
			}
		})
	}
}
