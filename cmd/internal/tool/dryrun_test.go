package tool

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

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

// plans sets the answer of PlanMirrorStart.
func (b *bench) plans(resp wire.PlanMirrorStartResponse) {
	b.Handle(wire.KeyPlanMirrorStart, func(int32, kmsg.Request) kmsg.Response { return &resp })
}

func TestDryRunStart(t *testing.T) {
	b := newBench(t)
	b.hasConfigs(map[string]*string{"bootstrap.servers": new("a:1"), "sasl.jaas.config": nil}) // no credentials are needed
	type planned = wire.PlanMirrorStartResponsePlannedPartition
	topics := []wire.PlanMirrorStartResponsePlannedTopic{
		{TopicName: "old", Partitions: []planned{
			{PartitionIndex: 1, LogEnd: 50, CutTo: 0, Records: 40, Bytes: 4000, Reason: "no last mirror epoch on the source: all is copied again"},
			{PartitionIndex: 0, LogEnd: 100, CutTo: 90, Records: 10, Bytes: 700, Reason: "last mirror epoch 5; diverging inside epoch 5, which ends at 90 on the source"},
		}},
		{TopicName: "new", Partitions: []planned{{LogEnd: -1, Reason: "new partition, nothing to cut"}}},
	}
	b.plans(wire.PlanMirrorStartResponse{Topics: topics})
	code, out, errs := b.tool(t, "--start", "--mirror", "m", "--topics", "new,old", "--exclude", "x", "--dry-run")
	require.Zero(t, code, errs)
	require.Empty(t, cmp.Diff(`TOPIC                                    PARTITION  LOG-END          CUT-TO           RECORDS      BYTES          REASON
new                                      0          -                0                0            0              new partition, nothing to cut
old                                      0          100              90               10           700            last mirror epoch 5; diverging inside epoch 5, which ends at 90 on the source
old                                      1          50               0                40           4000           no last mirror epoch on the source: all is copied again
Would cut 50 records, 4700 bytes in 2 partition(s).
Dry run: nothing was changed.
`, trimmed(out)))
	require.Empty(t, b.Requests(wire.KeyStartMirrorTopics))
	asked := b.Requests(wire.KeyPlanMirrorStart)[0].(*wire.PlanMirrorStartRequest)
	require.Equal(t, []string{"new", "old"}, asked.IncludePatterns)
	require.Equal(t, []string{"x"}, asked.ExcludePatterns)

	topics[0].Partitions[0] = planned{PartitionIndex: 1, LogEnd: 50, CutTo: -1, Records: -1, Bytes: -1, Reason: "dial a:1:\nrefused", Unknown: true}
	b.plans(wire.PlanMirrorStartResponse{Topics: topics})
	code, out, errs = b.tool(t, "--start", "--mirror", "m", "--topics", "new,old", "--dry-run")
	require.Equal(t, 1, code)
	require.Contains(t, out, "old                                      1          50               -                -            -              unknown: dial a:1: refused\n")
	require.Contains(t, out, "Would cut 10 records, 700 bytes in 1 partition(s).\nDry run: nothing was changed.\n")
	require.Equal(t, "what the start would cut isn't known of 1 partition(s) and 0 node(s)\n", errs)

	b.plans(wire.PlanMirrorStartResponse{Topics: []wire.PlanMirrorStartResponsePlannedTopic{{TopicName: "t", Partitions: []planned{{Reason: "loop", Refused: true}}}}})
	code, out, errs = b.tool(t, "--start", "--mirror", "m", "--topics", "t", "--dry-run")
	require.Equal(t, 1, code)
	require.Contains(t, out, "refused: loop")
	require.Equal(t, "the start would be refused for 1 partition(s)\n", errs)

	b.plans(wire.PlanMirrorStartResponse{})
	code, out, _ = b.tool(t, "--start", "--mirror", "m", "--topics", "nothing", "--dry-run")
	require.Zero(t, code)
	require.Equal(t, "No matching topics found yet.\nDry run: nothing was changed.\n", out)

	b.plans(wire.PlanMirrorStartResponse{ErrorCode: 7, ErrorMessage: new("the source can't be asked")})
	code, out, errs = b.tool(t, "--start", "--mirror", "m", "--topics", "nothing", "--dry-run")
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Equal(t, "mirror m: the source can't be asked\n", errs)
}

func TestDryRunStop(t *testing.T) {
	b := newBench(t)
	b.hasLogs(map[string][]destLog{"foo": {{stable: 50, end: 66}, {stable: 84, end: 84}, {stable: 90, end: 90}}, "bar": {{}, {}, {}}})
	known := detail(0, 7, 5, 2, "LOG_TRUNCATION")
	known.OpenTransactions = 4
	failed := detail(1, -1, -1, -1, "FAILED") // the source is gone for two hours
	failed.OpenTransactions, failed.LogEnd, failed.SeenSourceOffset, failed.SeenSourceAgeMs = 0, 100, 130, 7_200_400
	stopped := detail(2, -1, -1, -1, "STOPPED")
	stopped.LogEnd, stopped.SeenSourceOffset, stopped.SeenSourceAgeMs = 10, 20, 5
	paused := detail(3, -1, -1, -1, "PAUSED") // the node began again, and the source is gone
	paused.LogEnd = 10
	mirrors := map[string]map[string][]part{"my-mirror": {"foo": sampleMirrors["my-mirror"]["foo"], "bar": {known, failed, stopped, paused}}}
	b.describes(mirrors)
	code, out, errs := b.tool(t, "--stop", "--mirror", "my-mirror", "--topics", ".*", "--dry-run")
	require.Zero(t, code, errs)
	require.Empty(t, cmp.Diff(`TOPIC                                    PARTITION  STATE          LAG              AGE        OPEN-TRANSACTIONS
bar                                      0          LOG_TRUNCATION 2                -          4
bar                                      1          FAILED         30               2h0m0s     0
bar                                      2          STOPPED        -                -          none
bar                                      3          PAUSED         -                -          -
foo                                      0          MIRRORING      3                -          from offset 50
foo                                      1          MIRRORING      10               -          none
foo                                      2          MIRRORING      4                -          none
Would lose 49 records by the source's last answers, the oldest 2h0m0s ago.
Not known of 1 partition(s): the source hasn't answered since their leader started.
Dry run: nothing was changed.
`, trimmed(out)))
	require.Empty(t, b.Requests(wire.KeyStopMirrorTopics))
}
