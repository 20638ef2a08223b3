package main

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/cluster"
	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// spreadOver fails unless each of the nodes leads about its share of a topic.
func (c *testNodes) spreadOver(img *metadata.Image, topic string, nodes ...messages.NodeID) error {
	t := img.Topic(topic)
	led := map[messages.NodeID]int{}
	for _, p := range t.Partitions {
		led[p.Leader]++
	}
	for _, id := range nodes {
		if led[id]*len(nodes)*2 > len(t.Partitions)*3 || led[id]*len(nodes)*2 < len(t.Partitions) {
			return fmt.Errorf("leaders of %s: %v", topic, led)
		}
	}
	return nil
}

// One node, full of what clients made there, becomes three: its topics get the
// configured replicas, and when they are in order leaderships and coordinators are
// spread, while clients produce. Nothing is lost or twice.
func TestSeveralNodesGrowAndSpread(t *testing.T) {
	c := newTestNodes(t, nil, "offsets.topic.replication.factor=3", "offsets.topic.num.partitions=9")
	c.start(1)
	_, cl, adm := c.connect(1)
	resp, err := adm.CreateTopic(t.Context(), 60, 1, nil, "t")
	require.NoError(t, err)
	require.NoError(t, resp.Err)
	produce(t, cl, "t", 10)
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKeys = []string{"g"}
	_, err = find.RequestWith(t.Context(), cl) // makes the topic of the coordinators
	require.NoError(t, err)
	c.stop(1)

	for id := messages.NodeID(1); id <= 3; id++ {
		c.peers[id] = testAddress(t)
	}
	c.start(1, 2, 3)
	producing, stop := context.WithCancel(t.Context())
	sent := make(chan int, 1)
	producer, err := kgo.NewClient(kgo.SeedBrokers(c.nodes[1].kafka()), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	require.NoError(t, err)
	defer producer.Close()
	var failed error
	go func() {
		n := 0
		for ; producing.Err() == nil && failed == nil; n++ {
			failed = producer.ProduceSync(context.WithoutCancel(producing), &kgo.Record{Topic: "t", Value: []byte(strconv.Itoa(n))}).FirstErr()
		}
		sent <- n
	}()
	await(t, "leaders on all nodes", func() error {
		img := c.nodes[1].store.Image()
		for _, topic := range []string{"t", messages.ConsumerOffsetsTopic} {
			for i, p := range img.Topic(topic).Partitions {
				if len(p.Replicas) != 3 {
					return fmt.Errorf("%s-%d is on %v", topic, i, p.Replicas)
				}
			}
			if err := c.spreadOver(img, topic, 1, 2, 3); err != nil {
				return err
			}
		}
		return nil
	})
	await(t, "leaders that serve", func() error {
		for i, p := range c.nodes[1].store.Image().Topic("t").Partitions {
			if _, err := c.nodes[p.Leader].replicas.Leading(messages.TopicPartition{Topic: "t", Partition: int32(i)}, messages.TopicID{}); err != nil {
				return err
			}
		}
		return nil
	})
	stop()
	n := <-sent
	require.NoError(t, failed)
	require.Positive(t, n)
	c.equal("t", 60, 1, 2)
	c.equal("t", 60, 1, 3)
	_, _, adm = c.connect(2)
	ends, err := adm.ListEndOffsets(t.Context(), "t")
	require.NoError(t, err)
	total := int64(0)
	ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
	require.EqualValues(t, 10+n, total, "each record once")

	// One is away and comes back: it leads its share again, without being asked.
	c.stop(3)
	await(t, "two lead", func() error { return c.spreadOver(c.nodes[1].store.Image(), "t", 1, 2) })
	c.start(3)
	await(t, "every partition is led by its preferred leader", func() error {
		for i, p := range c.nodes[1].store.Image().Topic("t").Partitions {
			if p.Leader != p.Replicas[0] {
				return fmt.Errorf("partition %d is led by %d, not by %d", i, p.Leader, p.Replicas[0])
			}
		}
		return c.spreadOver(c.nodes[1].store.Image(), "t", 1, 2, 3)
	})
}

// A node that was given replicas is not trusted with leaderships before its beats are
// as new as that.
func TestReplicasUnheardOf(t *testing.T) {
	part := func(leader messages.NodeID, replicas ...messages.NodeID) metadata.Partition {
		return metadata.Partition{Leader: leader, Replicas: replicas, ISR: replicas}
	}
	id, offset := messages.NewTopicID(), int64(0)
	image := func(parts ...metadata.Partition) *metadata.Image {
		t.Helper()
		topic := wire.NewPtrTopicRecord()
		topic.Name, topic.TopicID, topic.CreatedAt = "t", id, 1
		records := []metadata.Record{topic}
		for i, p := range parts {
			records = append(records, metadata.PartitionRecord(id, int32(i), p))
		}
		offset += 100
		d, err := metadata.EmptyImage().Apply(offset, records)
		require.NoError(t, err)
		return d.New
	}
	beat := func(opened int64) cluster.Beat { return cluster.Beat{Extension: cluster.AppendOpened(nil, opened)} }
	var s replicaSets
	first := image(part(1, 1))
	at := first.Offset()
	require.Equal(t, []messages.NodeID{2}, s.unheard(first, map[messages.NodeID]cluster.Beat{1: beat(at), 2: beat(at - 1), 3: {}}), "what was before isn't known")
	moved := image(part(1, 1), part(2, 2, 1))
	more := moved.Offset()
	require.Greater(t, more, at)
	require.Equal(t, []messages.NodeID{2}, s.unheard(moved, map[messages.NodeID]cluster.Beat{1: beat(more), 2: beat(more - 1)}))
	require.Empty(t, s.unheard(moved, map[messages.NodeID]cluster.Beat{1: beat(more + 5), 2: beat(more)}))
	led := image(part(1, 1), part(1, 1, 2), part(1, 1)) // a new partition
	require.Len(t, s.unheard(led, map[messages.NodeID]cluster.Beat{1: beat(more), 2: beat(more)}), 2)
	require.False(t, replicasDiffer(image(part(1, 1, 2)), image(part(2, 2, 1))), "the same nodes in another order")
	require.True(t, replicasDiffer(image(part(1, 1, 2)), image(part(1, 1, 3))))
}
