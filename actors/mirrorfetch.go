package actors

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/fetch"
	"kagami/messages"
)

// fetch puts a partition on the fetcher of its source leader. A partition whose
// leader isn't known is answered with errLeaderUnknown, and a refresh begins.
func (m *mirror) fetch(c actor.Context, req mirrorFetch, to *actor.PID) {
	if m.fault != nil {
		m.answer(c, to, m.fault)
		return
	}
	leader, id, ok := m.view.Load().Leader(req.tp)
	if req.leader != nil && req.leader.Host != "" {
		leader, ok = *req.leader, true
	}
	if !ok {
		m.refresh(c, "no leader for "+req.tp.String())
		m.answer(c, to, fmt.Errorf("%w: %s", errLeaderUnknown, req.tp))
		return
	}
	settings := m.settings()
	key := fetcherKey{broker: leader.ID, number: messages.FetcherNumber(req.tp, max(1, settings.Fetchers))}
	m.forget(c, req.tp, key)
	child := m.fetchers[key]
	if child != nil && child.address != leader.Address() {
		// The broker came back elsewhere. Its partitions come back by themselves:
		// the old worker's requests fail, they back off and are moved by the refresh.
		m.log.Info("source broker moved", zap.Stringer("fetcher", key), zap.String("address", leader.Address()))
		m.replace(c, key, leader)
		child = m.fetchers[key]
	}
	if child == nil {
		child = m.spawn(c, key, leader, settings)
	}
	child.count++
	m.where[req.tp] = key
	req.epoch = leader.Epoch
	m.requests[req.tp] = req
	m.assign(c, child, req, leader, id, to)
}

// assign asks for our own topic's id, so that a topic that was made anew on the
// source is refused by the source itself (C11); by name where it has no ids.
func (m *mirror) assign(c actor.Context, child *fetcherChild, req mirrorFetch, leader fetch.Leader, id messages.TopicID, to *actor.PID) {
	if t := m.outside.Image().Topic(req.tp.Topic); t != nil && !id.IsZero() {
		id = t.ID
	}
	c.ActorSystem().Root.RequestWithCustomSender(child.pid, fetcherAdd{assignment: fetch.Assignment{
		TopicPartition: req.tp, TopicID: id, LeaderEpoch: leader.Epoch,
		Sink: req.sink, Lag: req.lag, Notify: req.notify, Throttled: req.throttled,
	}}, to)
}

func (m *mirror) spawn(c actor.Context, key fetcherKey, leader fetch.Leader, settings MirrorSettings) *fetcherChild {
	config := settings.Worker
	config.Source, config.Mirror, config.Node = m.config, m.name, m.node
	config.SourceBroker, config.Address, config.Number = key.broker, leader.Address(), key.number
	config.RequestTimeout, config.Clock, config.Log = settings.RequestTimeout, m.clock, m.log
	pid := c.SpawnPrefix(props(m.clock, m.log, func() actor.Actor {
		return newFetcher(m.ctx, config, m.helpers, m.log)
	}), "fetcher-"+key.String())
	child := &fetcherChild{pid: pid, address: leader.Address()}
	m.fetchers[key] = child
	m.show()
	return child
}

// replace makes a fetcher anew at the broker's new address, with its partitions.
func (m *mirror) replace(c actor.Context, key fetcherKey, leader fetch.Leader) {
	c.Stop(m.fetchers[key].pid)
	delete(m.fetchers, key)
	child := m.spawn(c, key, leader, m.settings())
	for tp, k := range m.where {
		if k != key {
			continue
		}
		if l, id, ok := m.view.Load().Leader(tp); ok && l.ID == key.broker {
			child.count++
			m.assign(c, child, m.requests[tp], l, id, nil)
		}
	}
}

// forget takes a partition off the fetcher that the books say it is with, unless
// that is the one it goes to (which replaces it by itself).
func (m *mirror) forget(c actor.Context, tp messages.TopicPartition, next fetcherKey) {
	key, ok := m.where[tp]
	if !ok {
		return
	}
	delete(m.where, tp)
	delete(m.requests, tp)
	if child := m.fetchers[key]; child != nil {
		child.count--
		if key != next {
			c.Send(child.pid, fetcherRemove{tp: tp})
		}
	}
}

// unfetch takes a partition off its fetcher and answers when no append for it
// runs or can start.
func (m *mirror) unfetch(c actor.Context, tp messages.TopicPartition, to *actor.PID) {
	key, ok := m.where[tp]
	child := m.fetchers[key]
	if !ok || child == nil {
		m.answer(c, to, nil)
		return
	}
	delete(m.where, tp)
	delete(m.requests, tp)
	child.count--
	c.ActorSystem().Root.RequestWithCustomSender(child.pid, fetcherRemove{tp: tp}, to)
}

func (m *mirror) answer(c actor.Context, to *actor.PID, err error) {
	if to != nil {
		c.ActorSystem().Root.Send(to, fetcherAnswer{err: err})
	}
}

// respread moves partitions whose fetcher number or source leader is another one
// now; offsets are those of the local logs. Fetchers without partitions end.
func (m *mirror) respread(c actor.Context) {
	n := max(1, m.settings().Fetchers)
	view := m.view.Load()
	for tp, key := range m.where {
		leader, _, known := view.Leader(tp)
		// An answer that is older than the leader we follow moves nothing.
		known = known && leader.Epoch >= m.requests[tp].epoch
		moved := known && (leader.ID != key.broker || leader.Address() != m.fetchers[key].address)
		if moved || messages.FetcherNumber(tp, n) != key.number {
			req := m.requests[tp]
			if known {
				req.leader = nil
			}
			m.fetch(c, req, nil)
		}
	}
	for key, child := range m.fetchers {
		if child.count == 0 {
			c.Stop(child.pid)
			delete(m.fetchers, key)
			m.show()
		}
	}
}
