package metadata

import (
	"cmp"
	"maps"
	"slices"

	"kagami/messages"
)

// Image is the metadata of the cluster at one offset of the metadata log. It
// never changes: everybody may read it at any time and keep it, and nobody may
// write into what its methods return (slices and maps are shared).
type Image struct {
	offset          int64
	clusterID       string
	controller      messages.NodeID
	controllerEpoch int32
	features        map[string]int16
	nextProducerID  int64

	nodes   []messages.Node   // by id
	gone    []messages.NodeID // taken out and not registered since, in order
	topics  map[string]*Topic
	byID    map[messages.TopicID]*Topic
	sorted  []*Topic // by name
	mirrors []*Mirror

	// brokers holds dynamic broker configs: "" is the default of all nodes, else
	// the node id in decimal.
	brokers map[string]map[string]string
	groups  map[string]map[string]string // configs of groups, by name
	metrics map[string]map[string]string // subscriptions of client metrics, by name
	quotas  []Quota                      // by entity
	acls    []StoredACL                  // in order
	scram   map[ScramUser]messages.ScramCredential
}

// Topic is one topic of an image.
type Topic struct {
	Name       string
	ID         messages.TopicID
	CreatedAt  int64             // offset of its TopicRecord in the metadata log
	Partitions []Partition       // index = partition number
	Configs    map[string]string // set on the topic itself, mirror.name included

	// Mirror and Desired are read from the config mirror.name: "" and DesiredNone
	// for a topic that is in no mirror.
	Mirror  string
	Desired messages.Desired
}

// Partition is one partition of a topic. Its number is its place in
// Topic.Partitions.
type Partition struct {
	Leader         messages.NodeID // NoNode if there is none
	LeaderEpoch    int32
	PartitionEpoch int32
	Replicas       []messages.NodeID // preferred leader first
	ISR            []messages.NodeID
}

// Mirror is one cluster mirror: its name and the configs set on it, secrets
// included (never log them).
type Mirror struct {
	Name    string
	Configs map[string]string
}

// Key names the life of one partition of t.
func (t *Topic) Key(partition int32) messages.PartitionKey {
	return messages.PartitionKey{TopicID: t.ID, CreatedAt: t.CreatedAt, Partition: partition}
}

// Partition returns partition n of t; ok is false if t doesn't have it.
func (t *Topic) Partition(n int32) (p Partition, ok bool) {
	if n < 0 || int(n) >= len(t.Partitions) {
		return Partition{Leader: messages.NoNode, LeaderEpoch: messages.NoEpoch, PartitionEpoch: messages.NoEpoch}, false
	}
	return t.Partitions[n], true
}

// EmptyImage is the image of an empty log: offset -1, no cluster id.
func EmptyImage() *Image {
	return &Image{offset: messages.NoOffset, controller: messages.NoNode}
}

// Offset is the offset of the last applied record, -1 if there is none.
func (i *Image) Offset() int64 { return i.offset }

// ClusterID is "" until the first record of the log is written.
func (i *Image) ClusterID() string { return i.clusterID }

// Controller is the node of the newest claim, NoNode before the first.
func (i *Image) Controller() messages.NodeID { return i.controller }

// ControllerEpoch is the epoch of the newest claim, 0 before the first.
func (i *Image) ControllerEpoch() int32 { return i.controllerEpoch }

// Feature is the level of a feature, 0 if it was never set.
func (i *Image) Feature(name string) int16 { return i.features[name] }

// MirrorVersion is the level of the feature mirror.version: 0 turns every
// mirror request off.
func (i *Image) MirrorVersion() int16 { return i.features[MirrorVersionFeature] }

// MirrorVersionFeature is the feature that turns mirroring on.
const MirrorVersionFeature = messages.MirrorVersionFeature

// FeatureLevel is the level that a feature has: the one set, or its default.
func (i *Image) FeatureLevel(f messages.Feature) int16 {
	if level, ok := i.features[f.Name]; ok {
		return level
	}
	return f.Default
}

// NextProducerID is the first producer id that has not been given out.
func (i *Image) NextProducerID() int64 { return i.nextProducerID }

// Topic returns the topic of that name, nil if there is none.
func (i *Image) Topic(name string) *Topic { return i.topics[name] }

// TopicByID returns the topic of that id, nil if there is none.
func (i *Image) TopicByID(id messages.TopicID) *Topic { return i.byID[id] }

// Topics lists all topics by name.
func (i *Image) Topics() []*Topic { return i.sorted }

// TopicsOfMirror lists the topics of a mirror by name, whatever is desired of
// them (active, paused or stopped).
func (i *Image) TopicsOfMirror(mirror string) []*Topic {
	if mirror == "" {
		return nil
	}
	var out []*Topic
	for _, t := range i.sorted {
		if t.Mirror == mirror {
			out = append(out, t)
		}
	}
	return out
}

// Mirror returns the mirror of that name, nil if there is none.
func (i *Image) Mirror(name string) *Mirror {
	n, ok := slices.BinarySearchFunc(i.mirrors, name, compareMirror)
	if !ok {
		return nil
	}
	return i.mirrors[n]
}

// Mirrors lists all mirrors by name.
func (i *Image) Mirrors() []*Mirror { return i.mirrors }

// Node returns the registered node with that id, nil if there is none.
func (i *Image) Node(id messages.NodeID) *messages.Node {
	n, ok := slices.BinarySearchFunc(i.nodes, id, compareNode)
	if !ok {
		return nil
	}
	return &i.nodes[n]
}

// Gone lists the nodes that were taken out of the cluster and haven't registered again.
func (i *Image) Gone() []messages.NodeID { return i.gone }

// Nodes lists the registered nodes by id.
func (i *Image) Nodes() []messages.Node { return i.nodes }

// BrokerConfig is the dynamic configs of a node: its own over the cluster-wide
// defaults. The map is a fresh copy.
func (i *Image) BrokerConfig(node messages.NodeID) map[string]string {
	out := maps.Clone(i.brokers[""])
	if out == nil {
		out = make(map[string]string)
	}
	maps.Copy(out, i.brokers[brokerName(node)])
	return out
}

// BrokerOwnConfig is the dynamic configs set on one node, BrokerDefaultConfig
// those set for all nodes. Both are nil when nothing is set.
func (i *Image) BrokerOwnConfig(node messages.NodeID) map[string]string {
	return i.brokers[brokerName(node)]
}

// GroupConfigs is what is set on groups, by name. It must not be changed.
func (i *Image) GroupConfigs() map[string]map[string]string { return i.groups }

// BrokerDefaultConfig is described with BrokerOwnConfig.
func (i *Image) BrokerDefaultConfig() map[string]string { return i.brokers[""] }

// Delta is one change of the image, as subscribers get it.
type Delta struct {
	Old, New *Image

	// Topics and Mirrors hold the names that were created, changed or deleted. A
	// topic that was deleted and created again in one change appears once; compare
	// the ids and CreatedAt of Old and New.
	Topics  map[string]struct{}
	Mirrors map[string]struct{}
	// Brokers: a node registered or a dynamic broker config changed.
	Brokers bool
	// Groups: a config of a group changed. Quotas: a quota changed. ClientMetrics: a
	// subscription changed.
	Groups, Quotas, ClientMetrics bool
	// Controller: there is a new claim. Features: a level changed.
	Controller bool
	Features   bool
	ACLs       bool // an entry came or went
	// Secrets: a secret was set or removed. Rekeyed: one that was in clear, or under a
	// key, is under another: what the log had of it below should go.
	Secrets, Rekeyed bool
}

func compareMirror(m *Mirror, name string) int { return cmp.Compare(m.Name, name) }

func compareNode(n messages.Node, id messages.NodeID) int { return cmp.Compare(n.ID, id) }
