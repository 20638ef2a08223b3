package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/kafka"
)

// cutGroup is a group of consumers that moves from A to B. Its fields belong to its own
// goroutine while it runs.
type cutGroup struct {
	name      string
	opts      []kgo.Opt
	read      map[int32]int64 // by partition, the offset behind the last record read
	committed map[int32]int64 // what A acknowledged
	seen      map[int32]map[int64]bool
	err       error
}

// work reads and commits on A until ctx ends. Every third poll isn't committed, so that
// what is read runs ahead.
func (g *cutGroup) work(ctx context.Context, bootstrap string) {
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ConsumerGroup(g.name), kgo.ConsumeTopics("cut"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RetryTimeout(2 * time.Second), // of saying good-bye to a cluster that is dead
	}, g.opts...)...)
	if err != nil {
		g.err = err
		return
	}
	defer cl.Close()
	for n := 0; ctx.Err() == nil; n++ {
		records := cl.PollRecords(ctx, 200).Records()
		for _, r := range records {
			g.note(r)
		}
		if n%3 == 2 || len(records) == 0 || cl.CommitRecords(ctx, records...) != nil {
			continue
		}
		for _, r := range records {
			g.committed[r.Partition] = max(g.committed[r.Partition], r.Offset+1)
		}
	}
}

func (g *cutGroup) note(r *kgo.Record) {
	g.read[r.Partition] = max(g.read[r.Partition], r.Offset+1)
	if g.seen[r.Partition] == nil {
		g.seen[r.Partition] = map[int64]bool{}
	}
	g.seen[r.Partition][r.Offset] = true
}

// goOn reads on B up to the ends. It returns where each partition went on, and how many
// records were read a second time.
func (g *cutGroup) goOn(ctx context.Context, bootstrap string, ends map[int32]int64) (first map[int32]int64, repeated int, err error) {
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ConsumerGroup(g.name), kgo.ConsumeTopics("cut"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords(),
	}, g.opts...)...)
	if err != nil {
		return nil, 0, err
	}
	defer cl.CloseAllowingRebalance()
	first = map[int32]int64{}
	at := map[int32]int64{}
	done := func() bool {
		for p, end := range ends {
			if at[p] < end {
				return false
			}
		}
		return true
	}
	for !done() {
		f := cl.PollFetches(ctx)
		if err := errors.Join(ctx.Err(), f.Err()); err != nil {
			return first, repeated, fmt.Errorf("group %s on B, at %v of %v: %w", g.name, at, ends, err)
		}
		f.EachRecord(func(r *kgo.Record) {
			if _, ok := first[r.Partition]; !ok {
				first[r.Partition] = r.Offset
			}
			at[r.Partition] = r.Offset + 1
			if r.Attrs.IsControl() {
				return
			}
			if g.seen[r.Partition][r.Offset] {
				repeated++
			}
			g.note(r)
		})
	}
	return first, repeated, nil
}

// TestCutOver: twenty groups of both protocols work on A under load when it dies. After
// the stop they go on on B, at or before their last commit, and never behind what they
// had read: nothing is left out.
func TestCutOver(t *testing.T) {
	kafka.Require(t)
	source := kafka.Start(t, kafka.Options{})
	w := newWorldOf(t, source, NodeOptions{Properties: quickGroups(map[string]string{"mirror.metadata.refresh.interval.ms": "1000"})})
	w.topic("cut", 4, 1)
	w.create("m")
	w.start("m", "cut")
	load, err := StartLoad(source.Bootstrap(), LoadOptions{Topics: []string{"cut"}, Size: 50, Pause: 5 * time.Millisecond, Client: []kgo.Opt{kgo.DisableIdempotentWrite(), kgo.RecordRetries(2)}})
	require.NoError(t, err)
	working, dead := context.WithCancel(w.ctx)
	defer dead()
	var running sync.WaitGroup
	var all []*cutGroup
	for i := range 20 {
		g := &cutGroup{name: fmt.Sprintf("cut-%02d", i), read: map[int32]int64{}, committed: map[int32]int64{}, seen: map[int32]map[int64]bool{}}
		if i%2 == 1 {
			g.opts = []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.CooperativeStickyBalancer())}
		}
		all = append(all, g)
		running.Go(func() { g.work(working, source.Bootstrap()) })
	}
	// Every group has offsets on B before A dies, and the load goes on for a while.
	require.NoError(t, kafka.Poll(w.ctx, func() error {
		for _, g := range all {
			got, err := committedOn(w.ctx, w.b, g.name)
			if err != nil || len(got) == 0 {
				return fmt.Errorf("group %s has no offsets on B: %w", g.name, errors.Join(err, errNothingYet))
			}
		}
		return nil
	}))
	at := load.Acked()
	require.NoError(t, kafka.Poll(w.ctx, func() error {
		if load.Acked() < at+2000 {
			return fmt.Errorf("%d records written: %w", load.Acked(), errNothingYet)
		}
		return nil
	}))
	require.NoError(t, source.Kill(1))
	t.Logf("A is dead after %d records", load.Acked())
	dead()
	running.Wait()
	t.Log("the groups have ended there")
	_ = load.Stop() // what wasn't acknowledged is lost with A
	w.run("--stop", "--mirror", "m", "--topics", "cut")
	w.await("m", "STOPPED", "cut")
	topicEnds, err := w.b.TopicEnds(w.ctx, "cut")
	require.NoError(t, err)
	ends, written := map[int32]int64{}, int64(0)
	for p, e := range topicEnds {
		ends[p] = e.End
		written += e.End
	}
	total, most := 0, 0
	for _, g := range all {
		require.NoError(t, g.err)
		first, repeated, err := g.goOn(w.ctx, w.node.Bootstrap(), ends)
		require.NoError(t, err)
		for p, end := range ends {
			if c, ok := g.committed[p]; ok {
				require.LessOrEqual(t, first[p], c, "group %s goes on behind its last commit on partition %d", g.name, p)
			}
			require.LessOrEqual(t, first[p], g.read[p], "group %s leaves records of partition %d out", g.name, p)
			for o := range end {
				require.True(t, g.seen[p][o] || o == end-1, "group %s never read %d of partition %d", g.name, o, p) // the last one is MIRROR_PID_RESET
			}
		}
		total, most = total+repeated, max(most, repeated)
	}
	t.Logf("%d offsets on B; %d groups read %d records a second time, one at most %d", written, len(all), total, most)
}

var errNothingYet = errors.New("nothing yet")
