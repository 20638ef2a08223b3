package cluster

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkStreamOwn is from publish to the author's own follower, three servers
// on this machine. With one in flight it is the latency (p50, p99 are reported),
// with 2 MiB in flight the throughput.
func BenchmarkStreamOwn(b *testing.B) {
	for _, tc := range []struct{ bytes, inFlight int }{{1 << 10, 1}, {64 << 10, 1}, {64 << 10, 32}, {256 << 10, 8}} {
		b.Run(fmt.Sprintf("payload=%dKiB/inflight=%d", tc.bytes>>10, tc.inFlight), func(b *testing.B) {
			c := startTestCluster(b, 3, nil)
			s := openTestStreams(b, c.servers[1], nil)
			st, err := s.Open(testContext(b), "0", 3)
			require.NoError(b, err)
			publishSafely(b, st, "first") // what takes messages isn't known here at once
			payload := make([]byte, tc.bytes)
			ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
			credits := make(chan struct{}, 2*tc.inFlight)
			for range tc.inFlight {
				credits <- struct{}{}
			}
			var following, acknowledged sync.WaitGroup
			following.Go(func() {
				_ = st.Follow(ctx, 2, func(uint64, []byte) error { credits <- struct{}{}; return nil })
			})
			publish := func(i int) {
				<-credits
				acknowledged.Add(1)
				st.Publish(fmt.Sprintf("id%d", i), payload, func(_ uint64, err error) {
					defer acknowledged.Done()
					if err != nil {
						b.Error(err)
						credits <- struct{}{} // it may never come
					}
				})
			}
			for i := range 50 {
				publish(-1 - i)
			}
			var took []time.Duration
			var n int
			cpu := cpuTime()
			b.SetBytes(int64(tc.bytes))
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				publish(n)
				n++
				took = append(took, time.Since(start))
			}
			for range tc.inFlight {
				<-credits
			}
			acknowledged.Wait() // an own message may come before its acknowledgement
			b.ReportMetric((cpuTime()-cpu).Seconds()/(float64(n*tc.bytes)/1e9), "cpu-s/GB")
			slices.Sort(took)
			if tc.inFlight == 1 { // each waits for the one before
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
			}
			cancel()
			following.Wait()
		})
	}
}

// BenchmarkStreamsIdle is what 17 streams of three replicas cost three servers
// and their 51 followers while nothing is written: CPU time per second and
// memory, all three nodes together.
func BenchmarkStreamsIdle(b *testing.B) {
	c := startTestCluster(b, 3, nil)
	base := heap()
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	var following sync.WaitGroup
	for _, srv := range c.servers {
		s := openTestStreams(b, srv, func(o *StreamsOptions) { o.CheckInterval = 2 * time.Second })
		for i := range 17 {
			st, err := s.Open(testContext(b), fmt.Sprint(i), 3)
			require.NoError(b, err)
			following.Go(func() { _ = st.Follow(ctx, 1, func(uint64, []byte) error { return nil }) })
		}
	}
	time.Sleep(3 * time.Second)
	start, cpu := time.Now(), cpuTime()
	for b.Loop() {
		time.Sleep(5 * time.Second)
	}
	b.ReportMetric(100*(cpuTime()-cpu).Seconds()/time.Since(start).Seconds(), "cpu-%")
	b.ReportMetric(float64(heap()-base)/(1<<20), "heap-MiB")
	b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
	cancel()
	following.Wait()
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
