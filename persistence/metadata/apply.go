package metadata

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"kagami/messages"
	"kagami/messages/wire"
)

// noLeaderChange in PartitionChangeRecord.Leader keeps the leader, as in KRaft.
const noLeaderChange = -2

// Apply returns what records change when they stand in the log from offset base
// on, as one batch. i itself stays as it is. A record that contradicts the image
// wraps ErrBadRecord. The controller uses it to look ahead of the log.
func (i *Image) Apply(base int64, records []Record) (Delta, error) {
	b := newBuilder(i)
	for n, r := range records {
		if err := b.apply(base+int64(n), r); err != nil {
			return Delta{}, err
		}
	}
	return b.finish(base + int64(len(records)) - 1), nil
}

// builder makes the next image. It copies what it changes, once: maps of topics
// per change, partitions only of the topics it touches.
type builder struct {
	old      *Image
	img      *Image
	delta    Delta
	ownTopic map[*Topic]topicOwn
	ownMaps  bool
	ownNodes bool
	ownMirr  map[string]*Mirror // mirrors that were copied; nil value: deleted
	ownBrok  map[string]bool
	ownGroup map[string]bool
	ownACLs  bool
	ownScram bool
	ownSubs  map[string]bool // subscriptions of client metrics that were copied
}

type topicOwn struct{ partitions, configs bool }

func newBuilder(old *Image) *builder {
	img := *old
	return &builder{
		old: old, img: &img,
		delta: Delta{
			Old: old, Topics: make(map[string]struct{}), Mirrors: make(map[string]struct{}),
		},
	}
}

// apply changes the image being built by one record at an offset of the log.
func (b *builder) apply(offset int64, r Record) error {
	switch r := r.(type) {
	case *wire.TopicRecord:
		return b.createTopic(offset, r)
	case *wire.PartitionRecord:
		return b.setPartition(r)
	case *wire.PartitionChangeRecord:
		return b.changePartition(r)
	case *wire.RemoveTopicRecord:
		return b.removeTopic(r)
	case *wire.ConfigRecord:
		return b.setConfig(r)
	case *wire.RegisterNodeRecord:
		b.registerNode(r)
	case *wire.UnregisterNodeRecord:
		b.unregisterNode(messages.NodeID(r.NodeID))
	case *wire.FeatureLevelRecord:
		b.img.features = maps.Clone(b.img.features)
		if b.img.features == nil {
			b.img.features = make(map[string]int16)
		}
		b.img.features[r.Name] = r.FeatureLevel
		b.delta.Features = true
	case *wire.ClientQuotaRecord:
		return b.setQuota(r)
	case *wire.AccessControlEntryRecord:
		return b.setACL(r)
	case *wire.RemoveAccessControlEntryRecord:
		return b.removeACL(r)
	case *wire.UserScramCredentialRecord:
		b.setScram(r)
	case *wire.RemoveUserScramCredentialRecord:
		return b.removeScram(r)
	case *wire.ProducerIdsRecord:
		b.img.nextProducerID = r.NextProducerID
	case *wire.ClusterRecord:
		if b.img.clusterID != "" && b.img.clusterID != r.ClusterID {
			return fmt.Errorf("%w: cluster id %q in a log of cluster %q", ErrBadRecord, r.ClusterID, b.img.clusterID)
		}
		b.img.clusterID = r.ClusterID
	case *wire.ControllerClaimRecord:
		if r.Epoch <= b.img.controllerEpoch {
			return fmt.Errorf("%w: controller claim with epoch %d after epoch %d", ErrBadRecord, r.Epoch, b.img.controllerEpoch)
		}
		b.img.controller, b.img.controllerEpoch = messages.NodeID(r.NodeID), r.Epoch
		b.delta.Controller = true
	default:
		return fmt.Errorf("%w: %T", ErrUnknownRecord, r)
	}
	return nil
}

func (b *builder) createTopic(offset int64, r *wire.TopicRecord) error {
	if t := b.img.topics[r.Name]; t != nil {
		return fmt.Errorf("%w: topic %s exists with id %s", ErrBadRecord, r.Name, t.ID)
	}
	if t := b.img.byID[r.TopicID]; t != nil {
		return fmt.Errorf("%w: topic id %s belongs to %s", ErrBadRecord, r.TopicID, t.Name)
	}
	if r.CreatedAt >= 0 {
		offset = r.CreatedAt
	}
	b.ownTopicMaps()
	t := &Topic{Name: r.Name, ID: r.TopicID, CreatedAt: offset, Desired: messages.DesiredNone}
	b.ownTopic[t] = topicOwn{partitions: true}
	b.putTopic(t)
	return nil
}

func (b *builder) setPartition(r *wire.PartitionRecord) error {
	t, err := b.topic(r.TopicID, true)
	if err != nil {
		return fmt.Errorf("partition record: %w", err)
	}
	p := Partition{
		Leader: messages.NodeID(r.Leader), LeaderEpoch: r.LeaderEpoch, PartitionEpoch: r.PartitionEpoch,
		Replicas: nodeIDs(r.Replicas), ISR: nodeIDs(r.Isr),
	}
	switch n := int(r.PartitionID); {
	case n == len(t.Partitions):
		t.Partitions = append(t.Partitions, p)
	case n >= 0 && n < len(t.Partitions):
		t.Partitions[n] = p
	default:
		return fmt.Errorf("%w: partition %d of %s, which has %d", ErrBadRecord, n, t.Name, len(t.Partitions))
	}
	return nil
}

func (b *builder) changePartition(r *wire.PartitionChangeRecord) error {
	t, err := b.topic(r.TopicID, true)
	if err != nil {
		return fmt.Errorf("partition change: %w", err)
	}
	if r.PartitionID < 0 || int(r.PartitionID) >= len(t.Partitions) {
		return fmt.Errorf("%w: change of partition %d of %s, which has %d", ErrBadRecord, r.PartitionID, t.Name, len(t.Partitions))
	}
	p := &t.Partitions[r.PartitionID]
	if r.Isr != nil {
		p.ISR = nodeIDs(r.Isr)
	}
	if r.Replicas != nil {
		p.Replicas = nodeIDs(r.Replicas)
	}
	switch {
	case r.MinLeaderEpoch >= 0:
		p.LeaderEpoch = max(r.MinLeaderEpoch, p.LeaderEpoch) + 1
	case r.Leader != noLeaderChange:
		p.LeaderEpoch++
	}
	if r.Leader != noLeaderChange {
		p.Leader = messages.NodeID(r.Leader)
	}
	p.PartitionEpoch++
	return nil
}

func (b *builder) removeTopic(r *wire.RemoveTopicRecord) error {
	t := b.img.byID[r.TopicID]
	if t == nil {
		return fmt.Errorf("%w: removal of topic id %s", ErrBadRecord, r.TopicID)
	}
	b.ownTopicMaps()
	delete(b.img.topics, t.Name)
	delete(b.img.byID, t.ID)
	b.touch(t.Name)
	return nil
}

func (b *builder) setConfig(r *wire.ConfigRecord) error {
	switch messages.ResourceType(r.ResourceType) {
	case messages.ResourceTopic:
		return b.setTopicConfig(r)
	case messages.ResourceBroker:
		b.setBrokerConfig(r)
	case messages.ResourceClusterMirror:
		b.setMirrorConfig(r)
	case messages.ResourceGroup:
		b.setGroupConfig(r)
	case messages.ResourceClientMetrics:
		b.setClientMetrics(r)
	case messages.ResourceBrokerLogger:
		return fmt.Errorf("%w: the level of a logger isn't kept", ErrUnknownRecord)
	default:
		return fmt.Errorf("%w: config resource type %d", ErrUnknownRecord, r.ResourceType)
	}
	return nil
}

func (b *builder) setTopicConfig(r *wire.ConfigRecord) error {
	old := b.img.topics[r.ResourceName]
	if old == nil {
		return fmt.Errorf("%w: config of topic %s, which does not exist", ErrBadRecord, r.ResourceName)
	}
	t, err := b.topic(old.ID, false)
	if err != nil {
		return err
	}
	if own := b.ownTopic[t]; !own.configs {
		t.Configs = maps.Clone(t.Configs)
		own.configs = true
		b.ownTopic[t] = own
	}
	t.Configs = put(t.Configs, r.Name, r.Value)
	if r.Name == messages.MirrorNameConfig {
		t.Mirror, t.Desired = messages.ParseMirrorName(t.Configs[r.Name])
	}
	return nil
}

func (b *builder) setBrokerConfig(r *wire.ConfigRecord) {
	if b.ownBrok == nil {
		b.ownBrok = make(map[string]bool)
		b.img.brokers = maps.Clone(b.img.brokers)
		if b.img.brokers == nil {
			b.img.brokers = make(map[string]map[string]string)
		}
	}
	m := b.img.brokers[r.ResourceName]
	if !b.ownBrok[r.ResourceName] {
		m = maps.Clone(m)
		b.ownBrok[r.ResourceName] = true
	}
	b.img.brokers[r.ResourceName] = put(m, r.Name, r.Value)
	b.delta.Brokers = true
}

func (b *builder) setGroupConfig(r *wire.ConfigRecord) {
	if b.ownGroup == nil {
		b.ownGroup = make(map[string]bool)
		b.img.groups = maps.Clone(b.img.groups)
		if b.img.groups == nil {
			b.img.groups = make(map[string]map[string]string)
		}
	}
	m := b.img.groups[r.ResourceName]
	if !b.ownGroup[r.ResourceName] {
		m = maps.Clone(m)
		b.ownGroup[r.ResourceName] = true
	}
	if m = put(m, r.Name, r.Value); len(m) == 0 {
		delete(b.img.groups, r.ResourceName)
	} else {
		b.img.groups[r.ResourceName] = m
	}
	b.delta.Groups = true
}

func (b *builder) setMirrorConfig(r *wire.ConfigRecord) {
	if b.ownMirr == nil {
		b.ownMirr = make(map[string]*Mirror)
	}
	m := b.ownMirr[r.ResourceName]
	if m == nil {
		m = &Mirror{Name: r.ResourceName}
		if old := b.old.Mirror(r.ResourceName); old != nil {
			m.Configs = maps.Clone(old.Configs)
		}
		b.ownMirr[r.ResourceName] = m
	}
	if secretConfig(messages.ResourceClusterMirror, r.Name) {
		old, had := m.Configs[r.Name]
		b.noteSecret(old, had, recordSecrets(r))
	}
	m.Configs = put(m.Configs, r.Name, r.Value)
	b.delta.Mirrors[r.ResourceName] = struct{}{}
}

func (b *builder) registerNode(r *wire.RegisterNodeRecord) {
	n := messages.Node{ID: messages.NodeID(r.NodeID), Rack: r.Rack, Incarnation: r.Incarnation}
	for _, e := range r.Endpoints {
		n.Endpoints = append(n.Endpoints, messages.Endpoint{Listener: e.Listener, Protocol: e.Protocol, Host: e.Host, Port: e.Port})
	}
	if !b.ownNodes {
		b.img.nodes, b.ownNodes = slices.Clone(b.img.nodes), true
	}
	at, found := slices.BinarySearchFunc(b.img.nodes, n.ID, compareNode)
	if found {
		b.img.nodes[at] = n
	} else {
		b.img.nodes = slices.Insert(b.img.nodes, at, n)
	}
	if at, gone := slices.BinarySearch(b.img.gone, n.ID); gone {
		b.img.gone = slices.Delete(slices.Clone(b.img.gone), at, at+1)
	}
	b.delta.Brokers = true
}

// unregisterNode drops a node, which is remembered as gone.
func (b *builder) unregisterNode(id messages.NodeID) {
	if at, gone := slices.BinarySearch(b.img.gone, id); !gone {
		b.img.gone = slices.Insert(slices.Clone(b.img.gone), at, id)
	}
	at, found := slices.BinarySearchFunc(b.img.nodes, id, compareNode)
	if !found {
		return
	}
	if !b.ownNodes {
		b.img.nodes, b.ownNodes = slices.Clone(b.img.nodes), true
	}
	b.img.nodes = slices.Delete(b.img.nodes, at, at+1)
	b.delta.Brokers = true
}

// topic returns the topic as a copy that may be changed, its partitions too if
// asked.
func (b *builder) topic(id messages.TopicID, partitions bool) (*Topic, error) {
	t := b.img.byID[id]
	if t == nil {
		return nil, fmt.Errorf("%w: topic id %s does not exist", ErrBadRecord, id)
	}
	b.ownTopicMaps()
	own, ours := b.ownTopic[t]
	if !ours {
		c := *t
		t = &c
	}
	if partitions && !own.partitions {
		t.Partitions = slices.Clone(t.Partitions)
		own.partitions = true
	}
	b.ownTopic[t] = own
	b.putTopic(t)
	return t, nil
}

func (b *builder) ownTopicMaps() {
	if b.ownMaps {
		return
	}
	b.ownMaps = true
	b.ownTopic = make(map[*Topic]topicOwn)
	if b.img.topics == nil {
		b.img.topics = make(map[string]*Topic)
		b.img.byID = make(map[messages.TopicID]*Topic)
		return
	}
	b.img.topics, b.img.byID = maps.Clone(b.img.topics), maps.Clone(b.img.byID)
}

func (b *builder) putTopic(t *Topic) {
	b.img.topics[t.Name], b.img.byID[t.ID] = t, t
	b.touch(t.Name)
}

func (b *builder) touch(topic string) { b.delta.Topics[topic] = struct{}{} }

// finish sorts what changed and returns the delta. The builder must not be used
// afterwards.
func (b *builder) finish(offset int64) Delta {
	b.img.offset = offset
	if len(b.delta.Topics) > 0 {
		b.img.sorted = mergeSorted(b.old.sorted, b.delta.Topics, func(t *Topic) string { return t.Name },
			func(name string) *Topic { return b.img.topics[name] })
	}
	if len(b.ownMirr) > 0 {
		b.img.mirrors = mergeSorted(b.old.mirrors, b.delta.Mirrors, func(m *Mirror) string { return m.Name },
			func(name string) *Mirror {
				if m := b.ownMirr[name]; len(m.Configs) > 0 {
					return m
				}
				return nil // the last config is gone: so is the mirror
			})
	}
	b.delta.New = b.img
	return b.delta
}

// mergeSorted returns old (sorted by name) with the touched names replaced by
// their current value, or left out where that is nil.
func mergeSorted[T any](old []*T, touched map[string]struct{}, name func(*T) string, now func(string) *T) []*T {
	out := make([]*T, 0, len(old)+len(touched))
	for _, o := range old {
		if _, ok := touched[name(o)]; !ok {
			out = append(out, o)
		}
	}
	kept := len(out)
	for n := range touched {
		if t := now(n); t != nil {
			out = append(out, t)
		}
	}
	byName := func(a, b *T) int { return cmp.Compare(name(a), name(b)) }
	if len(out)-kept > 64 {
		slices.SortFunc(out, byName)
		return out
	}
	added := slices.Clone(out[kept:])
	out = out[:kept]
	for _, t := range added {
		at, _ := slices.BinarySearchFunc(out, t, byName)
		out = slices.Insert(out, at, t)
	}
	return out
}

func put(m map[string]string, key string, value *string) map[string]string {
	if value == nil {
		delete(m, key)
		return m
	}
	if m == nil {
		m = make(map[string]string)
	}
	m[key] = *value
	return m
}

func nodeIDs(ids []int32) []messages.NodeID {
	out := make([]messages.NodeID, len(ids))
	for i, id := range ids {
		out[i] = messages.NodeID(id)
	}
	return out
}

func brokerName(node messages.NodeID) string { return strconv.Itoa(int(node)) }
