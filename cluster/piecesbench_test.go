package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkStreamPieces is the time until 1 MiB has come back, sent as one message and
// as pieces one behind the other, in turns: their ratio is what counts. Every write is
// synced, as in a cluster by default.
func BenchmarkStreamPieces(b *testing.B) {
	c := startTestCluster(b, 3, func(o *ServerOptions) { o.Cluster.SyncInterval = 0 })
	var of []*Stream
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	come := make(chan struct{}, 64)
	var following sync.WaitGroup
	for id := range c.peers {
		st, err := openTestStreams(b, c.servers[id], nil).Open(testContext(b), "0", 3)
		require.NoError(b, err)
		tell := func(uint64, []byte) error { return nil }
		if of = append(of, st); len(of) == 1 {
			tell = func(uint64, []byte) error { come <- struct{}{}; return nil }
		}
		following.Go(func() { _ = st.Follow(ctx, 1, tell) })
	}
	number := 0
	send := func(pieces int) time.Duration {
		payload := make([]byte, 1<<20/pieces)
		begun := time.Now()
		for range pieces {
			number++
			of[0].Publish(fmt.Sprint(number), payload, func(_ uint64, err error) {
				if err != nil {
					b.Error(err)
				}
			})
		}
		for range pieces {
			<-come
		}
		return time.Since(begun)
	}
	for range 5 {
		send(1)
	}
	took, cpu := map[int][]time.Duration{}, map[int]time.Duration{}
	for b.Loop() {
		for _, pieces := range []int{1, 4, 16} {
			before := cpuTime()
			took[pieces] = append(took[pieces], send(pieces))
			cpu[pieces] += cpuTime() - before
		}
	}
	for pieces, all := range took {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), fmt.Sprintf("p50-us/%d", pieces))
		b.ReportMetric(cpu[pieces].Seconds()/(float64(len(all))*(1<<20)/1e9), fmt.Sprintf("cpu-s/GB/%d", pieces))
	}
	cancel()
	following.Wait()
}
