package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/messages"
)

// TestRestartedNodeTakesWritesAtOnce: a topic that is STOPPED takes writes from the
// first moment that a restarted node answers. A refusal as read-only would be final
// for a producer that only waited for the node.
func TestRestartedNodeTakesWritesAtOnce(t *testing.T) {
	p := startPair(t)
	_, err := p.adm.StopMirrorTopics(t.Context(), "m", []string{"t"})
	require.NoError(t, err)
	await(t, "STOPPED", func() error {
		return p.dstCl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("first")}).FirstErr()
	})
	dir := p.dst.settings.dataDir
	for range 3 {
		stopTestNode(t, p.dst)
		p.dst = startTestNode(t, dir)
		_, cl, _ := connectTo(t, p.dst.kafka())
		for partition := range int32(2) {
			require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Partition: partition, Value: []byte("at once")}).FirstErr())
		}
		r, err := p.dst.replicas.Get(messages.TopicPartition{Topic: "c"})
		require.NoError(t, err)
		require.True(t, r.State().ReadOnly, "the other one still mirrors")
		cl.Close()
	}
}
