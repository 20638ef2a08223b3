package tool

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/wire"
	"kagami/messages/wire/wiretest"
)

// destLog is a partition's log on the scripted destination.
type destLog struct {
	start, stable, end int64
	epochEnd           map[int32]int64 // end of the largest epoch <= key
}

// hasLogs sets the answers of ListOffsets and OffsetForLeaderEpoch.
func (b *bench) hasLogs(logs map[string][]destLog) {
	for topic, ps := range logs {
		b.SetTopic(topic, wiretest.Topic{Leaders: make([]int32, len(ps))})
	}
	b.Handle(2, func(_ int32, kreq kmsg.Request) kmsg.Response {
		req := kreq.(*kmsg.ListOffsetsRequest)
		resp := kmsg.NewPtrListOffsetsResponse()
		for _, t := range req.Topics {
			rt := kmsg.NewListOffsetsResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				l := logs[t.Topic][p.Partition]
				rp := kmsg.NewListOffsetsResponseTopicPartition()
				rp.Partition, rp.Offset = p.Partition, l.end
				if p.Timestamp == -2 {
					rp.Offset = l.start
				} else if req.IsolationLevel == 1 {
					rp.Offset = l.stable
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	})
	b.Handle(23, func(_ int32, kreq kmsg.Request) kmsg.Response {
		resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
		for _, t := range kreq.(*kmsg.OffsetForLeaderEpochRequest).Topics {
			rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				rp.Partition, rp.LeaderEpoch, rp.EndOffset = p.Partition, p.LeaderEpoch, -1
				if end, ok := logs[t.Topic][p.Partition].epochEnd[p.LeaderEpoch]; ok {
					rp.EndOffset = end
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	})
}

func TestDryRunStart(t *testing.T) {
	b := newBench(t)
	b.hasConfigs(map[string]*string{"bootstrap.servers": new("a:1")})
	b.source.topics = sourceTopics("new", "old", "other")
	b.source.topics["old"] = b.source.topics["other"] // three partitions
	b.source.lmes = map[messages.TopicPartition]int32{
		{Topic: "old", Partition: 0}: 5,
		{Topic: "old", Partition: 1}: 3,
	}
	b.hasLogs(map[string][]destLog{"old": {
		{start: 10, end: 100, epochEnd: map[int32]int64{5: 90}}, // cut to the end of epoch 5
		{start: 0, end: 50},              // epoch 3 isn't there: all goes
		{start: 20, stable: 30, end: 30}, // no last mirror epoch: all goes
	}})
	code, out, errs := b.tool(t, "--start", "--mirror", "m", "--topics", "new,old", "--dry-run")
	require.Zero(t, code, errs)
	require.Empty(t, cmp.Diff(`TOPIC                                    PARTITION  LAST-MIRROR-EPOCH  LOG-END              CUT-TO               OFFSETS-CUT
new                                      0          -                  -                    0                    0
old                                      0          5                  100                  90                   10
old                                      1          3                  50                   0                    50
old                                      2          -                  30                   0                    10
Dry run: nothing was changed.
`, trimmed(out)))
	require.Empty(t, b.Requests(wire.KeyStartMirrorTopics))
	_, out, _ = b.tool(t, "--start", "--mirror", "m", "--topics", "nothing", "--dry-run")
	require.Equal(t, "No matching topics found yet.\nDry run: nothing was changed.\n", out)
}

func TestDryRunStop(t *testing.T) {
	b := newBench(t)
	b.hasLogs(map[string][]destLog{"foo": {{stable: 50, end: 66}, {stable: 84, end: 84}, {stable: 90, end: 90}}, "bar": {{}}})
	known := detail(0, 7, 5, 2, "LOG_TRUNCATION")
	known.OpenTransactions = 4
	mirrors := map[string]map[string][]part{"my-mirror": {"foo": sampleMirrors["my-mirror"]["foo"], "bar": {known}}}
	b.describes(mirrors)
	code, out, errs := b.tool(t, "--stop", "--mirror", "my-mirror", "--topics", ".*", "--dry-run")
	require.Zero(t, code, errs)
	require.Empty(t, cmp.Diff(`TOPIC                                    PARTITION  STATE          LAG                  OPEN-TRANSACTIONS
bar                                      0          LOG_TRUNCATION 2                    4
foo                                      0          MIRRORING      3                    from offset 50
foo                                      1          MIRRORING      10                   none
foo                                      2          MIRRORING      4                    none
Dry run: nothing was changed.
`, trimmed(out)))
	require.Empty(t, b.Requests(wire.KeyStopMirrorTopics))
}
