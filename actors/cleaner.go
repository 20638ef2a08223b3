package actors

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"kagami/cluster"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// CleanableLog is a replica of a topic that is compacted; *cluster.Replica is one.
type CleanableLog interface {
	Key() messages.PartitionKey
	TopicPartition() messages.TopicPartition
	Log() persistence.Log
	Compact(ctx context.Context, p persistence.CompactionPolicy) (persistence.Compaction, error)
}

// CleanerConfig of NewCleaner. All fields are required.
type CleanerConfig struct {
	Node messages.NodeID
	// Each calls its argument with every replica to clean until that returns false.
	Each   func(f func(CleanableLog, cluster.CompactionSettings) bool)
	Static map[string]string // settings of the node's file
	Clock  clock.Clock
	Log    *zap.Logger
}

// Cleaner compacts the logs of a node, one after the other, in one goroutine, at most
// as fast as log.cleaner.io.max.bytes.per.second says. Every log.cleaner.backoff.ms it
// compares log ends with those of its last look: a log that nothing was appended to,
// whose configs are what they were, and that isn't due by time costs no more than that
// and isn't loaded. After a start, logs are looked at for the first time a few at a time.
type Cleaner struct {
	config  CleanerConfig
	log     *zap.Logger
	current atomic.Pointer[cleanerSettings]
	wake    chan struct{} // capacity 1
	looks   map[messages.PartitionKey]*cleanerLook
	cancel  context.CancelFunc
	done    sync.WaitGroup

	counts atomic.Pointer[CleanerCounts] // written by run alone
}

// CleanerCounts are what a [Cleaner] has done since its start, and what it found when it
// looked last.
type CleanerCounts struct {
	Cleaned           int64 // logs that were compacted
	BytesIn, BytesOut int64 // of segments: read, and kept
	Failures          int64
	LastMillis        int64   // when it had looked at all logs last, ms since the epoch; 0: never
	DirtyRatioMax     float64 // of a log whose configs let it be cleaned
	Uncleanable       int     // logs that failed, and are tried again later
}

// Counts may be called from any goroutine.
func (c *Cleaner) Counts() CleanerCounts { return *c.counts.Load() }

type cleanerSettings struct {
	enabled  bool
	backoff  time.Duration
	mapBytes int
	rate     float64 // bytes per second
}

// cleanerLook is what is remembered of a log.
type cleanerLook struct {
	round    uint64 // in which it was there
	looked   bool
	end      int64
	settings cluster.CompactionSettings
	next     int64 // ms, when it is due though nothing is appended; 0 = never
	failures int
	ratio    float64 // of what was dirty when it was looked at, and isn't clean since
}

const (
	// firstLooksMax is how many logs are looked at for the first time in one round:
	// that loads them, and after a start most have nothing to clean.
	firstLooksMax = 100
	cleanRetry    = time.Minute
	cleanRetryMax = time.Hour
)

// NewCleaner starts it; ctx carries values only, it runs until Close.
func NewCleaner(ctx context.Context, config CleanerConfig) *Cleaner {
	c := &Cleaner{config: config, log: config.Log.Named("cleaner"), wake: make(chan struct{}, 1), looks: map[messages.PartitionKey]*cleanerLook{}}
	c.counts.Store(&CleanerCounts{})
	c.Settle(metadata.EmptyImage())
	ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.done.Go(func() { c.run(ctx) })
	return c
}

// Settle takes the node's settings from an image. It doesn't block.
func (c *Cleaner) Settle(image *metadata.Image) {
	v := configs.BrokerValues(image.BrokerConfig(c.config.Node), c.config.Static)
	c.current.Store(&cleanerSettings{
		enabled: v.Bool(configs.CleanerEnable), backoff: time.Duration(v.Int64(configs.CleanerBackoff)) * time.Millisecond,
		mapBytes: int(min(v.Int64(configs.CleanerMapBytes), math.MaxInt)), rate: v.Float(configs.CleanerRate),
	})
	c.poke()
}

// Close ends the cleaning, in the middle of a log too, and waits for that. It may be
// called twice.
func (c *Cleaner) Close() {
	c.cancel()
	c.done.Wait()
}

func (c *Cleaner) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Cleaner) run(ctx context.Context) {
	for round := uint64(1); ; round++ {
		stop := c.config.Clock.AfterFunc(c.current.Load().backoff, c.poke)
		select {
		case <-ctx.Done():
			stop()
			return
		case <-c.wake:
			stop()
		}
		if c.current.Load().enabled {
			c.round(ctx, round)
		}
	}
}

type dueLog struct {
	log   CleanableLog
	look  *cleanerLook
	grown int64
	force bool
}

// round cleans what is due, what has grown most first.
func (c *Cleaner) round(ctx context.Context, round uint64) {
	due := c.due(round)
	slices.SortStableFunc(due, func(a, b dueLog) int { return cmp.Compare(b.grown, a.grown) })
	for _, d := range due {
		if ctx.Err() != nil {
			return
		}
		c.clean(ctx, d)
	}
	c.count(func(n *CleanerCounts) {
		n.LastMillis, n.DirtyRatioMax, n.Uncleanable = c.config.Clock.Now().UnixMilli(), 0, 0
		for _, look := range c.looks {
			n.DirtyRatioMax = max(n.DirtyRatioMax, look.ratio)
			if look.failures > 0 {
				n.Uncleanable++
			}
		}
	})
}

func (c *Cleaner) count(f func(n *CleanerCounts)) {
	next := *c.counts.Load()
	f(&next)
	c.counts.Store(&next)
}

func (c *Cleaner) due(round uint64) (due []dueLog) {
	now, firsts := c.config.Clock.Now().UnixMilli(), 0
	c.config.Each(func(l CleanableLog, s cluster.CompactionSettings) bool {
		look := c.looks[l.Key()]
		if look == nil {
			look = &cleanerLook{settings: s}
			c.looks[l.Key()] = look
		}
		look.round = round
		end, byTime := l.Log().End(), look.next > 0 && now >= look.next
		changed := look.settings != s
		look.settings = s
		switch {
		case l.Log().SizeBytes() == 0:
		case !look.looked && firsts >= firstLooksMax:
		case look.failures > 0 && !byTime && !changed:
		case !look.looked, changed, byTime, end != look.end:
			if !look.looked {
				firsts++
			}
			due = append(due, dueLog{log: l, look: look, grown: end - look.end, force: s.MirrorStates && (byTime || changed)})
		}
		return true
	})
	for key, look := range c.looks {
		if look.round != round {
			delete(c.looks, key) // deleted, or no longer compacted
		}
	}
	return due
}

func (c *Cleaner) clean(ctx context.Context, d dueLog) {
	now, settings := c.config.Clock.Now(), c.current.Load()
	end := d.log.Log().End()
	p := d.look.settings.Policy()
	p.NowMillis, p.MapBytes, p.Force, p.Pace = now.UnixMilli(), settings.mapBytes, d.force, c.pace
	done, err := d.log.Compact(ctx, p)
	look := d.look
	look.looked, look.end, look.next = true, end, done.NextDue
	c.count(func(n *CleanerCounts) {
		n.BytesIn, n.BytesOut = n.BytesIn+done.Stats.Bytes, n.BytesOut+done.Stats.BytesKept
	})
	switch {
	case err == nil:
		look.failures, look.ratio = 0, done.DirtyRatio
		if done.Passes > 0 {
			look.ratio = 0
			c.count(func(n *CleanerCounts) { n.Cleaned++ })
		}
	case ctx.Err() != nil, errors.Is(err, cluster.ErrClosed), errors.Is(err, persistence.ErrClosed), errors.Is(err, messages.ErrNotLeader):
		look.looked = false // closed, or behind its journal: later
	default:
		look.next = now.Add(min(cleanRetry<<min(look.failures, 10), cleanRetryMax)).UnixMilli()
		look.failures++
		c.count(func(n *CleanerCounts) { n.Failures++ })
		c.log.Error("log isn't compacted, tried again later", zap.String(messages.FieldTopic, d.log.TopicPartition().Topic),
			zap.Int32(messages.FieldPartition, d.log.TopicPartition().Partition), zap.Int64("next_try", look.next), zap.Error(err))
	}
}

// pace holds up the work after bytes were read or written.
func (c *Cleaner) pace(ctx context.Context, bytes int) error {
	pause := float64(bytes) / c.current.Load().rate * float64(time.Second)
	if pause < float64(time.Microsecond) {
		return context.Cause(ctx)
	}
	return c.config.Clock.Sleep(ctx, time.Duration(min(pause, float64(time.Hour))))
}
