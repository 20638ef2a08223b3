package persistence_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
	"kagami/persistence/faultfs"
	"kagami/persistence/logtest"
)

var compactSeeds = flag.Uint64("compact.seeds", 1, "histories of the compaction tests")

var compactConfig = persistence.Config{SegmentBytes: 900, IndexIntervalBytes: 100}

// compactHistory is a run of operations on a log that is compacted, beside one
// with the same history that never is.
type compactHistory struct {
	t       testing.TB
	rng     *rand.Rand
	keyed   *logtest.Keyed
	log     persistence.Log
	batches [][]byte
	start   int64
	cleaned int64
	durable int64 // what must survive a loss of power
	died    int64 // what must survive the death of the process
	what    string
	removed int64 // records
}

func newCompactHistory(tb testing.TB, rng *rand.Rand, l persistence.Log) *compactHistory {
	tb.Helper()
	return &compactHistory{t: tb, rng: rng, keyed: logtest.NewKeyed(rng), log: l}
}

func (h *compactHistory) end() int64 {
	if n := len(h.batches); n > 0 {
		hd, _ := batch.ParseHeader(h.batches[n-1])
		return hd.LastOffset() + 1
	}
	return h.start
}

// twin is the log as it would be without compaction, with the batches below end.
func (h *compactHistory) twin(end, start int64) persistence.Log {
	h.t.Helper()
	twin := persistence.NewMemoryLog(persistence.Info{}, compactConfig)
	for _, b := range h.batches {
		if hd, _ := batch.ParseHeader(b); hd.LastOffset() < end {
			_, err := twin.Append(b, persistence.AppendOptions{})
			require.NoError(h.t, err)
		}
	}
	require.NoError(h.t, twin.RaiseLogStart(start))
	return twin
}

func (h *compactHistory) policy() persistence.CompactionPolicy {
	p := persistence.CompactionPolicy{NowMillis: h.keyed.Now, DeleteRetentionMillis: 150, Force: true, HighWatermark: h.log.End()}
	if h.rng.IntN(3) == 0 {
		p.MinLagMillis = 40
	}
	return p
}

// step does one operation and returns its error.
func (h *compactHistory) step(kind int) (err error) {
	switch kind {
	case 0, 1, 2:
		h.what = "compact"
		var c persistence.Compaction
		c, err = h.log.Compact(h.t.Context(), h.policy())
		if err == nil {
			h.removed += c.Stats.Records - c.Stats.RecordsKept
		}
		h.cleaned = max(h.cleaned, c.CleanedTo)
		if err != nil { // it may have gone as far as it could
			h.cleaned = h.end()
		}
	case 3:
		h.what = "flush"
		end := h.end()
		if err = h.log.Flush(); err == nil {
			h.durable = end
		}
	case 4:
		to := h.start + h.rng.Int64N((h.end()-h.start)/4+1)
		h.what = fmt.Sprint("raise ", to)
		h.start = max(h.start, to)
		err = h.log.RaiseLogStart(to)
	default:
		h.what = "append"
		b := h.keyed.Batch(h.end())
		h.batches = append(h.batches, b)
		if _, err = h.log.Append(b, persistence.AppendOptions{CheckCRC: true}); err == nil {
			h.died = h.end()
		}
	}
	return err
}

func (h *compactHistory) check(strict bool) {
	h.t.Helper()
	got := h.log
	logtest.Compacted{Cleaned: h.cleaned, Strict: strict}.Check(h.t, h.twin(got.End(), got.LogStart()), got)
}

// TestCompactionRandom holds a compacted log against one that isn't, through clean
// and unclean restarts, on a disk and in memory.
func TestCompactionRandom(t *testing.T) {
	for seed := range 8 * *compactSeeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			fsys := faultfs.New()
			m, l, err := openCompact(t, fsys)
			require.NoError(t, err)
			rng := rand.New(rand.NewPCG(seed, 3))
			h := newCompactHistory(t, rng, l)
			for i := range 120 {
				require.NoError(t, h.step(rng.IntN(24)), h.what)
				if i%6 == 5 {
					h.check(false)
				}
				switch i % 40 {
				case 19:
					require.NoError(t, m.Close())
					m, h.log, err = openCompact(t, fsys)
				case 39:
					fsys = fsys.Restart(faultfs.LoseNothing, nil)
					m, h.log, err = openCompact(t, fsys)
				}
				require.NoError(t, err)
			}
			h.finish()
			require.Positive(t, h.removed)
			require.NoError(t, m.Close())
		})
	}
}

// finish ends what is open and cleans, behind every delete horizon, and looks that
// nothing is left that may go.
func (h *compactHistory) finish() {
	h.t.Helper()
	for range 3 {
		for range 20 {
			require.NoError(h.t, h.step(9))
		}
		if b := h.keyed.EndAll(h.end()); len(b) > 0 {
			h.batches = append(h.batches, logtest.Split(b)...)
			_, err := h.log.Append(b, persistence.AppendOptions{})
			require.NoError(h.t, err)
		}
		h.keyed.Now += 1000
		p := h.policy()
		p.MinLagMillis = 0
		c, err := h.log.Compact(h.t.Context(), p)
		require.NoError(h.t, err)
		require.Positive(h.t, c.Passes)
		h.removed += c.Stats.Records - c.Stats.RecordsKept
		h.cleaned = c.CleanedTo
		h.check(true)
	}
	h.sameProducers()
}

// sameProducers: whoever reads the compacted batches from the start, as a recovery or
// a new replica does, comes to the same producers.
func (h *compactHistory) sameProducers() {
	h.t.Helper()
	fresh := persistence.NewMemoryLog(persistence.Info{}, compactConfig)
	_, err := fresh.Append(logtest.Contents(h.t, h.log, 1<<20), persistence.AppendOptions{CheckCRC: true})
	require.NoError(h.t, err)
	known := map[int64]persistence.ProducerEntry{}
	for _, p := range fresh.Producers() {
		known[p.ProducerID] = p
	}
	for _, p := range h.log.Producers() {
		n := len(p.Batches)
		if n == 0 || p.Batches[n-1].LastOffset < h.log.LogStart() {
			continue
		}
		g := known[p.ProducerID].Batches
		require.NotEmpty(h.t, g, "producer %d", p.ProducerID)
		require.Equal(h.t, p.Batches[n-1].LastSequence, g[len(g)-1].LastSequence, "producer %d", p.ProducerID)
	}
}

func openCompact(tb testing.TB, fsys *faultfs.FS) (*persistence.Manager, persistence.Log, error) {
	tb.Helper()
	m, err := persistence.Open(tb.Context(), "/data", options(fsys))
	if err != nil {
		return nil, nil, err
	}
	l, err := m.Open(tb.Context(), crashTP, compactConfig)
	if errors.Is(err, persistence.ErrNotFound) {
		info := persistence.Info{TopicPartition: crashTP, Key: messages.PartitionKey{TopicID: messages.TopicID{9}, CreatedAt: 3}}
		l, err = m.Create(tb.Context(), info, compactConfig)
	}
	return m, l, err
}

// runCompactCrash runs one history until the crash, restarts, checks, cleans again
// and checks once more. It returns the number of effects.
func runCompactCrash(t *testing.T, seed uint64, at int, loss faultfs.Loss, again int) (effects int, removed int64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 5))
	chance := rand.New(rand.NewPCG(seed, uint64(at)))
	fsys := faultfs.New()
	fsys.CrashAt = at
	_, l, err := openCompact(t, fsys)
	h := newCompactHistory(t, rng, l)
	for i := 0; i < 60 && err == nil; i++ {
		kind := 9
		if i > 25 {
			kind = rng.IntN(12)
		}
		err = h.step(kind)
	}
	if err != nil {
		require.ErrorIs(t, err, faultfs.ErrCrashed, h.what)
	}
	effects = fsys.Effects()
	if again > 0 {
		fsys = fsys.Restart(loss, chance)
		fsys.CrashAt = again
		_, _, _ = openCompact(t, fsys)
	}
	fsys = fsys.Restart(loss, chance)
	_, l, err = openCompact(t, fsys)
	require.NoError(t, err, "after %s", h.what)
	floor := h.durable
	if loss == faultfs.LoseNothing {
		floor = h.died
	}
	require.GreaterOrEqual(t, l.End(), floor, "after %s", h.what)
	require.LessOrEqual(t, l.LogStart(), h.start)
	if l.End() == l.LogStart() {
		return effects, h.removed // nothing is left, the log start apart
	}
	h.log, h.start = l, l.LogStart()
	var kept [][]byte
	for _, b := range h.batches {
		if hd, _ := batch.ParseHeader(b); hd.LastOffset() < l.End() {
			kept = append(kept, b)
		}
	}
	h.batches = kept
	h.cleaned = min(h.cleaned, l.End())
	h.check(false)
	return effects, h.removed
}

// TestCompactionCrashAtEveryEffect: whatever effect is the last one before a crash,
// and whatever a loss of power takes of what wasn't synced, the log opens with every
// record that counts, and nothing twice or out of order.
func TestCompactionCrashAtEveryEffect(t *testing.T) {
	for _, loss := range []faultfs.Loss{faultfs.LoseNothing, faultfs.LoseUnsynced, faultfs.LoseSome} {
		t.Run(loss.String(), func(t *testing.T) {
			for seed := range *compactSeeds {
				total, removed := runCompactCrash(t, seed, 0, loss, 0)
				require.Positive(t, removed)
				for at := 1; at <= total; at++ {
					ok := t.Run(fmt.Sprintf("seed=%d/at=%d", seed, at), func(t *testing.T) {
						runCompactCrash(t, seed, at, loss, 0)
						if at%3 == 0 { // and another one during the recovery
							runCompactCrash(t, seed, at, loss, 1+at/3%19)
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
