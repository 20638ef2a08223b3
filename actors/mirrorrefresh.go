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
)

// refreshTimeout bounds one cycle, so that a source that hangs costs its own
// mirror only, and only for so long.
const refreshTimeout = 2 * time.Minute

// refreshResult is what a cycle came back with.
type refreshResult struct {
	view     *SourceView // nil if the source didn't answer
	err      error       // why it didn't
	replaced error       // OP-26: another cluster answers; nothing else was done
	faults   []topicFault
	healthy  []string
}

// refreshGap is between two cycles that follow one another because somebody
// asked meanwhile: many partitions that ask all the time don't keep the source busy.
const refreshGap = 100 * time.Millisecond

// refresh begins a cycle, or notes that another one is wanted after the one on
// its way. A cycle runs in a goroutine that only sends its result back.
func (m *mirror) refresh(c actor.Context, reason string) {
	if m.refreshing {
		m.refreshAgain = true
		return
	}
	if m.source == nil {
		m.connect() // what kept it from connecting may be over
	}
	m.refreshWait, m.refreshNext = append(m.refreshWait, m.refreshNext...), nil
	m.cycle++
	if m.source == nil {
		m.lastError = m.fault
		m.tellRefresh(c, refreshSeen{err: m.fault})
		m.retryHeld(c, m.fault)
		m.arm(c)
		return
	}
	m.refreshing, m.refreshAgain = true, false
	r := m.refresher(reason)
	root, self, connection, cycle, ctx := c.ActorSystem().Root, c.Self(), m.connection, m.cycle, m.linked
	m.helpers.Go(func() {
		ctx, cancel := context.WithTimeoutCause(ctx, refreshTimeout, fmt.Errorf("the source answers too slowly: %w", messages.ErrTimedOut))
		defer cancel()
		begun := r.clock.Now()
		result := r.run(ctx)
		r.log.Debug("refresh cycle", zap.Duration("took", r.clock.Now().Sub(begun)))
		root.Send(self, refreshDone{connection: connection, cycle: cycle, result: result})
	})
}

func (m *mirror) refresher(reason string) refresher {
	return refresher{
		mirror: m.name, source: m.source, outside: m.outside, clock: m.clock, connection: m.configs,
		log: m.log.With(zap.String("refresh", reason)), loops: m.loopSuspects(),
		who: messages.Requester{Principal: fmt.Sprintf("User:node-%d", m.node), ClientID: "mirror-" + m.name, RequestID: fmt.Sprintf("refresh-%d", m.clock.Now().UnixMilli())},
	}
}

// arm sets the timer for the next cycle.
func (m *mirror) arm(c actor.Context) { m.tickAfter(c, m.settings().Refresh) }

func (m *mirror) tickAfter(c actor.Context, d time.Duration) {
	m.timerEpoch++
	if m.stopTimer != nil {
		m.stopTimer()
	}
	root, self, epoch := c.ActorSystem().Root, c.Self(), m.timerEpoch
	m.stopTimer = m.clock.AfterFunc(d, func() { root.Send(self, mirrorTick{epoch: epoch}) })
}

// refreshed takes in what a cycle found.
func (m *mirror) refreshed(c actor.Context, done refreshDone) {
	if !m.refreshing || done.cycle != m.cycle {
		return // of an earlier life
	}
	m.refreshing = false
	if done.connection != m.connection {
		m.refresh(c, "connection changed")
		return
	}
	r := done.result
	m.lastError = r.err
	if r.err != nil || r.replaced != nil {
		m.failures.Add(1)
	}
	switch {
	case r.replaced != nil:
		m.foreign, m.lastError = true, r.replaced
		m.log.Error("another cluster than the mirror's source answers, nothing is copied from it", zap.Error(r.replaced))
		m.listener.SourceChanged(m.name, r.replaced.Error())
		m.tellRefresh(c, refreshSeen{err: m.lastError})
	case r.err != nil:
		m.log.Warn("source refresh failed", zap.Error(r.err))
		m.listener.Refreshed(m.name, false, nil)
		m.tellRefresh(c, refreshSeen{err: r.err})
	default:
		m.answered(c, r)
	}
	m.retryHeld(c, m.lastError)
	if m.refreshAgain || len(m.refreshNext) > 0 || len(m.held) > 0 {
		m.tickAfter(c, refreshGap)
		return
	}
	if m.lastError == nil && m.syncDue() {
		m.tickAfter(c, m.syncGap())
		return
	}
	m.arm(c)
}

// answered takes in a cycle in which the right source answered. The first one of
// a life ends what an earlier life may have told.
func (m *mirror) answered(c actor.Context, r refreshResult) {
	m.lastRefresh = r.view.At
	m.view.Store(r.view)
	if m.foreign || !m.settled {
		m.foreign = false
		m.listener.SourceBack(m.name)
	}
	m.settled = true
	well := m.judge(r)
	m.respread(c)
	m.listener.Refreshed(m.name, true, well)
	m.tellRefresh(c, refreshSeen{view: r.view})
	m.sync(c, r)
}

func (m *mirror) tellRefresh(c actor.Context, seen refreshSeen) {
	for _, pid := range m.refreshWait {
		c.ActorSystem().Root.Send(pid, seen)
	}
	m.refreshWait = nil
}

// lookUpEpochs asks the source once for all partitions that wait for their last
// mirror epoch. Who asks while a look-up is on its way gets the next one's
// answer: an older one may be from before the source's own stop.
func (m *mirror) lookUpEpochs(c actor.Context) {
	if m.lookingUp || len(m.epochsNext) == 0 {
		return
	}
	m.epochsWait, m.epochsNext = m.epochsNext, nil
	if m.source == nil {
		m.tellEpochs(c, epochsSeen{err: m.fault})
		return
	}
	m.lookingUp = true
	source, root, self, connection, ctx := m.source, c.ActorSystem().Root, c.Self(), m.connection, m.linked
	outside, name := m.outside, m.name
	m.helpers.Go(func() {
		ctx, cancel := context.WithTimeoutCause(ctx, refreshTimeout, fmt.Errorf("the source answers too slowly: %w", messages.ErrTimedOut))
		defer cancel()
		mirrors, err := sourceMirrors(ctx, source, outside, name)
		root.Send(self, epochsDone{connection: connection, mirrors: mirrors, err: err})
	})
}

// sourceMirrors asks the source for all its mirrors, because of loops, and for
// the one of our name by name: among "all" a source leaves out what we may not
// see, and a partition without an LME is cut to zero. For the same reason the
// cluster id is looked at first: another cluster has no LME of ours.
func sourceMirrors(ctx context.Context, source *fetch.Source, outside mirrorOutside, name string) (fetch.Mirrors, error) {
	id, err := source.ClusterID(ctx)
	if err != nil {
		return fetch.Mirrors{}, err
	}
	image := outside.Image()
	if mi := image.Mirror(name); mi != nil {
		if err := foreign(name, mi.Configs[configs.MirrorSourceClusterID], id, image.ClusterID()); err != nil {
			return fetch.Mirrors{}, err
		}
	}
	all, err := source.AllMirrors(ctx)
	if err != nil || !all.Supported {
		return all, err
	}
	ours, err := source.LastMirrorEpochs(ctx, name)
	if err != nil {
		return fetch.Mirrors{}, err
	}
	if !ours.Supported {
		return fetch.Mirrors{}, fmt.Errorf("mirror %s: %w", name, fetch.ErrUnsupported)
	}
	return all.Merge(name, ours), nil
}

// errForeignSource: another cluster answers than the one that was remembered
// (OP-26), or this very one (OP-35).
var errForeignSource = errors.New("not the source of this mirror")

func (m *mirror) epochsKnown(c actor.Context, done epochsDone) {
	m.lookingUp = false
	if done.connection != m.connection {
		m.epochsNext = append(m.epochsWait, m.epochsNext...)
		m.epochsWait = nil
	} else {
		if done.err == nil {
			m.noteOneWay(!done.mirrors.Supported)
		}
		m.tellEpochs(c, epochsSeen{mirrors: done.mirrors, err: done.err})
	}
	m.lookUpEpochs(c)
}

// noteOneWay says once that a start can't know what both sides agree on: the
// source is an ordinary Kafka.
func (m *mirror) noteOneWay(oneWay bool) {
	if oneWay && !m.oneWay {
		m.log.Info("the source has no mirror API: mirroring is one-way, a start copies everything again, no failback")
	}
	m.oneWay = oneWay
}

func (m *mirror) tellEpochs(c actor.Context, seen epochsSeen) {
	for _, pid := range m.epochsWait {
		c.ActorSystem().Root.Send(pid, seen)
	}
	m.epochsWait = nil
}
