package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/batch"
)

// crashPair is two clusters of one node each. A owns the topic, B mirrors it and
// takes over, A catches up from B (U1), takes over again, and B follows (U2).
// One of them is killed; the other goes on.
type crashPair struct {
	a, b  *crashNode
	looks []crashLook
}

// TestCrashPair: failover and failback between two nodes of Kagami, kill -9 on
// either side. Nothing acknowledged before a stop is missing, what was never
// mirrored is gone on both sides, and both logs are equal byte for byte.
func TestCrashPair(t *testing.T) {
	for i, side := range []string{"A", "B"} {
		t.Run(side, func(t *testing.T) {
			list := filepath.Join(t.TempDir(), "points")
			var envs [2][][]string
			envs[i] = [][]string{{"KAGAMI_FAULT_LIST=" + list}}
			base, err := runPair(t, envs[0], envs[1])
			require.NoError(t, err)
			require.NoError(t, base.judge(base))
			b, err := os.ReadFile(list)
			require.NoError(t, err)
			cases := chooseCases(strings.Fields(string(b)), 6, os.Getenv("KAGAMI_CRASHPOINTS"))
			missed := runCases(t, cases, func(c crashCase) (int, error) {
				var envs [2][][]string
				envs[i] = c.envs()
				p, err := runPair(t, envs[0], envs[1])
				if err == nil {
					err = p.judge(base)
				}
				if p == nil {
					return 0, err
				}
				return p.a.crashes + p.b.crashes, err
			})
			require.LessOrEqual(t, len(missed), max(2, len(cases)/3), "points that were reached before aren't now")
		})
	}
}

// runPair runs the scenario once.
func runPair(t *testing.T, envsA, envsB [][]string) (p *crashPair, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), crashRunTimeout, errors.New("the run takes too long"))
	defer cancel()
	a, err := newCrashNode(ctx, crashNodeOptions{dir: t.TempDir(), envs: envsA})
	if err != nil {
		return nil, err
	}
	b, err := newCrashNode(ctx, crashNodeOptions{dir: t.TempDir(), envs: envsB})
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	p = &crashPair{a: a, b: b}
	err = p.run()
	err = errors.Join(err, a.close(), b.close())
	if err != nil {
		err = fmt.Errorf("%w\n--- A:\n%s\n--- B:\n%s", err, a.node.process.Tail(60), b.node.process.Tail(60))
	}
	return p, err
}

func (p *crashPair) run() error {
	a, b := p.a, p.b
	id, err := a.ownTopic()
	if err != nil {
		return err
	}
	follow := func(n, from *crashNode) func() error {
		return func() error { return p.follow(n, from, id) }
	}
	for _, s := range []crashStep{
		{"first writes", func() error { return a.write("a 1", "a 2", "a 3") }},
		{"B mirrors", func() error { return errors.Join(b.createMirror(a.node.Bootstrap()), follow(b, a)()) }},
		{"a write that B gets", func() error { return errors.Join(a.write("a 4"), p.level(b, a)) }},
		{"failover to B", func() error { return p.stop("failover to B", b) }},
		{"writes on both sides", func() error { return errors.Join(b.write("b 1", "b 2"), a.write("lost 1", "lost 2")) }},
		{"failback to A", func() error { return errors.Join(a.createMirror(b.node.Bootstrap()), follow(a, b)()) }},
		{"A is refused", a.refused},
		{"a write that A gets", func() error { return errors.Join(b.write("b 3"), p.level(a, b)) }},
		{"failover to A", func() error { return p.stop("failover to A", a) }},
		{"write on A", func() error { return a.write("a 5") }},
		{"B mirrors again", follow(b, a)},
		{"a last write", func() error { return errors.Join(a.write("a 6"), p.level(b, a)) }},
		{"B is refused", b.refused},
		{"epochs", p.epochs},
		{"audit of A", a.auditAgrees},
		{"audit of B", b.auditAgrees},
	} {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// ownTopic makes the topic as an ordinary one and returns its id.
func (n *crashNode) ownTopic() (id messages.TopicID, err error) {
	err = n.try("create topic", func(ctx context.Context) error {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.TimeoutMillis = int32(crashTryTimeout.Milliseconds())
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = crashTopic, 1, 1
		req.Topics = append(req.Topics, t)
		resp, err := req.RequestWith(ctx, n.cl)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}, kerr.TopicAlreadyExists)
	if err != nil {
		return id, err
	}
	err = n.try("topic id", func(ctx context.Context) error {
		req := kmsg.NewPtrMetadataRequest()
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(crashTopic)
		req.Topics = append(req.Topics, t)
		resp, err := req.RequestWith(ctx, n.cl)
		if err != nil {
			return err
		}
		id = resp.Topics[0].TopicID
		return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	})
	return id, err
}

// write stores records, each of a producer of its own.
func (n *crashNode) write(values ...string) error {
	for _, v := range values {
		if err := n.produce(v, int64(v[len(v)-1]), 0); err != nil {
			return err
		}
	}
	return nil
}

// follow starts the topic on n and waits until it has all of the other side.
func (p *crashPair) follow(n, from *crashNode, id messages.TopicID) error {
	if err := n.startTopic(id, 1); err != nil {
		return err
	}
	if err := p.level(n, from); err != nil {
		return err
	}
	d, err := n.await("MIRRORING")
	p.looks = append(p.looks, crashLook{"start", d})
	return err
}

// level waits until n has what the other side has.
func (p *crashPair) level(n, from *crashNode) error {
	return n.try("catch up", func(ctx context.Context) error {
		end, err := from.listOffset(ctx, -1)
		if err != nil {
			return err
		}
		got, err := Partitions(ctx, n.adm, crashMirror)
		if err == nil && (len(got) != 1 || got[0].State != "MIRRORING" || got[0].DestinationOffset != end || got[0].Lag != 0) {
			err = fmt.Errorf("it is %+v, the source ends at %d", got, end)
		}
		return err
	})
}

func (p *crashPair) stop(name string, n *crashNode) error {
	d, err := n.stopTopic()
	p.looks = append(p.looks, crashLook{name, d})
	return err
}

// epochs: DLE >= SLE.
func (p *crashPair) epochs() error {
	return p.b.try("epochs", func(context.Context) error {
		a, err := p.a.dle()
		if err != nil {
			return err
		}
		b, err := p.b.dle()
		if err == nil && b < a {
			err = fmt.Errorf("B's leader epoch %d is below A's %d", b, a)
		}
		return err
	})
}

// pairLog is what both logs hold in the end.
var pairLog = []string{"a 1", "a 2", "a 3", "a 4", "MIRROR_PID_RESET", "b 1", "b 2", "b 3", "MIRROR_PID_RESET", "a 5", "a 6"}

// judge compares a run with the undisturbed one. Leader epochs rise with each
// crash, so LMEs may.
func (p *crashPair) judge(base *crashPair) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	crashes := int32(p.a.crashes + p.b.crashes)
	check(len(p.looks) == len(base.looks), "%d looks, want %d", len(p.looks), len(base.looks))
	for i := range min(len(p.looks), len(base.looks)) {
		want, got := base.looks[i], p.looks[i]
		low, high := want.LastMirrorEpoch, want.LastMirrorEpoch
		if low >= 0 {
			low, high = low-1, high+2*crashes+20
		}
		check(got.LastMirrorEpoch >= low && got.LastMirrorEpoch <= high, "%d. LME %d, undisturbed %d", i, got.LastMirrorEpoch, want.LastMirrorEpoch)
		want.LastMirrorEpoch, got.LastMirrorEpoch = 0, 0
		check(want.same() == got.same(), "look %d\nundisturbed: %s\ncrashed:     %s", i, want.same(), got.same())
	}
	var logs [2][]byte
	for i, n := range []*crashNode{p.a, p.b} {
		name, lmes := [...]string{"A", "B"}[i], [...][]int{{1}, {1}}[i]
		states, _, err := mirrorStates(n.node.DataDir())
		check(err == nil && slices.Equal(lmes, lmesPerStop(states)), "LME records per stop of %s: %v, states %v, %v", name, lmesPerStop(states), states, err)
		if logs[i], err = readLog(filepath.Join(n.node.DataDir(), crashTopic+"-0")); err != nil {
			return errors.Join(append(errs, err)...)
		}
		values, offsets, err := logValues(logs[i])
		check(err == nil && slices.Equal(values, pairLog), "log of %s: %v\n%s", name, err, cmp.Diff(pairLog, values))
		for _, a := range n.acked {
			if !strings.HasPrefix(a.value, "lost") {
				check(offsets[a.value] == a.offset, "%q is at %d on %s, acknowledged at %d", a.value, offsets[a.value], name, a.offset)
			}
		}
	}
	check(string(logs[0]) == string(logs[1]), "the logs differ: %d bytes on A, %d on B", len(logs[0]), len(logs[1]))
	if len(errs) > 0 {
		errs = append(errs, fmt.Errorf("%d crashes of A, %d of B\n--- A:\n%s\n--- B:\n%s", p.a.crashes, p.b.crashes, p.a.node.process.Tail(60), p.b.node.process.Tail(60)))
	}
	return errors.Join(errs...)
}

// logValues lists values and kinds of control records, and where values are.
func logValues(log []byte) (values []string, offsets map[string]int64, err error) {
	offsets = map[string]int64{}
	for len(log) > 0 {
		h, whole, rest, err := batch.Next(log)
		if err == nil {
			err = batch.CheckCRC(whole)
		}
		if err != nil {
			return values, offsets, err
		}
		log = rest
		if h.IsControl() {
			c, err := batch.ParseControl(whole)
			if err != nil {
				return values, offsets, err
			}
			values = append(values, c.Type.String())
			continue
		}
		for r, err := range batch.Records(whole) {
			if err != nil {
				return values, offsets, err
			}
			values = append(values, string(r.Value))
			offsets[string(r.Value)] = r.Offset
		}
	}
	return values, offsets, nil
}
