package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"

	"kagami/actors"
	"kagami/cluster"
	"kagami/messages"
	"kagami/persistence"
)

// journalShards is how many streams the data of a cluster goes through. It can't be
// changed once there is data.
const journalShards = 16

// joinCluster learns the cluster id: of the data folder, or of the other nodes.
func (n *node) joinCluster(ctx context.Context) error {
	if err := os.MkdirAll(n.settings.dataDir, 0o700); err != nil {
		return err
	}
	meta, _, err := persistence.ReadMeta(persistence.OSFS{}, n.settings.dataDir)
	if err != nil {
		return err
	}
	if n.settings.cluster == nil {
		n.clusterID, err = cluster.ChooseClusterID(meta.ClusterID, n.settings.clusterID)
		return err
	}
	demanded, err := n.checkFolders(meta.ClusterID)
	if err != nil {
		return err
	}
	server := cluster.ServerOptions{
		Node: n.settings.nodeID, Cluster: n.settings.cluster, OnNodeIDTaken: n.end, Clock: n.clock, Logger: n.log,
	}
	embedded := n.settings.cluster.External == nil
	if demanded != "" && embedded {
		if err := n.probe(ctx, server, meta.ClusterID, demanded); err != nil {
			return err
		}
	}
	if n.natsServer, err = cluster.OpenServer(ctx, server); err != nil {
		return err
	}
	n.defers(func(context.Context) error { n.natsServer.Close(); return nil })
	n.streams, err = cluster.OpenStreams(ctx, n.natsServer, cluster.StreamsOptions{
		BytesMax: n.settings.cluster.JournalBytesMax, DuplicateWindow: n.settings.cluster.DuplicateWindow, Clock: n.clock, Logger: n.log,
	})
	if err != nil {
		return err
	}
	n.defers(func(context.Context) error { return n.streams.Close() })
	formed, err := cluster.Form(ctx, cluster.FormationOptions{
		Streams: n.streams, Stored: meta.ClusterID, Configured: demanded, Replicas: n.journalCopies(),
		OnWait: func(why string) { n.log.Info("waiting for the cluster", zap.String("why", why)) }, Clock: n.clock, Logger: n.log,
	})
	if err != nil {
		return err
	}
	n.clusterID, n.formed = formed.ClusterID, formed
	stop, err := n.streams.ServeIdent(n.clusterID, n.gone)
	if err != nil {
		return err
	}
	n.defers(func(context.Context) error { stop(); return nil })
	if !embedded {
		return nil
	}
	return cluster.MarkJournal(persistence.OSFS{}, n.settings.cluster.StoreDir, n.clusterID)
}

// probe asks the others about this node before its journal meets theirs. One that was
// taken out and comes with a folder of before is refused, whatever is in it: its server
// would vote again.
func (n *node) probe(ctx context.Context, server cluster.ServerOptions, stored, demanded string) error {
	err := cluster.Probe(ctx, server, demanded)
	if !errors.Is(err, cluster.ErrTakenOut) {
		return err
	}
	journal, readErr := cluster.JournalID(persistence.OSFS{}, n.settings.cluster.StoreDir)
	if readErr != nil {
		return readErr
	}
	if stored == "" && journal == "" {
		return nil // only the configuration names the cluster
	}
	return fmt.Errorf("%w (%s): %w", errLeftovers, n.settings.dataDir, err)
}

// gone reports whether a node was taken out of the cluster.
func (n *node) gone(id messages.NodeID) bool {
	store := n.opened.Load()
	return store != nil && slices.Contains(store.Image().Gone(), id)
}

// keepPeers keeps the journal's copies on the servers that are there, as long as this
// node is the controller.
func (n *node) keepPeers(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.journal.KeepPeers(ctx, max(2*n.settings.checkpointInterval, time.Second), func() cluster.PeersView {
			img := n.store.Image()
			v := cluster.PeersView{Turn: img.Controller() == n.settings.nodeID, Live: n.staying(), Gone: img.Gone()}
			for _, node := range img.Nodes() {
				v.Nodes = append(v.Nodes, node.ID)
			}
			return v
		})
	}()
	n.defers(func(context.Context) error {
		cancel()
		<-ended
		return nil
	})
}

// checkFolders finds out which cluster this node's configuration and folders
// belong to, "" if they are empty. Two different ones wrap cluster.ErrForeignCluster.
func (n *node) checkFolders(data string) (string, error) {
	dir := n.settings.cluster.StoreDir
	journal, err := cluster.JournalID(persistence.OSFS{}, dir)
	if err != nil {
		return "", err
	}
	var id, of string
	for _, has := range []struct{ id, of string }{
		{data, "the data folder " + n.settings.dataDir}, {journal, "the journal folder " + dir}, {n.settings.clusterID, "the configuration"},
	} {
		if id != "" && has.id != "" && has.id != id {
			return "", fmt.Errorf("%s is of cluster %s, %s of cluster %s: %w", of, id, has.of, has.id, cluster.ErrForeignCluster)
		}
		if has.id != "" && id == "" {
			id, of = has.id, has.of
		}
	}
	return id, nil
}

// journalCopies is how many servers hold each journal stream.
func (n *node) journalCopies() int {
	if n.settings.cluster.External != nil {
		return n.settings.natsReplicas
	}
	nodes := len(n.settings.cluster.Peers)
	if _, self := n.settings.cluster.Peers[n.settings.nodeID]; !self {
		nodes++
	}
	return min(3, nodes)
}

// openMembership begins to beat and to hear the others.
func (n *node) openMembership(ctx context.Context) error {
	if n.settings.cluster == nil {
		n.members = cluster.NewMembership(n.settings.nodeID)
		return nil
	}
	var err error
	n.members, err = cluster.OpenMembership(ctx, cluster.MembershipOptions{
		Bus: n.bus, Starting: true, Interval: n.settings.cluster.BeatInterval, DeadAfter: n.settings.cluster.DeadAfter,
		OnNodeIDTaken: n.end,
		OnAway: func(d time.Duration) {
			n.log.Warn("this process didn't run for a while: it leads again when the journal reaches it", zap.Duration("away", d))
		},
		Clock: n.clock, Logger: n.log,
	})
	if err != nil {
		return err
	}
	n.defers(func(context.Context) error { return n.members.Close() })
	return nil
}

// openJournal opens the streams of a node of several.
func (n *node) openJournal(ctx context.Context) error {
	if n.settings.cluster == nil {
		return nil
	}
	var err error
	n.journal, err = cluster.NewJournal(ctx, cluster.JournalOptions{
		Node: n.settings.nodeID, Incarnation: n.members.Incarnation(), Shards: journalShards, Streams: n.streams, Replicas: n.journalCopies(),
		Checkpoints: n.checkpoints, Copier: cluster.NewCopier(n.bus, n.holders, n.members.IsLive),
		CheckpointInterval: n.settings.checkpointInterval, IsolatedAfter: n.settings.cluster.DeadAfter,
		BeatInterval: max(n.settings.cluster.DeadAfter/5, 100*time.Millisecond),
		Trim:         n.trimView, TrimInterval: max(2*n.settings.checkpointInterval, time.Second), TrimBytes: n.settings.cluster.JournalBytesMax / 2, Clock: n.clock, Logger: n.log,
	})
	if err != nil {
		return err
	}
	n.defers(func(context.Context) error {
		n.journal.Close()
		return n.journal.Finish()
	})
	n.members.SetSource(func() cluster.Beat { return cluster.Beat{Shards: n.journal.Shards(), Extension: n.journal.Behind()} })
	stop, err := n.journal.ServeCopies(n.bus)
	if err != nil {
		return err
	}
	n.defers(func(context.Context) error { stop(); return nil })
	return nil
}

// trimView is the cluster as trimming sees it: the controller trims.
func (n *node) trimView() cluster.TrimView {
	store := n.opened.Load()
	if store == nil {
		return cluster.TrimView{}
	}
	img := store.Image()
	v := cluster.TrimView{
		Turn: img.Controller() == n.settings.nodeID, Sole: n.sole,
		Beat: func(id messages.NodeID) (cluster.Beat, bool, bool) {
			b, _, ok := n.members.Beat(id)
			return b, n.members.IsLive(id), ok
		},
	}
	for _, node := range img.Nodes() {
		v.Nodes = append(v.Nodes, node.ID)
	}
	for id := range n.settings.cluster.Peers { // one that has never come yet
		if !slices.Contains(v.Nodes, id) {
			v.Nodes = append(v.Nodes, id)
		}
	}
	return v
}

// sole reports whether a dead node has a replica in a shard of which no live node has
// another one in order.
func (n *node) sole(dead messages.NodeID, shard int32) bool {
	behind := map[messages.NodeID]cluster.BehindSet{}
	for _, id := range n.members.Live() {
		if b, _, ok := n.members.Beat(id); ok {
			behind[id] = cluster.NewBehindSet(b.Extension, journalShards)
		}
	}
	for _, t := range n.opened.Load().Image().Topics() {
		for i, p := range t.Partitions {
			key := t.Key(int32(i))
			if cluster.ShardOf(key, journalShards) == shard && slices.Contains(p.Replicas, dead) &&
				!slices.ContainsFunc(p.Replicas, func(id messages.NodeID) bool { b, live := behind[id]; return live && !b.Has(key) }) {
				return true
			}
		}
	}
	return false
}

// holders are the other nodes that have a replica of a partition, its leader first.
func (n *node) holders(key messages.PartitionKey) []messages.NodeID {
	self := n.settings.nodeID
	if key.TopicID == cluster.MetadataTopicID {
		return slices.DeleteFunc(n.members.Live(), func(id messages.NodeID) bool { return id == self })
	}
	store := n.opened.Load()
	if store == nil {
		return nil
	}
	t := store.Image().TopicByID(key.TopicID)
	if t == nil {
		return nil
	}
	p, ok := t.Partition(key.Partition)
	if !ok {
		return nil
	}
	out := make([]messages.NodeID, 0, len(p.Replicas))
	for _, id := range append([]messages.NodeID{p.Leader}, p.Replicas...) {
		if id != self && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// followMetadata opens the metadata log of a node of several and waits until it
// has what was in the journal when it began.
func (n *node) followMetadata(ctx context.Context) error {
	var err error
	if n.metaReplica, err = n.journal.OpenMetadataReplica(ctx, n.manager); err != nil {
		return err
	}
	n.journal.StartMetadata(n.metaReplica)
	quiet := n.telling(ctx, n.missesMetadata)
	err = n.journal.WaitCaughtUp(ctx, cluster.MetadataShard)
	quiet()
	dir := filepath.Join(n.settings.dataDir, n.metaReplica.TopicPartition().String())
	if err == nil {
		err = n.missed(dir)(ctx)
	}
	if err != nil {
		return errors.Join(err, n.metaReplica.Close())
	}
	stop, err := n.journal.ServeSnapshots(n.bus, dir)
	if err != nil {
		return errors.Join(err, n.metaReplica.Close())
	}
	n.defers(func(context.Context) error { stop(); return nil })
	return nil
}

// missed has a folder get a snapshot of another node, if the metadata log begins above
// those that it has; nil in a cluster of one.
func (n *node) missed(dir string) func(ctx context.Context) error {
	if n.journal == nil {
		return nil
	}
	return func(ctx context.Context) error {
		return n.journal.FetchSnapshot(ctx, n.bus, func() []messages.NodeID {
			return slices.DeleteFunc(n.members.Live(), func(id messages.NodeID) bool { return id == n.settings.nodeID })
		}, dir)
	}
}

// errLeftovers: a node that was taken out of the cluster comes with its old folder.
var errLeftovers = errors.New("this node was taken out of the cluster, and its folder is of before: empty it to have the node join as a new one")

// refuseLeftovers keeps a node outside that was unregistered: what its folder has of
// partitions isn't followed since then. One that isn't registered yet may have some: the
// controller gives replicas to nodes that it hears.
func (n *node) refuseLeftovers() error {
	if n.journal == nil || !n.gone(n.settings.nodeID) {
		return nil
	}
	for _, info := range n.manager.Infos() {
		if info.TopicPartition.Topic != messages.ClusterMetadataTopic {
			return fmt.Errorf("%w (%s)", errLeftovers, n.settings.dataDir)
		}
	}
	return nil
}

// dutyInterval is how often the controller looks what is due.
const dutyInterval = 250 * time.Millisecond

// others is what the controller needs among several nodes; nil in a cluster of one.
func (n *node) others() *actors.ControllerOthers {
	if n.journal == nil {
		return nil
	}
	return &actors.ControllerOthers{
		Candidate: n.candidate, WaitFor: n.store.WaitFor, Interval: dutyInterval,
		Remote: func(ctx context.Context, to messages.NodeID, f messages.ForwardedCommand) messages.Outcome {
			return actors.RequestCommand(ctx, func(ctx context.Context, payload []byte) ([]byte, error) {
				answer, err := n.bus.Request(ctx, n.bus.ControllerCommand(to), payload)
				if errors.Is(err, cluster.ErrNoResponders) {
					err = fmt.Errorf("%w: %w", messages.ErrNotController, err) // it has not even arrived
				}
				return answer, err
			}, f)
		},
		Duty: n.duty,
	}
}

// candidate reports whether this node may be the controller.
func (n *node) candidate() bool {
	incumbent := n.store.Image().Controller()
	awaited := incumbent
	if incumbent == messages.NoNode {
		awaited = n.formed.Founder
	}
	return actors.ControllerView{
		Node: n.settings.nodeID, Founder: n.formed.Founder, On: n.formed.On, HasLog: n.metaReplica.Log().End() > 0,
		Incumbent: incumbent, Isolated: n.journal.Isolated(cluster.MetadataShard),
		Silence: n.journal.Silence(cluster.MetadataShard, awaited), DeadAfter: n.settings.cluster.DeadAfter, Left: n.members.Leaving(incumbent), Live: n.staying(),
	}.Turn()
}

// catchUp has the image show what the metadata log has now. The controller that was
// seen may be one of long ago, in a log that is still being replayed: of a cluster of
// one that has just grown, for one. Clients would find topics missing.
func (n *node) catchUp(ctx context.Context) error {
	if err := n.journal.WaitCaughtUp(ctx, cluster.MetadataShard); err != nil {
		return err
	}
	return n.store.WaitFor(ctx, n.metaReplica.State().End-1)
}

// waitController waits until some node is the controller and has founded the
// cluster's metadata.
func (n *node) waitController(ctx context.Context) error {
	n.members.SetSource(func() cluster.Beat { // from here on there are replicas
		opened := n.replicas.Opened()
		return cluster.Beat{Shards: n.journal.Shards(), Extension: cluster.AppendOpened(n.journal.Behind(), opened)}
	})
	stop, err := n.bus.Serve(n.bus.ControllerCommand(n.settings.nodeID), n.controller.HandleCommand)
	if err != nil {
		return err
	}
	n.defers(func(context.Context) error { stop(); return nil })
	n.keepPeers(ctx)
	n.watchLag(ctx)
	defer n.telling(ctx, n.missesController)()
	for {
		if err := n.founderEmpty(); err != nil {
			return err
		}
		img := n.store.Image()
		if img.Controller() != messages.NoNode && img.ClusterID() != "" {
			if img.ClusterID() != n.clusterID {
				return fmt.Errorf("the metadata is that of cluster %s, this is cluster %s: %w", img.ClusterID(), n.clusterID, persistence.ErrForeignFolder)
			}
			return n.catchUp(ctx)
		}
		waiting, cancel := context.WithTimeout(ctx, time.Second)
		err := n.store.WaitFor(waiting, min(img.Offset(), math.MaxInt64-1)+1)
		cancel()
		if ctx.Err() != nil {
			return fmt.Errorf("wait for a controller: %w", context.Cause(ctx))
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}
