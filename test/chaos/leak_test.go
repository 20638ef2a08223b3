package chaos

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/test/e2e"
)

var heapObjects = regexp.MustCompile(`(?m)^# HeapInuse = (\d+)`)

// heap is what a node's heap holds after a collection, in bytes.
func (w *world) heap(c *cluster) int64 {
	w.t.Helper()
	body, err := c.node.Get(w.ctx, "/debug/pprof/heap?gc=1&debug=1")
	require.NoError(w.t, err)
	m := heapObjects.FindSubmatch(body)
	require.NotNil(w.t, m, "%s", body)
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	require.NoError(w.t, err)
	return n
}

// TestNothingGrows goes through the life of a mirror again and again in one process:
// goroutines, files and heap are what they were.
func TestNothingGrows(t *testing.T) {
	const heapSlack = 8 << 20                                   // caches, pools, records of __mirror_state
	big := map[string]string{"log.segment.bytes": "1073741824"} // so that the files of a log stay the same
	a, b := startCluster(t, "A", big), startCluster(t, "B", big)
	w := single(t, b, a)
	for range 4 {
		require.NoError(t, w.newTopic("t", 5))
	}
	names := w.names("t")
	cycle := func() {
		w.poll(settleWithin, "mirror", w.create)
		w.normalise()
		for _, name := range names {
			require.NoError(t, e2e.Produce(t.Context(), a.node.Bootstrap(), name, e2e.Records{Count: 20}, wholeInSegment))
		}
		w.poll(settleWithin, "mirroring", w.mirroring)
		w.fault(Reset)
		w.fault(Open)
		for _, what := range []string{"pause", "resume"} {
			for _, name := range names {
				ctx, cancel := w.short()
				require.NoError(t, w.request(ctx, what, name))
				cancel()
			}
		}
		ctx, cancel := w.short()
		defer cancel()
		require.NoError(t, w.alterBootstrap(ctx, true))
		w.poll(settleWithin, "mirroring", w.mirroring)
		w.poll(stopWithin, "stopped", func(ctx context.Context) error {
			res, err := b.adm.StopMirrorTopics(ctx, mirror, names, pattern)
			return errors.Join(err, res.Err(), e2e.AwaitStates(ctx, b.adm, mirror, names, 20, "STOPPED"))
		})
		require.NoError(t, b.adm.DeleteClusterMirror(ctx, mirror))
		_, err := b.side.Admin.DeleteTopics(ctx, names...)
		require.NoError(t, err)
	}
	for range 3 {
		cycle()
	}
	w.judgeUsage(b)
	before := w.heap(b)
	cycles := setting(t, "KAGAMI_CHAOS_CYCLES", 6)
	for range cycles {
		cycle()
	}
	w.judgeUsage(b)
	w.judgeUsage(a)
	w.poll(20*time.Second, "heap as before", func(context.Context) error {
		if now := w.heap(b); now > before+heapSlack {
			return fmt.Errorf("%d KB before %d cycles, %d KB after", before>>10, cycles, now>>10)
		}
		return nil
	})
	t.Logf("heap %d KB before %d cycles, %d KB after", before>>10, cycles, w.heap(b)>>10)
	w.end()
}
