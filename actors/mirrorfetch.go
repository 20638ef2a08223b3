package actors

import (
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/configs"
)

// fetchHoldLimit is how long a partition waits for a refresh that may tell its
// source leader. It is short: a pause or stop waits behind it, whatever the
// source does (C06).
const fetchHoldLimit = 3 * time.Second

// errSuperseded: something else was asked of the partition's fetcher meanwhile.
var errSuperseded = errors.New("another request for the partition came first")

// heldFetch waits for a refresh, because the source leader isn't known.
type heldFetch struct {
	req   mirrorFetch
	to    *actor.PID
	cycle int64 // the refresh that decides
	since time.Time
}

// mirrorHoldOver looks for partitions that have waited long enough.
type mirrorHoldOver struct{}

// fetch puts a partition on the fetcher of its source leader. When the leader
// isn't known, a refresh begins and the partition waits for it for a moment;
// then the answer is errLeaderUnknown.
func (m *mirror) fetch(c actor.Context, req mirrorFetch, to *actor.PID) {
	m.release(c, req.tp, errSuperseded)
	if err := m.closedFor(); err != nil {
		m.answer(c, to, err)
		return
	}
	if w, ok := m.wantOf(req, to); ok {
		m.place(c, w)
		return
	}
	m.held[req.tp] = &heldFetch{req: req, to: to, cycle: m.cycle + 1, since: m.clock.Now()}
	m.armHold(c)
	m.refresh(c, "no leader for "+req.tp.String())
}

// closedFor is why nothing is fetched, nil if it may be.
func (m *mirror) closedFor() error {
	switch {
	case m.fault != nil:
		return m.fault
	case m.foreign:
		return m.lastError // OP-26
	}
	return nil
}

// wantOf finds the fetcher for a request.
func (m *mirror) wantOf(req mirrorFetch, to *actor.PID) (want, bool) {
	view := m.view.Load()
	leader, id, ok := view.Leader(req.tp)
	if h := req.leader; h != nil && h.ID != messages.NoNode && (!ok || h.Epoch >= leader.Epoch) {
		l := *h
		if l.Host == "" { // an answer may name the broker alone
			l.Host, l.Port = view.address(l.ID)
		}
		leader, ok = l, l.Host != ""
	}
	return want{req: req, leader: leader, id: id, to: to}, ok
}

func (m *mirror) armHold(c actor.Context) {
	if m.holdArmed {
		return
	}
	m.holdArmed = true
	root, self := c.ActorSystem().Root, c.Self()
	m.stopHold = m.clock.AfterFunc(fetchHoldLimit, func() { root.Send(self, mirrorHoldOver{}) })
}

// holdOver answers those that have waited long enough.
func (m *mirror) holdOver(c actor.Context) {
	m.holdArmed = false
	now := m.clock.Now()
	for tp, h := range m.held {
		if now.Sub(h.since) >= fetchHoldLimit/2 { // one timer for all: from half the limit on
			m.release(c, tp, fmt.Errorf("%w: %s: the source doesn't answer in time", errLeaderUnknown, tp))
		}
	}
	if len(m.held) > 0 {
		m.armHold(c)
	}
}

// retryHeld places what the refresh has found a leader for, and gives up what it
// should have found one for. err is the refresh's.
func (m *mirror) retryHeld(c actor.Context, err error) {
	for tp, h := range m.held {
		if closed := m.closedFor(); closed != nil {
			m.release(c, tp, closed)
			continue
		}
		if w, ok := m.wantOf(h.req, h.to); ok {
			delete(m.held, tp)
			m.place(c, w)
			continue
		}
		switch {
		case h.cycle > m.cycle:
		case err != nil:
			m.release(c, tp, fmt.Errorf("%w: %s: %w", errLeaderUnknown, tp, err))
		default:
			m.release(c, tp, m.view.Load().leaderless(tp))
		}
	}
}

func (m *mirror) release(c actor.Context, tp messages.TopicPartition, err error) {
	if h := m.held[tp]; h != nil {
		delete(m.held, tp)
		m.answer(c, h.to, err)
	}
}

// unfetch takes a partition off its fetcher and answers when no append for it
// runs or can start.
func (m *mirror) unfetch(c actor.Context, tp messages.TopicPartition, to *actor.PID) {
	m.release(c, tp, errSuperseded)
	p := m.places[tp]
	if p == nil {
		m.answer(c, to, nil)
		return
	}
	m.dropNext(c, p)
	if p.step != placeLeaving {
		m.leave(c, p)
	}
	if to != nil {
		p.removers = append(p.removers, to)
	}
}

func (m *mirror) answer(c actor.Context, to *actor.PID, err error) {
	if to != nil {
		c.ActorSystem().Root.Send(to, fetcherAnswer{err: err})
	}
}

// respread moves partitions whose fetcher number, source leader or its address
// is another one now, and tells fetchers of newer source epochs; offsets are
// those of the local logs. Fetchers without partitions end.
func (m *mirror) respread(c actor.Context) {
	n := max(1, m.settings().Fetchers)
	view := m.view.Load()
	var moves []want
	for tp, p := range m.places {
		if p.step == placeLeaving {
			continue
		}
		w := want{req: p.want.req, leader: p.want.leader, id: p.want.id}
		// An answer that is older than the leader we follow moves nothing.
		if l, id, known := view.Leader(tp); known && (l.Epoch >= w.leader.Epoch || m.wentBack(p, view.At, id)) {
			w.leader, w.id, p.backSince = l, id, time.Time{}
		}
		key := fetcherKey{broker: w.leader.ID, number: messages.FetcherNumber(tp, n)}
		if key != p.child.key || w.leader != p.want.leader {
			moves = append(moves, w)
		}
	}
	if len(moves) > 0 {
		m.log.Info("partitions change fetchers", zap.Int("partitions", len(moves)), zap.Int32("fetchers", n))
	}
	for _, w := range moves {
		m.place(c, w)
	}
	for _, child := range m.fetchers {
		if child.count == 0 {
			m.retire(c, child, false)
		}
	}
}

// wentBack: a source without topic ids names an older leader epoch than we follow,
// and still does a refresh interval later. Its topic was made anew, else a lagging
// broker would have caught up. Asked with our epoch the new leader answers
// UNKNOWN_LEADER_EPOCH for ever; asked with its own, its log tells (C41).
func (m *mirror) wentBack(p *fetchPlace, at time.Time, id messages.TopicID) bool {
	if !id.IsZero() {
		return false
	}
	if p.backSince.IsZero() {
		p.backSince = at
	}
	return at.Sub(p.backSince) >= m.settings().Refresh
}

// throttle tells fetchers which partitions of a topic are throttled now.
func (m *mirror) throttle(c actor.Context, topic string) {
	t := m.outside.Image().Topic(topic)
	if t == nil {
		return
	}
	value := t.Configs[configs.MirrorThrottledReplicas]
	for n := range t.Partitions {
		p := m.places[messages.TopicPartition{Topic: topic, Partition: int32(n)}]
		if p == nil {
			continue
		}
		now := throttled(value, int32(n), m.node)
		p.want.req.throttled = now
		if p.next != nil {
			p.next.req.throttled = now
		}
		c.Send(p.child.pid, fetcherThrottle{tp: p.want.req.tp, throttled: now})
	}
}

// failing tells a partition that it is on no fetcher any more.
func failing(req mirrorFetch, err error) {
	req.notify(fetch.Failed{Err: err})
}
