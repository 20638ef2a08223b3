package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
	"kagami/persistence/faultfs"
)

// faultRig is one partition on real segments and a real checkpoint file, both
// on a file system that crashes.
type faultRig struct {
	fs          *faultfs.FS
	manager     *persistence.Manager
	checkpoints *Checkpoints
	r           *Replica
}

const faultFolder = "/data"

// newFaultFS has the data folder, durably.
func newFaultFS(t *testing.T) *faultfs.FS {
	t.Helper()
	fsys := faultfs.New()
	require.NoError(t, fsys.MkdirAll(faultFolder))
	require.NoError(t, fsys.SyncDir("/"))
	return fsys
}

func openFaultRig(ctx context.Context, fsys *faultfs.FS) (g *faultRig, err error) {
	g = &faultRig{fs: fsys}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	if g.manager, err = persistence.Open(ctx, faultFolder, persistence.Options{NodeID: 1, FS: fsys, FlushInterval: -1}); err != nil {
		return g, err
	}
	if g.checkpoints, err = OpenCheckpoints(fsys, faultFolder, zap.NewNop()); err != nil {
		return g, err
	}
	info := persistence.Info{TopicPartition: messages.TopicPartition{Topic: "t"}, Key: testKey}
	log, err := openOrCreate(ctx, g.manager, info, persistence.Config{})
	if err != nil {
		return g, err
	}
	g.r, err = OpenReplica(ReplicaOptions{
		Key: testKey, Partition: info.TopicPartition, Node: 1, Log: log, Checkpoints: g.checkpoints, Admit: true, Logger: zap.NewNop(),
	})
	if err == nil {
		countedCuts(g.r) // a mirror counts
	}
	return g, err
}

// countedCuts is what mirror m is told about cuts of earlier processes.
func countedCuts(r *Replica) persistence.Cut { return r.CountCuts("m", persistence.Cut{}) }

// close lets go of everything; after a crash nothing of it reaches the disk.
func (g *faultRig) close() {
	if g.checkpoints != nil {
		_ = g.checkpoints.Close()
	}
	if g.manager != nil {
		_ = g.manager.Close()
	}
}

// faultModel is what was answered, and what the step in flight would make of it.
type faultModel struct {
	values []string // of the records from offset 0 on; "" below the log start
	start  int64
	mode   messages.Mode
	epoch  int32
	seal   int64 // -1: not sealed
	synced int64 // records below were answered as durable
	cut    int64 // records that cuts removed; a restart above the end isn't one
}

func (m faultModel) end() int64 { return int64(len(m.values)) }

// faultStep does one thing and says what the model is afterwards.
type faultStep func(ctx context.Context, g *faultRig, m faultModel) (faultModel, func() error)

func stepAppend(class messages.Class, n int) faultStep {
	return func(ctx context.Context, g *faultRig, m faultModel) (faultModel, func() error) {
		var rs []batch.Record
		m.values = slices.Clone(m.values)
		for range n {
			v := fmt.Sprintf("%s-%d-%d", class, m.epoch, len(m.values))
			m.values = append(m.values, v)
			rs = append(rs, batch.Record{Value: []byte(v)})
		}
		b := batch.Append(nil, batch.Plain(), rs...)
		return m, func() (err error) {
			switch class {
			case messages.ClassClient:
				_, err = g.r.AppendClient(ctx, b, anyEpoch)
			case messages.ClassInternal:
				_, err = g.r.AppendInternal(ctx, b)
			case messages.ClassMirror:
				base := m.end() - int64(n)
				batch.SetOffsetAndEpoch(b, base, m.epoch)
				_, err = g.r.AppendMirror(ctx, base, b)
			}
			return err
		}
	}
}

func stepMode(mode messages.Mode) faultStep {
	return func(ctx context.Context, g *faultRig, m faultModel) (faultModel, func() error) {
		if m.mode != mode {
			m.mode, m.seal = mode, -1
			if mode == messages.ModeSealed {
				m.seal, m.synced = m.end(), m.end()
			}
		}
		return m, func() error { _, err := g.r.SetMode(ctx, mode); return err }
	}
}

func stepClaim(epoch int32) faultStep {
	return func(ctx context.Context, g *faultRig, m faultModel) (faultModel, func() error) {
		m.epoch = epoch
		return m, func() error { return g.r.Claim(ctx, epoch) }
	}
}

func stepCut(to int64) faultStep {
	return func(ctx context.Context, g *faultRig, m faultModel) (faultModel, func() error) {
		m.cut += m.end() - to
		m.values = m.values[:to:to]
		m.synced, m.seal = min(m.synced, to), min(m.seal, to)
		return m, func() error { _, err := g.r.Truncate(ctx, to, "test"); return err }
	}
}

func stepRestartAt(to int64) faultStep {
	return func(ctx context.Context, g *faultRig, m faultModel) (faultModel, func() error) {
		m.values, m.start, m.synced = make([]string, to), to, to
		if m.seal >= 0 {
			m.seal = to
		}
		return m, func() error { _, _, err := g.r.RestartAt(ctx, to, "test"); return err }
	}
}

func stepRaise(to int64) faultStep {
	return func(ctx context.Context, g *faultRig, m faultModel) (faultModel, func() error) {
		m.start = to
		return m, func() error { return g.r.RaiseLogStart(ctx, to) }
	}
}

// faultScript is a partition's life: written to, mirrored over, cut by
// divergence, stopped, written to again, mirrored again, overtaken by retention.
func faultScript() []faultStep {
	return []faultStep{
		stepClaim(2), stepAppend(messages.ClassClient, 2), stepAppend(messages.ClassClient, 3), stepAppend(messages.ClassClient, 1),
		stepMode(messages.ModeSealed), stepCut(2), stepMode(messages.ModeMirroring),
		stepAppend(messages.ClassMirror, 2), stepAppend(messages.ClassMirror, 2), stepCut(4),
		stepClaim(5), stepAppend(messages.ClassMirror, 3), stepAppend(messages.ClassMirror, 1),
		stepMode(messages.ModeSealed), stepClaim(9), stepAppend(messages.ClassInternal, 1), stepAppend(messages.ClassInternal, 1),
		stepMode(messages.ModeWritable), stepAppend(messages.ClassClient, 2), stepRaise(4),
		stepMode(messages.ModeSealed), stepCut(7), stepMode(messages.ModeMirroring), stepAppend(messages.ClassMirror, 2),
		stepRestartAt(50), stepAppend(messages.ClassMirror, 4), stepMode(messages.ModeSealed), stepMode(messages.ModeWritable),
	}
}

// runFaultScript runs until a step fails and returns what was answered and what
// the failed step, if any, was after.
func runFaultScript(ctx context.Context, fsys *faultfs.FS) (answered, wanted faultModel, err error) {
	answered = faultModel{mode: messages.ModeWritable, epoch: messages.NoEpoch, seal: -1}
	g, err := openFaultRig(ctx, fsys)
	if err != nil {
		return answered, answered, err
	}
	defer g.close()
	for i, step := range faultScript() {
		next, do := step(ctx, g, answered)
		if err := do(); err != nil {
			return answered, next, fmt.Errorf("step %d: %w", i, err)
		}
		answered = next
	}
	fsys.Crash() // not closed: the process dies at the end at the latest
	return answered, answered, nil
}

// TestC29ReplicaCrashesAtEveryEffect: a crash before every single change of the
// disk, of the process or of the power, never undoes what was answered, never
// brings back a record that was cut, and leaves a partition that goes on.
func TestC29ReplicaCrashesAtEveryEffect(t *testing.T) {
	clean := newFaultFS(t)
	first := clean.Effects() + 1
	_, _, err := runFaultScript(t.Context(), clean)
	require.NoError(t, err)
	effects := clean.Effects()
	require.Greater(t, effects, 60)
	t.Logf("%d effects", effects)
	for at := first; at <= effects; at++ {
		for _, loss := range []faultfs.Loss{faultfs.LoseNothing, faultfs.LoseUnsynced, faultfs.LoseSome} {
			seeds := 1
			if loss == faultfs.LoseSome {
				seeds = 4
			}
			for seed := range seeds {
				fsys := newFaultFS(t)
				fsys.CrashAt = at
				answered, wanted, _ := runFaultScript(t.Context(), fsys)
				after := fsys.Restart(loss, rand.New(rand.NewPCG(uint64(at), uint64(seed))))
				if err := checkAfterCrash(t.Context(), after, loss, answered, wanted); err != nil {
					t.Fatalf("crash at effect %d, %s, seed %d: %v\nanswered %+v\nwanted   %+v", at, loss, seed, err, answered, wanted)
				}
			}
		}
	}
}

func checkAfterCrash(ctx context.Context, fsys *faultfs.FS, loss faultfs.Loss, answered, wanted faultModel) error {
	g, err := openFaultRig(ctx, fsys)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer g.close()
	s := g.r.State()
	got, err := readValues(g.r)
	if err != nil {
		return err
	}
	switch {
	case s.Mode != answered.mode && s.Mode != wanted.mode:
		return fmt.Errorf("mode %s", s.Mode)
	case s.LeaderEpoch != answered.epoch && s.LeaderEpoch != wanted.epoch:
		return fmt.Errorf("epoch %d", s.LeaderEpoch)
	case s.End < min(answered.synced, wanted.end()):
		return fmt.Errorf("log end %d, synced was %d", s.End, answered.synced)
	case countedCuts(g.r).Records != answered.cut && countedCuts(g.r).Records != wanted.cut:
		return fmt.Errorf("cuts %+v", countedCuts(g.r))
	case !isPrefix(s, got, answered) && !isPrefix(s, got, wanted):
		return fmt.Errorf("start %d, end %d, records %q", s.LogStart, s.End, got)
	case loss == faultfs.LoseNothing && s.End != answered.end() && s.End != wanted.end():
		return fmt.Errorf("log end %d after a mere crash of the process", s.End)
	}
	if err := g.r.Claim(ctx, max(answered.epoch, wanted.epoch, 0)); err != nil {
		return err
	}
	if s.Mode == messages.ModeSealed {
		seal, err := g.r.SetMode(ctx, messages.ModeSealed)
		if a, w := min(answered.seal, s.End), min(wanted.seal, s.End); err != nil || seal != a && seal != w {
			return fmt.Errorf("sealed at %d, error %w", seal, err)
		}
	}
	if _, err := g.r.SetMode(ctx, messages.ModeWritable); err != nil {
		return err
	}
	info, err := g.r.AppendClient(ctx, records(0, 1, 0), anyEpoch)
	if err != nil || info.FirstOffset != s.End {
		return fmt.Errorf("append after the crash at %d: %w", info.FirstOffset, err)
	}
	return nil
}

// isPrefix: the log holds what the model has, perhaps without a tail, and
// perhaps with a log start that is still the older one.
func isPrefix(s persistence.ReplicaState, got []string, m faultModel) bool {
	if s.End > m.end() || s.LogStart > m.start || s.End < m.start {
		return s.End == 0 && len(got) == 0 && m.start == 0
	}
	return slices.Equal(got, m.values[s.LogStart:s.End])
}

func readValues(r *Replica) (out []string, err error) {
	for at := r.State().LogStart; at < r.State().End; {
		c, err := r.Log().Read(at, 1, r.State().HighWatermark, true)
		if err != nil {
			return nil, err
		}
		b, err := c.ReadAll()
		c.Release()
		if err != nil {
			return nil, err
		}
		if c.FirstOffset < at { // the log start lies inside this batch
			b = slices.Clone(b)
		}
		for rec, err := range batch.Records(b) {
			if err != nil {
				return nil, err
			}
			if rec.Offset >= at {
				out = append(out, string(rec.Value))
			}
		}
		at = c.NextOffset
	}
	return out, nil
}
