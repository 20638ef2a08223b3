package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"kagami/actors"
	"kagami/cluster"
	"kagami/messages"
	"kagami/messages/configs"
	pb "kagami/messages/proto"
	"kagami/persistence/metadata"
)

// queries answers the admin server by asking actors over the bus, the local ones
// included.
type queries struct{ n *node }

func (n *node) queries() queries { return queries{n} }

// row is one object of an answer; columns are named in query.go.
type row map[string]any

// Live: the controller answers is more than a process that runs, but a node of a
// bigger cluster lives without it; the replicas are what this node is for.
func (q queries) Live(context.Context) error { return nil }

// Ready: every MIRRORING partition of this node is close to its source.
func (q queries) Ready(context.Context) error {
	v := configs.BrokerValues(q.n.store.Image().BrokerConfig(q.n.settings.nodeID), q.n.settings.static)
	lagMax, ageMax := v.Int64(configs.ReadyMaxLagRecords), time.Duration(v.Int64(configs.ReadyMaxLagMs))*time.Millisecond
	now := q.n.clock.Now()
	var errs []error
	q.n.mirroring.Partitions.Range(func(h *actors.PartitionHandle) bool {
		_, _, lag, ok := q.n.mirroring.Progress(h)
		if !ok {
			return true
		}
		since := h.Lag().Snapshot().BehindSince
		if lag > lagMax || !since.IsZero() && now.Sub(since) > ageMax {
			errs = append(errs, fmt.Errorf("%s lags by %d records", h.TopicPartition, lag))
		}
		return len(errs) < 10
	})
	return errors.Join(errs...)
}

// Query answers for the whole cluster.
func (q queries) Query(ctx context.Context, what string, args url.Values) (any, error) {
	switch what {
	case "partitions":
		return q.partitions(ctx, args)
	case "mirrors":
		return q.mirrors(ctx, args)
	case "actors":
		return q.actors(ctx, args)
	case "nodes":
		return q.nodes(), nil
	case "journal":
		return q.journal(ctx), nil
	case "groups":
		return q.groups(ctx, args)
	}
	return nil, fmt.Errorf("%w: there is no query %q: partitions, mirrors, actors, nodes, journal or groups", messages.ErrInvalidRequest, what)
}

func (q queries) partitions(ctx context.Context, args url.Values) (any, error) {
	image := q.n.store.Image()
	if m := args.Get("mirror"); m != "" && image.Mirror(m) == nil {
		return nil, fmt.Errorf("%w: %s", messages.ErrUnknownMirror, m)
	}
	limit := int64(0)
	if l := args.Get("limit"); l != "" {
		var err error
		if limit, err = strconv.ParseInt(l, 10, 32); err != nil {
			return nil, fmt.Errorf("%w: limit %q", messages.ErrInvalidRequest, l)
		}
	}
	rows := []row{}
	byLeader := map[messages.NodeID]map[messages.TopicPartition]row{}
	for _, t := range image.Topics() {
		if t.Mirror == "" || args.Get("mirror") != "" && t.Mirror != args.Get("mirror") || args.Get("topic") != "" && t.Name != args.Get("topic") {
			continue
		}
		for i, p := range t.Partitions {
			if limit > 0 && int64(len(rows)) >= limit {
				break
			}
			r := row{"mirror": t.Mirror, "topic": t.Name, "partition": i, "node": p.Leader, "state": "-", "desired": t.Desired.String()}
			rows = append(rows, r)
			if byLeader[p.Leader] == nil {
				byLeader[p.Leader] = map[messages.TopicPartition]row{}
			}
			byLeader[p.Leader][messages.TopicPartition{Topic: t.Name, Partition: int32(i)}] = r
		}
	}
	q.onNodes(ctx, slices.Collect(maps.Keys(byLeader)), func(ctx context.Context, node messages.NodeID) {
		of := byLeader[node]
		err := q.pages(ctx, node, &pb.PartitionListQuery{Mirror: args.Get("mirror"), Topic: args.Get("topic"), Limit: int32(limit)}, func(s *pb.PartitionState) {
			tp := messages.TopicPartition{Topic: s.GetTopic(), Partition: s.GetPartition()}
			if r := of[tp]; r != nil {
				r.fill(s, nil)
				delete(of, tp)
			}
		})
		if err == nil {
			err = fmt.Errorf("node %d doesn't lead it now: %w", node, messages.ErrNotLeader)
		}
		for _, r := range of {
			r.fill(nil, err)
		}
	})
	return rows, nil
}

// nodeAnswerLimit is how long one node is waited for: less than a query may take.
const nodeAnswerLimit = 3 * time.Second

// errNodeDead: it isn't asked at all.
var errNodeDead = errors.New("the node is dead")

// onNodes asks nodes at the same time; f may be called by several goroutines, once
// for each.
func (q queries) onNodes(ctx context.Context, nodes []messages.NodeID, f func(ctx context.Context, node messages.NodeID)) {
	ctx, cancel := context.WithTimeoutCause(ctx, nodeAnswerLimit, messages.ErrTimedOut)
	defer cancel()
	var asking sync.WaitGroup
	for _, node := range nodes {
		asking.Go(func() { f(ctx, node) })
	}
	asking.Wait()
}

// ask asks the node actor of a node; a dead one fails at once.
func (q queries) ask(ctx context.Context, node messages.NodeID, query *pb.Query) (*pb.QueryResult, error) {
	return q.askActor(ctx, node, actors.NodeActor, query)
}

func (q queries) askActor(ctx context.Context, node messages.NodeID, actor string, query *pb.Query) (*pb.QueryResult, error) {
	if node != q.n.settings.nodeID && !q.n.members.IsLive(node) {
		return nil, fmt.Errorf("node %d: %w", node, errNodeDead)
	}
	return q.n.rpc.Query(ctx, node, actor, query)
}

// pages reads what a node leads, a page for each request. With a limit one is enough:
// what comes first of all comes first on its node.
func (q queries) pages(ctx context.Context, node messages.NodeID, query *pb.PartitionListQuery, f func(*pb.PartitionState)) error {
	for {
		var list *pb.PartitionList
		if node == q.n.settings.nodeID {
			list = q.n.mirroring.PartitionList(query) // no need to encode megabytes for oneself
		} else {
			res, err := q.ask(ctx, node, &pb.Query{Query: &pb.Query_PartitionList{PartitionList: query}})
			if err != nil {
				return err
			}
			list = res.GetPartitionList()
		}
		for _, s := range list.GetPartitions() {
			f(s)
		}
		if !list.GetTruncated() || query.GetLimit() > 0 {
			return nil
		}
		last := list.GetPartitions()[len(list.GetPartitions())-1]
		query.AfterTopic, query.AfterPartition = last.GetTopic(), last.GetPartition()
	}
}

// fill fills in one row; a node that doesn't answer costs its rows only.
func (r row) fill(s *pb.PartitionState, err error) {
	if err != nil {
		r["error"], r["unreachable"] = err.Error(), true
		return
	}
	r["state"], r["desired"], r["previous"], r["error"] = s.GetState(), s.GetDesired(), s.GetPreviousState(), s.GetLastError()
	r["attempt"], r["leaderEpoch"], r["sourceLeaderEpoch"] = s.GetRetryAttempt(), s.GetLeaderEpoch(), s.GetSourceLeaderEpoch()
	r["lme"], r["latestEpoch"], r["logStart"], r["end"] = s.GetLastMirrorEpoch(), s.GetLatestLogEpoch(), s.GetLogStart(), s.GetLogEnd()
	r["highWatermark"], r["sourceOffset"], r["lag"] = s.GetHighWatermark(), s.GetSourceHighWatermark(), s.GetLag()
	r["mode"], r["generation"], r["readOnly"] = s.GetMode(), s.GetGeneration(), s.GetReadOnly()
	if l := s.GetLosses(); l.GetCutRecords() > 0 || l.GetGapTo() > l.GetGapFrom() {
		r["losses"] = l
	}
	if f := s.GetFetcher(); f != nil {
		r["fetcher"] = f
	}
	if ms := s.GetNextRetryMillis(); ms > 0 {
		r["nextRetry"] = time.UnixMilli(ms).UTC().Format(time.RFC3339Nano)
	}
}

func (q queries) mirrors(ctx context.Context, args url.Values) (any, error) {
	rows, image, want := []row{}, q.n.store.Image(), args.Get("mirror")
	if want != "" && image.Mirror(want) == nil {
		return nil, fmt.Errorf("%w: %s", messages.ErrUnknownMirror, want)
	}
	var mu sync.Mutex
	parts := map[string]map[messages.NodeID]*pb.MirrorSummary{}
	silent := map[messages.NodeID]error{}
	q.onNodes(ctx, q.nodeIDs(), func(ctx context.Context, node messages.NodeID) {
		res, err := q.ask(ctx, node, &pb.Query{Query: &pb.Query_MirrorList{MirrorList: &pb.MirrorListQuery{Mirror: want}}})
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			silent[node] = err
		}
		for _, s := range res.GetMirrorList().GetMirrors() {
			if parts[s.GetMirror()] == nil {
				parts[s.GetMirror()] = map[messages.NodeID]*pb.MirrorSummary{}
			}
			parts[s.GetMirror()][node] = s
		}
	})
	for _, m := range image.Mirrors() {
		if want == "" || want == m.Name {
			rows = append(rows, mirrorRow(image, m, parts[m.Name], silent))
		}
	}
	return rows, nil
}

// mirrorRow adds up what the nodes say of a mirror; its coordinator's node tells of
// the source.
func mirrorRow(image *metadata.Image, m *metadata.Mirror, parts map[messages.NodeID]*pb.MirrorSummary, silent map[messages.NodeID]error) row {
	coordinator, shard := coordinatorOf(image, m.Name)
	states := map[string]int32{}
	r := row{
		"mirror": m.Name, "bootstrap": m.Configs[configs.BootstrapServers], "sourceClusterId": m.Configs[configs.MirrorSourceClusterID],
		"coordinator": shard, "node": coordinator, "states": states, "error": "", "reachable": false,
	}
	topics, partitions, lag := 0, 0, int64(-1)
	for _, t := range image.TopicsOfMirror(m.Name) {
		topics++
		for _, p := range t.Partitions {
			partitions++
			if silent[p.Leader] != nil {
				states["-"]++
			}
		}
	}
	for node, s := range parts {
		for state, n := range s.GetPartitionsByState() {
			states[state] += n
		}
		if l := s.GetLag(); l >= 0 {
			lag = max(0, lag) + l
		}
		if node != coordinator {
			continue
		}
		r["error"], r["reachable"] = s.GetLastRefreshError(), s.GetSourceReachable()
		if ms := s.GetLastRefreshMillis(); ms > 0 {
			r["lastRefresh"] = time.UnixMilli(ms).UTC().Format(time.RFC3339)
		}
	}
	r["topics"], r["partitions"], r["lag"], r["failed"] = topics, partitions, lag, states[messages.StateFailed.String()]
	if err := silent[coordinator]; err != nil {
		r["error"] = err.Error()
	}
	if len(silent) > 0 {
		r["silent"] = slices.Sorted(maps.Keys(silent))
	}
	return r
}

// coordinatorOf is the node and the shard of a mirror's coordinator.
func coordinatorOf(image *metadata.Image, mirror string) (messages.NodeID, int32) {
	t := image.Topic(messages.MirrorStateTopic)
	if t == nil || len(t.Partitions) == 0 {
		return messages.NoNode, -1
	}
	shard := messages.CoordinatorShard(mirror, int32(len(t.Partitions)))
	return t.Partitions[shard].Leader, shard
}

// nodeIDs are the registered nodes, and this one.
func (q queries) nodeIDs() []messages.NodeID {
	out := []messages.NodeID{q.n.settings.nodeID}
	for _, n := range q.n.store.Image().Nodes() {
		if !slices.Contains(out, n.ID) {
			out = append(out, n.ID)
		}
	}
	slices.Sort(out)
	return out
}

// nodes lists the nodes by what this one knows; none is asked.
func (q queries) nodes() any {
	image, rows := q.n.store.Image(), []row{}
	leaders, coordinators := map[messages.NodeID]int{}, map[messages.NodeID]int{}
	for _, t := range image.Topics() {
		for _, p := range t.Partitions {
			leaders[p.Leader]++
			if t.Name == messages.MirrorStateTopic {
				coordinators[p.Leader]++
			}
		}
	}
	newest := map[int32]uint64{}
	for _, id := range q.nodeIDs() {
		if b, _, ok := q.n.members.Beat(id); ok {
			for _, s := range b.Shards {
				newest[s.Shard] = max(newest[s.Shard], s.Applied)
			}
		}
	}
	for _, id := range q.nodeIDs() {
		r := row{
			"node": id, "live": q.n.members.IsLive(id), "controller": image.Controller() == id, "leaders": leaders[id], "coordinators": coordinators[id],
			"behind": -1, "journalLag": -1, "beatAge": "-",
		}
		rows = append(rows, r)
		if n := image.Node(id); n != nil {
			r["rack"], r["endpoints"] = n.Rack, n.Endpoints
		}
		b, age, ok := q.n.members.Beat(id)
		if !ok {
			continue
		}
		applied, lag := map[string]uint64{}, uint64(0)
		for _, s := range b.Shards {
			applied[cluster.ShardName(s.Shard)] = s.Applied
			lag += newest[s.Shard] - s.Applied
		}
		r["applied"], r["journalLag"], r["behind"], r["beatAge"] = applied, lag, len(cluster.DecodeBehind(b.Extension)), age.Round(time.Millisecond).String()
	}
	return rows
}

// ofMirror reports whether an actor works for a mirror.
func ofMirror(image *metadata.Image, actor, mirror string) bool {
	kind, rest, _ := strings.Cut(actor, "/")
	switch kind {
	case "mirror":
		return rest == mirror
	case "fetcher":
		return strings.HasPrefix(rest, mirror+"/")
	case "partition":
		idText, _, _ := strings.Cut(rest, "/")
		id, err := messages.ParseTopicID(idText)
		t := image.TopicByID(id)
		return err == nil && t != nil && t.Mirror == mirror
	}
	return false
}

func (q queries) actors(ctx context.Context, args url.Values) (any, error) {
	rows := []row{}
	var mu sync.Mutex
	q.onNodes(ctx, q.nodeIDs(), func(ctx context.Context, node messages.NodeID) {
		res, err := q.ask(ctx, node, &pb.Query{Query: &pb.Query_ActorList{ActorList: &pb.ActorListQuery{NamePrefix: args.Get("prefix")}}})
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			rows = append(rows, row{"node": node, "kind": "-", "unreachable": true, "detail": err.Error()})
			return
		}
		if res.GetActorList().GetTruncated() {
			rows = append(rows, row{"node": node, "actor": "(more)", "kind": "-", "detail": "the list is cut off: ask with a prefix"})
		}
		for _, a := range res.GetActorList().GetActors() {
			rows = append(rows, row{"node": node, "actor": a.GetName(), "kind": a.GetKind(), "detail": a.GetLastError()})
		}
	})
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(fmt.Sprint(a["actor"]), fmt.Sprint(b["actor"])), cmp.Compare(fmt.Sprint(a["node"]), fmt.Sprint(b["node"])))
	})
	if m := args.Get("mirror"); m != "" {
		image := q.n.store.Image()
		rows = slices.DeleteFunc(rows, func(r row) bool { return r["kind"] != "-" && !ofMirror(image, fmt.Sprint(r["actor"]), m) })
	}
	return rows, nil
}
