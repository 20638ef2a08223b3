package logtest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages/batch"
	"kagami/persistence"
)

// Script makes the changes of a random history: what a mirror and clients do to
// a log, in an order that no one would think of.
type Script struct {
	rng   *rand.Rand
	epoch int32
	seq   map[int64]int32
	open  map[int64]bool
	now   int64
}

// NewScript starts a history.
func NewScript(rng *rand.Rand) *Script {
	return &Script{rng: rng, seq: make(map[int64]int32), open: make(map[int64]bool), now: 1000}
}

// Batches makes one to four batches that fit at end.
func (s *Script) Batches(end int64) []byte {
	var out []byte
	for range 1 + s.rng.IntN(4) {
		b := s.batch(end)
		h, err := batch.ParseHeader(b)
		if err != nil {
			panic(err) // only what Build makes comes here
		}
		out, end = append(out, b...), h.LastOffset()+1
	}
	return out
}

func (s *Script) batch(end int64) []byte {
	if s.rng.IntN(12) == 0 {
		s.epoch++
	}
	if s.rng.IntN(10) == 0 {
		end += int64(s.rng.IntN(20))
	}
	s.now += int64(s.rng.IntN(30)) - 8
	pid := int64(1 + s.rng.IntN(4))
	switch k := s.rng.IntN(20); {
	case k == 0:
		clear(s.seq)
		clear(s.open)
		return marker(batch.MirrorPIDReset(s.epoch, s.now, "source"), end, s.epoch)
	case k < 4 && s.open[pid]:
		s.open[pid] = false
		if k == 1 {
			return marker(batch.CommitMarker(pid, 0, 1, s.now), end, s.epoch)
		}
		return marker(batch.AbortMarker(pid, 0, 1, s.now), end, s.epoch)
	}
	spec := Spec{Base: end, Count: 1 + s.rng.IntN(5), Epoch: s.epoch, Time: s.now, Value: fmt.Sprint(s.rng.Int64())}
	switch s.rng.IntN(3) {
	case 0:
		spec.Producer, spec.Seq, spec.Txn = pid, s.seq[pid], true
		s.open[pid] = true
		s.seq[pid] += int32(spec.Count)
	case 1:
		pid += 10
		spec.Producer, spec.Seq = pid, s.seq[pid]
		s.seq[pid] += int32(spec.Count)
	}
	if s.rng.IntN(8) == 0 {
		spec.Delta = spec.Count + s.rng.IntN(3)
	}
	return Build(spec)
}

// Step makes one random change to both logs. It returns what it did.
func (s *Script) Step(tb testing.TB, logs ...persistence.Log) string {
	tb.Helper()
	l := logs[0]
	start, end := l.LogStart(), l.End()
	within := start + s.rng.Int64N(end-start+1)
	what, do := s.pick(tb, start, end, within)
	for _, l := range logs {
		require.NoError(tb, do(l), what)
	}
	return what
}

func (s *Script) pick(tb testing.TB, start, end, within int64) (string, func(persistence.Log) error) {
	tb.Helper()
	switch s.rng.IntN(25) {
	case 0:
		to := end - s.rng.Int64N(min(end-start, 30)+1)
		return fmt.Sprint("truncate ", to), func(l persistence.Log) error { _, err := l.Truncate(to); return err }
	case 1:
		return fmt.Sprint("truncate ", within), func(l persistence.Log) error { _, err := l.Truncate(within); return err }
	case 2:
		if s.rng.IntN(4) > 0 {
			break
		}
		return "restart", func(l persistence.Log) error { _, err := l.RestartAt(end + 7); return err }
	case 3:
		return fmt.Sprint("raise ", within), func(l persistence.Log) error { return l.RaiseLogStart(within) }
	case 7:
		return "roll", func(l persistence.Log) error { return l.Roll() }
	case 4:
		return "flush", func(l persistence.Log) error { return l.Flush() }
	case 5:
		p := persistence.RetentionPolicy{NowMillis: s.now, Millis: -1, Bytes: 6000, HighWatermark: end}
		return "retain by size", func(l persistence.Log) error { _, err := l.ApplyRetention(tb.Context(), p); return err }
	case 6:
		p := persistence.RetentionPolicy{NowMillis: s.now + 1000, Millis: 1100, Bytes: -1, HighWatermark: end}
		return "retain by time", func(l persistence.Log) error { _, err := l.ApplyRetention(tb.Context(), p); return err }
	}
	b := s.Batches(end)
	return fmt.Sprintf("append %d bytes at %d", len(b), end), func(l persistence.Log) error {
		_, err := l.Append(b, persistence.AppendOptions{CheckCRC: true})
		return err
	}
}

// testRandom holds a log against the memory twin through a random history with
// clean and unclean restarts.
func testRandom(t *testing.T, h Harness) {
	t.Helper()
	for seed := range uint64(3) {
		b := newBench(t, h, persistence.Config{SegmentBytes: 1500, IndexIntervalBytes: 150, SegmentMillis: 2000})
		twin := persistence.NewMemoryLog(persistence.Info{}, b.cfg)
		script := NewScript(rand.New(rand.NewPCG(seed, 1)))
		var history []string
		ok := false
		defer func() {
			if !ok {
				t.Logf("seed %d, history: %q", seed, history)
			}
		}()
		for i := range 150 {
			history = append(history, script.Step(t, twin, b.log))
			switch {
			case i%20 == 19:
				history = append(history, "crash")
				b.crash()
			case i%30 == 29:
				history = append(history, "reopen")
				b.reopen()
			}
			if i%5 == 4 {
				Compare(t, twin, b.log)
			}
		}
		ok = true
		require.NoError(t, b.s.Delete(t.Context(), b.tp))
		require.NoError(t, b.s.Close())
	}
}
