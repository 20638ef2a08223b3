package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"kagami/internal/clock"
	"kagami/messages"
)

// MetadataJournal is the name of the journal of the metadata log, whose stream
// is the proof that the cluster is formed.
const MetadataJournal = "meta"

const (
	formSubject = "kagami.form" // not below a cluster's id, which nobody knows yet
	// Metadata of the stream.
	metaClusterID = "kagami.cluster.id"
	metaFounder   = "kagami.cluster.founder"
	metaFounded   = "kagami.cluster.founded"
)

// FoundedOn is what a cluster's founder had.
type FoundedOn string

const (
	// FoundedOnData is that the founder was a cluster of one; the metadata begins with what it has.
	FoundedOnData FoundedOn = "data"
	// FoundedOnNothing is that all nodes were empty: any of them can begin the metadata.
	FoundedOnNothing FoundedOn = "nothing"
)

// FormationOptions of Form. Streams and Logger are required.
type FormationOptions struct {
	Streams *Streams
	// Stored is the cluster id in the data folder, "" if the folder is empty.
	Stored string
	// Configured is the cluster id that the configuration demands, "" for any.
	Configured string
	// Replicas of the metadata log's stream. Default: 3, or as many as there are
	// nodes if those are fewer.
	Replicas int
	// Interval between two looks. Default 200 ms.
	Interval time.Duration
	// OnWait is told why it waits and for whom, when that changes. It must not
	// block.
	OnWait func(why string)
	Clock  clock.Clock // default clock.Wall
	Logger *zap.Logger
}

// Formation is the cluster that a node belongs to.
type Formation struct {
	ClusterID string
	Founder   messages.NodeID
	Founded   bool      // by this call
	On        FoundedOn // "" of one that an older program founded
}

// Form finds the cluster of this node or founds it. The caller stores the id in
// its data folder before it stores anything else there. It waits until ctx ends
// for nodes that it needs; OnWait and the error say which. Errors that waiting
// doesn't help wrap ErrForeignCluster (both ids are named) or ErrNodeIDTaken.
//
// It runs in the caller's goroutine and one of its own that tells the others
// what this node's folder holds; that one ends before Form returns.
func Form(ctx context.Context, o FormationOptions) (Formation, error) {
	f := newForming(o)
	id, err := ChooseClusterID(o.Stored, o.Configured)
	if err != nil {
		return Formation{}, fmt.Errorf("form cluster: %w: %w", ErrForeignCluster, err)
	}
	f.newID = id
	sub, err := o.Streams.read.Subscribe(formSubject, f.hear)
	if err != nil {
		return Formation{}, fmt.Errorf("form cluster: hear other nodes: %w", err)
	}
	silence, err := o.Streams.serveIdent(f.status, func(messages.NodeID) bool { return false })
	if err != nil {
		return Formation{}, fmt.Errorf("form cluster: %w", err)
	}
	defer silence()
	telling, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { f.tell(telling) })
	out, err := f.run(ctx)
	stop()
	work.Wait()
	if unsubscribe := sub.Unsubscribe(); err == nil && unsubscribe != nil {
		err = unsubscribe
	}
	if err != nil {
		return Formation{}, fmt.Errorf("form cluster: %w", err)
	}
	return out, nil
}

// forming is one Form.
type forming struct {
	opts    FormationOptions
	log     *zap.Logger
	streams *Streams
	status  formStatus
	peers   []messages.NodeID
	newID   string // to found with
	waited  string // what OnWait was told

	mu    sync.Mutex
	heard map[messages.NodeID]formStatus
	twins int // statuses of this node's id from another process
}

func newForming(o FormationOptions) *forming {
	srv := o.Streams.server
	peers := srv.opts.Cluster.others(srv.Node())
	setDefault(&o.Interval, 200*time.Millisecond)
	setDefault(&o.Replicas, min(3, len(peers)+1))
	if o.OnWait == nil {
		o.OnWait = func(string) {}
	}
	if o.Clock == nil {
		o.Clock = clock.Wall{}
	}
	return &forming{
		opts: o, log: o.Logger.Named("formation"), streams: o.Streams, peers: peers,
		status: formStatus{Version: formVersion, Node: srv.Node(), Process: messages.NewTopicID().String(), Stored: o.Stored, Configured: o.Configured},
		heard:  make(map[messages.NodeID]formStatus),
	}
}

// tell repeats what this node's folder holds: whoever comes later needs it too.
func (f *forming) tell(ctx context.Context) {
	payload, err := json.Marshal(f.status)
	if err != nil {
		f.log.Error("encode status of this node", zap.Error(err))
		return
	}
	for {
		if err := f.streams.read.Publish(formSubject, payload); err != nil {
			f.log.Warn("tell status of this node", zap.Error(err))
		}
		if f.opts.Clock.Sleep(ctx, f.opts.Interval) != nil {
			return
		}
	}
}

// hear runs in the subscription's goroutine.
func (f *forming) hear(m *nats.Msg) {
	var s formStatus
	if err := json.Unmarshal(m.Data, &s); err != nil || s.Version != formVersion {
		f.log.Warn("status of a node that can't be read; its program may be newer", zap.Int("version", s.Version), zap.Error(err))
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case s.Node != f.status.Node:
		f.heard[s.Node] = s
	case s.Process != f.status.Process:
		f.twins++
	}
}

func (f *forming) run(ctx context.Context) (Formation, error) {
	for {
		v, there, err := f.view(ctx)
		if err != nil {
			return Formation{}, err
		}
		d, err := decideFormation(v)
		if err != nil {
			return Formation{}, err
		}
		switch d.action {
		case formJoin:
			f.log.Info("cluster found", zap.String("cluster", d.id), zap.Int32("founder", int32(there.Founder)))
			return there, nil
		case formFound:
			founded, why, err := f.found(ctx, cmp.Or(d.id, f.newID))
			if err != nil {
				return Formation{}, err
			}
			if founded != "" {
				f.log.Info("cluster founded", zap.String("cluster", founded), zap.String("because", d.why))
				return Formation{ClusterID: founded, Founder: f.status.Node, Founded: true, On: f.on()}, nil
			}
			d.why = why
		case formWait:
		}
		f.wait(d.why)
		if err := f.opts.Clock.Sleep(ctx, f.opts.Interval); err != nil {
			return Formation{}, fmt.Errorf("%w, while %s", err, d.why)
		}
	}
}

func (f *forming) wait(why string) {
	if why == f.waited {
		return
	}
	f.waited = why
	f.log.Info("waiting for the cluster", zap.String("because", why))
	f.opts.OnWait(why)
}

// twinsMin statuses of another process prove that it lives.
const twinsMin = 2

// on is what this node founds on.
func (f *forming) on() FoundedOn {
	if f.status.Stored != "" {
		return FoundedOnData
	}
	return FoundedOnNothing
}

// view looks at the stream, which says what cluster is there, and at what was heard.
func (f *forming) view(ctx context.Context) (v formView, there Formation, err error) {
	info := new(jetstream.StreamInfo)
	st := f.streams.stream(MetadataJournal)
	err = f.streams.tryAPI(ctx, "STREAM.INFO."+st.stream, nil, info)
	switch {
	case err == nil:
		v.streamKnown, v.streamID = true, info.Config.Metadata[metaClusterID]
		if v.streamID == "" {
			return v, there, fmt.Errorf("%w: stream %s was made by somebody else, it has no cluster id", ErrBadOption, st.stream)
		}
		n, err := strconv.ParseInt(info.Config.Metadata[metaFounder], 10, 32)
		if err != nil {
			return v, there, fmt.Errorf("read founder of stream %s: %w", st.stream, err)
		}
		there = Formation{ClusterID: v.streamID, Founder: messages.NodeID(n), On: FoundedOn(info.Config.Metadata[metaFounded])}
	case isAPIError(err, codeStreamNotFound):
		v.streamKnown = true
	case !retriable(err):
		return v, there, fmt.Errorf("look for stream %s: %w", st.stream, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.twins >= twinsMin {
		return v, there, fmt.Errorf("node %d: %w", f.status.Node, ErrNodeIDTaken)
	}
	v.self, v.peers, v.heard = f.status, f.peers, maps.Clone(f.heard)
	return v, there, nil
}

// found tries to make the stream. Without an error and an id the next look tells
// what became of it.
func (f *forming) found(ctx context.Context, id string) (founded, why string, err error) {
	st := f.streams.stream(MetadataJournal)
	config := st.config(StreamOptions{Replicas: f.opts.Replicas, Metadata: map[string]string{
		metaClusterID: id, metaFounder: strconv.Itoa(int(f.status.Node)), metaFounded: string(f.on()),
	}})
	var info jetstream.StreamInfo
	err = f.streams.tryAPI(ctx, "STREAM.CREATE."+st.stream, config, &info)
	switch {
	case err == nil:
		return info.Config.Metadata[metaClusterID], "", nil
	case isAPIError(err, codeStreamExists):
		return "", "another node founded the cluster", nil
	case isAPIError(err, codeNoPeers, codeNoResources):
		return "", fmt.Sprintf("the metadata log needs %d nodes, connected are %s", f.opts.Replicas,
			nodeList(append([]messages.NodeID{f.status.Node}, f.streams.server.Connected()...))), nil
	case retriable(err):
		return "", "the journal has no leader yet", nil
	default:
		return "", "", fmt.Errorf("found cluster %s: %w", id, err)
	}
}
