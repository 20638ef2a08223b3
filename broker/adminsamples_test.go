package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// adminSample is a well-formed request for the keys of quotas, features, folders and
// replicas; nil for others.
func adminSample(key int16) kmsg.Request {
	switch key {
	case 34:
		req := kmsg.NewPtrAlterReplicaLogDirsRequest()
		req.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: "/d", Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: "t", Partitions: []int32{0}}}}}
		return req
	case 35:
		return kmsg.NewPtrDescribeLogDirsRequest()
	case 43:
		req := kmsg.NewPtrElectLeadersRequest()
		req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "t", Partitions: []int32{0}}}
		return req
	case 45:
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "t", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Replicas: []int32{1}}}}}
		return req
	case 46:
		return kmsg.NewPtrListPartitionReassignmentsRequest()
	case 48:
		req := kmsg.NewPtrDescribeClientQuotasRequest()
		req.Components = []kmsg.DescribeClientQuotasRequestComponent{{EntityType: "user", MatchType: kmsg.QuotasMatchTypeAny}}
		return req
	case 49:
		req := kmsg.NewPtrAlterClientQuotasRequest()
		req.Entries = []kmsg.AlterClientQuotasRequestEntry{{
			Entity: []kmsg.AlterClientQuotasRequestEntryEntity{{Type: "user", Name: new("u")}},
			Ops:    []kmsg.AlterClientQuotasRequestEntryOp{{Key: messages.QuotaProduceRate, Value: 1e9}},
		}}
		return req
	case 57:
		req := kmsg.NewPtrUpdateFeaturesRequest()
		req.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: messages.MirrorVersionFeature, MaxVersionLevel: 1, UpgradeType: 1}}
		return req
	case 74:
		return kmsg.NewPtrListConfigResourcesRequest()
	case 77:
		req := kmsg.NewPtrShareGroupDescribeRequest()
		req.GroupIDs = []string{"s"}
		return req
	case 90:
		req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
		req.Groups = []kmsg.DescribeShareGroupOffsetsRequestGroup{{GroupID: "s"}}
		return req
	case 91:
		req := kmsg.NewPtrAlterShareGroupOffsetsRequest()
		req.GroupID = "s"
		req.Topics = []kmsg.AlterShareGroupOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.AlterShareGroupOffsetsRequestTopicPartition{{StartOffset: 1}}}}
		return req
	case 92:
		req := kmsg.NewPtrDeleteShareGroupOffsetsRequest()
		req.GroupID, req.Topics = "s", []kmsg.DeleteShareGroupOffsetsRequestTopic{{Topic: "t"}}
		return req
	default:
		return nil
	}
}

// adminLocked carries out the commands of those requests; ok is false for others.
func (w *world) adminLocked(cmd messages.Command) (items []messages.Item, ok bool) {
	switch c := cmd.(type) {
	case messages.AlterClientQuotas:
		for _, e := range c.Entries {
			for _, v := range e.Values {
				w.applyLocked(metadata.QuotaRecord(e.Entity, v.Key, v.Value))
			}
			items = append(items, messages.Item{})
		}
	case messages.UpdateFeatures:
		for _, u := range c.Updates {
			r := wire.NewPtrFeatureLevelRecord()
			r.Name, r.FeatureLevel = u.Name, u.Level
			w.applyLocked(r)
			items = append(items, messages.Item{})
		}
	case messages.ElectLeaders:
		for _, e := range c.Elections {
			r := wire.NewPtrPartitionChangeRecord()
			r.TopicID, r.PartitionID, r.Leader = e.TopicID, e.Partition, int32(e.Node)
			w.applyLocked(r)
			items = append(items, messages.Item{})
		}
	case messages.ReassignPartitions:
		items = make([]messages.Item, len(c.Changes))
	default:
		return nil, false
	}
	return items, true
}
