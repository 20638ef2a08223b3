package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/persistence/metadata"
)

// The books of a mirror: which fetcher has which partition. A partition is on one
// fetcher at most. It moves by leaving the old one first, and joins the new one
// when no append of the old one runs; what is asked meanwhile waits in next.
//
//	           add                    done
//	(nowhere) ----> placing ---------------------> placed
//	    ^              |  remove        remove       |
//	    |              +-----> leaving <-------------+
//	    +-------- done, or the fetcher is gone; or on to the next fetcher

// placeStep is how far a partition is.
type placeStep int8

const (
	placePlacing placeStep = iota + 1
	placePlaced
	placeLeaving
)

// want is a partition and where it is to be fetched from.
type want struct {
	req    mirrorFetch
	leader fetch.Leader
	id     messages.TopicID // the source's, zero if it has none
	to     *actor.PID       // who waits for it, nil if nobody does
}

// fetchPlace is one partition in the books.
type fetchPlace struct {
	want     want
	child    *fetcherChild
	step     placeStep
	number   int64        // of the last request to the fetcher
	next     *want        // where it goes when it has left
	removers []*actor.PID // who waits until it has left
	// backSince: from then on the source names an older epoch; zero if it doesn't.
	backSince time.Time
}

// fetcherChild is a fetcher. It stays in the books until its worker has ended.
type fetcherChild struct {
	id      int64
	key     fetcherKey
	pid     *actor.PID
	address string
	count   int // partitions in the books
	retired bool
}

// place brings a partition to the fetcher it is wanted on.
func (m *mirror) place(c actor.Context, w want) {
	tp := w.req.tp
	p := m.places[tp]
	if p != nil && p.step == placeLeaving {
		m.dropNext(c, p)
		p.next = &w
		return
	}
	child := m.fetcherFor(c, tp, w.leader) // may retire the one that has it
	switch {
	case p == nil:
		p = &fetchPlace{child: child}
		child.count++
		m.places[tp] = p
	case p.step == placeLeaving || p.child != child:
		m.dropNext(c, p)
		p.next = &w
		if p.step != placeLeaving {
			m.leave(c, p)
		}
		return
	default:
		m.answer(c, p.want.to, errSuperseded)
	}
	p.want, p.step, p.number = w, placePlacing, m.ticket()
	id := w.id
	// Our own topic's id is asked for, so that a topic that was made anew on the
	// source is refused by the source itself (C11); by name where it has no ids.
	if t := m.outside.Image().Topic(tp.Topic); t != nil && !id.IsZero() {
		id = t.ID
	}
	c.Send(child.pid, fetcherAdd{number: p.number, assignment: fetch.Assignment{
		TopicPartition: tp, TopicID: id, LeaderEpoch: w.leader.Epoch,
		Sink: w.req.sink, Lag: w.req.lag, Notify: m.listen(c, tp.Topic, w.req.notify), Throttled: w.req.throttled,
	}})
}

// listen passes events on, and notes what a refresh must follow up: a worker may
// learn that a topic was made anew when a refresh finds the old one back already.
func (m *mirror) listen(c actor.Context, topic string, notify func(fetch.Event)) func(fetch.Event) {
	root, self := c.ActorSystem().Root, c.Self()
	return func(e fetch.Event) {
		if f, ok := e.(fetch.Failed); ok && errors.Is(f.Err, fetch.ErrTopicRecreated) {
			root.Send(self, mirrorSuspect{topic: topic})
		}
		notify(e)
	}
}

// ticket is a number that nothing had before, in no life of this actor.
func (m *mirror) ticket() int64 { return m.numbers.Add(1) }

// leave asks the fetcher to let go of a partition.
func (m *mirror) leave(c actor.Context, p *fetchPlace) {
	m.answer(c, p.want.to, errSuperseded)
	p.want.to = nil
	p.step, p.number = placeLeaving, m.ticket()
	c.Send(p.child.pid, fetcherRemove{tp: p.want.req.tp, number: p.number})
}

func (m *mirror) dropNext(c actor.Context, p *fetchPlace) {
	if p.next != nil {
		m.answer(c, p.next.to, errSuperseded)
		p.next = nil
	}
}

// fetcherDid takes in the answer of a fetcher.
func (m *mirror) fetcherDid(c actor.Context, d fetcherDone) {
	p := m.places[d.tp]
	switch {
	case p == nil || p.number != d.number:
	case p.step == placeLeaving && d.err == nil:
		m.left(c, p)
	case p.step == placeLeaving:
		// Its fetcher is closing; fetcherGone follows.
	case errors.Is(d.err, fetch.ErrClosed), errors.Is(d.err, context.Canceled):
		// Likewise.
	case d.err == nil:
		p.step = placePlaced
		m.answer(c, p.want.to, nil)
		p.want.to = nil
	default:
		m.lost(c, p, fmt.Errorf("fetcher %s: %w", p.child.key, d.err))
	}
}

// lost takes a partition out that no fetcher took.
func (m *mirror) lost(c actor.Context, p *fetchPlace, err error) {
	w := p.want
	p.want.to = nil
	m.left(c, p)
	if w.to != nil {
		m.answer(c, w.to, err)
		return
	}
	failing(w.req, err)
}

// left takes a partition out of the books and to its next fetcher.
func (m *mirror) left(c actor.Context, p *fetchPlace) {
	p.child.count--
	delete(m.places, p.want.req.tp)
	for _, to := range p.removers {
		m.answer(c, to, nil)
	}
	if p.next == nil {
		return
	}
	if err := m.closedFor(); err != nil {
		m.answer(c, p.next.to, err)
		return
	}
	m.place(c, *p.next)
}

// fetcherFor is the fetcher for a source leader, made if need be.
func (m *mirror) fetcherFor(c actor.Context, tp messages.TopicPartition, leader fetch.Leader) *fetcherChild {
	settings := m.settings()
	key := fetcherKey{broker: leader.ID, number: messages.FetcherNumber(tp, max(1, settings.Fetchers))}
	child := m.fetchers[key]
	if child != nil && child.address != leader.Address() {
		m.log.Info("source broker moved", zap.Stringer("fetcher", key), zap.String("address", leader.Address()))
		moved := leader
		m.retireTo(c, child, &moved)
		child = nil
	}
	if child == nil {
		child = m.spawn(c, key, leader, settings)
	}
	return child
}

// sourceID is the source's cluster id, empty if none has ever been told. Before the first view
// of a life (a partition may come by what another broker said of its leader) it is the one
// that an earlier life remembered.
func sourceID(v *SourceView, mi *metadata.Mirror) string {
	switch {
	case v != nil && v.ClusterID != "":
		return v.ClusterID
	case mi != nil:
		return mi.Configs[configs.MirrorSourceClusterID]
	}
	return ""
}

func (m *mirror) spawn(c actor.Context, key fetcherKey, leader fetch.Leader, settings MirrorSettings) *fetcherChild {
	config := settings.Worker
	config.Source, config.Mirror, config.Node = m.config, m.name, m.node
	config.SourceBroker, config.Address, config.Number = key.broker, leader.Address(), key.number
	config.ClusterID = sourceID(m.view.Load(), m.outside.Image().Mirror(m.name))
	config.RequestTimeout, config.Clock, config.Log = settings.RequestTimeout, m.clock, m.plain
	id := m.ticket()
	ctx, helpers, log := m.ctx, m.helpers, m.log
	pid := c.SpawnPrefix(props(m.clock, m.log, fetcherOnce(func() *fetcher {
		return newFetcher(ctx, id, config, helpers, log)
	})), "fetcher-"+key.String())
	child := &fetcherChild{id: id, key: key, pid: pid, address: leader.Address()}
	m.fetchers[key] = child
	m.children[id] = child
	m.show()
	return child
}

// retire ends a fetcher. Its partitions leave; again says whether they come back
// on another one.
func (m *mirror) retire(c actor.Context, child *fetcherChild, again bool) {
	m.strike(c, child)
	for _, p := range m.places {
		if p.child != child || p.step == placeLeaving {
			continue
		}
		w := p.want
		if again {
			p.want.to, p.next = nil, &w // still waits for it
		} else {
			m.answer(c, w.to, errSuperseded)
			p.want.to = nil
		}
		p.step, p.number = placeLeaving, m.ticket()
	}
}

// retireTo is retire, with the partitions going to where the leader is now.
func (m *mirror) retireTo(c actor.Context, child *fetcherChild, leader *fetch.Leader) {
	m.retire(c, child, true)
	for _, p := range m.places {
		if p.child == child && p.next != nil && p.next.leader.ID == leader.ID {
			p.next.leader.Host, p.next.leader.Port = leader.Host, leader.Port
		}
	}
}

// strike takes a fetcher off the list of those that take partitions.
func (m *mirror) strike(c actor.Context, child *fetcherChild) {
	if child.retired {
		return
	}
	child.retired = true
	c.Stop(child.pid)
	if m.fetchers[child.key] == child {
		delete(m.fetchers, child.key)
	}
	m.show()
}

// fetcherEnded: no append of the fetcher runs any more. One that wasn't retired
// has panicked, and its partitions come back on another one.
func (m *mirror) fetcherEnded(c actor.Context, id int64) {
	child := m.children[id]
	if child == nil {
		return
	}
	if !child.retired {
		m.log.Error("fetcher failed, its partitions get another one", zap.Stringer("fetcher", child.key), zap.Int("partitions", child.count))
		m.retire(c, child, true)
	}
	delete(m.children, id)
	var gone []*fetchPlace
	for _, p := range m.places {
		if p.child == child {
			gone = append(gone, p)
		}
	}
	for _, p := range gone {
		m.left(c, p)
	}
}
