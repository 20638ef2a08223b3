package actors

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"kagami/cluster"
	"kagami/fetch"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/groups"
	pb "kagami/messages/proto"
	"kagami/persistence/metadata"
)

const (
	// syncGroupsAtOnce is how many groups go through the steps together: so many are in
	// memory, and in one request.
	syncGroupsAtOnce = 200
	// syncGroupParts is how many such parts are on their way at a time.
	syncGroupParts = 4
	// syncAskTimeout bounds one request to a node of this cluster.
	syncAskTimeout = 20 * time.Second
	// syncErrorsShown is how many errors of groups a log line has.
	syncErrorsShown = 5
)

// groupErrors gathers the errors of groups; some are shown for many alike.
type groupErrors struct {
	count int
	shown []error
}

func (e *groupErrors) add(err error) {
	if err == nil {
		return
	}
	if e.count++; len(e.shown) < syncErrorsShown {
		e.shown = append(e.shown, err)
	}
}

func (e *groupErrors) merge(more groupErrors) {
	e.count += more.count
	e.shown = append(e.shown, more.shown...)
	e.shown = e.shown[:min(len(e.shown), syncErrorsShown)]
}

func (e *groupErrors) join() error {
	if e.count == 0 {
		return nil
	}
	return fmt.Errorf("%d failures, such as: %w", e.count, errors.Join(e.shown...))
}

// groups copies offsets of consumer groups (spec: metadata-sync.md, Consumer group
// offsets). A group whose offsets can't be copied costs no other group its own.
func (s *syncer) groups(ctx context.Context, topics []*metadata.Topic) error {
	mi := s.outside.Image().Mirror(s.mirror)
	if mi == nil {
		return nil
	}
	include, exclude, err := groupPatterns(mi)
	if err != nil {
		return err
	}
	var errs groupErrors
	listed, err := s.list(ctx)
	errs.add(err) // groups of the brokers that answered come anyway
	names := consumerGroups(listed, include, exclude)
	active := map[string]struct{}{}
	for _, t := range topics {
		active[t.Name] = struct{}{}
	}
	errs.merge(inParts(names, func(part []string, errs *groupErrors) { s.groupPart(ctx, part, active, errs) }))
	return errs.join()
}

// list is the groups of the source, asked once in a cycle.
func (s *syncer) list(ctx context.Context) ([]fetch.SourceGroup, error) {
	if s.listed != nil {
		return s.listed, nil
	}
	listed, err := s.source.Groups(ctx)
	if err == nil {
		s.listed = listed
	}
	return listed, err
}

func groupPatterns(mi *metadata.Mirror) (include, exclude *messages.Patterns, err error) {
	v := configs.MirrorValues(mi.Configs)
	if include, err = messages.CompilePatterns(v.List(configs.MirrorGroupsInclude)); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", configs.MirrorGroupsInclude, err)
	}
	if exclude, err = messages.CompilePatterns(v.List(configs.MirrorGroupsExclude)); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", configs.MirrorGroupsExclude, err)
	}
	return include, exclude, nil
}

// inParts hands parts of names to f, some at the same time, and waits.
func inParts(names []string, f func(part []string, errs *groupErrors)) groupErrors {
	var running sync.WaitGroup
	all := make([]groupErrors, (len(names)+syncGroupsAtOnce-1)/syncGroupsAtOnce)
	slots := make(chan struct{}, syncGroupParts)
	for i := range all {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			f(names[i*syncGroupsAtOnce:min(len(names), (i+1)*syncGroupsAtOnce)], &all[i])
		})
	}
	running.Wait()
	var errs groupErrors
	for _, e := range all {
		errs.merge(e)
	}
	return errs
}

// groupPart copies the offsets of some groups.
func (s *syncer) groupPart(ctx context.Context, names []string, active map[string]struct{}, errs *groupErrors) {
	if ctx.Err() != nil {
		errs.add(context.Cause(ctx))
		return
	}
	source := s.source.GroupsOffsets(ctx, names)
	topics := map[string]struct{}{}
	for name, g := range source {
		errs.add(g.Err)
		for tp := range g.Offsets {
			if _, ok := active[tp.Topic]; ok {
				topics[tp.Topic] = struct{}{}
			} else {
				delete(g.Offsets, tp)
			}
		}
		if len(g.Offsets) == 0 {
			delete(source, name)
		}
	}
	if len(source) == 0 {
		return
	}
	sorted := slices.Sorted(maps.Keys(topics))
	if err := s.same(ctx, sorted); err != nil {
		errs.add(err)
		return
	}
	ranges := s.ranges(ctx, sorted, errs)
	here := s.groupsHere(ctx, slices.Sorted(maps.Keys(source)), sorted, errs)
	var follow []*pb.GroupOffsets
	for _, name := range slices.Sorted(maps.Keys(source)) {
		if g := planGroup(name, source[name].Offsets, ranges, here[name]); g != nil {
			follow = append(follow, g)
		}
	}
	s.follow(ctx, follow, errs)
}

// ranges asks the leaders of topics how far their logs reach. Partitions of those that
// don't answer are missing.
func (s *syncer) ranges(ctx context.Context, topics []string, errs *groupErrors) map[messages.TopicPartition]logRange {
	nodes := map[messages.NodeID]struct{}{}
	image := s.outside.Image()
	for _, name := range topics {
		if t := image.Topic(name); t != nil {
			for _, p := range t.Partitions {
				if p.Leader != messages.NoNode {
					nodes[p.Leader] = struct{}{}
				}
			}
		}
	}
	out := map[messages.TopicPartition]logRange{}
	query := &pb.Query{Query: &pb.Query_PartitionRanges{PartitionRanges: &pb.PartitionRangesQuery{Mirror: s.mirror, Topics: topics}}}
	for node := range nodes {
		res, err := s.ask(ctx, node, NodeActor, query)
		errs.add(err)
		for _, r := range res.GetPartitionRanges().GetRanges() {
			tp := messages.TopicPartition{Topic: r.GetTopic(), Partition: r.GetPartition()}
			out[tp] = logRange{start: r.GetLogStart(), end: r.GetLogEnd(), startEpoch: r.GetStartEpoch(), endEpoch: r.GetEndEpoch()}
		}
	}
	return out
}

// groupsHere is what the coordinators of this cluster know of groups; one that doesn't
// answer leaves its groups out, and they are left alone in this cycle.
func (s *syncer) groupsHere(ctx context.Context, names, topics []string, errs *groupErrors) map[string]*groupHere {
	out := map[string]*groupHere{}
	for node, some := range s.byCoordinator(ctx, names, errs) {
		var list []*pb.GroupOffsets
		err := again(ctx, s.wall, func() error {
			res, err := s.ask(ctx, node, GroupsActor, &pb.Query{Query: &pb.Query_GroupOffsets{GroupOffsets: &pb.GroupOffsetsQuery{Groups: some, Topics: topics}}})
			list = res.GetGroupOffsets().GetGroups()
			for _, g := range list {
				if err == nil {
					err = cluster.StatusError(g.GetStatus())
				}
			}
			return err
		})
		for _, g := range list {
			if g.GetStatus().GetCode() != pb.Code_CODE_OK {
				continue
			}
			h := &groupHere{live: g.GetLive() || g.GetType() == groups.TypeShare, offsets: map[messages.TopicPartition]int64{}}
			for _, o := range g.GetOffsets() {
				h.offsets[messages.TopicPartition{Topic: o.GetTopic(), Partition: o.GetPartition()}] = o.GetOffset()
			}
			out[g.GetGroup()] = h
		}
		errs.add(err)
	}
	return out
}

// follow has the coordinators of this cluster commit.
func (s *syncer) follow(ctx context.Context, follow []*pb.GroupOffsets, errs *groupErrors) {
	byName := map[string]*pb.GroupOffsets{}
	for _, g := range follow {
		byName[g.GetGroup()] = g
	}
	for node, some := range s.byCoordinator(ctx, slices.Sorted(maps.Keys(byName)), errs) {
		q := &pb.FollowGroups{Mirror: s.mirror}
		for _, name := range some {
			q.Groups = append(q.Groups, byName[name])
		}
		res, err := s.ask(ctx, node, GroupsActor, &pb.Query{Query: &pb.Query_FollowGroups{FollowGroups: q}})
		errs.add(err)
		for _, g := range res.GetFollowedGroups().GetGroups() {
			if err := cluster.StatusError(g.GetStatus()); err != nil {
				errs.add(fmt.Errorf("group %s: %w", g.GetGroup(), err))
			}
			if g.GetMoved() {
				s.log.Debug("group moves by itself here", zap.String("group", g.GetGroup()))
			}
		}
	}
}

// byCoordinator sorts names of groups by the node that coordinates them.
func (s *syncer) byCoordinator(ctx context.Context, names []string, errs *groupErrors) map[messages.NodeID][]string {
	out := map[messages.NodeID][]string{}
	if len(names) == 0 {
		return out
	}
	t, err := s.offsetsTopic(ctx)
	if err != nil {
		errs.add(err)
		return out
	}
	for _, name := range names {
		leader := t.Partitions[messages.CoordinatorShard(name, int32(len(t.Partitions)))].Leader
		if leader == messages.NoNode {
			errs.add(fmt.Errorf("group %s: %w", name, messages.ErrCoordinatorNotAvailable))
			continue
		}
		out[leader] = append(out[leader], name)
	}
	return out
}

// offsetsTopic is the internal topic of the groups, which is created if it isn't there.
func (s *syncer) offsetsTopic(ctx context.Context) (*metadata.Topic, error) {
	return internalTopic(ctx, messages.ConsumerOffsetsTopic, s.who, s.outside, s.wall)
}

// topicMaker is what internalTopic needs of the node.
type topicMaker interface {
	Image() *metadata.Image
	Submit(ctx context.Context, who messages.Requester, cmd messages.Command) messages.Outcome
}

// internalTopic is one of the cluster's own topics, which is made if it isn't there; the
// controller knows its settings.
func internalTopic(ctx context.Context, name string, who messages.Requester, outside topicMaker, wall clock.Clock) (*metadata.Topic, error) {
	if t := outside.Image().Topic(name); t != nil {
		return t, nil
	}
	err := outcomeError(outside.Submit(ctx, who, messages.CreateTopics{Topics: []messages.NewTopic{{Name: name, Partitions: -1, ReplicationFactor: -1}}}))
	if err != nil && !errors.Is(err, messages.ErrTopicExists) {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	err = again(ctx, wall, func() error {
		if outside.Image().Topic(name) == nil {
			return fmt.Errorf("%s isn't here yet: %w", name, cluster.ErrNotReady)
		}
		return nil
	})
	return outside.Image().Topic(name), err
}

const (
	syncAgainPause = 100 * time.Millisecond
	syncAgainTimes = 50
)

// again repeats what a coordinator that is just coming can't answer yet.
func again(ctx context.Context, wall clock.Clock, f func() error) error {
	for n := 0; ; n++ {
		err := f()
		soon := errors.Is(err, cluster.ErrNotReady) || errors.Is(err, messages.ErrNotLeader) || errors.Is(err, messages.ErrCoordinatorLoading)
		if !soon || n >= syncAgainTimes || wall.Sleep(ctx, syncAgainPause) != nil {
			return err
		}
	}
}

func (s *syncer) ask(ctx context.Context, node messages.NodeID, actor string, q *pb.Query) (*pb.QueryResult, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, syncAskTimeout, messages.ErrTimedOut)
	defer cancel()
	return s.peers.Query(ctx, node, actor, q)
}

// partitionRanges is how far the logs of a mirror's partitions reach that this node
// leads. Only what is aligned with the source counts: what is going to be cut first
// would make offsets that lie beyond the end then.
func (n *Node) partitionRanges(q *pb.PartitionRangesQuery) *pb.PartitionRanges {
	out := &pb.PartitionRanges{}
	image := n.config.Store.Image()
	for _, name := range q.GetTopics() {
		t := image.Topic(name)
		if t == nil || t.Mirror != q.GetMirror() {
			continue
		}
		for i := range t.Partitions {
			tp := messages.TopicPartition{Topic: name, Partition: int32(i)}
			h := n.Partitions.Get(tp)
			if h == nil || !aligned(h.Status()) {
				continue
			}
			r, err := n.config.Replicas.Get(tp)
			if err != nil {
				continue
			}
			log := r.Log()
			start, end := log.LogStart(), log.End()
			out.Ranges = append(out.Ranges, &pb.PartitionRange{
				Topic: name, Partition: int32(i), LogStart: start, LogEnd: end,
				StartEpoch: log.EpochForOffset(start), EndEpoch: log.EpochForOffset(end),
			})
		}
	}
	return out
}

// aligned reports whether a partition follows its source and has been cut to what both
// have.
func aligned(s PartitionStatus) bool {
	state := s.State
	if state == messages.StateFailed {
		state = s.Previous
	}
	return state == messages.StateMirroring || state == messages.StateEpochFencing
}
