package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// txnKills is how often TestTxnExactlyOnceUnderKill kills the node.
func txnKills() int {
	if n, err := strconv.Atoi(os.Getenv("KAGAMI_TXN_KILLS")); err == nil {
		return n
	}
	return 3
}

// transformer copies "in" to "out" in transactions of a group until ctx ends. What
// fails is begun anew, as an application does.
func transformer(ctx context.Context, addr, id string, errs *atomic.Int64) {
	for ctx.Err() == nil {
		s, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(addr), kgo.TransactionalID(id), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("in"),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6*time.Second),
			kgo.HeartbeatInterval(500*time.Millisecond), kgo.TransactionTimeout(20*time.Second), kgo.FetchMaxWait(200*time.Millisecond))
		if err != nil {
			return
		}
		for n := 0; ctx.Err() == nil; n++ {
			fetches := s.PollRecords(ctx, 20)
			if fetches.NumRecords() == 0 {
				continue
			}
			if err := s.Begin(); err != nil {
				break
			}
			written := kgo.AbortingFirstErrPromise(s.Client())
			fetches.EachRecord(func(r *kgo.Record) {
				s.Produce(ctx, &kgo.Record{Topic: "out", Key: r.Value, Value: fmt.Appendf(nil, "%d/%d", r.Partition, r.Offset)}, written.Promise())
			})
			commit := written.Err() == nil && n%5 != 4
			if _, err := s.End(ctx, kgo.TransactionEndTry(commit)); err != nil {
				errs.Add(1)
				break
			}
		}
		s.Close()
	}
}

// TestTxnExactlyOnceUnderKill: two transactional producers of one group consume,
// transform and produce while the node is killed again and again: what committed
// readers see is each input once.
func TestTxnExactlyOnceUnderKill(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	dir, addr := filepath.Join(t.TempDir(), "data"), testAddress(t)
	start := func() *child {
		return startChild(t, dir, noDelay, "transaction.state.log.num.partitions=3", "listeners=PLAINTEXT://"+addr)
	}
	node := start()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer cl.Close()
	created, err := kadm.NewClient(cl).CreateTopics(ctx, 4, 1, nil, "in", "out")
	require.NoError(t, err)
	require.NoError(t, created.Error())
	working, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	var errs atomic.Int64
	for i := range 2 {
		running.Go(func() { transformer(working, addr, fmt.Sprintf("t%d", i), &errs) })
	}
	defer running.Wait()
	defer stop()
	count := 0
	feed := func(records int) {
		t.Helper()
		for range records {
			r := &kgo.Record{Topic: "in", Partition: int32(count % 4), Value: fmt.Appendf(nil, "%d", count)}
			require.NoError(t, cl.ProduceSync(ctx, r).FirstErr())
			count++
		}
	}
	seen := map[string]int{}
	reader, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics("out"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer reader.Close()
	read := func() {
		polling, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		reader.PollFetches(polling).EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++ })
	}
	for range txnKills() {
		feed(60)
		at := len(seen)
		await(t, "work", func() error {
			if read(); len(seen) == at {
				return fmt.Errorf("%d records came out", at)
			}
			return nil
		})
		require.NoError(t, node.cmd.Process.Kill())
		node.ended <- <-node.ended
		node = start()
	}
	feed(20)
	await(t, "all of it", func() error {
		if read(); len(seen) < count {
			return fmt.Errorf("%d of %d came out, %d ends failed", len(seen), count, errs.Load())
		}
		return nil
	})
	read()
	for value, times := range seen {
		require.Equal(t, 1, times, value)
	}
	require.Len(t, seen, count)
}
