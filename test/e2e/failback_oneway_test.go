package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/client"
	"kagami/messages"
)

// TestOneWayFromKafka: a plain Kafka knows no last mirror epoch. A start on a
// topic that has data here drops all of it and copies everything again, and one
// line says that there is no way back; a topic of the same name that isn't the
// source's is refused, untouched.
func TestOneWayFromKafka(t *testing.T) {
	const line = "the source has no mirror API: mirroring is one-way, a start copies everything again, no failback"
	w := newWorld(t, NodeOptions{})
	const topic, foreign = "oneway", "oneway-foreign"
	w.topic(topic, 2, 1)
	w.topic(foreign, 1, 1)
	w.load(topic, Records{Count: 60})
	_, err := w.b.Admin.CreateTopic(w.ctx, 1, 1, nil, foreign)
	require.NoError(t, err)
	require.NoError(t, Produce(w.ctx, w.node.Bootstrap(), foreign, Records{Count: 7}))
	w.create("m")
	w.start("m", topic)
	w.equal(topic)
	w.run("--stop", "--mirror", "m", "--topics", topic)
	w.await("m", "STOPPED", topic)
	require.NoError(t, Produce(w.ctx, w.node.Bootstrap(), topic, Records{Count: 20, From: 1000}))
	w.load(topic, Records{Count: 30, From: 60})
	had, err := w.b.TopicEnds(w.ctx, topic)
	require.NoError(t, err)

	w.start("m", topic)
	w.equal(topic)
	ps, err := Partitions(w.ctx, w.adm, "m")
	require.NoError(t, err)
	require.Len(t, ps, 2)
	for _, p := range ps {
		require.Equal(t, []int64{had[p.Partition].End, 0, had[p.Partition].End}, []int64{p.CutRecords, p.CutFrom, p.CutTo}, "partition %d", p.Partition)
	}
	require.Equal(t, 1, strings.Count(w.node.Process().Log(), line), "once for the mirror")

	detail, err := w.a.Topic(w.ctx, foreign)
	require.NoError(t, err)
	res, err := w.adm.StartMirrorTopics(w.ctx, "m", []string{foreign}, client.StartOptions{TopicMetadata: map[string]client.TopicMetadata{
		foreign: {ID: messages.TopicID(detail.ID), Partitions: 1},
	}})
	require.NoError(t, err)
	require.ErrorContains(t, res.Err(), foreign)
	require.ErrorContains(t, res.Err(), "delete the topic here and start again")
	require.Equal(t, int64(7), w.end(w.b, foreign, 0))
	require.NoError(t, Produce(w.ctx, w.node.Bootstrap(), foreign, Records{Count: 1}), "it stays an ordinary topic")
}
