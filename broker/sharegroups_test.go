package broker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestShareGroups: a share group is made by its offsets, told, and deleted; each thing
// that is wrong costs itself alone.
func TestShareGroups(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 2, nil).ID
	c := w.dial()
	alter := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	alter.GroupID = "s"
	for _, topic := range []string{"t", "nowhere"} {
		alter.Topics = append(alter.Topics, kmsg.AlterShareGroupOffsetsRequestTopic{Topic: topic, Partitions: []kmsg.AlterShareGroupOffsetsRequestTopicPartition{{Partition: 0}, {Partition: 9}}})
	}
	a := c.call(alter).(*kmsg.AlterShareGroupOffsetsResponse)
	require.Zero(t, a.ErrorCode)
	require.Equal(t, [16]byte(id), a.Topics[0].TopicID)
	unknown := kerr.UnknownTopicOrPartition.Code
	require.Equal(t, []int16{0, unknown, unknown, unknown}, []int16{
		a.Topics[0].Partitions[0].ErrorCode, a.Topics[0].Partitions[1].ErrorCode, a.Topics[1].Partitions[0].ErrorCode, a.Topics[1].Partitions[1].ErrorCode,
	})
	alter.GroupID = ""
	require.Equal(t, kerr.InvalidGroupID.Code, c.call(alter).(*kmsg.AlterShareGroupOffsetsResponse).ErrorCode)

	offsets := func(group string, topics ...kmsg.DescribeShareGroupOffsetsRequestGroupTopic) kmsg.DescribeShareGroupOffsetsResponseGroup {
		r := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
		r.Version, r.Groups = 1, []kmsg.DescribeShareGroupOffsetsRequestGroup{{GroupID: group, Topics: topics}}
		return c.call(r).(*kmsg.DescribeShareGroupOffsetsResponse).Groups[0]
	}
	all := offsets("s")
	require.Len(t, all.Topics, 1)
	require.Len(t, all.Topics[0].Partitions, 1)
	require.Zero(t, all.Topics[0].Partitions[0].StartOffset)
	some := offsets("s", kmsg.DescribeShareGroupOffsetsRequestGroupTopic{Topic: "t", Partitions: []int32{1, 0}}, kmsg.DescribeShareGroupOffsetsRequestGroupTopic{Topic: "nowhere", Partitions: []int32{0}})
	require.Equal(t, []int64{-1, 0}, []int64{some.Topics[0].Partitions[0].StartOffset, some.Topics[0].Partitions[1].StartOffset})
	require.Zero(t, some.Topics[1].Partitions[0].ErrorCode, "who asks for offsets gets none")
	require.Equal(t, int64(-1), some.Topics[1].Partitions[0].StartOffset)
	require.Zero(t, offsets("nobody").ErrorCode)

	describe := kmsg.NewPtrShareGroupDescribeRequest()
	describe.Version, describe.GroupIDs = 1, []string{"s", "nobody", ""}
	d := c.call(describe).(*kmsg.ShareGroupDescribeResponse).Groups
	require.Equal(t, "Empty", d[0].GroupState)
	require.Equal(t, []int16{0, kerr.GroupIDNotFound.Code, kerr.InvalidGroupID.Code}, []int16{d[0].ErrorCode, d[1].ErrorCode, d[2].ErrorCode})

	del := kmsg.NewPtrDeleteShareGroupOffsetsRequest()
	del.GroupID, del.Topics = "s", []kmsg.DeleteShareGroupOffsetsRequestTopic{{Topic: "t"}, {Topic: "nowhere"}}
	got := c.call(del).(*kmsg.DeleteShareGroupOffsetsResponse)
	require.Zero(t, got.ErrorCode)
	require.Equal(t, []int16{0, unknown}, []int16{got.Topics[0].ErrorCode, got.Topics[1].ErrorCode})
	require.Empty(t, offsets("s").Topics)

	gone := kmsg.NewPtrDeleteGroupsRequest()
	gone.Version, gone.Groups = 2, []string{"s"}
	require.Zero(t, c.call(gone).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode)
	require.Equal(t, kerr.GroupIDNotFound.Code, c.call(gone).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode)
}
