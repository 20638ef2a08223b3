package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
)

// oneBatch is a producer's batch.
func oneBatch(values ...string) []byte {
	var records []batch.Record
	for _, v := range values {
		records = append(records, batch.Record{Timestamp: time.Now().UnixMilli(), Key: []byte("k"), Value: []byte(v)})
	}
	return batch.Append(nil, batch.Plain(), records...)
}

func produceRequest(version, acks int16, t string, id messages.TopicID, partition int32, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, acks, 5000
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: t, TopicID: id, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: partition, Records: records}}}}
	return req
}

// sample is a well-formed request for each key of the table.
func sample(w *world, key, version int16, n int) kmsg.Request {
	topic := w.Image().Topic("t")
	name := fmt.Sprintf("new-%d", n)
	switch key {
	case 0:
		return produceRequest(version, 1, "t", topic.ID, 0, oneBatch("v"))
	case 1:
		req := fetchRequest(version, fetchPart{"t", topic.ID, 0, 0})
		return req
	case 2:
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version = version
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp = -1
		req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
		return req
	case 3:
		req := kmsg.NewPtrMetadataRequest()
		req.Version = version
		req.Topics = []kmsg.MetadataRequestTopic{{Topic: new("t")}}
		return req
	case 10:
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorKey, req.CoordinatorKeys = version, "m", []string{"m"}
		req.CoordinatorType = 3
		return req
	case 8, 9, 11, 12, 13, 14, 15, 16, 42, 47, 68, 69:
		return groupSample(w, key, version, n)
	case 18:
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = version, "tests", "1.0"
		return req
	case 19:
		req := kmsg.NewPtrCreateTopicsRequest()
		req.Version = version
		req.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: name, NumPartitions: 1, ReplicationFactor: 1}}
		return req
	case 20:
		w.topic(name, 1, nil)
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.Version, req.TopicNames, req.Topics = version, []string{name}, []kmsg.DeleteTopicsRequestTopic{{Topic: &name}}
		return req
	case 21:
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Version = version
		req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: 0}}}}
		return req
	case 22:
		req := kmsg.NewPtrInitProducerIDRequest()
		req.Version = version
		return req
	case 23:
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Version = version
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{p}}}
		return req
	case 32:
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Version, req.IncludeSynonyms, req.IncludeDocumentation = version, true, true
		req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: 2, ResourceName: "t"}, {ResourceType: 4, ResourceName: "1"}, {ResourceType: 64, ResourceName: "m"}}
		return req
	case 33:
		req := kmsg.NewPtrAlterConfigsRequest()
		req.Version = version
		req.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: 2, ResourceName: "t", Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: new("-1")}}}}
		return req
	case 37:
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.Version = version
		req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "grow", Count: int32(len(w.Image().Topic("grow").Partitions)) + 1}}
		return req
	case 44:
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.Version = version
		req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: 64, ResourceName: "m", Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "bootstrap.servers", Value: new("127.0.0.1:2")}}}}
		return req
	case 60:
		req := kmsg.NewPtrDescribeClusterRequest()
		req.Version = version
		return req
	case 64:
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.Version, req.BrokerID = version, 99
		return req
	case 75:
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "t"}}
		return req
	}
	if req := txnSample(key, version); req != nil {
		return req
	}
	if req := securitySample(key); req != nil {
		return req
	}
	if req := adminSample(key); req != nil {
		return req
	}
	return mirrorSample(key)
}

func mirrorSample(key int16) kmsg.Request {
	req := wire.RequestForKey(key)
	switch req := req.(type) {
	case *wire.CreateClusterMirrorRequest:
		req.MirrorName = "m2"
		req.Config = []wire.CreateClusterMirrorRequestClusterMirrorConfig{{Name: "bootstrap.servers", Value: new("127.0.0.1:9")}}
	case *wire.StartMirrorTopicsRequest:
		req.MirrorName = "m"
		req.Topics = []wire.StartMirrorTopicsRequestTopicData{{TopicName: "copy", TopicID: messages.NewTopicID(), NumPartitions: 2}}
	case *wire.StopMirrorTopicsRequest:
		req.MirrorName, req.Topics = "m", []wire.StopMirrorTopicsRequestTopicData{{TopicName: "copy"}}
	case *wire.PauseMirrorTopicsRequest:
		req.MirrorName, req.Topics = "m", []wire.PauseMirrorTopicsRequestTopicData{{TopicName: "copy"}}
	case *wire.ResumeMirrorTopicsRequest:
		req.MirrorName, req.Topics = "m", []wire.ResumeMirrorTopicsRequestTopicData{{TopicName: "copy"}}
	case *wire.RecoverMirrorTopicsRequest:
		req.MirrorName, req.Topics = "m", []wire.RecoverMirrorTopicsRequestTopicData{{TopicName: "copy"}}
	case *wire.DeleteClusterMirrorRequest:
		req.MirrorName = "m2"
	case *wire.PlanMirrorStartRequest:
		req.MirrorName, req.IncludePatterns = "m", []string{".*"}
	case *wire.ReadMirrorStatesRequest:
		req.MirrorName = "m"
		req.Topics = []wire.ReadMirrorStatesRequestTopicStates{{Name: "copy", Partitions: []wire.ReadMirrorStatesRequestPartitionRef{{PartitionIndex: 0}}}}
	case *wire.WriteMirrorStatesRequest:
		req.MirrorName = "m"
		p := wire.NewWriteMirrorStatesRequestPartitionStateData()
		p.State = int8(messages.StateMirroring)
		req.Topics = []wire.WriteMirrorStatesRequestTopicStates{{Name: "copy", Partitions: []wire.WriteMirrorStatesRequestPartitionStateData{p}}}
	}
	return req
}

// TestC43EveryAdvertisedVersion sends every key in every version of its range,
// on one connection: none may be answered by hanging up.
func TestC43EveryAdvertisedVersion(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, nil)
	w.topic("grow", 1, nil)
	w.topic(messages.MirrorStateTopic, 3, nil)
	w.mirrorOf("m", nil)
	c := w.dial()
	n := 0
	for _, a := range apis() {
		for v := a.min; v <= a.max; v++ {
			t.Run(fmt.Sprintf("%s v%d", a.name, v), func(t *testing.T) {
				c.t = t
				n++
				req := sample(w, a.key, v, n)
				req.SetVersion(v)
				c.call(req)
			})
		}
	}
}

func TestC43TableIsWhatIsAdvertised(t *testing.T) {
	w := newWorld(t)
	c := w.dial()
	for v := int16(0); v <= apiVersionsMax; v++ {
		req := sample(w, keyAPIVersions, v, 0)
		resp := c.call(req).(*kmsg.ApiVersionsResponse)
		require.Zero(t, resp.ErrorCode)
		got := map[int16][2]int16{}
		for i, k := range resp.ApiKeys {
			if i > 0 {
				require.Less(t, resp.ApiKeys[i-1].ApiKey, k.ApiKey, "keys are in order")
			}
			got[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
		}
		for _, a := range apis() {
			require.Equal(t, [2]int16{a.min, a.max}, got[a.key], a.name)
		}
		require.Len(t, got, len(apis()))
	}
}

// TestC43TooNewAPIVersions: error 35 in the layout of v0, on a connection that
// lives on.
func TestC43TooNewAPIVersions(t *testing.T) {
	w := newWorld(t)
	c := w.dial()
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 127, "tests", "1"
	correlation := c.send(req)
	old := kmsg.NewPtrApiVersionsRequest()
	resp := c.receive(old, correlation).(*kmsg.ApiVersionsResponse)
	require.Equal(t, int16(35), resp.ErrorCode)
	require.Equal(t, []kmsg.ApiVersionsResponseApiKey{{ApiKey: 18, MinVersion: 0, MaxVersion: apiVersionsMax}}, resp.ApiKeys)
	require.Zero(t, c.call(old).(*kmsg.ApiVersionsResponse).ErrorCode)
}
