package actors

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/fetch"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/configs"
	pb "kagami/messages/proto"
	"kagami/messages/secrets"
	"kagami/persistence/metadata"
)

// errLeaderUnknown: the source names no leader for the partition now.
var errLeaderUnknown = errors.New("the source names no leader for the partition")

// MirrorSettings are the node settings that a mirror reads anew each time it
// needs them, so that dynamic ones take effect at once.
type MirrorSettings struct {
	Refresh        time.Duration // mirror.metadata.refresh.interval.ms, at least refreshPauseMin
	Fetchers       int32         // mirror.num.replica.fetchers
	RequestTimeout time.Duration // replica.socket.timeout.ms
	Authorizes     bool          // authorizer.class.name is set: ACLs mean something here
	// Worker has the fetch settings; identity and connection are filled in.
	Worker fetch.WorkerConfig
}

// refreshPauseMin bounds how often a mirror asks its source by itself, unless the node
// was made with another value.
const refreshPauseMin = time.Second

// mirrorOutside is what a mirror needs from the rest of the node.
type mirrorOutside interface {
	Image() *metadata.Image
	Submit(ctx context.Context, who messages.Requester, cmd messages.Command) messages.Outcome
	// Bump sends BumpLeaderEpochs over the bus and returns one error per bump.
	Bump(ctx context.Context, bumps []messages.EpochBump) ([]error, error)
	// Coordinates reports whether this node leads the shard of the mirror.
	Coordinates(mirror string) bool
}

// mirrorPeers are the nodes of this cluster, this one included, as a mirror's syncs ask
// them.
type mirrorPeers interface {
	Query(ctx context.Context, node messages.NodeID, actor string, q *pb.Query) (*pb.QueryResult, error)
}

// mirrorListener passes on what concerns the mirror's partitions on this node.
// It must not block.
type mirrorListener interface {
	// Refreshed: a refresh ended; ok says whether the source answered. well are the
	// topics that nothing is wrong with: what held their partitions is over.
	Refreshed(mirror string, ok bool, well map[string]struct{})
	// SourceChanged: the source's cluster id isn't the remembered one (OP-26).
	// SourceBack: it is again, or what was remembered has been cleared.
	SourceChanged(mirror, text string)
	SourceBack(mirror string)
	// TopicFault: the topic can't be mirrored until somebody acts.
	TopicFault(mirror, topic, text string)
	// Reconnect: the connection settings changed, fetchers are gone.
	Reconnect(mirror string)
}

// SourceView is what this node knows of a mirror's source. It never changes.
type SourceView struct {
	ClusterID string
	At        time.Time // of the last good refresh
	Topics    map[string]fetch.SourceTopic
	Brokers   []fetch.Broker
}

// address of a source broker, "" if it isn't known.
func (v *SourceView) address(id messages.NodeID) (host string, port int32) {
	if v != nil {
		for _, b := range v.Brokers {
			if b.ID == id {
				return b.Host, b.Port
			}
		}
	}
	return "", 0
}

// Leader is the source leader of a partition; ok is false if it isn't known.
func (v *SourceView) Leader(tp messages.TopicPartition) (l fetch.Leader, id messages.TopicID, ok bool) {
	if v == nil {
		return fetch.Leader{}, id, false
	}
	t, found := v.Topics[tp.Topic]
	if !found || int(tp.Partition) >= len(t.Partitions) {
		return fetch.Leader{}, id, false
	}
	p := t.Partitions[tp.Partition]
	return p.Leader, t.ID, p.Err == nil && p.Leader.ID != messages.NoNode && p.Leader.Host != ""
}

// leaderless is errLeaderUnknown with what the source says of the partition.
func (v *SourceView) leaderless(tp messages.TopicPartition) error {
	var why error
	if v != nil {
		t := v.Topics[tp.Topic]
		if why = t.Err; why == nil && int(tp.Partition) < len(t.Partitions) {
			why = t.Partitions[tp.Partition].Err
		}
	}
	if why == nil {
		return fmt.Errorf("%w: %s", errLeaderUnknown, tp)
	}
	return fmt.Errorf("%w: %s: %w", errLeaderUnknown, tp, why)
}

// Messages to a mirror.
type (
	// mirrorFetch asks for a fetcher; leader overrides the view when a source
	// broker has named the new one. Answered by fetcherAnswer.
	mirrorFetch struct {
		tp        messages.TopicPartition
		sink      fetch.Sink
		lag       *fetch.Lag
		notify    func(fetch.Event)
		leader    *fetch.Leader
		throttled bool
	}
	mirrorUnfetch struct{ tp messages.TopicPartition } // answered by fetcherAnswer
	// mirrorAwaitRefresh is answered by refreshSeen after a refresh that began
	// after the question.
	mirrorAwaitRefresh struct{}
	// mirrorAwaitEpochs is answered by epochsSeen, likewise.
	mirrorAwaitEpochs struct{}
	mirrorRefreshNow  struct{ reason string }
	mirrorChanged     struct{} // the image changed something of this mirror
	mirrorSettled     struct { // dynamic node settings changed
	}
	mirrorThrottle struct{ topic string } // its throttled replicas changed
	// mirrorSuspect: the source told a worker that the topic was made anew; with
	// loop, that the source mirrors it, or may (OP-35).
	mirrorSuspect struct {
		topic string
		loop  bool
	}
	mirrorTick  struct{ epoch int64 }
	refreshDone struct {
		connection int64
		cycle      int64
		result     refreshResult
	}
	refreshSeen struct {
		view *SourceView
		err  error
	}
	epochsDone struct {
		connection int64
		mirrors    fetch.Mirrors
		err        error
	}
	epochsSeen struct {
		mirrors fetch.Mirrors
		err     error
	}
	mirrorAsk struct{} // answered by MirrorStatus
)

// MirrorStatus is a mirror as this node sees it, for queries.
type MirrorStatus struct {
	Mirror      string
	ClusterID   string
	LastRefresh time.Time
	LastError   string
	Fetchers    int
	Fetching    int
}

// mirror is the metadata manager of one mirror on this node: the connection to
// the source, the periodic refresh, and the fetchers (KIP-1279,
// MirrorMetadataManager).
type mirror struct {
	name     string
	node     messages.NodeID
	outside  mirrorOutside
	peers    mirrorPeers
	listener mirrorListener
	settings func() MirrorSettings
	secrets  *secrets.Ring               // opens the mirror's settings
	view     *atomic.Pointer[SourceView] // published for readers outside
	shown    *atomic.Pointer[[]string]   // names of the fetchers, likewise
	failures *atomic.Int64               // refreshes that failed, of all mirrors
	syncs    *syncCounts
	clock    clock.Clock
	log      *zap.Logger
	plain    *zap.Logger // without the mirror's name, for those who add it
	helpers  *sync.WaitGroup

	ctx        context.Context //nolint:containedctx // bounds the actor's helpers, ended in Stopping
	cancel     context.CancelFunc
	configs    map[string]string // connection part that source was made with
	connection int64             // number of the connection: answers of an older one are dropped
	numbers    *atomic.Int64     // gives out numbers, over all lives of the actor
	linked     context.Context   //nolint:containedctx // bounds work on this connection
	unlink     context.CancelFunc
	source     *fetch.Source
	syncSource *fetch.Source // of syncs: answers on one connection come in order, and refreshes don't wait for slow ones
	config     fetch.Config
	fault      error // why there is no connection

	refreshing   bool
	cycle        int64 // number of the last refresh that began
	refreshAgain bool
	refreshWait  []*actor.PID // asked while none was on the way, or for the next
	refreshNext  []*actor.PID
	lastRefresh  time.Time
	lastError    error
	foreign      bool               // another cluster answers
	suspects     map[string]suspect // topics that may be at fault
	settled      bool               // a good refresh of this life has been told
	timerEpoch   int64
	stopTimer    func() bool
	lookingUp    bool
	epochsWait   []*actor.PID
	epochsNext   []*actor.PID
	oneWay       bool // the source has no mirror API, and that was said
	syncing      bool
	syncWanted   bool      // as soon as possible
	syncBegun    time.Time // the last one
	syncCycle    int64     // cycle of the one on its way
	told         *onceTold // of syncs

	fetchers  map[fetcherKey]*fetcherChild // that take partitions
	children  map[int64]*fetcherChild      // by id, those that are ending included
	places    map[messages.TopicPartition]*fetchPlace
	held      map[messages.TopicPartition]*heldFetch
	holdArmed bool
	stopHold  func() bool
}

// Receive handles one message; it never waits.
func (m *mirror) Receive(c actor.Context) {
	switch msg := c.Message().(type) {
	case *actor.Started:
		m.syncWanted = true
		m.connect()
		m.refresh(c, "start")
		// Partitions that fetched in an earlier life of this actor come back.
		m.listener.Reconnect(m.name)
	case *actor.Stopping, *actor.Restarting:
		m.close(c)
	case mirrorChanged:
		m.imageChanged(c)
	case mirrorSettled:
		m.respread(c)
		m.arm(c)
	case mirrorRefreshNow:
		m.log.Debug("source refresh wanted", zap.String("reason", msg.reason))
		m.refresh(c, msg.reason)
	case mirrorTick:
		if msg.epoch == m.timerEpoch {
			m.refresh(c, "interval")
		}
	case refreshDone:
		m.refreshed(c, msg)
	case syncDone:
		m.synced(c, msg)
	case mirrorAwaitRefresh:
		m.refreshNext = append(m.refreshNext, c.Sender())
		m.refresh(c, "asked")
	case mirrorAwaitEpochs:
		m.epochsNext = append(m.epochsNext, c.Sender())
		m.lookUpEpochs(c)
	case epochsDone:
		m.epochsKnown(c, msg)
	case mirrorFetch:
		m.fetch(c, msg, c.Sender())
	case mirrorUnfetch:
		m.unfetch(c, msg.tp, c.Sender())
	case fetcherDone:
		m.fetcherDid(c, msg)
	case fetcherGone:
		m.fetcherEnded(c, msg.id)
	case mirrorHoldOver:
		m.holdOver(c)
	case mirrorThrottle:
		m.throttle(c, msg.topic)
	case mirrorSuspect:
		m.suspect(msg)
		m.refresh(c, "topic may be at fault")
	case mirrorLend:
		c.Respond(sourceLent{source: m.source, err: m.fault})
	case mirrorAsk:
		c.Respond(m.status())
	}
}

// connect makes a new connection from the image's settings.
func (m *mirror) connect() {
	if m.unlink != nil {
		m.unlink()
	}
	m.connection = m.ticket()
	m.linked, m.unlink = context.WithCancel(m.ctx)
	m.source, m.syncSource, m.configs, m.fault = nil, nil, nil, nil
	mi := m.outside.Image().Mirror(m.name)
	if mi == nil {
		m.fault = fmt.Errorf("%w: %s", messages.ErrUnknownMirror, m.name)
		return
	}
	m.configs = connectionConfigs(mi.Configs)
	opened, fault := metadata.OpenConfigs(m.secrets, messages.ResourceClusterMirror, m.name, mi.Configs)
	if m.fault = fault; fault == nil {
		m.config, m.fault = fetch.ParseConfig(opened)
	}
	if m.fault == nil {
		config := fetch.SourceConfig{Source: m.config, Mirror: m.name, Node: m.node, RequestTimeout: m.settings().RequestTimeout, Log: m.plain}
		if m.source, m.fault = fetch.NewSource(config); m.fault == nil {
			m.syncSource, m.fault = fetch.NewSource(config)
		}
	}
	if m.fault != nil {
		m.log.Error("mirror can't connect to its source", zap.Error(m.fault))
	}
}

func connectionConfigs(all map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range all {
		if configs.ReconnectNeeded(k) {
			out[k] = v
		}
	}
	return out
}

// imageChanged reconnects after a change of the connection settings, and
// refreshes at once after any other change of the mirror or its topics.
func (m *mirror) imageChanged(c actor.Context) {
	mi := m.outside.Image().Mirror(m.name)
	if mi == nil {
		return // the parent stops this actor
	}
	m.syncWanted = true
	if now := connectionConfigs(mi.Configs); !sameConfigs(now, m.configs) {
		m.log.Info("mirror settings changed, connecting anew")
		m.drop(c)
		m.connect()
		m.view.Store(nil)
		m.listener.Reconnect(m.name)
	}
	m.refresh(c, "metadata")
}

func sameConfigs(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// drop ends the connection and every fetcher. Partitions are told by the caller.
func (m *mirror) drop(c actor.Context) {
	gone := fmt.Errorf("mirror %s connects anew: %w", m.name, fetch.ErrClosed)
	for tp := range m.held {
		m.release(c, tp, gone)
	}
	for _, p := range m.places {
		m.dropNext(c, p)
	}
	for _, child := range m.fetchers {
		m.retire(c, child, false)
	}
	m.unlink()
	m.closeSource()
}

// show publishes the fetchers' names.
func (m *mirror) show() {
	names := make([]string, 0, len(m.fetchers))
	for k := range m.fetchers {
		names = append(names, k.String())
	}
	m.shown.Store(&names)
}

func (m *mirror) closeSource() {
	for _, s := range []*fetch.Source{m.source, m.syncSource} {
		if s == nil {
			continue
		}
		m.helpers.Go(func() {
			if err := s.Close(); err != nil {
				m.log.Warn("close source", zap.Error(err))
			}
		})
	}
	m.source, m.syncSource = nil, nil
}

// close ends what runs and answers everybody who waits.
func (m *mirror) close(c actor.Context) {
	gone := fmt.Errorf("mirror %s is stopped: %w", m.name, fetch.ErrClosed)
	m.refreshWait = append(m.refreshWait, m.refreshNext...)
	m.epochsWait = append(m.epochsWait, m.epochsNext...)
	m.refreshNext, m.epochsNext = nil, nil
	m.tellRefresh(c, refreshSeen{err: gone})
	m.tellEpochs(c, epochsSeen{err: gone})
	for tp := range m.held {
		m.release(c, tp, gone)
	}
	for _, p := range m.places {
		m.dropNext(c, p)
		m.answer(c, p.want.to, gone)
		for _, to := range p.removers {
			m.answer(c, to, gone) // and asks again
		}
	}
	clear(m.places)
	m.cancel()
	m.timerEpoch++
	if m.stopTimer != nil {
		m.stopTimer()
	}
	if m.stopHold != nil {
		m.stopHold()
	}
	m.closeSource()
}

func (m *mirror) status() MirrorStatus {
	s := MirrorStatus{Mirror: m.name, LastRefresh: m.lastRefresh, Fetchers: len(m.fetchers), Fetching: len(m.places)}
	if v := m.view.Load(); v != nil {
		s.ClusterID = v.ClusterID
	}
	if m.lastError != nil {
		s.LastError = m.lastError.Error()
	}
	return s
}
