package fetch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"kagami/messages"
)

const (
	// fetchVersionByName is the last Fetch version that names topics by name.
	fetchVersionByName = 12
	// busyPause is how long the loop waits for an append before it fetches the
	// others without the partitions that are busy; busyWait bounds the wait on the
	// source then, so that a busy partition doesn't sit out a long poll.
	busyPause = 10 * time.Millisecond
	busyWait  = 50 * time.Millisecond
	// quenchPause is how often a held throttle is looked at again.
	quenchPause = 200 * time.Millisecond
	// reserveMin is what a request reserves of the budget at least.
	reserveMin = 64 << 10
)

// round is one request. Its maps and lists are those of the one before where that asked for
// the same: made anew for every empty answer, twice a second, they were nearly all that a
// node with 33,000 idle partitions left to the garbage collector.
type round struct {
	wants   []want
	byID    bool // every topic has an id
	members map[messages.TopicPartition]member
	names   map[messages.TopicID]string
	parts   []*partition // those of wants
	serial  uint64       // the same for rounds with the same wants
	busy    bool         // some partition is left out because it is busy
	next    time.Time    // when a partition that backs off is back; zero = none does
	quench  bool
}

type member struct {
	p      *partition
	offset int64
	asked  int32 // bytes at most
}

// run is the worker's loop.
func (w *Worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		now := w.clock.Now()
		if now.Before(w.quietUntil) {
			if w.clock.Sleep(ctx, w.quietUntil.Sub(now)) != nil {
				return
			}
			continue
		}
		r := w.plan(now)
		if r.busy {
			w.pause(ctx, busyPause)
			r = w.plan(w.clock.Now())
		}
		switch {
		case ctx.Err() != nil:
		case len(r.wants) > 0:
			w.fetch(ctx, r)
		case !r.next.IsZero():
			w.pause(ctx, r.next.Sub(w.clock.Now()))
		case r.quench:
			w.pause(ctx, quenchPause)
		default:
			w.pause(ctx, -1)
		}
	}
}

// pause waits for d, for ever if d is negative, for a kick, or for the end.
func (w *Worker) pause(ctx context.Context, d time.Duration) {
	var over chan struct{}
	if d >= 0 {
		over = make(chan struct{})
		stop := w.clock.AfterFunc(d, func() { close(over) })
		defer stop()
	}
	select {
	case <-w.wake:
	case <-over:
	case <-ctx.Done():
	}
}

// plan picks the partitions of the next request.
func (w *Worker) plan(now time.Time) round {
	fresh := w.refreshOrder()
	r := round{wants: w.spareWants[:0], parts: w.spareParts[:0]}
	quench, room, throttled := false, Unlimited, 0
	if w.cfg.Throttle != nil {
		quench, room = w.cfg.Throttle.Exceeded(), w.cfg.Throttle.Room()
	}
	for _, p := range w.order {
		want, ready, until := p.ready(now, w.cfg.Credit, quench, &w.window)
		switch ready {
		case readyYes:
			if want.throttled {
				// One answer of many partitions would use up seconds of a low rate.
				if throttled > 0 && room < int64(w.cfg.PartitionMaxBytes) {
					r.quench = true
					continue
				}
				throttled++
				room -= int64(w.cfg.PartitionMaxBytes)
			}
			r.wants, r.parts = append(r.wants, want), append(r.parts, p)
		case readyBusy:
			r.busy = true
		case readyLater:
			if r.next.IsZero() || until.Before(r.next) {
				r.next = until
			}
		case readyQuenched:
			r.quench = true
		case readyGone:
		}
	}
	return w.numbered(r, fresh)
}

// numbered completes a round. One that asks for what the last one did, as those of idle
// partitions do, twice a second, is made of that one's parts.
func (w *Worker) numbered(r round, fresh bool) round {
	last := &w.lastRound
	if !fresh && len(r.wants) > 0 && slices.Equal(r.wants, last.wants) {
		w.spareWants, w.spareParts = r.wants, r.parts
		r.wants, r.parts, r.members, r.names, r.byID, r.serial = last.wants, last.parts, last.members, last.names, last.byID, last.serial
		return r
	}
	r.serial, r.byID = last.serial+1, true
	r.members, r.names = make(map[messages.TopicPartition]member, len(r.wants)), make(map[messages.TopicID]string)
	for i, p := range r.parts {
		r.members[p.tp] = member{p: p, offset: r.wants[i].position.offset, asked: r.wants[i].position.maxBytes}
		r.byID = r.byID && !p.id.IsZero()
		r.names[p.id] = p.tp.Topic
	}
	w.spareWants, w.spareParts = last.wants, last.parts // nobody works on it any more
	w.lastRound = r
	return r
}

// refreshOrder takes over what Add and Remove changed, and reports whether they did.
func (w *Worker) refreshOrder() (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.changed {
		return false
	}
	w.changed = false
	for _, tp := range w.left {
		w.session.left(tp)
	}
	w.left = nil
	kept := w.order[:0]
	seen := make(map[*partition]bool, len(w.partitions))
	for _, p := range w.order {
		if w.partitions[p.tp] == p && !p.isGone() {
			kept = append(kept, p)
			seen[p] = true
		}
	}
	for _, p := range w.partitions {
		if !seen[p] && !p.isGone() {
			kept = append(kept, p)
		}
	}
	w.order = kept
	return true
}

// cappedFetch is a Fetch request with a highest version of its own: kgo
// negotiates up to the library's, and topics without ids need 12 at most.
type cappedFetch struct {
	*kmsg.FetchRequest
	highest int16
}

// MaxVersion is the highest version that may be negotiated.
func (c cappedFetch) MaxVersion() int16 { return c.highest }

func (w *Worker) fetch(ctx context.Context, r round) {
	limit := w.window.size(w.cfg.MaxBytes)
	reserve := max(reserveMin, min(w.lastBytes, int64(limit)))
	if w.cfg.Budget.Reserve(ctx, reserve) != nil {
		return
	}
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MaxWaitMillis = int32(w.cfg.MaxWait.Milliseconds())
	if r.busy {
		req.MaxWaitMillis = min(req.MaxWaitMillis, int32(busyWait.Milliseconds()))
	}
	req.MinBytes = w.cfg.MinBytes
	req.MaxBytes = limit
	for _, want := range r.wants {
		req.MaxBytes = max(req.MaxBytes, want.position.maxBytes)
	}
	capped := cappedFetch{FetchRequest: req, highest: fetchVersionByName}
	if r.byID {
		capped.highest = req.MaxVersion()
	}
	w.session.request(req, r.wants, r.byID, r.serial)
	began := w.clock.Now()
	kresp, err := w.client.SeedBrokers()[0].Request(ctx, capped)
	resp, ok := kresp.(*kmsg.FetchResponse)
	whole := w.clock.Now().Sub(began)
	if err == nil {
		err = w.rightCluster(ctx)
	}
	if err == nil && ok {
		bounded := w.answered(ctx, r, resp, int64(limit))
		w.window.answered(bounded, w.wait.last(), whole)
	} else if ctx.Err() == nil {
		w.unanswered(r, &ConnectionError{Address: w.cfg.Address, Request: "Fetch", Err: err})
	}
	w.cfg.Budget.Give(reserve)
}

// unanswered is a request without an answer: every partition waits, and stays
// in MIRRORING (fetcher.md, error table).
func (w *Worker) unanswered(r round, err *ConnectionError) {
	now := w.clock.Now()
	w.session.restart(true) // the source may have taken the request
	w.faults++
	w.outage.Store(true)
	w.quietUntil = now.Add(w.cfg.Backoff)
	for _, m := range r.members {
		m.p.lag.fault(now, err)
		m.p.markUnsure()
	}
	level := zapcore.WarnLevel
	switch {
	case w.faults > 1:
		level = zapcore.DebugLevel // said once; it goes on
	case err.Auth(), errors.Is(err, ErrOtherCluster):
		level = zapcore.ErrorLevel
	}
	w.log.Log(level, "source broker doesn't answer, backing off", zap.Error(err), zap.Duration("backoff", w.cfg.Backoff))
}

// answered takes an answer apart. bounded says that there would have been more but
// for the sizes that were asked for, limit of them all.
func (w *Worker) answered(ctx context.Context, r round, resp *kmsg.FetchResponse, limit int64) (bounded bool) {
	now := w.clock.Now()
	if w.faults > 0 {
		w.log.Info("source broker answers again", zap.Int("failed_requests", w.faults))
		w.faults = 0
		w.outage.Store(false)
	}
	if resp.ThrottleMillis > 0 {
		w.quietUntil = now.Add(time.Duration(resp.ThrottleMillis) * time.Millisecond)
	}
	if resp.ErrorCode != 0 {
		w.refused(r, now, resp.ErrorCode)
		return false
	}
	if !w.session.answered(resp.Version, resp.SessionID) {
		w.log.Debug("answer of another fetch session dropped", zap.Int32("session", resp.SessionID))
		return false
	}
	w.sessionFaults = 0
	brokers := make(map[int32]kmsg.FetchResponseBroker, len(resp.Brokers))
	for _, b := range resp.Brokers {
		brokers[b.NodeID] = b
	}
	var total int64
	told := make(map[messages.TopicPartition]struct{}, len(resp.Topics))
	for _, t := range resp.Topics {
		name := t.Topic
		if resp.Version > fetchVersionByName {
			name = r.names[t.TopicID]
		}
		for i := range t.Partitions {
			tp := messages.TopicPartition{Topic: name, Partition: t.Partitions[i].Partition}
			if m, ok := r.members[tp]; ok {
				told[tp] = struct{}{}
				n := w.deliver(ctx, m, &t.Partitions[i], brokers, resp.Version)
				total += n
				bounded = bounded || n > int64(m.asked/2)
			}
		}
	}
	for i, p := range r.parts { // a session leaves out what hasn't changed
		if _, ok := told[r.wants[i].tp]; !ok && resp.ThrottleMillis == 0 {
			p.lag.confirm(now)
		}
	}
	w.lastBytes = total
	w.stats.answered(total)
	w.rotate(resp, r)
	return resp.ThrottleMillis == 0 && (bounded || total > limit/2)
}

// refused is an error code for the whole answer.
func (w *Worker) refused(r round, now time.Time, code int16) {
	row := rowFor(code)
	err := codeError("Fetch", code, nil)
	w.log.Log(row.Level, "source refused a fetch", zap.Int16("code", code), zap.String("name", row.Name), zap.String("action", row.Action.String()))
	const sessionIDNotFound = 70
	w.session.restart(code != sessionIDNotFound)
	w.sessionFaults++
	if row.Action == ActionNewSession && w.sessionFaults == 1 {
		return // at once, with a full request
	}
	if until := now.Add(w.cfg.Backoff); until.After(w.quietUntil) {
		w.quietUntil = until
	}
	for _, m := range r.members {
		m.p.lag.fault(now, err)
	}
}

// deliver queues one partition's answer and returns its bytes.
func (w *Worker) deliver(ctx context.Context, m member, kp *kmsg.FetchResponseTopicPartition, brokers map[int32]kmsg.FetchResponseBroker, version int16) int64 {
	reply := Reply{
		Code: kp.ErrorCode, HighWatermark: kp.HighWatermark, LogStart: kp.LogStartOffset, Batches: kp.RecordBatches,
		DivergingEpoch: kp.DivergingEpoch.Epoch, DivergingEnd: kp.DivergingEpoch.EndOffset,
		Leader: Leader{ID: messages.NodeID(kp.CurrentLeader.LeaderID), Epoch: kp.CurrentLeader.LeaderEpoch},
	}
	if b, ok := brokers[kp.CurrentLeader.LeaderID]; ok {
		reply.Leader.Host, reply.Leader.Port = b.Host, b.Port
	}
	n := int64(len(reply.Batches))
	if w.cfg.Throttle != nil && n > 0 && m.p.isThrottled() {
		w.cfg.Throttle.Record(int(n))
	}
	taken, wake := m.p.offer(item{offset: m.offset, reply: reply, version: version}, frameBytesMax)
	if !taken {
		return n
	}
	w.cfg.Budget.Take(n)
	if wake {
		w.schedule(ctx, m.p)
	}
	return n
}

// rotate moves partitions that got data to the end, so that those which the
// response had no room for come first next time. A source does the same within
// a session; this is for full requests.
func (w *Worker) rotate(resp *kmsg.FetchResponse, r round) {
	if w.session.epoch != 0 || len(w.order) < 2 {
		return
	}
	fed := make(map[*partition]bool)
	for _, t := range resp.Topics {
		name := t.Topic
		if resp.Version > fetchVersionByName {
			name = r.names[t.TopicID]
		}
		for _, p := range t.Partitions {
			if len(p.RecordBatches) > 0 {
				fed[r.members[messages.TopicPartition{Topic: name, Partition: p.Partition}].p] = true
			}
		}
	}
	hungry := make([]*partition, 0, len(w.order))
	var full []*partition
	for _, p := range w.order {
		if fed[p] {
			full = append(full, p)
		} else {
			hungry = append(hungry, p)
		}
	}
	w.order = append(hungry, full...)
}
