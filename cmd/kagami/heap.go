package main

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"kagami/internal/clock"
)

const (
	// heapRoom is how much may be allocated between two collections while the node
	// is busy. Mirroring allocates what it fetches and keeps little: with Go's
	// default a node of a few partitions collects every few responses.
	heapRoom = 96 << 20
	// heapTick is how often the collector is looked at, heapCalm after how long
	// without a collection the node counts as idle again.
	heapTick = 250 * time.Millisecond
	heapCalm = 5 * time.Second

	percentDefault = 100
	percentMax     = 2000
)

// heapPercent is the GOGC value that lets live bytes of heap grow by heapRoom,
// never below Go's default.
func heapPercent(live uint64) int {
	if live == 0 {
		return percentMax
	}
	return int(min(percentMax, max(percentDefault, math.Ceil(heapRoom*100/float64(live)))))
}

// heapKeeper gives the collector room while the node is busy, and takes it back,
// with the memory, when it is idle.
type heapKeeper struct {
	read   func() (cycles, live uint64)
	set    func(percent int)
	settle func()

	cycles uint64
	last   time.Time // of the last collection seen
	roomy  bool
}

// keepHeap runs a heapKeeper until stop, unless the user has set GOGC.
func keepHeap(ctx context.Context, c clock.Clock) (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	k := &heapKeeper{read: readHeap, set: func(p int) { debug.SetGCPercent(p) }, settle: runtime.GC}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for c.Sleep(ctx, heapTick) == nil {
			k.tick(c.Now())
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

func (k *heapKeeper) tick(now time.Time) {
	cycles, live := k.read()
	seen := cycles - k.cycles
	k.cycles = cycles
	switch {
	case seen > 1 || (k.roomy && seen > 0):
		k.last, k.roomy = now, true
		k.set(heapPercent(live))
	case k.roomy && now.Sub(k.last) >= heapCalm:
		k.roomy = false
		k.set(percentDefault)
		k.settle()
		k.cycles, _ = k.read()
	}
}

func readHeap() (cycles, live uint64) {
	s := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64(), s[1].Value.Uint64()
}
