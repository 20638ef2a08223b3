package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"kagami/cluster"
	"kagami/fsm/sharestate"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/groups"
	pb "kagami/messages/proto"
	"kagami/persistence/metadata"
)

// SharesActor is the name of a node's share groups in actor RPC.
const SharesActor = "shares"

// ShareGroupsConfig of NewShareGroups. All fields are required.
type ShareGroupsConfig struct {
	System *actor.ActorSystem
	Node   messages.NodeID
	Groups *Groups
	Bus    *cluster.Bus
	Image  func() *metadata.Image
	// Submit hands a command to the controller.
	Submit func(ctx context.Context, who messages.Requester, cmd messages.Command) messages.Outcome
	// Replica finds this node's replica of a partition of __share_group_state.
	Replica func(tp messages.TopicPartition) (StateReplica, error)
	Clock   clock.Clock
	Log     *zap.Logger
}

// ShareGroups are the share groups (KIP-932) that this node coordinates, and the
// coordinators of __share_group_state of which it leads partitions. A group is in
// __consumer_offsets, its state in each partition in __share_group_state, in Kafka's
// formats. Nobody consumes by them here: groups are made, moved and deleted by
// administrators and by mirrors.
//
// A state is stored before the group's record names it, and forgotten after the record
// doesn't: what a crash leaves behind is a state that nobody reads.
type ShareGroups struct {
	config ShareGroupsConfig
	states *shardSet
	peers  *cluster.ActorRPC
}

// NewShareGroups starts with no shard; ctx carries values only, they live until Close.
func NewShareGroups(ctx context.Context, config ShareGroupsConfig) *ShareGroups {
	s := &ShareGroups{config: config, peers: cluster.NewActorRPC(config.Bus)}
	s.states = newShardSet(ctx, shardSetConfig{
		topic: messages.ShareGroupStateTopic, name: "shares", what: "share states", node: config.Node, replica: config.Replica,
		spawn: s.shard, system: config.System, clock: config.Clock, log: config.Log,
	})
	return s
}

func (s *ShareGroups) shard(start shardStart) actor.Actor {
	return &shareStateShard{
		askedShard: newAskedShard[sharestate.Ticket, groups.ShareStates, *groups.ShareStated, sharestate.Write](start, s.states.config, refuseShareStates),
		owner:      s,
	}
}

// Apply takes an image that the replicas have carried out, in order. topics are the
// names it touched, nil stands for all. It doesn't block.
func (s *ShareGroups) Apply(image *metadata.Image, topics map[string]struct{}) {
	old := s.states.image.Load()
	var then any
	for name := range topics {
		if old.Topic(name) != nil && image.Topic(name) == nil {
			then = groupTopicsGone{}
		}
	}
	s.states.apply(image, then)
}

// Close stops all shards and waits for their workers. It may be called twice.
func (s *ShareGroups) Close() error { return s.states.close() }

// HandleQuery answers other nodes.
func (s *ShareGroups) HandleQuery(ctx context.Context, msg []byte) ([]byte, error) {
	var q pb.Query
	if err := proto.Unmarshal(msg, &q); err != nil {
		return nil, fmt.Errorf("%w: query can't be read: %w", messages.ErrInvalidRequest, err)
	}
	switch kind := q.GetQuery().(type) {
	case *pb.Query_ShareStates:
		result, err := s.shareStates(ctx, kind.ShareStates)
		if err != nil {
			return nil, err
		}
		return proto.Marshal(&pb.QueryResult{Result: &pb.QueryResult_ShareStates{ShareStates: result}})
	case *pb.Query_FollowShareGroups:
		return proto.Marshal(&pb.QueryResult{Result: &pb.QueryResult_FollowedGroups{FollowedGroups: s.follow(ctx, kind.FollowShareGroups)}})
	default:
		return nil, fmt.Errorf("%w: share groups have no answer to that query", messages.ErrInvalidRequest)
	}
}

// Look is what is known of a share group that this node coordinates, and its states by
// partition. The error wraps ErrUnknownGroup if there is none.
func (s *ShareGroups) Look(ctx context.Context, group string) (*groups.ShareLooked, map[groups.ShareKey]groups.ShareState, error) {
	looked, err := askGroup[*groups.ShareLooked](ctx, s.config.Groups, groups.LookShare{Group: group})
	if err == nil {
		err = looked.Err
	}
	if err != nil {
		return nil, nil, err
	}
	var keys []groups.ShareKey
	for _, t := range looked.Topics {
		for _, p := range t.Partitions {
			keys = append(keys, groups.ShareKey{Group: group, Topic: t.ID, Partition: p})
		}
	}
	states, err := s.askStates(ctx, groups.ShareStates{Get: keys})
	return looked, states, err
}

// Alter begins the states of a share group anew at these offsets. A group that isn't
// there is made; one of another kind is refused with ErrUnknownGroup. Topics exist.
func (s *ShareGroups) Alter(ctx context.Context, group string, set []groups.ShareSet) error {
	looked, err := askGroup[*groups.Looked](ctx, s.config.Groups, groups.Look{Group: group})
	if err == nil {
		err = looked.Err
	}
	if err == nil && looked.Type != "" && looked.Type != groups.TypeShare {
		err = fmt.Errorf("%w: group %s is not a share group", messages.ErrUnknownGroup, group)
	}
	if err != nil {
		return err
	}
	if len(set) == 0 {
		return nil
	}
	if _, err := s.askStates(ctx, groups.ShareStates{Set: set}); err != nil {
		return err
	}
	byTopic := map[messages.TopicID]int{}
	alter := groups.AlterShare{Group: group}
	for _, one := range set {
		i, ok := byTopic[one.Key.Topic]
		if !ok {
			t := s.config.Image().TopicByID(one.Key.Topic)
			if t == nil {
				continue // gone since
			}
			i = len(alter.Add)
			byTopic[one.Key.Topic] = i
			alter.Add = append(alter.Add, groups.ShareTopic{ID: t.ID, Name: t.Name})
		}
		alter.Add[i].Partitions = append(alter.Add[i].Partitions, one.Key.Partition)
	}
	return s.done(ctx, alter)
}

// Forget removes the states of topics from a share group. It reports which of them the
// group had a state of.
func (s *ShareGroups) Forget(ctx context.Context, group string, topics []messages.TopicID) (map[messages.TopicID]bool, error) {
	looked, err := askGroup[*groups.ShareLooked](ctx, s.config.Groups, groups.LookShare{Group: group})
	if err == nil {
		err = looked.Err
	}
	if err != nil {
		return nil, err
	}
	had, keys := map[messages.TopicID]bool{}, []groups.ShareKey(nil)
	for _, id := range topics {
		had[id] = false
	}
	for _, t := range looked.Topics {
		if _, ok := had[t.ID]; ok {
			had[t.ID] = true
			keys = append(keys, keysOf(group, t)...)
		}
	}
	if err := s.done(ctx, groups.AlterShare{Group: group, Remove: topics}); err != nil {
		return nil, err
	}
	_, err = s.askStates(ctx, groups.ShareStates{Forget: keys})
	return had, err
}

func keysOf(group string, t groups.ShareTopic) []groups.ShareKey {
	out := make([]groups.ShareKey, len(t.Partitions))
	for i, p := range t.Partitions {
		out[i] = groups.ShareKey{Group: group, Topic: t.ID, Partition: p}
	}
	return out
}

// Delete deletes a share group with its states. The error wraps ErrUnknownGroup if there
// is none.
func (s *ShareGroups) Delete(ctx context.Context, group string) error {
	looked, err := askGroup[*groups.ShareLooked](ctx, s.config.Groups, groups.LookShare{Group: group})
	if err == nil {
		err = looked.Err
	}
	if err != nil {
		return err
	}
	if err := s.done(ctx, groups.Delete{Group: group}); err != nil {
		return err
	}
	var keys []groups.ShareKey
	for _, t := range looked.Topics {
		keys = append(keys, keysOf(group, t)...)
	}
	if _, err := s.askStates(ctx, groups.ShareStates{Forget: keys}); err != nil {
		s.config.Log.Warn("states of a deleted share group stay behind", zap.String("group", group), zap.Error(err))
	}
	return nil
}

func (s *ShareGroups) done(ctx context.Context, req groups.Request) error {
	d, err := askGroup[*groups.Done](ctx, s.config.Groups, req)
	if err == nil {
		err = d.Err
	}
	return err
}

func askGroup[A groups.Answer](ctx context.Context, gs *Groups, req groups.Request) (A, error) {
	a, ok := gs.Ask(ctx, nil, req).(A)
	if !ok {
		return a, fmt.Errorf("%w: another answer to %T", messages.ErrInvalidRequest, req)
	}
	return a, nil
}

// follow moves share groups as their mirror's source has them. Offsets are within the
// local logs already. Groups that exist here as another kind are left alone.
func (s *ShareGroups) follow(ctx context.Context, q *pb.FollowGroups) *pb.FollowedGroups {
	out := &pb.FollowedGroups{Groups: make([]*pb.FollowedGroup, len(q.GetGroups()))}
	atOnce(ctx, len(out.Groups), func(ctx context.Context, i int) {
		g := q.GetGroups()[i]
		err := s.Alter(ctx, g.GetGroup(), s.shareSets(q.GetMirror(), g))
		other := errors.Is(err, messages.ErrUnknownGroup)
		if other {
			err = nil
		}
		out.Groups[i] = &pb.FollowedGroup{Group: g.GetGroup(), Moved: other, Status: cluster.ErrorStatus(err)}
	})
	return out
}

func (s *ShareGroups) shareSets(mirror string, g *pb.GroupOffsets) []groups.ShareSet {
	var out []groups.ShareSet
	image := s.states.image.Load()
	for _, o := range g.GetOffsets() {
		t := image.Topic(o.GetTopic())
		if t == nil || t.Mirror != mirror || t.Desired != messages.DesiredActive || int(o.GetPartition()) >= len(t.Partitions) {
			continue
		}
		out = append(out, groups.ShareSet{Key: groups.ShareKey{Group: g.GetGroup(), Topic: t.ID, Partition: o.GetPartition()}, Start: o.GetOffset()})
	}
	return out
}

// shareAskTimeout bounds one request to the coordinators of states.
const shareAskTimeout = 10 * time.Second

// askStates asks the coordinators of states, wherever they are.
func (s *ShareGroups) askStates(ctx context.Context, r groups.ShareStates) (map[groups.ShareKey]groups.ShareState, error) {
	out := map[groups.ShareKey]groups.ShareState{}
	if len(r.Set)+len(r.Forget)+len(r.Get) == 0 {
		return out, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, shareAskTimeout, messages.ErrTimedOut)
	defer cancel()
	who := messages.Requester{Principal: fmt.Sprintf("User:node-%d", s.config.Node), ClientID: "shares"}
	t, err := internalTopic(ctx, messages.ShareGroupStateTopic, who, shareOutside{s}, s.config.Clock)
	if err != nil {
		return nil, err
	}
	leader := func(k groups.ShareKey) messages.NodeID {
		return t.Partitions[messages.CoordinatorShard(k.String(), int32(len(t.Partitions)))].Leader
	}
	byNode := map[messages.NodeID]*groups.ShareStates{}
	of := func(k groups.ShareKey) *groups.ShareStates {
		n := leader(k)
		if byNode[n] == nil {
			byNode[n] = &groups.ShareStates{}
		}
		return byNode[n]
	}
	for _, x := range r.Set {
		of(x.Key).Set = append(of(x.Key).Set, x)
	}
	for _, k := range r.Forget {
		of(k).Forget = append(of(k).Forget, k)
	}
	for _, k := range r.Get {
		of(k).Get = append(of(k).Get, k)
	}
	for node, part := range byNode {
		if node == messages.NoNode {
			return nil, fmt.Errorf("share states: %w", messages.ErrCoordinatorNotAvailable)
		}
		q := &pb.Query{Query: &pb.Query_ShareStates{ShareStates: encodeShareStates(*part)}}
		err := again(ctx, s.config.Clock, func() error {
			res, err := s.peers.Query(ctx, node, SharesActor, q)
			for i, st := range res.GetShareStates().GetStates() {
				out[part.Get[i]] = groups.ShareState{Start: st.GetStart(), StateEpoch: st.GetStateEpoch(), LeaderEpoch: st.GetLeaderEpoch()}
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("share states on node %d: %w", node, err)
		}
	}
	return out, nil
}

// shareOutside is what internalTopic needs.
type shareOutside struct{ s *ShareGroups }

func (o shareOutside) Image() *metadata.Image { return o.s.config.Image() }

func (o shareOutside) Submit(ctx context.Context, who messages.Requester, cmd messages.Command) messages.Outcome {
	return o.s.config.Submit(ctx, who, cmd)
}

// shareStates has the shards of this node carry a request out.
func (s *ShareGroups) shareStates(ctx context.Context, q *pb.ShareStates) (*pb.ShareStatesResult, error) {
	r, err := decodeShareStates(q)
	if err != nil {
		return nil, err
	}
	type part struct {
		req groups.ShareStates
		get []int // places in the answer
	}
	parts := map[shardPID]*part{}
	of := func(k groups.ShareKey) (*part, error) {
		child, err := s.states.of(k.String())
		if err != nil {
			return nil, err
		}
		id := shardPID{child.pid, child.ctx.Done()}
		if parts[id] == nil {
			parts[id] = &part{}
		}
		return parts[id], nil
	}
	for _, x := range r.Set {
		p, err := of(x.Key)
		if err != nil {
			return nil, err
		}
		p.req.Set = append(p.req.Set, x)
	}
	for _, k := range r.Forget {
		p, err := of(k)
		if err != nil {
			return nil, err
		}
		p.req.Forget = append(p.req.Forget, k)
	}
	for i, k := range r.Get {
		p, err := of(k)
		if err != nil {
			return nil, err
		}
		p.req.Get, p.get = append(p.req.Get, k), append(p.get, i)
	}
	out := &pb.ShareStatesResult{States: make([]*pb.ShareState, len(r.Get))}
	for shard, p := range parts {
		a := s.askShard(ctx, shard, p.req)
		if a.Err != nil {
			return nil, a.Err
		}
		for n, i := range p.get {
			st := a.States[n]
			out.States[i] = &pb.ShareState{Start: st.Start, StateEpoch: st.StateEpoch, LeaderEpoch: st.LeaderEpoch}
		}
	}
	return out, nil
}

type shardPID struct {
	pid  *actor.PID
	done <-chan struct{}
}

func (s *ShareGroups) askShard(ctx context.Context, shard shardPID, r groups.ShareStates) *groups.ShareStated {
	reply := make(chan *groups.ShareStated, 1)
	s.states.send(shard.pid, shareRequest{req: r, reply: reply})
	select {
	case a := <-reply:
		return a
	case <-shard.done:
		return refuseShareStates(r, messages.ErrNotCoordinator)
	case <-ctx.Done():
		return refuseShareStates(r, fmt.Errorf("ask the coordinator of share states: %w", messages.ErrTimedOut))
	}
}

func encodeShareStates(r groups.ShareStates) *pb.ShareStates {
	out := &pb.ShareStates{}
	for _, x := range r.Set {
		out.Set = append(out.Set, &pb.ShareStateSet{Key: encodeShareKey(x.Key), Start: x.Start})
	}
	for _, k := range r.Forget {
		out.Forget = append(out.Forget, encodeShareKey(k))
	}
	for _, k := range r.Get {
		out.Get = append(out.Get, encodeShareKey(k))
	}
	return out
}

func encodeShareKey(k groups.ShareKey) *pb.ShareStateKey {
	return &pb.ShareStateKey{Group: k.Group, TopicId: k.Topic[:], Partition: k.Partition}
}

func decodeShareStates(q *pb.ShareStates) (groups.ShareStates, error) {
	var out groups.ShareStates
	var bad error
	key := func(k *pb.ShareStateKey) groups.ShareKey {
		out := groups.ShareKey{Group: k.GetGroup(), Partition: k.GetPartition()}
		if copy(out.Topic[:], k.GetTopicId()) != len(out.Topic) {
			bad = fmt.Errorf("%w: a topic id of %d bytes", messages.ErrInvalidRequest, len(k.GetTopicId()))
		}
		return out
	}
	for _, x := range q.GetSet() {
		out.Set = append(out.Set, groups.ShareSet{Key: key(x.GetKey()), Start: x.GetStart()})
	}
	for _, k := range q.GetForget() {
		out.Forget = append(out.Forget, key(k))
	}
	for _, k := range q.GetGet() {
		out.Get = append(out.Get, key(k))
	}
	return out, bad
}
