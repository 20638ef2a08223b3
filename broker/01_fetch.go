package broker

// Fetch: served versions 4-18.
//
// v4 batches v2, isolation level; v5 log start; v7 sessions (KIP-227); v9
// CurrentLeaderEpoch (KIP-320); v10 zstd; v11 rack; v12 LastFetchedEpoch and
// diverging epochs (KIP-595); v13 topic ids (KIP-516); v15 ReplicaState; v16
// leader hints (KIP-951).
//
// - Long poll by watches, not by polling: the request waits until MinBytes are
//   there, a partition has an error or diverges, or MaxWait is over.
// - The first batch of the first partition with data is always whole, whatever
//   the limits (KIP-74); after that MaxBytes and PartitionMaxBytes hold.
// - Consumers read up to the high watermark, committed readers up to the last
//   stable offset and with the aborted transactions of what they get. Control
//   batches (markers, MIRROR_PID_RESET) are sent as they are: clients skip them.
// - LastFetchedEpoch is checked for every client, because another cluster
//   mirrors from us as a consumer (spec: fetcher.md).
// - zstd data of a topic with compression.type=zstd needs v10 (KIP-110); with
//   any other setting bytes are sent as they are.
// - Left out: v19 and MirrorLeaderEpoch (OP-24), fetching by followers (refused
//   with NOT_LEADER_OR_FOLLOWER), preferred read replicas.

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// Versions from which Fetch has a feature.
const (
	fetchSessions     = 7
	fetchZstd         = 10
	fetchFlexible     = 12
	fetchTopicIDs     = 13
	fetchReplicaState = 15
	fetchLeaderHints  = 16
)

const isolationCommitted = 1

// fetchTarget is one partition of a Fetch request and what is answered for it.
// Only the handler's goroutine touches it.
type fetchTarget struct {
	key          sessionKey // names the topic as the client did
	offset       int64
	maxBytes     int32
	currentEpoch int32
	lastEpoch    int32

	part  Partition // nil where there is none to read or to watch
	state persistence.ReplicaState

	code      int16
	hw        int64
	lso       int64
	logStart  int64
	diverging *persistence.EpochEntry // epoch and its end offset
	leader    *metadata.Partition     // hint of a refusal
	committed bool                    // aborted is an answer, not null
	aborted   []persistence.AbortedTxn
	chunk     persistence.Chunk
}

// targetsOf lists the partitions asked for. Of one that is named twice the last counts.
func targetsOf(req *kmsg.FetchRequest, useIDs bool) []*fetchTarget {
	var out []*fetchTarget
	at := map[sessionKey]int{}
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			target := &fetchTarget{
				key: keyOf(t.Topic, t.TopicID, p.Partition, useIDs), offset: p.FetchOffset, maxBytes: p.PartitionMaxBytes,
				currentEpoch: p.CurrentLeaderEpoch, lastEpoch: p.LastFetchedEpoch,
			}
			if n, again := at[target.key]; again {
				out[n] = target
				continue
			}
			at[target.key] = len(out)
			out = append(out, target)
		}
	}
	return out
}

// fetching is one Fetch request at work.
type fetching struct {
	s         *Server
	r         *request
	req       *kmsg.FetchRequest
	targets   []*fetchTarget
	committed bool
	maxBytes  int
}

func (s *Server) handleFetch(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.FetchRequest)
	p, err := s.sessions.plan(req, r.who.Principal)
	if err != nil {
		resp := kmsg.NewPtrFetchResponse()
		resp.Version = req.Version
		resp.ErrorCode = r.code(err)
		return answer(resp)
	}
	f := &fetching{
		s: s, r: r, req: req, targets: p.targets, committed: req.IsolationLevel == isolationCommitted,
		maxBytes: min(int(req.MaxBytes), s.cfg.FetchBytesMax),
	}
	out := &fetchReply{version: req.Version, sessionID: p.sessionID, all: p.targets}
	defer func() {
		if out != nil { // a panic below: nobody else lets go of the files
			out.release()
		}
	}()
	f.run(ctx)
	out.targets = p.filter()
	s.traffic.fetched(out)
	if req.Version >= fetchLeaderHints {
		out.nodes = s.hintNodes(r.listener, out.targets)
	}
	rep := reply{fetch: out}
	out = nil
	return rep
}

// run reads until there is enough to answer or the client's patience is over.
func (f *fetching) run(ctx context.Context) {
	wait := min(millis(f.req.MaxWaitMillis), f.s.cfg.FetchWaitMax)
	if f.pass() || wait <= 0 || len(f.targets) == 0 {
		return
	}
	wake := make(chan struct{}, 1)
	notify := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	for _, t := range f.targets {
		if t.part != nil {
			defer t.part.Watch(notify)()
		}
	}
	over := make(chan struct{})
	stop := f.s.clock.AfterFunc(wait, func() { close(over) })
	defer stop()
	for {
		// What came between the read and the watch is noticed here.
		if f.changed() && f.pass() {
			return
		}
		if !f.sleep(ctx, wake, over) {
			return
		}
	}
}

// sleep waits for a change; false: the waiting is over.
func (f *fetching) sleep(ctx context.Context, wake <-chan struct{}, over <-chan struct{}) bool {
	since := f.s.clock.Now()
	defer func() { f.r.waited += f.s.clock.Now().Sub(since) }()
	select {
	case <-wake:
		return true
	case <-over:
	case <-f.r.gone:
	case <-f.s.stopping:
	case <-ctx.Done():
	}
	return false
}

func (f *fetching) changed() bool {
	for _, t := range f.targets {
		if t.part != nil && t.part.State() != t.state {
			return true
		}
	}
	return false
}

// pass reads all targets afresh and reports whether the answer is due.
func (f *fetching) pass() (due bool) {
	img := f.s.image()
	total := 0
	for _, t := range f.targets {
		t.reset()
		if err := f.read(img, t, f.maxBytes-total, total == 0); err != nil {
			t.refuse(f.r, err)
			f.hint(img, t)
		}
		total += t.chunk.Len
		due = due || t.code != 0 || t.diverging != nil
	}
	return due || total >= min(int(f.req.MinBytes), f.maxBytes)
}

// replica: the request says that a follower asks. Replicas don't fetch here (OP-24), and
// what a stranger reads above the high watermark might be lost.
func (f *fetching) replica() bool {
	if f.req.Version >= fetchReplicaState {
		return f.req.ReplicaState.ID >= 0
	}
	return f.req.ReplicaID >= 0
}

func (t *fetchTarget) reset() {
	t.chunk.Release()
	t.chunk = persistence.Chunk{}
	t.part, t.code, t.diverging, t.leader, t.aborted = nil, 0, nil, nil, nil
	t.hw, t.lso, t.logStart = messages.NoOffset, messages.NoOffset, messages.NoOffset
}

func (t *fetchTarget) refuse(r *request, err error) {
	part := t.part
	t.reset()
	t.part, t.code = part, r.code(err)
}

// topicOf finds the topic that the client named, by id or by name.
func topicOf(img *metadata.Image, k sessionKey, useIDs bool) (*metadata.Topic, error) {
	if useIDs {
		if t := img.TopicByID(k.id); t != nil {
			return t, nil
		}
		return nil, messages.ErrUnknownTopicID
	}
	if t := img.Topic(k.topic); t != nil {
		return t, nil
	}
	return nil, messages.ErrUnknownTopicOrPartition
}

// read fills in what one partition answers, at most limit bytes, but one whole
// batch if first.
func (f *fetching) read(img *metadata.Image, t *fetchTarget, limit int, first bool) error {
	topic, err := topicOf(img, t.key, f.req.Version >= fetchTopicIDs)
	if err != nil {
		return f.s.unknown(f.r, OpRead, t.key.topic, err)
	}
	if !f.s.allowed(f.r, OpRead, KindTopic, topic.Name) {
		return messages.ErrTopicNotAuthorized
	}
	if t.part, err = f.s.checkPartition(topic, t.key.partition, t.currentEpoch); err != nil {
		return err
	}
	if f.replica() {
		return fmt.Errorf("node %d is no replica that fetches: %w", f.req.ReplicaID, messages.ErrNotLeader)
	}
	// State first, open transactions second: the last stable offset may come out
	// low by a transaction that ends meanwhile, never high.
	t.state = t.part.State()
	log := t.part.Log()
	t.hw, t.logStart, t.lso = t.state.HighWatermark, t.state.LogStart, t.state.HighWatermark
	if open, ok := log.FirstUnstable(); ok {
		t.lso = min(t.lso, open)
	}
	t.committed = f.committed
	if t.diverging = divergence(log, t.lastEpoch, t.offset); t.diverging != nil {
		return nil
	}
	if t.offset < t.logStart || t.offset > t.state.End {
		return persistence.ErrOffsetOutOfRange
	}
	if f.req.Version < fetchZstd && f.s.topicConfig(topic, configCompression) == "zstd" {
		return refuse(kerr.UnsupportedCompressionType, "")
	}
	upTo := t.hw
	if f.committed {
		upTo = t.lso
	}
	limit = min(limit, int(t.maxBytes))
	if t.offset >= upTo || limit <= 0 && !first {
		return nil
	}
	if t.chunk, err = log.Read(t.offset, max(limit, 0), upTo, first); err != nil {
		return err
	}
	if f.committed && t.chunk.Len > 0 {
		t.aborted, err = log.AbortedTxns(t.offset, t.chunk.NextOffset)
	}
	return err
}

// divergence compares the epoch of the client's last record with our history
// (KIP-595): if our log ends that epoch before the client's offset, or doesn't
// have it, the client must cut. Kafka refuses an epoch above its newest with
// OFFSET_OUT_OF_RANGE; we answer our newest, because a mirror topic's leader
// epoch is above all epochs of its log until it is stopped.
func divergence(log persistence.Log, lastEpoch int32, offset int64) *persistence.EpochEntry {
	if lastEpoch < 0 {
		return nil
	}
	epoch, end, found := log.EpochEndOffset(lastEpoch)
	if !found {
		entries := log.Epochs()
		if len(entries) == 0 {
			return nil // nothing to compare with; the range check decides
		}
		epoch, end = lastEpoch, entries[0].StartOffset
	}
	if epoch < lastEpoch || end < offset {
		return &persistence.EpochEntry{Epoch: epoch, StartOffset: end}
	}
	return nil
}

// hint notes who leads, where that is what the client needs to know (KIP-951).
func (f *fetching) hint(img *metadata.Image, t *fetchTarget) {
	if f.req.Version < fetchLeaderHints || t.code != kerr.NotLeaderForPartition.Code && t.code != kerr.FencedLeaderEpoch.Code {
		return
	}
	if topic, err := topicOf(img, t.key, true); err == nil {
		if p, ok := topic.Partition(t.key.partition); ok {
			t.leader = &p
		}
	}
}

// hintNodes lists the addresses of the leaders that targets hint at.
func (s *Server) hintNodes(listener string, targets []*fetchTarget) []hintNode {
	var out []hintNode
	seen := map[messages.NodeID]bool{}
	img := s.image()
	for _, t := range targets {
		if t.leader == nil || seen[t.leader.Leader] {
			continue
		}
		seen[t.leader.Leader] = true
		n := img.Node(t.leader.Leader)
		if e, ok := s.endpointOf(n, listener); ok {
			out = append(out, hintNode{id: n.ID, host: e.Host, port: e.Port, rack: rackOf(n)})
		}
	}
	return out
}
