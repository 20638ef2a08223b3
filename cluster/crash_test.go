package cluster

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
)

// crashModel is what a test may count on of a partition.
type crashModel struct {
	mode    messages.Mode
	epoch   int32
	seal    int64 // offset of the current seal, -1 if not sealed
	kept    int64 // everything below is synced and must be there
	end     int64
	pending int64 // offset of a cut that was begun and not finished, -1 if none
}

// TestReplicaRandomCrashes: whatever a partition does and whenever the process
// dies or the power goes, what was answered holds: modes, claims, cuts, seals
// and synced records; and a cut that was begun is done.
func TestReplicaRandomCrashes(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		runCrashSeed(t, seed)
	}
}

func runCrashSeed(t *testing.T, seed uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 7))
	g := newRig(t)
	m := &crashModel{mode: messages.ModeWritable, epoch: 5, seal: -1, pending: -1}
	for step := range 120 {
		if m.pending >= 0 || rnd.IntN(10) == 0 {
			g.crash(rnd, m, seed, step)
			continue
		}
		g.act(rnd, m)
		s := g.r.State()
		if s.End != m.end || s.Mode != m.mode || s.LeaderEpoch != m.epoch {
			t.Fatalf("seed %d, step %d: state %+v, want %+v", seed, step, s, *m)
		}
	}
	g.kill()
}

// act does one random thing and follows it in the model.
func (g *rig) act(rnd *rand.Rand, m *crashModel) {
	g.t.Helper()
	ctx := g.t.Context()
	switch rnd.IntN(8) {
	case 0:
		m.mode = messages.Mode(1 + rnd.IntN(3))
		offset := g.mode(m.mode)
		switch {
		case m.mode != messages.ModeSealed:
			m.seal = -1
		case m.seal < 0: // a new seal: what is below is synced
			m.seal, m.kept = offset, m.end
			require.Equal(g.t, m.end, offset)
		default:
			require.Equal(g.t, m.seal, offset)
		}
	case 1:
		m.epoch += int32(rnd.IntN(2))
		require.NoError(g.t, g.r.Claim(ctx, m.epoch))
	case 2:
		require.NoError(g.t, g.log.Flush())
		m.kept = m.end
	case 3:
		g.cut(rnd, m)
	default:
		n := 1 + rnd.IntN(4)
		var err error
		switch m.mode {
		case messages.ModeWritable:
			_, err = g.r.AppendClient(ctx, records(0, n, 0), anyEpoch)
		case messages.ModeSealed:
			_, err = g.r.AppendInternal(ctx, records(0, n, 0))
		case messages.ModeMirroring:
			_, err = g.r.AppendMirror(ctx, m.end, records(m.end, n, 1))
		}
		require.NoError(g.t, err)
		m.end += int64(n)
	}
}

func (g *rig) cut(rnd *rand.Rand, m *crashModel) {
	g.t.Helper()
	if m.mode == messages.ModeWritable || m.end == 0 {
		return
	}
	at := rnd.Int64N(m.end)
	fails := rnd.IntN(3) == 0
	g.log.beforeCut = func() error {
		if fails {
			return errFault
		}
		return nil
	}
	want := g.r.wholeBatches(at)
	_, err := g.r.Truncate(g.t.Context(), at, "test")
	g.log.beforeCut = nil
	if fails {
		require.ErrorIs(g.t, err, errFault)
		m.pending = want
		return
	}
	require.NoError(g.t, err)
	g.cutDone(m, want)
}

func (g *rig) cutDone(m *crashModel, end int64) {
	m.end, m.kept = end, min(m.kept, end)
	if m.seal >= 0 {
		m.seal = min(m.seal, end)
	}
}

// crash ends the process, sometimes the power, and opens the partition again.
func (g *rig) crash(rnd *rand.Rand, m *crashModel, seed uint64, step int) {
	g.t.Helper()
	g.kill()
	if rnd.IntN(2) == 0 {
		g.log.powerLoss()
		m.end = min(m.end, g.log.End())
	}
	g.open()
	if m.pending >= 0 {
		g.cutDone(m, min(m.end, m.pending))
		m.pending = -1
	}
	if m.seal >= 0 {
		m.seal = min(m.seal, m.end)
	}
	s := g.r.State()
	if s.End != m.end || s.End < m.kept || s.Mode != m.mode || s.LeaderEpoch != m.epoch {
		g.t.Fatalf("seed %d, step %d, after a crash: state %+v, want %+v", seed, step, s, *m)
	}
	require.NoError(g.t, g.r.Claim(g.t.Context(), m.epoch))
	if m.mode == messages.ModeSealed {
		require.Equal(g.t, m.seal, g.mode(messages.ModeSealed), "seed %d, step %d", seed, step)
	}
	if errors.Is(g.r.order.(*direct).failed, errFault) {
		g.t.Fatal("a failed cut outlived the crash")
	}
}
