package metadata

import (
	"maps"
	"slices"

	"kagami/messages"
	"kagami/messages/wire"
)

// records calls add with records that build the image from nothing, in an
// order that is the same for equal images. TopicRecords carry CreatedAt.
func (i *Image) records(add func(Record)) {
	if i.clusterID != "" {
		r := wire.NewPtrClusterRecord()
		r.ClusterID = i.clusterID
		add(r)
	}
	if i.controllerEpoch > 0 {
		r := wire.NewPtrControllerClaimRecord()
		r.NodeID, r.Epoch = int32(i.controller), i.controllerEpoch
		add(r)
	}
	for _, name := range slices.Sorted(maps.Keys(i.features)) {
		r := wire.NewPtrFeatureLevelRecord()
		r.Name, r.FeatureLevel = name, i.features[name]
		add(r)
	}
	if i.nextProducerID > 0 {
		r := wire.NewPtrProducerIdsRecord()
		r.BrokerID, r.NextProducerID = int32(messages.NoNode), i.nextProducerID
		add(r)
	}
	for _, n := range i.nodes {
		add(NodeRecord(n))
	}
	for _, id := range i.gone {
		r := wire.NewPtrUnregisterNodeRecord()
		r.NodeID = int32(id)
		add(r)
	}
	for _, t := range i.sorted {
		t.records(add)
	}
	i.mirrorAndBrokerRecords(add)
	for _, name := range slices.Sorted(maps.Keys(i.groups)) {
		configRecords(add, messages.ResourceGroup, name, i.groups[name])
	}
	for _, name := range slices.Sorted(maps.Keys(i.metrics)) {
		configRecords(add, messages.ResourceClientMetrics, name, i.metrics[name])
	}
	for _, q := range i.quotas {
		for _, key := range slices.Sorted(maps.Keys(q.Limits)) {
			limit := q.Limits[key]
			add(QuotaRecord(q.Entity, key, &limit))
		}
	}
	i.securityRecords(add)
}

func (i *Image) mirrorAndBrokerRecords(add func(Record)) {
	for _, m := range i.mirrors {
		configRecords(add, messages.ResourceClusterMirror, m.Name, m.Configs)
	}
	for _, name := range slices.Sorted(maps.Keys(i.brokers)) {
		configRecords(add, messages.ResourceBroker, name, i.brokers[name])
	}
}

func (t *Topic) records(add func(Record)) {
	r := wire.NewPtrTopicRecord()
	r.Name, r.TopicID, r.CreatedAt = t.Name, t.ID, t.CreatedAt
	add(r)
	for n, p := range t.Partitions {
		add(PartitionRecord(t.ID, int32(n), p))
	}
	configRecords(add, messages.ResourceTopic, t.Name, t.Configs)
}

func configRecords(add func(Record), typ messages.ResourceType, name string, configs map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(configs)) {
		value := configs[key]
		add(ConfigRecord(typ, name, key, &value))
	}
}

// NodeRecord is the record that registers n.
func NodeRecord(n messages.Node) *wire.RegisterNodeRecord {
	r := wire.NewPtrRegisterNodeRecord()
	r.NodeID, r.Rack, r.Incarnation = int32(n.ID), n.Rack, n.Incarnation
	for _, e := range n.Endpoints {
		w := wire.NewRegisterNodeRecordNodeEndpoint()
		w.Listener, w.Protocol, w.Host, w.Port = e.Listener, e.Protocol, e.Host, e.Port
		r.Endpoints = append(r.Endpoints, w)
	}
	return r
}

// PartitionRecord is the record that creates or replaces partition n.
func PartitionRecord(topic messages.TopicID, n int32, p Partition) *wire.PartitionRecord {
	r := wire.NewPtrPartitionRecord()
	r.TopicID, r.PartitionID = topic, n
	r.Leader, r.LeaderEpoch, r.PartitionEpoch = int32(p.Leader), p.LeaderEpoch, p.PartitionEpoch
	r.Replicas, r.Isr = int32s(p.Replicas), int32s(p.ISR)
	return r
}

// ConfigRecord is the record that sets a config; a nil value removes it.
func ConfigRecord(typ messages.ResourceType, name, key string, value *string) *wire.ConfigRecord {
	r := wire.NewPtrConfigRecord()
	r.ResourceType, r.ResourceName, r.Name, r.Value = int8(typ), name, key, value
	return r
}

func int32s(ids []messages.NodeID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}
