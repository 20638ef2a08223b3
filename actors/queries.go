package actors

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"kagami/cluster"
	"kagami/messages"
	"kagami/messages/configs"
	pb "kagami/messages/proto"
)

// Names of actors in actor RPC.
const (
	NodeActor          = "node"
	mirrorActorPrefix  = "mirror/"
	partActorPrefix    = "partition/"
	actorListLimit     = 10_000
	kindPartition      = "partition"
	kindMirror         = "mirror"
	kindCoordinator    = "coordinator"
	kindController     = "controller"
	kindFetcher        = "fetcher"
	coordinatorActorID = "coordinator/"
	fetcherActorID     = "fetcher/"
)

// PartitionActor is the name of a partition's actor.
func PartitionActor(id messages.TopicID, partition int32) string {
	return partActorPrefix + id.String() + "/" + strconv.Itoa(int(partition))
}

// MirrorActor is the name of a mirror's actor on every node.
func MirrorActor(mirror string) string { return mirrorActorPrefix + mirror }

// HandleQuery answers a query to one of this node's actors (cluster.ActorRPC).
// Partitions and coordinators answer from what their actor published last, so a
// busy one doesn't keep the asker waiting.
func (n *Node) HandleQuery(ctx context.Context, name string, msg []byte) ([]byte, error) {
	var q pb.Query
	if err := proto.Unmarshal(msg, &q); err != nil {
		return nil, fmt.Errorf("%w: query can't be read: %w", messages.ErrInvalidRequest, err)
	}
	result, err := n.query(ctx, name, &q)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(result)
}

func (n *Node) query(ctx context.Context, name string, q *pb.Query) (*pb.QueryResult, error) {
	switch kind := q.GetQuery().(type) {
	case *pb.Query_ActorList:
		if name == NodeActor {
			return &pb.QueryResult{Result: &pb.QueryResult_ActorList{ActorList: n.list(kind.ActorList)}}, nil
		}
	case *pb.Query_PartitionList:
		if name == NodeActor {
			return &pb.QueryResult{Result: &pb.QueryResult_PartitionList{PartitionList: n.PartitionList(kind.PartitionList)}}, nil
		}
	case *pb.Query_MirrorList:
		if name == NodeActor {
			l, err := n.MirrorList(ctx, kind.MirrorList.GetMirror())
			return &pb.QueryResult{Result: &pb.QueryResult_MirrorList{MirrorList: l}}, err
		}
	case *pb.Query_PartitionRanges:
		if name == NodeActor {
			return &pb.QueryResult{Result: &pb.QueryResult_PartitionRanges{PartitionRanges: n.partitionRanges(kind.PartitionRanges)}}, nil
		}
	case *pb.Query_PartitionState:
		if rest, ok := strings.CutPrefix(name, partActorPrefix); ok {
			s, err := n.partitionState(rest)
			return &pb.QueryResult{Result: &pb.QueryResult_PartitionState{PartitionState: s}}, err
		}
	case *pb.Query_MirrorSummary:
		if mirror, ok := strings.CutPrefix(name, mirrorActorPrefix); ok {
			s, err := n.mirrorSummary(ctx, mirror)
			return &pb.QueryResult{Result: &pb.QueryResult_MirrorSummary{MirrorSummary: s}}, err
		}
	}
	return nil, fmt.Errorf("%w: %q has no answer to that query", cluster.ErrUnknownActor, name)
}

// partitionState answers for "<topic id>/<partition>".
func (n *Node) partitionState(rest string) (*pb.PartitionState, error) {
	idText, numberText, _ := strings.Cut(rest, "/")
	id, err := messages.ParseTopicID(idText)
	number, nerr := strconv.ParseInt(numberText, 10, 32)
	if err != nil || nerr != nil {
		return nil, fmt.Errorf("%w: partition actor %q isn't <topic id>/<number>", messages.ErrInvalidRequest, rest)
	}
	return n.PartitionState(id, int32(number))
}

// PartitionState is a partition of this node; an error wraps
// [cluster.ErrUnknownActor] or [messages.ErrNotLeader].
func (n *Node) PartitionState(id messages.TopicID, partition int32) (*pb.PartitionState, error) {
	t := n.config.Store.Image().TopicByID(id)
	if t == nil {
		return nil, fmt.Errorf("%w: topic id %s", cluster.ErrUnknownActor, id)
	}
	h := n.Partitions.Get(messages.TopicPartition{Topic: t.Name, Partition: partition})
	if h == nil {
		return nil, fmt.Errorf("%w: %s-%d", messages.ErrNotLeader, t.Name, partition)
	}
	return n.describe(h), nil
}

// describe is all that is known of a partition that this node leads.
func (n *Node) describe(h *PartitionHandle) *pb.PartitionState {
	st := h.Status()
	s := &pb.PartitionState{
		Mirror: h.Mirror, Topic: h.TopicPartition.Topic, Partition: h.TopicPartition.Partition, TopicId: h.Key.TopicID[:],
		State: st.State.String(), PreviousState: st.Previous.String(), Desired: st.Desired.String(),
		RetryAttempt: int32(st.RetryAttempt), LastError: st.Error, StateSinceMillis: st.Since.UnixMilli(),
		LeaderEpoch: messages.NoEpoch, SourceLeaderEpoch: messages.NoEpoch, LastMirrorEpoch: st.LME, LatestLogEpoch: messages.NoEpoch,
		LogStart: messages.NoOffset, LogEnd: messages.NoOffset, HighWatermark: messages.NoOffset,
		SourceHighWatermark: messages.NoOffset, Lag: -1,
		Losses: &pb.Losses{
			CutRecords: st.CutRecords, CutBytes: st.CutBytes, CutFrom: st.CutFrom, CutTo: st.CutTo,
			GapFrom: st.GapFrom, GapTo: st.GapTo, GapAtMillis: st.GapAtMillis,
		},
	}
	if !st.NextRetry.IsZero() {
		s.NextRetryMillis = st.NextRetry.UnixMilli()
	}
	if r, err := n.config.Replicas.Get(h.TopicPartition); err == nil {
		rs := r.State()
		s.LeaderEpoch, s.LogStart, s.LogEnd, s.HighWatermark = rs.LeaderEpoch, rs.LogStart, rs.End, rs.HighWatermark
		s.Mode, s.Generation, s.ReadOnly, s.LatestLogEpoch = rs.Mode.String(), rs.Generation, rs.ReadOnly, r.Log().LatestEpoch()
	}
	leader, _, known := n.Mirrors.View(h.Mirror).Leader(h.TopicPartition)
	if known {
		s.SourceLeaderEpoch = leader.Epoch
	}
	if lag := h.Lag(); lag != nil && st.State == messages.StateMirroring {
		ls := lag.Snapshot()
		s.SourceHighWatermark, s.Lag = ls.SourceHighWatermark, ls.Lag
		f := &pb.Fetcher{FetchedBytes: ls.Bytes}
		if known {
			f.SourceBroker, f.SourceHost, f.SourcePort = int32(leader.ID), leader.Host, leader.Port
		}
		if !ls.Answered.IsZero() {
			f.LastFetchMillis = ls.Answered.UnixMilli()
		}
		if ls.LastError != nil && s.LastError == "" {
			s.LastError = ls.LastError.Err.Error()
		}
		s.Fetcher = f
	}
	return s
}

func (n *Node) mirrorSummary(ctx context.Context, mirror string) (*pb.MirrorSummary, error) {
	image := n.config.Store.Image()
	mi := image.Mirror(mirror)
	if mi == nil {
		return nil, fmt.Errorf("%w: mirror %s", cluster.ErrUnknownActor, mirror)
	}
	status, err := n.Mirrors.Status(ctx, mirror)
	if err != nil {
		return nil, err
	}
	s := &pb.MirrorSummary{
		Mirror: mirror, SourceClusterId: mi.Configs[configs.MirrorSourceClusterID], BootstrapServers: mi.Configs[configs.BootstrapServers],
		PartitionsByState: map[string]int32{}, Lag: -1, LastRefreshError: status.LastError, SourceReachable: status.LastError == "" && !status.LastRefresh.IsZero(),
		CoordinatorShard: -1,
	}
	if shards := shardsOf(image); shards > 0 {
		s.CoordinatorShard = messages.CoordinatorShard(mirror, shards)
	}
	if !status.LastRefresh.IsZero() {
		s.LastRefreshMillis = status.LastRefresh.UnixMilli()
	}
	for _, t := range image.TopicsOfMirror(mirror) {
		s.Topics++
		s.Partitions += int32(len(t.Partitions))
	}
	n.Partitions.Range(func(h *PartitionHandle) bool {
		if h.Mirror == mirror {
			st := h.Status().State
			s.PartitionsByState[st.String()]++
			if lag := h.Lag(); lag != nil && st == messages.StateMirroring {
				if l := lag.Snapshot().Lag; l >= 0 {
					s.Lag = max(0, s.Lag) + l
				}
			}
		}
		return true
	})
	return s, nil
}

// list is the node's actors by name.
func (n *Node) list(q *pb.ActorListQuery) *pb.ActorList {
	limit := actorListLimit
	if l := int(q.GetLimit()); l > 0 && l < limit {
		limit = l
	}
	out := &pb.ActorList{NodeId: int32(n.config.Node)}
	add := func(name, kind, lastError string) {
		if strings.HasPrefix(name, q.GetNamePrefix()) {
			out.Actors = append(out.Actors, &pb.ActorInfo{Name: name, Kind: kind, Mailbox: -1, LastError: lastError})
		}
	}
	image := n.config.Store.Image()
	if image.Controller() == n.config.Node {
		add(kindController, kindController, "")
	}
	if t := image.Topic(messages.MirrorStateTopic); t != nil {
		for i, p := range t.Partitions {
			if p.Leader == n.config.Node {
				add(coordinatorActorID+strconv.Itoa(i), kindCoordinator, "")
			}
		}
	}
	for _, mi := range image.Mirrors() {
		add(MirrorActor(mi.Name), kindMirror, "")
		for _, f := range n.Mirrors.Fetchers(mi.Name) {
			add(fetcherActorID+mi.Name+"/"+f, kindFetcher, "")
		}
	}
	n.Partitions.Range(func(h *PartitionHandle) bool {
		add(PartitionActor(h.Key.TopicID, h.TopicPartition.Partition), kindPartition, h.Status().Error)
		return true
	})
	slices.SortFunc(out.Actors, func(a, b *pb.ActorInfo) int { return cmp.Compare(a.Name, b.Name) })
	if len(out.Actors) > limit {
		out.Actors, out.Truncated = out.Actors[:limit], true
	}
	return out
}
