package actors

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"kagami/internal/invariant"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/secrets"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// controllerEnv is what the core knows beside the image and the command.
type controllerEnv struct {
	node   messages.NodeID         // the controller's own node
	live   []messages.NodeID       // nodes that may get replicas
	static map[string]string       // settings of the node's file
	newID  func() messages.TopicID // random source
	// secrets opens what the log has encrypted; records of a decision have it in clear.
	secrets *secrets.Ring
}

// decision is what a command leads to: records that are written as one atomic
// batch (none: nothing changes) and the answer, without its offset.
type decision struct {
	records []metadata.Record
	outcome messages.Outcome
}

// commandRecordsMax bounds a command: its records are one batch of the metadata
// log, and a batch must fit a message of the bus (20 MiB; a partition with three
// replicas takes 90 bytes).
const commandRecordsMax = 200_000

// refuse is the decision that refuses the whole command.
func refuse(err error) decision { return decision{outcome: messages.Outcome{Err: err}} }

// decide is the controller's pure core: the same image, command and environment
// give the same records. It changes nothing and asks nobody.
func decide(img *metadata.Image, cmd messages.Command, env controllerEnv) decision {
	p := &plan{img: img, env: env}
	switch c := cmd.(type) {
	case messages.CreateTopics:
		p.createTopics(c)
	case messages.DeleteTopics:
		p.deleteTopics(c)
	case messages.CreatePartitions:
		p.createPartitions(c)
	case messages.AlterConfigs:
		p.alterConfigs(c)
	case messages.CreateMirror:
		p.mirrorRequest(func() error { return p.createMirror(c) })
	case messages.DeleteMirror:
		p.mirrorRequest(func() error { return p.deleteMirror(c) })
	case messages.StartMirrorTopics:
		p.mirrorRequest(func() error { return p.startTopics(c) })
	case messages.StopMirrorTopics:
		p.mirrorRequest(func() error { return p.stopTopics(c) })
	case messages.PauseMirrorTopics:
		p.mirrorRequest(func() error { return p.pauseTopics(c) })
	case messages.ResumeMirrorTopics:
		p.mirrorRequest(func() error { return p.resumeTopics(c) })
	case messages.BumpLeaderEpochs:
		p.mirrorRequest(func() error { return p.bumpEpochs(c) })
	case messages.AllocateProducerIDs:
		p.fail(p.allocateProducerIDs(c))
	case messages.RegisterNode:
		p.fail(p.registerNode(c))
	case messages.UnregisterNode:
		p.fail(p.unregisterNode(c))
	case messages.PlaceLeaders:
		p.placeLeaders(c)
	case messages.AlterClientQuotas:
		p.alterQuotas(c)
	case messages.UpdateFeatures:
		p.updateFeatures(c)
	case messages.ElectLeaders:
		p.electLeaders(c)
	case messages.ReassignPartitions:
		p.reassign(c)
	case messages.CreateACLs:
		p.createACLs(c)
	case messages.DeleteACLs:
		p.deleteACLs(c)
	case messages.FollowACLs:
		p.mirrorRequest(func() error { return p.followACLs(c) })
	case messages.AlterScram:
		p.alterScram(c)
	case messages.ResealSecrets:
		p.add(img.Reseal(env.secrets)...)
	default:
		return refuse(invariant.Violated("controller got command %T", cmd))
	}
	if len(p.records) > commandRecordsMax {
		p.fail(fmt.Errorf("%w: the request makes %d changes at once, at most %d are possible: split it", messages.ErrInvalidRequest, len(p.records), commandRecordsMax))
	}
	if p.err != nil {
		return refuse(p.err)
	}
	return decision{records: p.records, outcome: messages.Outcome{Items: p.items}}
}

// plan gathers records and items while a command is decided.
type plan struct {
	img     *metadata.Image
	env     controllerEnv
	records []metadata.Record
	items   []messages.Item
	err     error

	newTopics map[string]struct{}           // created or named by this command
	newIDs    map[messages.TopicID]struct{} // used by topics of this command
	squashed  map[string]string             // names with '.' as '_' -> a topic that has it; built on first use
	broker    *configs.Values
	loads     *leaderLoads // with what this command has placed; built on first use
}

func (p *plan) fail(err error) {
	if err != nil && p.err == nil {
		p.err = err
	}
}

func (p *plan) add(r ...metadata.Record) { p.records = append(p.records, r...) }

func (p *plan) item(name string, err error) {
	p.items = append(p.items, messages.Item{Name: name, Err: err})
}

// mirrorRequest is the feature check in front of every mirror request.
func (p *plan) mirrorRequest(f func() error) {
	if err := p.mirroringOn(); err != nil {
		p.fail(err)
		return
	}
	p.fail(f())
}

func (p *plan) mirroringOn() error {
	if p.img.MirrorVersion() < 1 {
		return fmt.Errorf("%w: mirroring is off: feature %s is 0", messages.ErrUnsupportedVersion, metadata.MirrorVersionFeature)
	}
	return nil
}

// settings are the controller node's effective settings.
func (p *plan) settings() configs.Values {
	if p.broker == nil {
		v := configs.BrokerValues(p.img.BrokerConfig(p.env.node), p.env.static)
		p.broker = &v
	}
	return *p.broker
}

func (p *plan) setConfig(typ messages.ResourceType, resource, key string, value *string) {
	p.add(metadata.ConfigRecord(typ, resource, key, value))
}

// bumpEpochs is workflows.md "Bumping leader epochs": the record carries
// max(min, current), so that applying it always raises the epoch.
func (p *plan) bumpEpochs(c messages.BumpLeaderEpochs) error {
	for _, b := range c.Bumps {
		item := messages.Item{TopicID: b.TopicID, Partition: b.Partition}
		t := p.img.TopicByID(b.TopicID)
		if t == nil {
			item.Err = fmt.Errorf("%w: %s", messages.ErrUnknownTopicID, b.TopicID)
			p.items = append(p.items, item)
			continue
		}
		item.Name = t.Name
		part, ok := t.Partition(b.Partition)
		lowest := max(b.MinLeaderEpoch, part.LeaderEpoch, 0)
		switch {
		case !ok:
			item.Err = fmt.Errorf("%w: %s has %d partitions, asked for partition %d", messages.ErrUnknownTopicOrPartition, t.Name, len(t.Partitions), b.Partition)
		case lowest == math.MaxInt32:
			item.Err = fmt.Errorf("%w: no leader epoch is left above %d", messages.ErrInvalidRequest, lowest)
		default:
			r := wire.NewPtrPartitionChangeRecord()
			r.TopicID, r.PartitionID, r.MinLeaderEpoch = t.ID, b.Partition, lowest
			p.add(r)
		}
		p.items = append(p.items, item)
	}
	return nil
}

// producerIDBlock is the block that an asker without a wish gets (Kafka's size).
const producerIDBlock = 1000

func (p *plan) allocateProducerIDs(c messages.AllocateProducerIDs) error {
	count := c.Count
	if count <= 0 {
		count = producerIDBlock
	}
	first := p.img.NextProducerID()
	if first == 0 {
		first = p.firstProducerID()
	}
	if first > math.MaxInt64-int64(count) {
		return fmt.Errorf("%w: no producer ids are left", messages.ErrInvalidRequest)
	}
	r := wire.NewPtrProducerIdsRecord()
	r.BrokerID, r.NextProducerID = int32(p.env.node), first+int64(count)
	p.add(r)
	p.items = []messages.Item{{FirstProducerID: first, Count: count}}
	return nil
}

// producerIDRoom is how many ids a cluster has before it meets another's.
const producerIDRoom = 1 << 32

// firstProducerID is where a cluster begins to number its producers: at a random
// multiple of producerIDRoom below 2^53. Clusters that begin at 0, as Kafka's do,
// give the ids of one another's producers again, and after a failover a first
// write with an id that the log knows looks like a retry (C01).
func (p *plan) firstProducerID() int64 {
	id := p.env.newID()
	random20 := int64(id[0])<<12 | int64(id[1])<<4 | int64(id[2])>>4
	return (1 + random20) * producerIDRoom
}

func (p *plan) registerNode(c messages.RegisterNode) error {
	n := c.Node
	if n.ID < 0 || len(n.Endpoints) == 0 {
		return fmt.Errorf("%w: node %d needs an id from 0 and at least one endpoint", messages.ErrInvalidRequest, n.ID)
	}
	for _, e := range n.Endpoints {
		if e.Listener == "" || e.Host == "" || e.Port <= 0 || e.Port > math.MaxUint16 {
			return fmt.Errorf("%w: node %d: endpoint %s of listener %q is no address", messages.ErrInvalidRequest, n.ID, e.Host, e.Listener)
		}
	}
	p.items = []messages.Item{{}}
	if old := p.img.Node(n.ID); old != nil && old.Rack == n.Rack && old.Incarnation == n.Incarnation && slices.Equal(old.Endpoints, n.Endpoints) {
		return nil
	}
	p.add(metadata.NodeRecord(n))
	return nil
}

// unregisterNode takes out a node that is dead for good. What it leads goes to others
// when the leaders are placed next, and then its replicas do.
func (p *plan) unregisterNode(c messages.UnregisterNode) error {
	switch {
	case p.img.Node(c.ID) == nil:
		return fmt.Errorf("%w: node %d isn't in this cluster", messages.ErrBrokerNotRegistered, c.ID)
	case slices.Contains(p.env.live, c.ID) || c.ID == p.env.node:
		return fmt.Errorf("%w: node %d is alive: stop it first, only a node that is gone for good is taken out", messages.ErrInvalidRequest, c.ID)
	}
	p.items = []messages.Item{{}}
	r := wire.NewPtrUnregisterNodeRecord()
	r.NodeID = int32(c.ID)
	p.add(r)
	return nil
}

// claimRecords are the records of a node that becomes controller; in an empty
// log they found the cluster, with mirroring on (OP-30).
func claimRecords(img *metadata.Image, node messages.NodeID, clusterID string, epoch int32) []metadata.Record {
	var out []metadata.Record
	if img.ClusterID() == "" {
		cluster := wire.NewPtrClusterRecord()
		cluster.ClusterID = clusterID
		feature := wire.NewPtrFeatureLevelRecord()
		feature.Name, feature.FeatureLevel = metadata.MirrorVersionFeature, 1
		out = append(out, cluster, feature)
	}
	claim := wire.NewPtrControllerClaimRecord()
	claim.NodeID, claim.Epoch = int32(node), epoch
	return append(out, claim)
}

// place chooses the replicas of a partition by rendezvous hashing: the nodes
// with the highest 64-bit mix of topic id, partition and node, best first, which
// is the preferred leader. A node that joins or leaves moves only its own share.
func place(id messages.TopicID, partition int32, live []messages.NodeID, replicas int) []messages.NodeID {
	type ranked struct {
		node  messages.NodeID
		score uint64
	}
	rank := make([]ranked, len(live))
	for i, n := range live {
		rank[i] = ranked{n, rendezvous(id, partition, n)}
	}
	slices.SortFunc(rank, func(a, b ranked) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		default:
			return int(a.node) - int(b.node)
		}
	})
	out := make([]messages.NodeID, 0, replicas)
	for _, r := range rank[:min(replicas, len(rank))] {
		out = append(out, r.node)
	}
	return out
}

func rendezvous(id messages.TopicID, partition int32, node messages.NodeID) uint64 {
	h := mix64(binary.BigEndian.Uint64(id[:8]))
	h = mix64(h ^ binary.BigEndian.Uint64(id[8:]))
	return mix64(h ^ uint64(uint32(partition))<<32 ^ uint64(uint32(node)))
}

// mix64 is the finalizer of splitmix64: every input bit reaches every output bit.
func mix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// squash is the name under which topics collide in Kafka's metric names.
func squash(name string) string { return strings.ReplaceAll(name, ".", "_") }
