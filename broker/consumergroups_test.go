package broker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

// TestConsumerGroupRequests: what the server itself decides of ConsumerGroupHeartbeat,
// ConsumerGroupDescribe and commits to groups of either kind.
func TestConsumerGroupRequests(t *testing.T) {
	w := newWorld(t)
	w.groups.image = w.Image
	id := w.topic("t", 2, nil).ID
	c := w.dial()
	beat := func(version int16, change func(r *kmsg.ConsumerGroupHeartbeatRequest)) *kmsg.ConsumerGroupHeartbeatResponse {
		r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		r.Version, r.Group, r.MemberID, r.RebalanceTimeoutMillis = version, "g", "m", 1000
		r.SubscribedTopicNames, r.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		if change != nil {
			change(r)
		}
		return c.call(r).(*kmsg.ConsumerGroupHeartbeatResponse)
	}
	for name, change := range map[string]func(r *kmsg.ConsumerGroupHeartbeatRequest){
		"no member id":      func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "" },
		"an empty instance": func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = new("") },
		"an empty rack":     func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RackID = new("") },
	} {
		require.Equal(t, kerr.InvalidRequest.Code, beat(1, change).ErrorCode, name)
	}
	given := beat(0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID, r.Group = "", "other" })
	require.Zero(t, given.ErrorCode)
	require.NotEmpty(t, *given.MemberID, "in version 0 it is given one")

	joined := beat(1, nil)
	require.Zero(t, joined.ErrorCode)
	require.Equal(t, id, messages.TopicID(joined.Assignment.Topics[0].TopicID))
	require.Equal(t, []int32{0, 1}, joined.Assignment.Topics[0].Partitions)

	describe := kmsg.NewPtrConsumerGroupDescribeRequest()
	describe.Version, describe.Groups = 1, []string{"g", "", "nobody"}
	got := c.call(describe).(*kmsg.ConsumerGroupDescribeResponse).Groups
	require.Equal(t, []any{"Stable", int32(2), memberConsumer}, []any{got[0].State, got[0].Epoch, got[0].Members[0].MemberType})
	require.Equal(t, "t", got[0].Members[0].Assignment.TopicPartitions[0].Topic)
	require.Equal(t, []int16{kerr.InvalidGroupID.Code, kerr.GroupIDNotFound.Code}, []int16{got[1].ErrorCode, got[2].ErrorCode})
	require.Empty(t, got[2].State)

	commit := func(version int16, group, member string, epoch, partition int32) int16 {
		r := kmsg.NewPtrOffsetCommitRequest()
		r.Version, r.Group, r.MemberID, r.Generation = version, group, member, epoch
		r.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", TopicID: id, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: partition, Offset: 3}}}}
		return c.call(r).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
	}
	require.Zero(t, commit(10, "g", "m", 2, 0))
	require.Equal(t, kerr.UnsupportedVersion.Code, commit(8, "g", "m", 2, 0))
	require.Equal(t, kerr.UnknownTopicOrPartition.Code, commit(10, "g", "m", 2, 2))
	require.Equal(t, kerr.StaleMemberEpoch.Code, commit(9, "g", "m", 3, 0))
	require.Equal(t, kerr.GroupIDNotFound.Code, commit(9, "nobody", "m", 2, 0))
	require.Equal(t, kerr.IllegalGeneration.Code, commit(8, "nobody", "m", 2, 0))
}
