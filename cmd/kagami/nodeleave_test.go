package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

func TestLeadable(t *testing.T) {
	var records []metadata.Record
	for i, replicas := range [][]messages.NodeID{{1, 2, 3}, {1}, {1, 3}, {1, 4}, {2, 1}} {
		r := wire.NewPtrTopicRecord()
		r.Name, r.TopicID = fmt.Sprint("t", i), messages.TopicID{byte(i + 1)}
		records = append(records, r, metadata.PartitionRecord(r.TopicID, 0, metadata.Partition{Leader: replicas[0], Replicas: replicas, ISR: replicas}))
	}
	d, err := metadata.EmptyImage().Apply(7, records)
	require.NoError(t, err)
	// t0 can go to 2; t1 has no other replica; t2's is behind; t3's isn't there; t4
	// isn't led by node 1.
	whole := func(id messages.NodeID, _ messages.PartitionKey) bool { return id != 3 }
	require.Equal(t, 1, leadable(d.New, 1, []messages.NodeID{1, 2, 3}, whole))
	require.Equal(t, 0, leadable(d.New, 1, []messages.NodeID{1}, whole))
}

// TestRollingRestart: each node hands over what it leads before it ends; a producer
// loses nothing and writes nothing twice. The longest gap is told, not judged.
func TestRollingRestart(t *testing.T) {
	c := newTestNodes(t, []messages.NodeID{1, 2, 3})
	c.start(1, 2, 3)
	_, _, adm := c.connect(1)
	const partitions = 3
	c.create(adm, "t", partitions)
	await(t, "every node knows the topic", func() error {
		for id, n := range c.nodes {
			if n.store.Image().Topic("t") == nil {
				return fmt.Errorf("node %d doesn't", id)
			}
		}
		return nil
	})
	addresses := make([]string, 0, 3)
	for _, n := range c.nodes {
		addresses = append(addresses, n.kafka())
	}
	p := startProducer(t, addresses, partitions)
	for _, id := range []messages.NodeID{1, 2, 3} {
		led := leadable(c.nodes[id].store.Image(), id, []messages.NodeID{1, 2, 3}, func(messages.NodeID, messages.PartitionKey) bool { return true })
		c.stop(id)
		var other *node
		for _, n := range c.nodes {
			other = n
		}
		await(t, "the others' image shows it", func() error {
			for _, topic := range other.store.Image().Topics() {
				for i, part := range topic.Partitions {
					if part.Leader == id {
						return fmt.Errorf("%s-%d is still led by node %d, which has ended", topic.Name, i, id)
					}
				}
			}
			return nil
		})
		t.Logf("node %d led %d partitions; longest gap so far %s", id, led, p.longest())
		require.NotEmpty(t, c.logs.FilterMessage("other nodes lead what this one led").All())
		c.start(id)
		await(t, "the node is whole again", func() error {
			img := other.store.Image()
			for i, part := range img.Topic("t").Partitions {
				if part.Leader != part.Replicas[0] {
					return fmt.Errorf("t-%d is led by %d, not %d", i, part.Leader, part.Replicas[0])
				}
			}
			return nil
		})
	}
	acked := p.stop()
	t.Logf("%d records acknowledged, longest gap %s", len(acked), p.longest())
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.nodes[1].kafka()), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer cl.Close()
	count := map[string]int{}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(count) < len(acked) {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, errors.Join(ctx.Err()), "%d of %d records", len(count), len(acked))
		fetches.EachRecord(func(r *kgo.Record) { count[string(r.Value)]++ })
	}
	for _, v := range acked {
		require.Equal(t, 1, count[v], v)
	}
}

// steadyProducer writes a record after the other to each partition.
type steadyProducer struct {
	cl     *kgo.Client
	cancel context.CancelFunc
	work   sync.WaitGroup
	mu     sync.Mutex
	acked  []string
	gap    time.Duration
	failed error
}

func startProducer(t *testing.T, addresses []string, partitions int) *steadyProducer {
	t.Helper()
	slices.Sort(addresses)
	cl, err := kgo.NewClient(kgo.SeedBrokers(addresses...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(50*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }))
	require.NoError(t, err)
	p := &steadyProducer{cl: cl}
	ctx, cancel := context.WithCancel(t.Context())
	p.cancel = cancel
	for n := range partitions {
		p.work.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				value := fmt.Sprintf("%d/%d", n, i)
				began := time.Now()
				err := cl.ProduceSync(context.WithoutCancel(ctx), &kgo.Record{Topic: "t", Partition: int32(n), Value: []byte(value)}).FirstErr()
				p.mu.Lock()
				if err != nil {
					p.failed = errors.Join(p.failed, fmt.Errorf("%s: %w", value, err))
				} else {
					p.acked = append(p.acked, value)
				}
				p.gap = max(p.gap, time.Since(began))
				p.mu.Unlock()
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		p.work.Wait()
		cl.Close()
		if p.failed != nil {
			t.Error(p.failed)
		}
	})
	return p
}

func (p *steadyProducer) longest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gap
}

func (p *steadyProducer) stop() []string {
	p.cancel()
	p.work.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.acked)
}
