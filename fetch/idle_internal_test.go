package fetch

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/internal/clock"
	"kagami/messages"
)

// still is the log of a partition that nothing comes to.
type still struct{ Sink }

func (still) State() LocalState { return LocalState{End: 1, HighWatermark: 1} }

func idleWorker(partitions int) *Worker {
	w := &Worker{partitions: map[messages.TopicPartition]*partition{}, window: window{stretch: 1}, clock: clock.Wall{}}
	w.cfg.Credit, w.cfg.PartitionMaxBytes = 2<<20, 1<<20
	for i := range partitions {
		tp := messages.TopicPartition{Topic: fmt.Sprint("topic-", i/100), Partition: int32(i % 100)}
		w.partitions[tp] = newPartition(Assignment{TopicPartition: tp, TopicID: messages.TopicID{byte(i / 100), 1}, Sink: still{}}, 1<<20)
	}
	w.changed = true
	return w
}

// idleRound is a request that is answered with nothing.
func (w *Worker) idleRound() *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	r := w.plan(w.clock.Now())
	w.session.request(req, r.wants, r.byID, r.serial)
	w.session.answered(req.GetVersion()+17, 7)
	return req
}

// TestIdleRounds: what a session is told doesn't depend on what a round is made of.
func TestIdleRounds(t *testing.T) {
	named := func(req *kmsg.FetchRequest) (n int) {
		for _, topic := range req.Topics {
			n += len(topic.Partitions)
		}
		return n
	}
	forgotten := func(req *kmsg.FetchRequest) (n int) {
		for _, topic := range req.ForgottenTopics {
			n += len(topic.Partitions)
		}
		return n
	}
	const partitions = 250
	w := idleWorker(partitions)
	require.Equal(t, partitions, named(w.idleRound()), "a full request")
	for range 3 {
		req := w.idleRound()
		require.Zero(t, named(req)+forgotten(req))
		require.EqualValues(t, 7, req.SessionID)
	}
	require.Len(t, w.lastRound.members, partitions)

	tp := messages.TopicPartition{Topic: "topic-1", Partition: 3}
	p := w.partitions[tp]
	p.backoff(w.clock.Now().Add(time.Hour))
	require.Equal(t, 1, forgotten(w.idleRound()))
	// A plan that isn't asked changes nothing.
	p.backoff(time.Time{})
	w.plan(w.clock.Now())
	p.backoff(w.clock.Now().Add(time.Hour))
	require.Zero(t, forgotten(w.idleRound())+named(w.idleRound()))
	p.backoff(time.Time{})
	require.Equal(t, 1, named(w.idleRound()), "one that is back")
	require.Zero(t, named(w.idleRound()))

	p.mu.Lock()
	p.next = 5
	p.mu.Unlock()
	req := w.idleRound()
	require.Equal(t, 1, named(req))
	require.EqualValues(t, 5, req.Topics[0].Partitions[0].FetchOffset)
	require.EqualValues(t, 5, w.lastRound.members[tp].offset)

	// Another life of a partition at the same place is another one.
	w.mu.Lock()
	again := newPartition(Assignment{TopicPartition: tp, TopicID: p.id, Sink: still{}}, 1<<20)
	again.next = 5
	w.partitions[tp], w.changed, w.left = again, true, []messages.TopicPartition{tp}
	w.mu.Unlock()
	require.Equal(t, partitions, named(w.idleRound()))
	require.Same(t, again, w.lastRound.members[tp].p)
}

// BenchmarkIdleRound is what an empty answer costs a worker, twice a second.
func BenchmarkIdleRound(b *testing.B) {
	w := idleWorker(10_000)
	w.idleRound()
	b.ReportAllocs()
	for b.Loop() {
		w.idleRound()
	}
}
