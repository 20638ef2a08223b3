package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/internal/clock"
	"kagami/messages"
	"kagami/persistence"
)

// sessionRequest asks for partitions of one topic: partition -> offset.
func sessionRequest(version int16, session, epoch int32, topic string, id messages.TopicID, offsets map[int32]int64) *kmsg.FetchRequest {
	req := fetchRequest(version)
	req.SessionID, req.SessionEpoch = session, epoch
	if len(offsets) > 0 {
		t := kmsg.FetchRequestTopic{Topic: topic, TopicID: id}
		for n := range int32(16) {
			if o, ok := offsets[n]; ok {
				p := kmsg.NewFetchRequestTopicPartition()
				p.Partition, p.FetchOffset, p.PartitionMaxBytes = n, o, 1<<20
				t.Partitions = append(t.Partitions, p)
			}
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

func partitionsOf(resp *kmsg.FetchResponse) []int32 {
	out := []int32{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			out = append(out, p.Partition)
		}
	}
	return out
}

// TestC40FetchSessions: deltas only, forgotten partitions, wrong epochs and
// unknown sessions, by name and by id.
func TestC40FetchSessions(t *testing.T) {
	for _, version := range []int16{7, 12, 13, 18} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			w := newWorld(t)
			topic := w.topic("t", 3, nil)
			c := w.dial()
			call := func(session, epoch int32, offsets map[int32]int64, forget ...int32) *kmsg.FetchResponse {
				req := sessionRequest(version, session, epoch, "t", topic.ID, offsets)
				if len(forget) > 0 {
					req.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{Topic: "t", TopicID: topic.ID, Partitions: forget}}
				}
				return c.call(req).(*kmsg.FetchResponse)
			}
			full := call(0, 0, map[int32]int64{0: 0, 1: 0, 2: 0})
			id := full.SessionID
			require.NotZero(t, id)
			require.Equal(t, []int32{0, 1, 2}, partitionsOf(full), "the first answer is whole")

			idle := call(id, 1, nil)
			require.Equal(t, id, idle.SessionID)
			require.Empty(t, partitionsOf(idle), "nothing has changed")

			w.part("t", 1).mirror(t, made(0, 0, "a"))
			require.Equal(t, []int32{1}, partitionsOf(call(id, 2, nil)))
			require.Equal(t, []int32{1}, partitionsOf(call(id, 3, nil)), "data that the client hasn't moved past is sent again")
			require.Empty(t, partitionsOf(call(id, 4, map[int32]int64{1: 1})), "moved past, and the high watermark is known")

			w.part("t", 2).mirror(t, made(0, 0, "a"))
			require.Empty(t, partitionsOf(call(id, 5, nil, 2)), "forgotten")

			w.part("t", 0).change(func(s *persistence.ReplicaState) { s.LogStart = 1; s.End, s.HighWatermark = 1, 1 })
			r := call(id, 6, map[int32]int64{0: 1})
			require.Equal(t, []int32{0}, partitionsOf(r), "log start moved")

			require.Equal(t, int16(71), call(id, 6, nil).ErrorCode, "epoch seen before")
			require.Equal(t, int16(71), call(id, 9, nil).ErrorCode, "epoch from the future")
			require.Equal(t, int16(70), call(id+1000, 1, nil).ErrorCode, "unknown session")
			if version >= fetchTopicIDs {
				require.Equal(t, int16(106), c.call(sessionRequest(12, id, 7, "", topic.ID, nil)).(*kmsg.FetchResponse).ErrorCode, "ids and names don't mix")
			}

			second := call(id, 0, map[int32]int64{0: 1})
			require.NotZero(t, second.SessionID)
			require.Equal(t, int16(70), call(id, 7, nil).ErrorCode, "replaced")
			require.Equal(t, int32(0), call(second.SessionID, -1, map[int32]int64{0: 1}).SessionID, "closed")
			require.Equal(t, int16(70), call(second.SessionID, 1, nil).ErrorCode)
			require.Zero(t, w.srv.sessions.len())
		})
	}
}

// TestC40ErrorsAreToldAgain: an error in a session is sent every time, and its
// end is told.
func TestC40ErrorsAreToldAgain(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, nil)
	c := w.dial()
	first := c.call(sessionRequest(12, 0, 0, "t", messages.TopicID{}, map[int32]int64{0: 0, 1: 0})).(*kmsg.FetchResponse)
	require.Equal(t, []int32{0, 1}, partitionsOf(first))
	require.Equal(t, int16(3), first.Topics[0].Partitions[1].ErrorCode)
	again := c.call(sessionRequest(12, first.SessionID, 1, "t", messages.TopicID{}, nil)).(*kmsg.FetchResponse)
	require.Equal(t, []int32{1}, partitionsOf(again))
	topic := w.Image().Topic("t")
	w.mu.Lock()
	w.growLocked(messages.PartitionCount{Topic: "t", Count: 2})
	w.mu.Unlock()
	require.NotNil(t, topic)
	healed := c.call(sessionRequest(12, first.SessionID, 2, "t", messages.TopicID{}, nil)).(*kmsg.FetchResponse)
	require.Equal(t, []int32{1}, partitionsOf(healed))
	require.Zero(t, healed.Topics[0].Partitions[0].ErrorCode)
}

// TestC40RecreatedTopic: an id that is gone is an error in the session, not
// somebody else's data.
func TestC40RecreatedTopic(t *testing.T) {
	w := newWorld(t)
	old := w.topic("t", 1, nil)
	c := w.dial()
	first := c.call(sessionRequest(13, 0, 0, "", old.ID, map[int32]int64{0: 0})).(*kmsg.FetchResponse)
	w.Submit(t.Context(), messages.Requester{}, messages.DeleteTopics{Names: []string{"t"}})
	w.topic("t", 1, nil)
	w.part("t", 0).mirror(t, made(0, 0, "new"))
	r := c.call(sessionRequest(13, first.SessionID, 1, "", old.ID, nil)).(*kmsg.FetchResponse)
	require.Equal(t, int16(100), r.Topics[0].Partitions[0].ErrorCode)
	require.Empty(t, r.Topics[0].Partitions[0].RecordBatches)
}

type stoppedClock struct {
	clock.Wall
	now time.Time
}

func (c *stoppedClock) Now() time.Time { return c.now }

// TestC40Eviction: a full cache gives up a session that was idle for long enough,
// else the newcomer goes without.
func TestC40Eviction(t *testing.T) {
	clk := &stoppedClock{now: time.Unix(1000, 0)}
	c := newSessionCache(2, time.Minute, clk)
	a, b := c.add("u", false, 1), c.add("u", false, 1)
	require.Nil(t, c.add("u", false, 1), "both are in use")
	clk.now = clk.now.Add(2 * time.Minute)
	require.Same(t, a, c.get(a.id, "u"))
	d := c.add("u", false, 1)
	require.NotNil(t, d, "the one not used goes")
	require.Nil(t, c.get(b.id, "u"))
	require.Same(t, a, c.get(a.id, "u"))
	require.Nil(t, c.add("u", false, 0))
	require.Nil(t, c.add("u", false, sessionPartitionsMax+1))
	require.Equal(t, 2, c.len())
	c.resized(a, 10)
	require.Equal(t, 11, c.total)
	c.remove(a.id, "u")
	c.remove(a.id, "u")
	require.Equal(t, 1, c.total)
}
