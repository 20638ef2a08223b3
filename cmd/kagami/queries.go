package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"kagami/actors"
	"kagami/messages"
	"kagami/messages/configs"
	pb "kagami/messages/proto"
	"kagami/persistence/metadata"
)

// queryParallel is how many actors are asked at a time.
const queryParallel = 64

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
	case "journal":
		return q.journal(ctx), nil
	}
	return nil, fmt.Errorf("%w: there is no query %q: partitions, mirrors, actors or journal", messages.ErrInvalidRequest, what)
}

func (q queries) partitions(ctx context.Context, args url.Values) (any, error) {
	image := q.n.store.Image()
	if m := args.Get("mirror"); m != "" && image.Mirror(m) == nil {
		return nil, fmt.Errorf("%w: %s", messages.ErrUnknownMirror, m)
	}
	limit := 0
	if l := args.Get("limit"); l != "" {
		var err error
		if limit, err = strconv.Atoi(l); err != nil {
			return nil, fmt.Errorf("%w: limit %q", messages.ErrInvalidRequest, l)
		}
	}
	var rows []row
	var g errgroup.Group
	g.SetLimit(queryParallel)
	for _, t := range image.Topics() {
		if t.Mirror == "" || args.Get("mirror") != "" && t.Mirror != args.Get("mirror") || args.Get("topic") != "" && t.Name != args.Get("topic") {
			continue
		}
		for i, p := range t.Partitions {
			if limit > 0 && len(rows) >= limit {
				break
			}
			r := row{"mirror": t.Mirror, "topic": t.Name, "partition": i, "node": p.Leader, "state": "-", "desired": t.Desired.String()}
			rows = append(rows, r)
			if p.Leader == q.n.settings.nodeID { // 10,000 partitions would be as many requests
				s, err := q.n.mirroring.PartitionState(t.ID, int32(i))
				r.fill(s, err)
				continue
			}
			g.Go(func() error {
				r.fill(q.remote(ctx, p.Leader, actors.PartitionActor(t.ID, int32(i))))
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if rows == nil {
		rows = []row{}
	}
	return rows, nil
}

// remote asks a partition of another node.
func (q queries) remote(ctx context.Context, node messages.NodeID, name string) (*pb.PartitionState, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	res, err := q.n.rpc.Query(ctx, node, name, &pb.Query{Query: &pb.Query_PartitionState{PartitionState: &pb.PartitionStateQuery{}}})
	return res.GetPartitionState(), err
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
	for _, m := range image.Mirrors() {
		if want != "" && want != m.Name {
			continue
		}
		r := row{"mirror": m.Name, "bootstrap": m.Configs[configs.BootstrapServers]}
		rows = append(rows, r)
		res, err := q.n.rpc.Query(ctx, q.n.settings.nodeID, actors.MirrorActor(m.Name), &pb.Query{Query: &pb.Query_MirrorSummary{MirrorSummary: &pb.MirrorSummaryQuery{}}})
		if err != nil {
			r["error"] = err.Error()
			continue
		}
		s := res.GetMirrorSummary()
		r["coordinator"], r["sourceClusterId"] = s.GetCoordinatorShard(), s.GetSourceClusterId()
		r["topics"], r["partitions"], r["states"], r["lag"] = s.GetTopics(), s.GetPartitions(), s.GetPartitionsByState(), s.GetLag()
		r["failed"] = s.GetPartitionsByState()[messages.StateFailed.String()]
		r["error"], r["reachable"] = s.GetLastRefreshError(), s.GetSourceReachable()
		if ms := s.GetLastRefreshMillis(); ms > 0 {
			r["lastRefresh"] = time.UnixMilli(ms).UTC().Format(time.RFC3339)
		}
	}
	return rows, nil
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
	for _, node := range q.n.members.Live() {
		res, err := q.n.rpc.Query(ctx, node, actors.NodeActor, &pb.Query{Query: &pb.Query_ActorList{ActorList: &pb.ActorListQuery{NamePrefix: args.Get("prefix")}}})
		if err != nil {
			rows = append(rows, row{"node": node, "unreachable": true, "detail": err.Error()})
			continue
		}
		if res.GetActorList().GetTruncated() {
			rows = append(rows, row{"node": node, "actor": "(more)", "kind": "-", "detail": "the list is cut off: ask with a prefix"})
		}
		for _, a := range res.GetActorList().GetActors() {
			rows = append(rows, row{"node": node, "actor": a.GetName(), "kind": a.GetKind(), "detail": a.GetLastError()})
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(fmt.Sprint(a["actor"]), fmt.Sprint(b["actor"])) })
	if m := args.Get("mirror"); m != "" {
		image := q.n.store.Image()
		rows = slices.DeleteFunc(rows, func(r row) bool { return r["kind"] != "-" && !ofMirror(image, fmt.Sprint(r["actor"]), m) })
	}
	return rows, nil
}
