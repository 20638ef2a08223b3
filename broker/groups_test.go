package broker

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupSample is a well-formed request for each key of groups.
func groupSample(w *world, key, version int16, n int) kmsg.Request {
	id := w.Image().Topic("t").ID
	name := fmt.Sprintf("g-%d", n)
	var req kmsg.Request
	switch key {
	case 8:
		r := kmsg.NewPtrOffsetCommitRequest()
		r.Group, r.Generation = name, -1
		r.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", TopicID: id, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 1}}}}
		req = r
	case 9:
		r := kmsg.NewPtrOffsetFetchRequest()
		r.Group, r.Topics = name, []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0}}}
		r.Groups = []kmsg.OffsetFetchRequestGroup{{Group: name, Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", TopicID: id, Partitions: []int32{0}}}}}
		req = r
	case 11:
		r := kmsg.NewPtrJoinGroupRequest()
		r.Group, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.ProtocolType = name, 10000, 10000, "consumer"
		r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 0}}}
		req = r
	case 12:
		r := kmsg.NewPtrHeartbeatRequest()
		r.Group = name
		req = r
	case 13:
		r := kmsg.NewPtrLeaveGroupRequest()
		r.Group, r.Members = name, []kmsg.LeaveGroupRequestMember{{MemberID: "m"}}
		req = r
	case 14:
		r := kmsg.NewPtrSyncGroupRequest()
		r.Group, r.ProtocolType, r.Protocol = name, new("consumer"), new("range")
		req = r
	case 15:
		r := kmsg.NewPtrDescribeGroupsRequest()
		r.Groups = []string{name}
		req = r
	case 16:
		req = kmsg.NewPtrListGroupsRequest()
	case 42:
		r := kmsg.NewPtrDeleteGroupsRequest()
		r.Groups = []string{name}
		req = r
	case 68:
		r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		r.Group, r.MemberID, r.RebalanceTimeoutMillis = name, "m", 10000
		r.SubscribedTopicNames, r.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		req = r
	case 69:
		r := kmsg.NewPtrConsumerGroupDescribeRequest()
		r.Groups = []string{name}
		req = r
	default:
		r := kmsg.NewPtrOffsetDeleteRequest()
		r.Group = name
		r.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{}}}}
		req = r
	}
	req.SetVersion(version)
	return req
}
