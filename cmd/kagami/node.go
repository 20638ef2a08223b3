package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"kagami/actors"
	"kagami/admin"
	"kagami/broker"
	"kagami/cluster"
	"kagami/fetch"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// closeTimeout is how long a node lets clients and appends finish when it stops.
const closeTimeout = 8 * time.Second

// node is all the parts of a running node. They are started in the order of the
// fields and stopped the other way round.
type node struct {
	settings  settings
	log       *zap.Logger
	level     zap.AtomicLevel
	clock     clock.Clock
	clusterID string
	formed    cluster.Formation // of a cluster of several

	natsServer   *cluster.Server  // nil in a cluster of one
	streams      *cluster.Streams // nil in a cluster of one
	journal      *cluster.Journal // nil in a cluster of one
	manager      *persistence.Manager
	checkpoints  *cluster.Checkpoints
	metaReplica  *cluster.Replica
	store        *metadata.Store
	bus          *cluster.Bus
	members      *cluster.Membership
	replicas     *cluster.Replicas
	system       *actors.System
	controller   *actors.Controller
	mirroring    *actors.Node
	groups       *actors.Groups
	groupsNow    atomic.Pointer[actors.Groups] // groups, for queries, which come from the start
	shares       *actors.ShareGroups
	sharesNow    atomic.Pointer[actors.ShareGroups]
	markers      *actors.TxnMarkers
	txns         *actors.Txns
	cleaner      *actors.Cleaner
	rpc          *cluster.ActorRPC
	broker       *broker.Server
	admin        *admin.Server
	adminExpires atomic.Pointer[func() time.Time] // of the certificate of admin

	// opened is store, for those who may ask before it is open.
	opened atomic.Pointer[metadata.Store]
	// placed is what leaders were found to be in order for; of the controller's duty.
	placed string
	// ends is how far the journal was; of the controller's duty.
	ends shardEnds
	// lag is who is in sync.
	lag replicaLag

	// ended gets the error of a part that ended by itself.
	ended chan error
	// undo stops what has been started, last first.
	undo []func(ctx context.Context) error
}

// startNode starts everything; on an error what was started is stopped again.
func startNode(ctx context.Context, s settings, log *zap.Logger, level zap.AtomicLevel) (*node, error) {
	n := &node{settings: s, log: log, level: level, clock: clock.Wall{}, ended: make(chan error, 1)}
	stopHeap := keepHeap(ctx, n.clock)
	n.defers(func(context.Context) error {
		stopHeap()
		return nil
	})
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"join cluster", n.joinCluster},
		{"open data folder", n.openData},
		{"open bus", n.openBus},
		{"open journal", n.openJournal},
		{"open metadata", n.openMetadata},
		{"start replicas", n.startReplicas},
		{"start controller", n.startController},
		{"start mirroring", n.startMirroring},
		{"start group coordinators", n.startGroups},
		{"start transaction coordinators", n.startTxns},
		{"start cleaner", n.startCleaner},
		{"bind listeners", n.bind},
		{"watch secrets", n.watchSecrets},
		{"serve clients", n.serve},
		{"serve admin requests", n.serveAdmin},
		{"be ready to lead", n.beReady},
	} {
		if err := step.run(ctx); err != nil {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
			defer cancel()
			return nil, errors.Join(fmt.Errorf("%s: %w", step.name, err), n.close(closing))
		}
	}
	return n, nil
}

// end ends the node because of a part that can't go on. It doesn't block.
func (n *node) end(err error) {
	select {
	case n.ended <- err:
	default: // it ends already
	}
}

func (n *node) defers(f func(ctx context.Context) error) { n.undo = append(n.undo, f) }

// close stops every part and reports all faults. It may be called twice.
func (n *node) close(ctx context.Context) error {
	var errs []error
	for len(n.undo) > 0 {
		last := n.undo[len(n.undo)-1]
		n.undo = n.undo[:len(n.undo)-1]
		errs = append(errs, last(ctx))
	}
	return errors.Join(errs...)
}

func (n *node) openData(ctx context.Context) error {
	var err error
	n.manager, err = persistence.Open(ctx, n.settings.dataDir, persistence.Options{
		ClusterID: n.clusterID, NodeID: n.settings.nodeID, Clock: n.clock, Logger: n.log, FlushInterval: n.settings.flushInterval,
	})
	if err != nil {
		return err
	}
	n.defers(func(context.Context) error { return n.manager.Close() })
	n.checkpoints, err = cluster.OpenCheckpoints(persistence.OSFS{}, n.settings.dataDir, n.log)
	if err != nil {
		return err
	}
	n.defers(func(context.Context) error { return n.checkpoints.Close() })
	return nil
}

func (n *node) openMetadata(ctx context.Context) error {
	var err error
	if n.journal != nil {
		err = n.followMetadata(ctx)
	} else {
		n.metaReplica, err = cluster.OpenMetadataReplica(ctx, n.settings.nodeID, n.manager, n.checkpoints, n.log)
	}
	if err != nil {
		return err
	}
	n.defers(func(context.Context) error { return n.metaReplica.Close() })
	dir := filepath.Join(n.settings.dataDir, n.metaReplica.TopicPartition().String())
	n.store, err = metadata.Open(ctx, metadata.Options{
		Journal: n.metaReplica, Source: n.metaReplica, Dir: dir, Missed: n.missed(dir),
		Now: func() int64 { return n.clock.Now().UnixMilli() }, Logger: n.log.Named("metadata"), SnapshotBytes: n.settings.snapshotBytes,
		SecretsKey: n.settings.secrets.Primary(),
		Failed: func(err error) {
			n.end(fmt.Errorf("this node can't follow the metadata: %w", err))
		},
	})
	if err != nil {
		return err
	}
	n.opened.Store(n.store)
	n.defers(func(context.Context) error { return n.store.Close() })
	return n.checkSecrets()
}

func (n *node) openBus(ctx context.Context) error {
	var err error
	n.bus, err = cluster.OpenBus(ctx, cluster.BusOptions{ClusterID: n.clusterID, Node: n.settings.nodeID, Server: n.natsServer, Clock: n.clock, Logger: n.log})
	if err != nil {
		return err
	}
	n.defers(func(context.Context) error { return n.bus.Close() })
	return n.openMembership(ctx)
}

func (n *node) startReplicas(ctx context.Context) error {
	n.replicas = cluster.NewReplicas(ctx, cluster.ReplicasOptions{
		Node: n.settings.nodeID, Logs: n.manager, Checkpoints: n.checkpoints, Journal: n.journal, Metadata: n.metaReplica, Static: n.settings.static,
		RetentionInterval: n.settings.retentionInterval, Clock: n.clock, Logger: n.log,
	})
	n.defers(func(context.Context) error { return n.replicas.Close() })
	if n.journal != nil {
		n.defers(func(context.Context) error { n.journal.Close(); return nil }) // before the replicas
	}
	cancel := n.store.Subscribe(n.replicas.Apply)
	n.defers(func(context.Context) error { cancel(); return nil })
	return nil
}

func (n *node) startController(ctx context.Context) error {
	n.system = actors.NewSystem(n.log)
	n.defers(func(context.Context) error { n.system.Shutdown(); return nil })
	var err error
	n.controller, err = actors.NewController(ctx, n.system, actors.ControllerOptions{
		Node: n.settings.nodeID, ClusterID: n.clusterID, Store: n.store, Claim: n.metaReplica.Claim,
		Live: n.staying, Static: n.settings.static, Secrets: n.settings.secrets, Others: n.others(), Clock: n.clock, Logger: n.log,
	})
	if err != nil {
		return err
	}
	n.defers(func(context.Context) error { return n.controller.Close() })
	stop, err := n.controller.ServeBumps(n.bus, n.bus.ControllerBump(n.settings.nodeID))
	if err != nil {
		return err
	}
	n.defers(func(context.Context) error { stop(); return nil })
	if n.journal != nil {
		return n.waitController(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("the metadata log wasn't claimed within a minute: %w", messages.ErrTimedOut))
	defer cancel()
	return n.controller.WaitClaimed(ctx)
}

// fetchBudgetBytes bounds fetched data between the network and the logs.
const fetchBudgetBytes = 256 << 20

func (n *node) startMirroring(ctx context.Context) error {
	n.mirroring = actors.NewNode(ctx, actors.NodeConfig{
		System: n.system, Node: n.settings.nodeID, Store: n.store, Replicas: n.replicas, Bus: n.bus, Controller: n.controller,
		Static: n.settings.static, Secrets: n.settings.secrets, Budget: fetch.NewBudget(fetchBudgetBytes), Random: rand.Float64, Report: n.report(), Clock: n.clock, Log: n.log,
	})
	n.defers(func(context.Context) error { return n.mirroring.Close() })
	n.rpc = cluster.NewActorRPC(n.bus)
	n.defers(func(context.Context) error { n.rpc.Close(); return nil })
	return n.rpc.RegisterActorHandler(n.handleQuery)
}

// bind opens the listeners, so that ports are known, and registers this node.
func (n *node) bind(ctx context.Context) error {
	v := configs.BrokerValues(nil, n.settings.static)
	perIP := v.Int("max.connections.per.ip")
	if perIP == 1<<31-1 {
		perIP = 0
	}
	listeners, err := n.secureListeners()
	if err != nil {
		return err
	}
	n.broker, err = broker.New(broker.Config{
		NodeID: n.settings.nodeID, Listeners: listeners, StaticConfigs: n.settings.static,
		RequestBytesQueued: v.Int(configs.QueuedRequestBytes), AnswerBytesQueued: v.Int(configs.QueuedAnswerBytes),
		RequestBytesMax: v.Int("socket.request.max.bytes"), ConnectionsMax: v.Int("max.connections"), ConnectionsPerIPMax: perIP,
		IdleTimeout:   time.Duration(v.Int64("connections.max.idle.ms")) * time.Millisecond,
		FetchBytesMax: v.Int("fetch.max.bytes"), FetchSessionsMax: v.Int("max.incremental.fetch.session.cache.slots"), Live: n.shown, InSync: n.inSync(),
		QuotaWindow: time.Duration((v.Int(configs.QuotaWindowNum)-1)*v.Int(configs.QuotaWindowSize)) * time.Second,
		LogLevel:    &n.level, LogDir: n.logDir,
	}, n.brokerDeps(), n.clock, n.log)
	if err != nil {
		return err
	}
	if err := n.broker.Listen(ctx); err != nil {
		return err
	}
	n.defers(n.broker.Close)
	endpoints := make([]messages.Endpoint, 0, len(n.settings.advertised))
	for _, ep := range n.settings.advertised {
		if ep.Port == 0 {
			if ep.Port, err = portOf(n.broker.Addr(ep.Listener)); err != nil {
				return err
			}
		}
		endpoints = append(endpoints, ep)
	}
	if err := n.refuseLeftovers(); err != nil {
		return err
	}
	if err := n.checkSecrets(); err != nil {
		return err
	}
	if err := n.bootstrapUser(ctx); err != nil {
		return err
	}
	if err := n.register(ctx, messages.Node{ID: n.settings.nodeID, Rack: n.settings.rack, Incarnation: messages.NewTopicID(), Endpoints: endpoints}); err != nil {
		return err
	}
	return n.checkSecrets() // the image is as new as the registration now
}

const (
	registerRetry   = 200 * time.Millisecond
	registerTimeout = 2 * time.Minute
)

// register tells the controller that this node is there. Among several nodes the
// controller may lose its place just then: registering twice does no harm, so that
// is tried again.
func (n *node) register(ctx context.Context, self messages.Node) error {
	ctx, cancel := context.WithTimeoutCause(ctx, registerTimeout, messages.ErrTimedOut)
	defer cancel()
	for {
		out := n.controller.Submit(ctx, n.self("register"), messages.RegisterNode{Node: self})
		err := errors.Join(out.Err, itemErrors(out.Items))
		switch {
		case err == nil:
			return nil
		case n.journal == nil, !errors.Is(err, messages.ErrTimedOut) && !errors.Is(err, messages.ErrNotController) && !errors.Is(err, messages.ErrStorage):
			return fmt.Errorf("register node: %w", err)
		}
		n.log.Warn("register this node, tried again", zap.Error(err))
		if n.clock.Sleep(ctx, registerRetry) != nil {
			return fmt.Errorf("register node: %w", err)
		}
	}
}

// statesTimeout is how long clients are kept waiting for mirror states: for the
// coordinators' replay. Without them topics are read-only, which is safe.
const statesTimeout = 15 * time.Second

// serve begins to answer Kafka clients once the replicas follow the image and
// the mirror partitions know their states.
func (n *node) serve(ctx context.Context) error {
	if err := n.replicas.WaitApplied(ctx, n.store.Image().Offset()); err != nil {
		return err
	}
	loading, cancel := context.WithTimeoutCause(ctx, statesTimeout, messages.ErrTimedOut)
	defer cancel()
	if err := n.mirroring.WaitStates(loading); err != nil {
		if ctx.Err() != nil {
			return err
		}
		n.log.Warn("clients are served before every mirror state is known; those topics are read-only until then", zap.Error(err))
	}
	if err := n.renewEpochs(ctx); err != nil {
		return fmt.Errorf("new leader epochs after a crash: %w", err)
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() {
		err := n.broker.Serve(serving)
		if errors.Is(err, broker.ErrServerClosed) {
			err = nil // closed before it began
		}
		if err != nil && serving.Err() == nil {
			n.ended <- fmt.Errorf("serve clients: %w", err)
		}
		served <- err
	}()
	n.defers(func(ctx context.Context) error {
		err := n.broker.Close(ctx)
		stop()
		return errors.Join(err, <-served)
	})
	return nil
}

// sample is the node's mirroring at this moment, for metrics.
func (n *node) sample() admin.Sample {
	s := admin.Sample{
		States: map[messages.State]int{}, RefreshErrors: n.mirroring.Mirrors.RefreshErrors(), Groups: n.groupSample(),
		ConfigErrors: n.mirroring.Mirrors.SyncErrors(actors.SyncTopicConfigs), GroupErrors: n.mirroring.Mirrors.SyncErrors(actors.SyncGroups),
		ShareErrors: n.mirroring.Mirrors.SyncErrors(actors.SyncShareGroups), ACLErrors: n.mirroring.Mirrors.SyncErrors(actors.SyncACLs),
	}
	n.sampleTraffic(&s)
	n.sampleTxns(&s)
	n.sampleLogins(&s)
	n.sampleSecrets(&s)
	c := n.cleaner.Counts()
	s.Cleaner = admin.CleanerSample(c)
	if c.LastMillis > 0 {
		s.SinceCleaner = n.clock.Now().Sub(time.UnixMilli(c.LastMillis))
	}
	for _, m := range n.store.Image().Mirrors() {
		s.Fetchers += len(n.mirroring.Mirrors.Fetchers(m.Name))
	}
	n.mirroring.Partitions.Range(func(h *actors.PartitionHandle) bool {
		state := h.Status().State
		s.States[state]++
		if lag := h.Lag(); lag != nil && state == messages.StateMirroring {
			_, _, behind, _ := n.mirroring.Progress(h)
			s.Partitions = append(s.Partitions, admin.PartitionSample{
				Mirror: h.Mirror, Topic: h.TopicPartition.Topic, Partition: strconv.Itoa(int(h.TopicPartition.Partition)),
				Lag: behind, Bytes: lag.Snapshot().Bytes,
			})
		}
		return true
	})
	return s
}

// sampleTraffic adds what clients and fetchers moved.
func (n *node) sampleTraffic(s *admin.Sample) {
	fetches, clients := n.mirroring.Fetches(), n.broker.Traffic()
	s.Version, s.DeadFetchers = version(), fetches.Dead()
	for _, w := range fetches.Workers() {
		s.Workers = append(s.Workers, admin.WorkerSample(w))
	}
	s.Traffic = admin.TrafficSample{
		BytesIn: clients.BytesIn, MessagesIn: clients.MessagesIn, BytesOut: clients.BytesOut, MirroredBytesIn: fetches.Bytes(),
		Produce: clients.Produce, Fetch: clients.Fetch, FailedProduce: clients.FailedProduce, FailedFetch: clients.FailedFetch,
	}
}

// sampleLogins adds how clients logged in, and when certificates end.
func (n *node) sampleLogins(s *admin.Sample) {
	count := func(c broker.LoginCount) admin.LoginCount { return admin.LoginCount(c) }
	for _, l := range n.broker.Logins() {
		s.Logins = append(s.Logins, admin.LoginSample{
			Listener: l.Listener, Successful: count(l.Successful), Failed: count(l.Failed), Reauthenticated: count(l.Reauthenticated), FailedReauths: count(l.FailedReauths),
			ExpiredKilled: l.ExpiredKilled, HandshakeFailures: l.HandshakeFailures,
		})
		if !l.Expires.IsZero() {
			s.Certificates = append(s.Certificates, admin.CertificateSample{Listener: l.Listener, Expires: l.Expires})
		}
	}
	if expires := n.adminExpires.Load(); expires != nil && *expires != nil {
		s.Certificates = append(s.Certificates, admin.CertificateSample{Listener: "admin", Expires: (*expires)()})
	}
}

// self is this node as a requester.
func (n *node) self(request string) messages.Requester {
	return messages.Requester{Principal: fmt.Sprintf("User:node-%d", n.settings.nodeID), ClientID: "kagami", RequestID: request}
}

func itemErrors(items []messages.Item) error {
	errs := make([]error, 0, len(items))
	for _, i := range items {
		errs = append(errs, i.Err)
	}
	return errors.Join(errs...)
}
