package diff

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/test/e2e"
	"kagami/test/kafka"
)

// TestEpochDifferences asks both with leader epochs that are over, now and to come, of a
// partition whose leader was killed between its two batches.
func TestEpochDifferences(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	k := kafka.Start(t, kafka.Options{Version: kafka.V44, Properties: sharedSettings()})
	n := e2e.StartNode(t, e2e.NodeOptions{Properties: sharedSettings()})
	sides := [2]*side{newSide("Kafka", k.Addr(1), "epochs-"), newSide("Kagami", n.Bootstrap(), "epochs-")}
	serves := [2]map[int16][2]int16{}
	for i, s := range sides {
		t.Cleanup(s.close)
		serves[i] = served(t, s)
	}
	var found []difference
	requests := 0
	all := func(steps []step) {
		for _, st := range steps {
			for _, version := range versionsOf(st, serves) {
				d, err := run(sides, st, version)
				require.NoError(t, err, "%s v%d, %s", apiName(key(st)), version, st.name)
				found = append(found, d...)
				requests++
			}
		}
	}
	all(epochTopicSteps())
	require.NoError(t, k.Kill(1))
	require.NoError(t, k.Restart(ctx, 1))
	for range 2 { // Kafka counts the time without a leader as an epoch
		require.NoError(t, n.Kill9())
		require.NoError(t, n.Start(ctx))
	}
	for _, s := range sides {
		s.close()
	}
	all([]step{epochOfLeader()})
	for _, s := range sides {
		require.Positive(t, s.kept[epochNow], "%s: no new leader epoch after a kill", s.name)
	}
	require.Equal(t, sides[0].kept[epochNow], sides[1].kept[epochNow])
	found = nil // of the way there
	all(leaderEpochSteps())
	t.Logf("%d requests to each side, %d differences, leader epoch %d", requests, len(found), sides[0].kept[epochNow])
	judge(t, found, epochDifferences(), true)
}

func epochDifferences() []known {
	return []known{
		{key: 1, step: "fetch from * behind epoch to come", path: "*", why: "As a diverged epoch in fetchDifferences."},
		{key: 23, step: "end of epoch to come, *", path: "*", why: "As an epoch to come in fetchDifferences."},
	}
}

const epochNow = "leader epoch"

// epochTopicSteps makes a topic whose first three records are of the first epoch.
func epochTopicSteps() []step {
	return []step{
		{name: "a topic", once: true, req: func(s *side, _ int16) kmsg.Request { return create(newTopic(s.n("epochs"), 1, 1)) }},
		{name: "topic ids", once: true, req: metadataOf("epochs"), until: hasLeader, keep: learnIDs},
		{name: "first batch", once: true, req: func(s *side, v int16) kmsg.Request { return put(s, v, "epochs", 0, plain(3, 5)) }},
	}
}

func metadataOf(topic string) func(s *side, v int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrMetadataRequest()
		mt := kmsg.NewMetadataRequestTopic()
		mt.Topic = new(s.n(topic))
		r.Topics = append(r.Topics, mt)
		return r
	}
}

func hasLeader(resp kmsg.Response) bool {
	r := resp.(*kmsg.MetadataResponse)
	return len(r.Topics) == 1 && len(r.Topics[0].Partitions) == 1 && r.Topics[0].Partitions[0].ErrorCode == 0
}

func learnIDs(s *side, resp kmsg.Response) {
	for _, t := range resp.(*kmsg.MetadataResponse).Topics {
		s.learn(*t.Topic, t.TopicID)
	}
}

// epochOfLeader keeps the leader epoch of now.
func epochOfLeader() step {
	return step{name: "leader epoch", once: true, req: metadataOf("epochs"), until: hasLeader, keep: func(s *side, resp kmsg.Response) {
		if hasLeader(resp) {
			s.kept[epochNow] = resp.(*kmsg.MetadataResponse).Topics[0].Partitions[0].LeaderEpoch
		}
	}}
}

func leaderEpochSteps() []step {
	now := func(s *side) int32 { e, _ := s.kept[epochNow].(int32); return e }
	steps := []step{
		{name: "second batch", once: true, req: func(s *side, v int16) kmsg.Request { return put(s, v, "epochs", 0, plain(2, 5)) }},
		{name: "leader epochs", req: metadataOf("epochs")},
	}
	epochs := map[string]func(s *side) int32{
		"that is over": func(*side) int32 { return 0 },
		"before":       func(s *side) int32 { return now(s) - 1 },
		"of now":       now,
		"to come":      func(s *side) int32 { return now(s) + 1 },
		"not said":     func(*side) int32 { return -1 },
	}
	for _, name := range []string{"that is over", "before", "of now", "to come", "not said"} {
		epoch := epochs[name]
		for _, offset := range []int64{0, 3, 5, 6} {
			steps = append(steps, step{name: fmt.Sprintf("fetch from %d, epoch %s", offset, name), from: 9, req: func(s *side, v int16) kmsg.Request {
				r := take(s, v, "epochs", 0, offset)
				r.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch(s)
				return r
			}}, step{name: fmt.Sprintf("fetch from %d behind epoch %s", offset, name), from: 12, req: func(s *side, v int16) kmsg.Request {
				r := take(s, v, "epochs", 0, offset)
				r.Topics[0].Partitions[0].LastFetchedEpoch = epoch(s)
				return r
			}})
		}
		for _, timestamp := range []int64{-1, -2, -3, 5} {
			steps = append(steps, step{name: fmt.Sprintf("offset of time %d, epoch %s", timestamp, name), from: 4, req: func(s *side, _ int16) kmsg.Request {
				r := kmsg.NewPtrListOffsetsRequest()
				r.ReplicaID, r.TimeoutMillis = -1, 5000
				lt := kmsg.NewListOffsetsRequestTopic()
				lt.Topic = s.n("epochs")
				p := kmsg.NewListOffsetsRequestTopicPartition()
				p.Timestamp, p.CurrentLeaderEpoch = timestamp, epoch(s)
				lt.Partitions = append(lt.Partitions, p)
				r.Topics = append(r.Topics, lt)
				return r
			}})
		}
		for _, asked := range []string{"that is over", "before", "of now", "to come", "not said"} {
			steps = append(steps, step{name: fmt.Sprintf("end of epoch %s, epoch %s", asked, name), req: func(s *side, _ int16) kmsg.Request {
				r := kmsg.NewPtrOffsetForLeaderEpochRequest()
				r.ReplicaID = -1
				et := kmsg.NewOffsetForLeaderEpochRequestTopic()
				et.Topic = s.n("epochs")
				p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
				p.CurrentLeaderEpoch, p.LeaderEpoch = epoch(s), epochs[asked](s)
				et.Partitions = append(et.Partitions, p)
				r.Topics = append(r.Topics, et)
				return r
			}})
		}
	}
	return steps
}
