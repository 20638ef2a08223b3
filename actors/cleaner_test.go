package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/cluster"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/configs"
	"kagami/persistence"
	"kagami/persistence/compact"
	"kagami/persistence/metadata"
)

// cleanLog is a log that says when it is asked to compact.
type cleanLog struct {
	persistence.Log
	key messages.PartitionKey

	work   int // bytes
	worked chan time.Time

	mu     sync.Mutex
	seen   []persistence.CompactionPolicy
	answer persistence.Compaction
	err    error
}

// looks is how it was looked at.
func (l *cleanLog) looks() []persistence.CompactionPolicy {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.seen)
}

// answers from now on.
func (l *cleanLog) answers(c persistence.Compaction, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer, l.err = c, err
}

func newCleanLog(tb testing.TB, id byte) *cleanLog {
	tb.Helper()
	l := &cleanLog{Log: persistence.NewMemoryLog(persistence.Info{}, persistence.Config{}), key: messages.PartitionKey{TopicID: messages.TopicID{id}}}
	l.grow(tb)
	return l
}

func (l *cleanLog) grow(tb testing.TB) {
	tb.Helper()
	b := batch.Single(1, []byte("k"), []byte("v"))
	batch.SetOffsetAndEpoch(b, l.End(), 0)
	_, err := l.Append(b, persistence.AppendOptions{})
	require.NoError(tb, err)
}

// cleanable is its replica.
type cleanable struct{ *cleanLog }

func (c cleanable) Key() messages.PartitionKey { return c.key }

func (c cleanable) TopicPartition() messages.TopicPartition {
	return messages.TopicPartition{Topic: fmt.Sprint("t", c.key.TopicID[0])}
}

func (c cleanable) Log() persistence.Log { return c.cleanLog.Log }

func (l *cleanLog) Compact(ctx context.Context, p persistence.CompactionPolicy) (persistence.Compaction, error) {
	l.mu.Lock()
	l.seen = append(l.seen, p)
	answer, err := l.answer, l.err
	l.mu.Unlock()
	if l.work > 0 {
		if err := p.Pace(ctx, l.work); err != nil {
			return persistence.Compaction{}, err
		}
		l.worked <- time.Now()
	}
	return answer, err
}

// cleanerWorld is a cleaner and its logs.
type cleanerWorld struct {
	*Cleaner
	mu       sync.Mutex
	logs     []CleanableLog
	settings cluster.CompactionSettings
}

func newCleanerWorld(t *testing.T, static map[string]string, logs ...*cleanLog) *cleanerWorld {
	t.Helper()
	w := &cleanerWorld{}
	for _, l := range logs {
		w.logs = append(w.logs, cleanable{l})
	}
	w.Cleaner = NewCleaner(t.Context(), CleanerConfig{Node: 1, Each: w.each, Static: static, Clock: clock.Wall{}, Log: zap.NewNop()})
	t.Cleanup(w.Close)
	return w
}

func (w *cleanerWorld) each(f func(CleanableLog, cluster.CompactionSettings) bool) {
	w.mu.Lock()
	logs, s := slices.Clone(w.logs), w.settings
	w.mu.Unlock()
	for _, l := range logs {
		if !f(l, s) {
			return
		}
	}
}

// TestCleanerLooks: a log is looked at once, and again when it has grown, its configs
// have changed, or its time has come; an idle one never.
func TestCleanerLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCleanLog(t, 1), newCleanLog(t, 2)
		w := newCleanerWorld(t, nil, a, b)
		round := func() { time.Sleep(15 * time.Second); synctest.Wait() }
		counts := func() []int { return []int{len(a.looks()), len(b.looks())} }
		synctest.Wait()
		require.Equal(t, []int{1, 1}, counts())
		round()
		require.Equal(t, []int{1, 1}, counts())
		a.grow(t)
		round()
		require.Equal(t, []int{2, 1}, counts())
		w.mu.Lock()
		w.settings.MinDirtyRatio = 0.1
		w.mu.Unlock()
		round()
		require.Equal(t, []int{3, 2}, counts())
		require.InDelta(t, 0.1, a.looks()[2].MinDirtyRatio, 0)
		b.grow(t)
		b.answers(persistence.Compaction{NextDue: time.Now().Add(time.Hour).UnixMilli()}, nil)
		round()
		require.Equal(t, []int{3, 3}, counts())
		b.answers(persistence.Compaction{}, nil)
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		require.Equal(t, []int{3, 3}, counts())
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, []int{3, 4}, counts())
		w.mu.Lock()
		w.logs = w.logs[1:]
		w.mu.Unlock()
		round()
		require.Len(t, w.looks, 1, "a log that is gone is forgotten")
	})
}

// TestCleanerFailures: a log that fails is tried again later and later, and costs the
// others nothing.
func TestCleanerFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, good := newCleanLog(t, 1), newCleanLog(t, 2)
		bad.answers(persistence.Compaction{}, errors.New("damaged"))
		newCleanerWorld(t, nil, bad, good)
		for range 40 { // ten minutes
			bad.grow(t)
			good.grow(t)
			time.Sleep(15 * time.Second)
			synctest.Wait()
		}
		require.InDelta(t, 41, len(good.looks()), 1)
		require.InDelta(t, 4, len(bad.looks()), 1)
	})
}

// TestCleanerCounts: what the cleaner tells of itself.
func TestCleanerCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, dirty, good := newCleanLog(t, 1), newCleanLog(t, 2), newCleanLog(t, 3)
		bad.answers(persistence.Compaction{}, errors.New("damaged"))
		dirty.answers(persistence.Compaction{DirtyRatio: 0.25}, nil)
		good.answers(persistence.Compaction{Passes: 1, DirtyRatio: 0.75, Stats: compact.Stats{Bytes: 100, BytesKept: 30}}, nil)
		w := newCleanerWorld(t, nil, bad, dirty, good)
		synctest.Wait()
		require.Equal(t, CleanerCounts{Cleaned: 1, BytesIn: 100, BytesOut: 30, Failures: 1, LastMillis: time.Now().UnixMilli(), DirtyRatioMax: 0.25, Uncleanable: 1}, w.Counts())
		bad.answers(persistence.Compaction{}, nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Zero(t, w.Counts().Uncleanable)
	})
}

// TestCleanerPace: work goes as fast as the node's config says, and ends with the cleaner.
func TestCleanerPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newCleanLog(t, 1)
		l.work, l.worked = 10<<20, make(chan time.Time, 2)
		w := newCleanerWorld(t, map[string]string{configs.CleanerRate: "1048576"}, l)
		began := time.Now()
		require.Equal(t, 10*time.Second, (<-l.worked).Sub(began))
		l.grow(t)
		time.Sleep(16 * time.Second)
		w.Close()
		require.Equal(t, 26*time.Second, time.Since(began))
	})
}

// TestCleanerStartsSlowly: after a start idle logs are looked at, and so loaded, a few
// at a time; log.cleaner.enable=false looks at none.
func TestCleanerStartsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs []*cleanLog
		for i := range 250 {
			l := newCleanLog(t, byte(i))
			l.key.Partition = int32(i)
			logs = append(logs, l)
		}
		looks := func() (n int) {
			for _, l := range logs {
				n += len(l.looks())
			}
			return n
		}
		off := newCleanerWorld(t, map[string]string{configs.CleanerEnable: "false"}, logs...)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Zero(t, looks())
		off.Close()
		w := newCleanerWorld(t, nil, logs...)
		synctest.Wait()
		require.Equal(t, 100, looks())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 250, looks())
		w.Settle(metadata.EmptyImage())
		synctest.Wait()
		require.Equal(t, 250, looks())
	})
}
