package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"kagami/cluster"
	"kagami/fetch"
	"kagami/fsm"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/secrets"
	"kagami/persistence/metadata"
)

// NodeConfig of NewNode. All fields are required, but Report, RefreshPause and Secrets.
type NodeConfig struct {
	System     *System
	Node       messages.NodeID
	Store      *metadata.Store
	Replicas   *cluster.Replicas
	Bus        *cluster.Bus
	Controller *Controller
	Static     map[string]string // settings of the node's file
	Secrets    *secrets.Ring     // opens secrets of the metadata; nil: no keys
	Budget     *fetch.Budget     // bytes of fetched data that the node holds
	Random     func() float64    // in [0, 1), from many goroutines
	// Report says how a node's replica of a partition is, and whether it has applied
	// the journal up to a position; nil in a cluster of one.
	Report func(node messages.NodeID, key messages.PartitionKey, position int64) ReplicaReport
	// RefreshPause bounds how often a mirror asks its source by itself; 0: once a second.
	RefreshPause time.Duration
	Clock        clock.Clock
	Log          *zap.Logger
}

// Node is the mirroring side of a node: coordinator shards, mirrors with their
// fetchers, and partitions, all following the metadata image.
type Node struct {
	Coordinators *Coordinators
	Mirrors      *Mirrors
	Partitions   *Partitions

	config   NodeConfig
	throttle *fetch.Meter
	fetches  *fetch.Stats
	states   StateClient
	cancels  []func()
}

// NewNode starts the actors; they get to work as the replicas carry out images.
// ctx carries values only. The caller closes the node before what it was given.
func NewNode(ctx context.Context, config NodeConfig) *Node {
	if config.RefreshPause == 0 {
		config.RefreshPause = refreshPauseMin
	}
	n := &Node{config: config}
	n.fetches = fetch.NewStats(config.Clock)
	n.throttle = fetch.NewMeter(config.Clock, n.settings().Int64(configs.MirrorThrottledRate))
	n.states = NewStateClient(config.Bus, config.Store.Image, config.Clock)
	n.Coordinators = NewCoordinators(ctx, CoordinatorsConfig{
		System: config.System, Node: config.Node, Server: config.Bus, Clock: config.Clock, Log: config.Log,
		Replica: func(tp messages.TopicPartition) (StateReplica, error) {
			r, err := config.Replicas.Get(tp)
			if err != nil {
				return nil, err
			}
			return r, nil
		},
	})
	listener := &lateListener{}
	n.Mirrors = NewMirrors(ctx, MirrorsConfig{
		System: config.System, Node: config.Node, Outside: nodeOutside{n}, Peers: cluster.NewActorRPC(config.Bus), Settings: n.mirrorSettings, Secrets: config.Secrets, Clock: config.Clock, Log: config.Log,
	}, listener)
	link := n.Mirrors.Link()
	n.Partitions = NewPartitions(ctx, PartitionsConfig{
		System: config.System, Node: config.Node, Source: link, Fetchers: link, States: n.states, Bumper: nodeOutside{n},
		Policy: n.retryPolicy, Random: config.Random, Convergence: n.convergence(), Clock: config.Clock, Log: config.Log,
		Replica: func(tp messages.TopicPartition) (PartitionReplica, error) {
			r, err := config.Replicas.Get(tp)
			if err != nil {
				return nil, err
			}
			return r, nil
		},
	})
	listener.Partitions = n.Partitions
	n.serveRecover()
	n.cancels = append(n.cancels,
		config.Replicas.Subscribe(func(a cluster.AppliedImage) {
			n.Coordinators.Apply(a.Image, a.Topics)
			n.Mirrors.Apply(a.Image, a.Topics)
			n.Partitions.Apply(a.Image, a.Topics)
		}),
		config.Store.Subscribe(func(d metadata.Delta) {
			if !d.Brokers {
				return
			}
			n.throttle.SetLimit(configs.BrokerValues(d.New.BrokerConfig(config.Node), config.Static).Int64(configs.MirrorThrottledRate))
			n.Mirrors.Settled()
			n.Partitions.PolicyChanged()
		}))
	return n
}

// lateListener is the partitions, which are made after the mirrors; no mirror
// exists before the first image, which is applied after both.
type lateListener struct{ *Partitions }

// States asks the coordinators of mirrors, wherever they are.
func (n *Node) States() StateClient { return n.states }

// Progress is how far the copy of a partition is: source high watermark, local
// log end, lag. ok is false in every state without a fetcher, and before the
// source's first answer.
func (n *Node) Progress(h *PartitionHandle) (source, end, lag int64, ok bool) {
	l := h.Lag()
	if l == nil || h.Status().State != messages.StateMirroring {
		return messages.NoOffset, messages.NoOffset, -1, false
	}
	s := l.Snapshot()
	r, err := n.config.Replicas.Get(h.TopicPartition)
	if err != nil || s.SourceHighWatermark < 0 {
		return messages.NoOffset, messages.NoOffset, -1, false
	}
	end = r.State().End
	return s.SourceHighWatermark, end, max(0, s.SourceHighWatermark-end), true
}

// Fetches counts what this node's fetchers do.
func (n *Node) Fetches() *fetch.Stats { return n.fetches }

// settings are the node's effective configs now.
func (n *Node) settings() configs.Values {
	return configs.BrokerValues(n.config.Store.Image().BrokerConfig(n.config.Node), n.config.Static)
}

func (n *Node) retryPolicy() fsm.RetryPolicy {
	v := n.settings()
	return fsm.RetryPolicy{
		Initial:     time.Duration(v.Int64(configs.MirrorFailedRetryInitial)) * time.Millisecond,
		Max:         time.Duration(v.Int64(configs.MirrorFailedRetryMax)) * time.Millisecond,
		MaxAttempts: int32(v.Int64(configs.MirrorFailedRetryAttempts)),
	}
}

// journalAppenders is how many partitions of a fetcher may wait for the journal of
// several nodes with a little data at a time. It gathers them, and hardly anything is
// computed meanwhile.
const journalAppenders = 128

// appenders is 0, the default, in a cluster of one.
func (n *Node) appenders() int {
	if n.config.Report == nil {
		return 0
	}
	return journalAppenders
}

func (n *Node) mirrorSettings() MirrorSettings {
	v := n.settings()
	ms := func(key string) time.Duration { return time.Duration(v.Int64(key)) * time.Millisecond }
	return MirrorSettings{
		Refresh:        max(n.config.RefreshPause, ms(configs.MirrorRefreshInterval)),
		Fetchers:       int32(v.Int64(configs.MirrorNumReplicaFetchers)),
		RequestTimeout: ms(configs.ReplicaSocketTimeout),
		Authorizes:     v.String(configs.AuthorizerClass) != "",
		Worker: fetch.WorkerConfig{
			MaxWait:           ms(configs.ReplicaFetchWaitMax),
			MinBytes:          int32(v.Int64(configs.ReplicaFetchMinBytes)),
			MaxBytes:          int32(v.Int64(configs.ReplicaFetchResponseMaxBytes)),
			PartitionMaxBytes: int32(v.Int64(configs.ReplicaFetchMaxBytes)),
			WindowMaxBytes:    int32(v.Int64(configs.FetchWindowBytes)),
			Backoff:           ms(configs.MirrorFetchBackoff),
			Budget:            n.config.Budget,
			Throttle:          n.throttle,
			Stats:             n.fetches,
			AppendersMore:     n.appenders(),
		},
	}
}

// Close stops partitions, then mirrors with their fetchers, then coordinators.
// It may be called twice.
func (n *Node) Close() error {
	for _, cancel := range n.cancels {
		cancel()
	}
	n.cancels = nil
	return errors.Join(n.Mirrors.Close(), n.Partitions.Close(), n.Coordinators.Close())
}

// nodeOutside is the rest of the node as mirrors and partitions see it.
type nodeOutside struct{ n *Node }

func (o nodeOutside) Image() *metadata.Image { return o.n.config.Store.Image() }

func (o nodeOutside) Submit(ctx context.Context, who messages.Requester, cmd messages.Command) messages.Outcome {
	return o.n.config.Controller.Submit(ctx, who, cmd)
}

func (o nodeOutside) Coordinates(mirror string) bool { return o.n.Coordinators.Coordinates(mirror) }

// Bump sends BumpLeaderEpochs over the bus, wherever the controller is, until one
// answers or ctx ends: a bump that is repeated does no harm.
func (o nodeOutside) Bump(ctx context.Context, bumps []messages.EpochBump) ([]error, error) {
	return bumpAnywhere(ctx, o.n.config.Bus, o.n.config.Store.Image, o.n.config.Clock, o.n.config.Node, bumps)
}

// loopCheckTimeout bounds what a start waits for its source.
const loopCheckTimeout = 5 * time.Second

// CheckStart is workflows.md "Start" step 3 and the loop check of OP-35: one
// error per topic, nil = may start. A source that doesn't answer refuses nothing
// here: LOG_TRUNCATION looks for loops again before it cuts anything.
func (n *Node) CheckStart(ctx context.Context, mirror string, topics []messages.MirrorTopic) ([]error, error) {
	errs := make([]error, len(topics))
	image := n.config.Store.Image()
	if len(topics) == 0 || image.Mirror(mirror) == nil {
		return errs, nil // the controller refuses an unknown mirror
	}
	asking, cancel := context.WithTimeoutCause(ctx, loopCheckTimeout, messages.ErrTimedOut)
	defer cancel()
	sources, err := n.Mirrors.SourceMirrors(asking, mirror)
	switch {
	case errors.Is(err, fetch.ErrMirrorLoop), errors.Is(err, errForeignSource): // this cluster (C45), or not the remembered one
		for i := range errs {
			errs[i] = fmt.Errorf("%w: %w", messages.ErrInvalidRequest, err)
		}
		return errs, nil
	case err != nil:
		n.config.Log.Warn("loops aren't looked for at start, the source doesn't answer", zap.String(messages.FieldMirror, mirror), zap.Error(err))
	}
	sourceID := n.Mirrors.Link().SourceClusterID(mirror)
	for i, t := range topics {
		if err := sources.CheckLoop(t.Name, image.ClusterID(), sourceID); errors.Is(err, fetch.ErrMirrorLoop) {
			errs[i] = fmt.Errorf("%w: %w", messages.ErrInvalidRequest, err)
			continue
		}
		errs[i] = n.startable(ctx, image.Topic(t.Name))
	}
	return errs, nil
}

// startable: every partition is UNKNOWN or STOPPED.
func (n *Node) startable(ctx context.Context, t *metadata.Topic) error {
	if t == nil || t.Mirror == "" || t.Desired != messages.DesiredStopped {
		return nil // new, or the controller refuses it
	}
	return n.stopped(ctx, t)
}

func (n *Node) stopped(ctx context.Context, t *metadata.Topic) error {
	tps := make([]messages.TopicPartition, len(t.Partitions))
	for i := range t.Partitions {
		tps[i] = messages.TopicPartition{Topic: t.Name, Partition: int32(i)}
	}
	states, err := n.Partitions.ReadStates(ctx, t.Mirror, tps)
	if err != nil {
		return err
	}
	for _, tp := range tps {
		if s, ok := states[tp]; ok && s.State != messages.StateStopped && s.State != messages.StateUnknown {
			return fmt.Errorf("%w: %s is %s, it must be STOPPED", messages.ErrInvalidMirrorStates, tp, s.State)
		}
	}
	return nil
}

// CheckDelete is workflows.md "Delete" step 1: nil when every partition of every
// topic of the mirror is STOPPED.
func (n *Node) CheckDelete(ctx context.Context, mirror string) error {
	for _, t := range n.config.Store.Image().TopicsOfMirror(mirror) {
		if t.Desired != messages.DesiredStopped {
			continue // the controller refuses it: not empty
		}
		if err := n.stopped(ctx, t); err != nil {
			return err
		}
	}
	return nil
}
