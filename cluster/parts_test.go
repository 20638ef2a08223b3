package cluster

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// TestTopicsInParts: a round opens topics part by part, first what the journal waits for,
// then in the order of all nodes, and each of them once.
func TestTopicsInParts(t *testing.T) {
	rs := &Replicas{wanted: make(map[messages.TopicID]struct{})}
	left := map[messages.TopicID]*metadata.Topic{}
	var order []*metadata.Topic
	const topics, partitions = 20, 100
	for i := range topics {
		topic := &metadata.Topic{Name: fmt.Sprint(i), ID: messages.NewTopicID(), Partitions: make([]metadata.Partition, partitions)}
		left[topic.ID] = topic
		order = append(order, topic)
	}
	seen := map[messages.TopicID]bool{}
	var next messages.TopicID
	for len(left) > 0 {
		var want messages.TopicID
		for want = range left {
			break
		}
		rs.wanted[want] = struct{}{}
		rs.wanted[messages.NewTopicID()] = struct{}{} // of an image to come
		before := len(left)
		var part []*metadata.Topic
		first := slices.IndexFunc(order, func(topic *metadata.Topic) bool { return !seen[topic.ID] && topic.ID != want })
		if first >= 0 {
			next = order[first].ID
		}
		part, order = rs.nextTopics(left, order)
		require.Equal(t, want, part[0].ID)
		if len(part) > 1 {
			require.Equal(t, next, part[1].ID)
		}
		require.Len(t, part, min(before, (partPartitions+partitions-1)/partitions))
		require.Empty(t, rs.wanted)
		for _, topic := range part {
			require.False(t, seen[topic.ID])
			seen[topic.ID] = true
		}
	}
	require.Len(t, seen, topics)
}

// TestStreamedTopicsAreNotSynced: the journal is what makes them durable.
func TestStreamedTopicsAreNotSynced(t *testing.T) {
	internal := &metadata.Topic{Name: messages.MirrorStateTopic}
	alone, several := &Replicas{}, &Replicas{opts: ReplicasOptions{Journal: &Journal{}}}
	require.True(t, alone.settings(internal, nil).log.FlushAlways)
	require.False(t, several.settings(internal, nil).log.FlushAlways)
}
