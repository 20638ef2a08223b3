package stub

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/wire"
)

// handle answers from the tables.
func (b *Broker) handle(req *Request) kmsg.Response {
	switch body := req.Body.(type) {
	case *kmsg.FetchRequest:
		return b.fetch(req)
	case *kmsg.ApiVersionsRequest:
		return b.apiVersions(req)
	case *kmsg.MetadataRequest:
		return b.metadata(body)
	case *kmsg.ListOffsetsRequest:
		return b.listOffsets(body)
	case *kmsg.OffsetForLeaderEpochRequest:
		return b.offsetForLeaderEpoch(body)
	case *kmsg.FindCoordinatorRequest:
		return b.findCoordinator(body)
	case *kmsg.OffsetFetchRequest:
		return b.offsetFetch(body)
	case *kmsg.DescribeShareGroupOffsetsRequest:
		return b.describeShares(body)
	case *kmsg.ListGroupsRequest:
		return b.listGroups(body)
	case *kmsg.DescribeConfigsRequest:
		return b.describeConfigs(body)
	case *kmsg.DescribeACLsRequest:
		return b.describeACLs(body)
	case *kmsg.DescribeClusterRequest:
		return b.describeCluster(body)
	case *wire.DescribeClusterMirrorsRequest:
		return b.describeMirrors(body)
	}
	return nil
}

func (b *Broker) apiVersions(req *Request) kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	const unsupportedVersion = 35
	if req.Version < 0 {
		resp.ErrorCode = unsupportedVersion
	} else {
		resp.Version = req.Version
	}
	b.c.Read(func(s *State) {
		for key, r := range s.Versions {
			if req.Version < 0 && key != keyAPIVersions {
				continue
			}
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MinVersion, k.MaxVersion = key, r.Min, r.Max
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
	})
	slices.SortFunc(resp.ApiKeys, func(x, y kmsg.ApiVersionsResponseApiKey) int { return int(x.ApiKey) - int(y.ApiKey) })
	return resp
}

func (b *Broker) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = req.Version
	b.c.Read(func(s *State) {
		resp.ClusterID = new(s.ClusterID)
		for _, o := range b.c.brokers {
			n := kmsg.NewMetadataResponseBroker()
			n.NodeID = o.ID
			n.Host, n.Port = o.hostPort()
			resp.Brokers = append(resp.Brokers, n)
		}
		if req.Topics == nil || (req.Version == 0 && len(req.Topics) == 0) {
			for _, t := range s.Topics {
				resp.Topics = append(resp.Topics, metadataTopic(t, req.Version))
			}
			return
		}
		for _, rt := range req.Topics {
			var t *Topic
			if rt.Topic != nil {
				t = s.Topics[*rt.Topic]
			} else {
				t = s.byID(rt.TopicID)
			}
			if t == nil {
				m := kmsg.NewMetadataResponseTopic()
				m.Topic, m.TopicID, m.ErrorCode = rt.Topic, rt.TopicID, codeUnknownTopic
				resp.Topics = append(resp.Topics, m)
				continue
			}
			resp.Topics = append(resp.Topics, metadataTopic(t, req.Version))
		}
	})
	return resp
}

func metadataTopic(t *Topic, version int16) kmsg.MetadataResponseTopic {
	m := kmsg.NewMetadataResponseTopic()
	m.Topic, m.IsInternal, m.ErrorCode = new(t.Name), t.Internal, t.Code
	if version >= 10 {
		m.TopicID = t.ID
	}
	for i, p := range t.Partitions {
		mp := kmsg.NewMetadataResponseTopicPartition()
		mp.Partition, mp.Leader, mp.LeaderEpoch = int32(i), p.Leader, p.Epoch
		mp.Replicas, mp.ISR = []int32{max(0, p.Leader)}, []int32{max(0, p.Leader)}
		if p.Leader < 0 {
			const leaderNotAvailable = 5
			mp.ErrorCode = leaderNotAvailable
		}
		m.Partitions = append(m.Partitions, mp)
	}
	return m
}

func (b *Broker) listOffsets(req *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version = req.Version
	b.c.Read(func(s *State) {
		for _, rt := range req.Topics {
			t := kmsg.NewListOffsetsResponseTopic()
			t.Topic = rt.Topic
			for _, rp := range rt.Partitions {
				t.Partitions = append(t.Partitions, b.listOffset(s.Topics[rt.Topic], rp))
			}
			resp.Topics = append(resp.Topics, t)
		}
	})
	return resp
}

func (b *Broker) listOffset(t *Topic, req kmsg.ListOffsetsRequestTopicPartition) kmsg.ListOffsetsResponseTopicPartition {
	kp := kmsg.NewListOffsetsResponseTopicPartition()
	kp.Partition, kp.Offset, kp.Timestamp = req.Partition, -1, -1
	if t == nil || int(req.Partition) >= len(t.Partitions) {
		kp.ErrorCode = codeUnknownTopic
		return kp
	}
	p := t.Partitions[req.Partition]
	switch {
	case p.Leader != b.ID:
		kp.ErrorCode = codeNotLeader
	case req.CurrentLeaderEpoch >= 0 && req.CurrentLeaderEpoch < p.Epoch:
		kp.ErrorCode = codeFencedLeaderEpoch
	case req.CurrentLeaderEpoch > p.Epoch:
		kp.ErrorCode = codeUnknownLeaderEpoch
	case req.Timestamp == -2:
		kp.Offset, kp.LeaderEpoch = p.LogStart, p.Epoch
	default:
		kp.Offset, kp.LeaderEpoch = p.HighWatermark(), p.Epoch
	}
	return kp
}

func (b *Broker) offsetForLeaderEpoch(req *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.Version = req.Version
	b.c.Read(func(s *State) {
		for _, rt := range req.Topics {
			t := kmsg.NewOffsetForLeaderEpochResponseTopic()
			t.Topic = rt.Topic
			for _, rp := range rt.Partitions {
				kp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				kp.Partition, kp.LeaderEpoch, kp.EndOffset = rp.Partition, -1, -1
				if st := s.Topics[rt.Topic]; st == nil || int(rp.Partition) >= len(st.Partitions) {
					kp.ErrorCode = codeUnknownTopic
				} else {
					kp.LeaderEpoch, kp.EndOffset = st.Partitions[rp.Partition].epochEnd(rp.LeaderEpoch)
				}
				t.Partitions = append(t.Partitions, kp)
			}
			resp.Topics = append(resp.Topics, t)
		}
	})
	return resp
}

// findCoordinator: this broker coordinates every group.
func (b *Broker) findCoordinator(req *kmsg.FindCoordinatorRequest) kmsg.Response {
	resp := kmsg.NewPtrFindCoordinatorResponse()
	resp.Version, resp.NodeID = req.Version, b.ID
	resp.Host, resp.Port = b.hostPort()
	for _, key := range req.CoordinatorKeys {
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID, c.Host, c.Port = key, b.ID, resp.Host, resp.Port
		resp.Coordinators = append(resp.Coordinators, c)
	}
	return resp
}

func (b *Broker) offsetFetch(req *kmsg.OffsetFetchRequest) kmsg.Response {
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Version = req.Version
	b.c.Read(func(s *State) {
		for _, rg := range req.Groups {
			g := kmsg.NewOffsetFetchResponseGroup()
			g.Group = rg.Group
			for topic, parts := range s.Groups[rg.Group].byTopic() {
				t := kmsg.NewOffsetFetchResponseGroupTopic()
				t.Topic = topic
				for p, o := range parts {
					kp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
					kp.Partition, kp.Offset, kp.LeaderEpoch, kp.Metadata = p, o.Offset, o.Epoch, new(o.Metadata)
					t.Partitions = append(t.Partitions, kp)
				}
				g.Topics = append(g.Topics, t)
			}
			resp.Groups = append(resp.Groups, g)
		}
		if len(req.Groups) > 0 {
			return
		}
		for topic, parts := range s.Groups[req.Group].byTopic() {
			t := kmsg.NewOffsetFetchResponseTopic()
			t.Topic = topic
			for p, o := range parts {
				kp := kmsg.NewOffsetFetchResponseTopicPartition()
				kp.Partition, kp.Offset, kp.LeaderEpoch, kp.Metadata = p, o.Offset, o.Epoch, new(o.Metadata)
				t.Partitions = append(t.Partitions, kp)
			}
			resp.Topics = append(resp.Topics, t)
		}
	})
	return resp
}

func (g *Group) byTopic() map[string]map[int32]GroupOffset {
	out := make(map[string]map[int32]GroupOffset)
	if g == nil {
		return out
	}
	for tp, o := range g.Offsets {
		if out[tp.Topic] == nil {
			out[tp.Topic] = make(map[int32]GroupOffset)
		}
		out[tp.Topic][tp.Partition] = o
	}
	return out
}

// describeShares tells offsets of share groups; State.Versions has no key 90 unless a
// test puts it in.
func (b *Broker) describeShares(req *kmsg.DescribeShareGroupOffsetsRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeShareGroupOffsetsResponse()
	resp.Version = req.Version
	b.c.Read(func(s *State) {
		for _, rg := range req.Groups {
			g := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
			g.GroupID = rg.GroupID
			for topic, parts := range s.Groups[rg.GroupID].byTopic() {
				t := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopic()
				t.Topic = topic
				for p, o := range parts {
					kp := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopicPartition()
					kp.Partition, kp.StartOffset = p, o.Offset
					t.Partitions = append(t.Partitions, kp)
				}
				g.Topics = append(g.Topics, t)
			}
			resp.Groups = append(resp.Groups, g)
		}
	})
	return resp
}

// listGroups: broker 0 knows all groups.
func (b *Broker) listGroups(req *kmsg.ListGroupsRequest) kmsg.Response {
	resp := kmsg.NewPtrListGroupsResponse()
	resp.Version = req.Version
	b.c.Read(func(s *State) {
		for name, g := range s.Groups {
			if b.ID != 0 || (len(req.StatesFilter) > 0 && !slices.Contains(req.StatesFilter, g.State)) ||
				(len(req.TypesFilter) > 0 && !slices.Contains(req.TypesFilter, g.Type)) {
				continue
			}
			kg := kmsg.NewListGroupsResponseGroup()
			kg.Group, kg.ProtocolType, kg.GroupState, kg.GroupType = name, "consumer", g.State, g.Type
			resp.Groups = append(resp.Groups, kg)
		}
	})
	return resp
}

func (b *Broker) describeConfigs(req *kmsg.DescribeConfigsRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeConfigsResponse()
	resp.Version = req.Version
	b.c.Read(func(s *State) {
		for _, rr := range req.Resources {
			r := kmsg.NewDescribeConfigsResponseResource()
			r.ResourceType, r.ResourceName = rr.ResourceType, rr.ResourceName
			t := s.Topics[rr.ResourceName]
			switch {
			case rr.ResourceType != kmsg.ConfigResourceTypeTopic:
			case t == nil:
				r.ErrorCode = codeUnknownTopic
			case t.Code != 0:
				r.ErrorCode = t.Code
			default:
				for name, value := range t.Configs {
					r.Configs = append(r.Configs, config(name, value, kmsg.ConfigSourceDynamicTopicConfig))
				}
				r.Configs = append(r.Configs, config("segment.jitter.ms", "0", kmsg.ConfigSourceDefaultConfig))
			}
			resp.Resources = append(resp.Resources, r)
		}
	})
	return resp
}

func config(name, value string, source kmsg.ConfigSource) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Value, c.Source = name, new(value), source
	c.IsDefault = source == kmsg.ConfigSourceDefaultConfig
	return c
}

func (b *Broker) describeACLs(req *kmsg.DescribeACLsRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeACLsResponse()
	resp.Version = req.Version
	b.c.Read(func(s *State) { resp.Resources = slices.Clone(s.ACLs) })
	return resp
}

func (b *Broker) describeCluster(req *kmsg.DescribeClusterRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.Version = req.Version
	b.c.Read(func(s *State) {
		resp.ClusterID = s.ClusterID
		for _, o := range b.c.brokers {
			n := kmsg.NewDescribeClusterResponseBroker()
			n.NodeID = o.ID
			n.Host, n.Port = o.hostPort()
			resp.Brokers = append(resp.Brokers, n)
		}
	})
	return resp
}

func (b *Broker) describeMirrors(req *wire.DescribeClusterMirrorsRequest) kmsg.Response {
	resp := wire.NewPtrDescribeClusterMirrorsResponse()
	b.c.Read(func(s *State) {
		for _, m := range s.Mirrors[b.ID] {
			if len(req.MirrorNames) == 0 || slices.Contains(req.MirrorNames, m.MirrorName) {
				resp.Mirrors = append(resp.Mirrors, m)
			}
		}
		for _, name := range req.MirrorNames {
			known := slices.ContainsFunc(s.Mirrors[b.ID], func(m wire.DescribeClusterMirrorsResponseDescribedMirror) bool { return m.MirrorName == name })
			if !known {
				m := wire.NewDescribeClusterMirrorsResponseDescribedMirror()
				m.MirrorName, m.ErrorCode = name, wire.CodeUnknownClusterMirror
				resp.Mirrors = append(resp.Mirrors, m)
			}
		}
	})
	return resp
}

// Mirror is a table entry for State.Mirrors: a mirror with partitions of one
// topic, by number, in a state and with an LME.
func Mirror(name string, state messages.State, lme map[messages.TopicPartition]int32) wire.DescribeClusterMirrorsResponseDescribedMirror {
	m := wire.NewDescribeClusterMirrorsResponseDescribedMirror()
	m.MirrorName = name
	for tp, e := range lme {
		t := wire.NewDescribeClusterMirrorsResponseTopicPartitions()
		t.TopicName = tp.Topic
		p := wire.NewDescribeClusterMirrorsResponsePartitionDetail()
		p.PartitionIndex, p.State, p.LastMirrorEpoch = tp.Partition, state.String(), e
		t.Partitions = append(t.Partitions, p)
		m.Topics = append(m.Topics, t)
	}
	return m
}
