package fetch

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

// endSink is a log that nothing is asked of but where it ends.
type endSink struct{ Sink }

func (endSink) State() LocalState { return LocalState{End: 1} }

// TestIdleRoundsAllocateLittle: a request that nothing has changed for costs no memory for
// each of its partitions, and a worker that lost most of them keeps no room for them.
func TestIdleRoundsAllocateLittle(t *testing.T) {
	const partitions = 2000
	w := &Worker{cfg: WorkerConfig{Credit: 1 << 20, PartitionMaxBytes: 1 << 20}}
	for n := range int32(partitions) {
		a := Assignment{TopicPartition: messages.TopicPartition{Topic: "t", Partition: n}, TopicID: messages.TopicID{1}, Sink: endSink{}}
		w.order = append(w.order, newPartition(a, w.cfg.PartitionMaxBytes))
	}
	now := time.Unix(1, 0)
	asked := func() *kmsg.FetchRequest {
		r, req := w.plan(now), kmsg.NewPtrFetchRequest()
		require.Len(t, r.wants, len(w.order))
		require.Len(t, r.members, len(w.order))
		w.session.request(req, r.wants, r.byID, r.serial)
		return req
	}
	require.Len(t, asked().Topics[0].Partitions, partitions)
	w.session.answered(13, 7)
	require.Empty(t, asked().Topics, "nothing has changed")
	const rounds, roundBytes = 20, 64 << 10 // it was 860 KB
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		asked()
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(rounds*roundBytes))

	w.order = w.order[:10]
	req := asked()
	require.Len(t, req.ForgottenTopics[0].Partitions, partitions-10)
	require.NotNil(t, asked())
	require.LessOrEqual(t, len(w.session.wanted), 10)
}
