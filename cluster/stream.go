package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"kagami/internal/clock"
	"kagami/messages"
)

// StreamsOptions of OpenStreams. Logger is required.
type StreamsOptions struct {
	// BytesMax limits what a stream holds; more is refused with ErrJournalFull.
	// Default 8 GiB.
	BytesMax int64
	// DuplicateWindow is how long a stream remembers the ids of messages.
	// Default 2 min.
	DuplicateWindow time.Duration
	// PublishTimeout is after how long without an answer the outcome of a publish
	// counts as unknown. Default 3 s: what a leader took in as it stepped down or
	// died is never answered, and later ones are refused at once until there is
	// another leader.
	PublishTimeout time.Duration
	// RequestTimeout is for one try of anything else. Default 2 s.
	RequestTimeout time.Duration
	// CheckInterval is how long a follower hears nothing new before it compares
	// its place with the stream's bounds. Default 2 s.
	CheckInterval time.Duration
	// FollowBytesMax limits what waits for one follower in memory; what is beyond
	// it is read again. Default 24 MiB, at least one message of the largest size.
	FollowBytesMax int
	Clock          clock.Clock // default clock.Wall
	Logger         *zap.Logger
}

func (o StreamsOptions) withDefaults() StreamsOptions {
	setDefault(&o.BytesMax, 8<<30)
	setDefault(&o.DuplicateWindow, 2*time.Minute)
	setDefault(&o.PublishTimeout, 3*time.Second)
	setDefault(&o.RequestTimeout, 2*time.Second)
	setDefault(&o.CheckInterval, 2*time.Second)
	setDefault(&o.FollowBytesMax, 24<<20)
	if o.Clock == nil {
		o.Clock = clock.Wall{}
	}
	return o
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Streams are the journal's streams on the JetStream of a clustered server. It
// has two connections to the server inside the process, so that what is
// published never waits behind what is read, and one goroutine that ends
// publishes without an answer. All methods may be called from any goroutine.
type Streams struct {
	opts   StreamsOptions
	log    *zap.Logger
	server *Server
	send   *nats.Conn // publishes, their answers
	read   *nats.Conn // followers, catching up, the API

	sendMu sync.Mutex // keeps publishes in the order of their calls
	acks   string     // subject prefix of answers

	mu      sync.Mutex
	last    uint64 // number of the last publish
	waiting map[uint64]*publish
	closed  bool

	stop    context.CancelFunc
	work    sync.WaitGroup
	closing sync.Once
}

// OpenStreams connects to the JetStream of a clustered server. ctx carries
// values only; the streams live until Close, which comes before the server's.
func OpenStreams(ctx context.Context, srv *Server, o StreamsOptions) (*Streams, error) {
	o = o.withDefaults()
	if !srv.Clustered() {
		return nil, errors.New("open journal streams: the server is alone and has no JetStream")
	}
	s := &Streams{opts: o, log: o.Logger.Named("streams"), server: srv, waiting: make(map[uint64]*publish)}
	s.opts.FollowBytesMax = max(o.FollowBytesMax, srv.opts.MessageBytesMax+64<<10)
	var err error
	s.send, err = srv.connect("journal-send", s.log, nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { s.disconnected(err) }))
	if err != nil {
		return nil, fmt.Errorf("open journal streams: %w", err)
	}
	if s.read, err = srv.connect("journal-read", zap.NewNop()); err != nil { // its slow consumers are expected
		s.send.Close()
		return nil, fmt.Errorf("open journal streams: %w", err)
	}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.receiveAcks(); err != nil {
		s.stop()
		s.send.Close()
		s.read.Close()
		return nil, fmt.Errorf("open journal streams: %w", err)
	}
	s.work.Go(func() { s.expire(ctx) })
	return s, nil
}

// Close ends what is in flight with ErrClosed. Followers are ended by their own
// contexts, before. It may be called twice.
func (s *Streams) Close() error {
	s.closing.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.stop()
		s.send.Close()
		s.read.Close()
		s.failWaiting(ErrClosed, func(*publish) bool { return true })
		s.work.Wait()
	})
	return nil
}

// StreamOptions say how a stream is made if it isn't there.
type StreamOptions struct {
	// Name of the journal: a shard's number, or "meta".
	Name string
	// Replicas is 1 or 3.
	Replicas int
	// Leader is asked to lead the stream when it is made, and holds it alone if
	// Replicas is 1. nil: any.
	Leader *messages.NodeID
	// Metadata is stored with the stream when it is made.
	Metadata map[string]string
}

// Stream is one totally ordered journal: messages that a quorum has stored, with
// the sequences 1, 2, 3 and so on. All methods may be called from any goroutine.
type Stream struct {
	streams *Streams
	name    string // of the journal
	stream  string // of the JetStream stream
	subject string // publishes
	follow  string // what is stored, again
}

// Names of streams and subjects. They don't have the cluster's id: it is found
// out with the first stream, and other clusters are kept away by the server.
const (
	streamPrefix  = "KAGAMI-"
	journalPrefix = "kagami.journal."
	followPrefix  = "kagami.follow."
)

func (s *Streams) stream(name string) *Stream {
	token := subjectToken(name)
	return &Stream{streams: s, name: name, stream: streamPrefix + token, subject: journalPrefix + token, follow: followPrefix + token}
}

// Open returns the stream of a journal, which it makes with that many replicas
// if it isn't there. It tries until ctx ends: just after the start no leader is
// there yet, and three replicas need three nodes.
func (s *Streams) Open(ctx context.Context, name string, replicas int) (*Stream, error) {
	return s.OpenStream(ctx, StreamOptions{Name: name, Replicas: replicas})
}

// OpenStream is Open with all options. The limits of an existing stream become
// those of the options of OpenStreams, its replicas stay.
func (s *Streams) OpenStream(ctx context.Context, o StreamOptions) (*Stream, error) {
	st := s.stream(o.Name)
	info, err := st.info(ctx)
	if isAPIError(err, codeStreamNotFound) {
		return st, st.create(ctx, o)
	}
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", o.Name, err)
	}
	if err := st.adopt(ctx, info); err != nil {
		return nil, fmt.Errorf("open journal %s: %w", o.Name, err)
	}
	return st, nil
}

// Lookup is Open without making: ErrNoStream if it isn't there.
func (s *Streams) Lookup(ctx context.Context, name string) (*Stream, error) {
	st := s.stream(name)
	if _, err := st.info(ctx); isAPIError(err, codeStreamNotFound) {
		return nil, fmt.Errorf("look up journal %s: %w", name, ErrNoStream)
	} else if err != nil {
		return nil, fmt.Errorf("look up journal %s: %w", name, err)
	}
	return st, nil
}

func (st *Stream) config(o StreamOptions) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: st.stream, Subjects: []string{st.subject}, Replicas: o.Replicas,
		Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew,
		MaxMsgs: -1, MaxConsumers: -1, MaxMsgSize: -1, MaxMsgsPerSubject: -1,
		MaxBytes: st.streams.opts.BytesMax, Duplicates: st.streams.opts.DuplicateWindow,
		DenyDelete: true, AllowDirect: true,
		RePublish: &jetstream.RePublish{Source: st.subject, Destination: st.follow},
		Metadata:  o.Metadata,
	}
	if o.Replicas == 1 && o.Leader != nil && st.streams.server.Embedded() {
		c.Placement = &jetstream.Placement{Tags: []string{natsName(*o.Leader)}}
	}
	return c
}

// create makes the stream. Somebody else may be first: with other metadata or
// replicas that is code 10058, and theirs is taken.
func (st *Stream) create(ctx context.Context, o StreamOptions) error {
	var info jetstream.StreamInfo
	err := st.streams.api(ctx, "STREAM.CREATE."+st.stream, st.config(o), &info)
	if isAPIError(err, codeStreamExists) {
		if info, err := st.info(ctx); err != nil {
			return fmt.Errorf("open journal %s: %w", st.name, err)
		} else if err := st.adopt(ctx, info); err != nil {
			return fmt.Errorf("open journal %s: %w", st.name, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("make journal %s: %w", st.name, err)
	}
	if o.Leader == nil || o.Replicas == 1 {
		return nil
	}
	if err := st.StepDown(ctx, *o.Leader); err != nil {
		st.streams.log.Info("new journal isn't led by the preferred node", zap.String("journal", st.name), zap.Error(err))
	}
	return nil
}

// adopt checks that a stream is one of ours and sets its limits.
func (st *Stream) adopt(ctx context.Context, info *jetstream.StreamInfo) error {
	c, want := info.Config, st.config(StreamOptions{})
	if len(c.Subjects) != 1 || c.Subjects[0] != st.subject || c.RePublish == nil || c.RePublish.Destination != st.follow ||
		c.Discard != jetstream.DiscardNew || c.MaxAge != 0 || !c.AllowDirect {
		return fmt.Errorf("%w: stream %s was made by somebody else", ErrBadOption, st.stream)
	}
	if c.MaxBytes == want.MaxBytes && c.Duplicates == want.Duplicates {
		return nil
	}
	c.MaxBytes, c.Duplicates = want.MaxBytes, want.Duplicates
	return st.update(ctx, c)
}

// Widen gives the stream so many bytes of room beyond its limit.
func (st *Stream) Widen(ctx context.Context, bytes int64) error {
	info, err := st.led(ctx)
	if err == nil {
		c := info.Config
		c.MaxBytes = st.config(StreamOptions{}).MaxBytes + bytes
		err = st.update(ctx, c)
	}
	if err != nil {
		return fmt.Errorf("give journal %s room: %w", st.name, err)
	}
	return nil
}

func (st *Stream) update(ctx context.Context, c jetstream.StreamConfig) error {
	return st.streams.api(ctx, "STREAM.UPDATE."+st.stream, c, &jetstream.StreamInfo{})
}

// Name of the journal.
func (st *Stream) Name() string { return st.name }

// Bounds are the first sequence that the stream has and the last one. Without a
// message first is last+1. They come from the stream's leader while it hears a
// quorum: everything that a leader acknowledged before is below last. A replica
// may be ahead of its leader for a moment.
func (st *Stream) Bounds(ctx context.Context) (first, last uint64, err error) {
	info, err := st.trusted(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("read bounds of journal %s: %w", st.name, err)
	}
	first, last = bounds(info)
	return first, last, nil
}

func bounds(info *jetstream.StreamInfo) (first, last uint64) {
	if info.State.Msgs == 0 {
		return info.State.LastSeq + 1, info.State.LastSeq
	}
	return info.State.FirstSeq, info.State.LastSeq
}

// Purge removes every message up to that sequence, which included. 0 does
// nothing, and it never removes what is above the last sequence: JetStream
// takes the first for "everything" and moves the last forward for the second.
func (st *Stream) Purge(ctx context.Context, upTo uint64) error {
	first, last, err := st.Bounds(ctx)
	if err != nil {
		return fmt.Errorf("purge journal %s: %w", st.name, err)
	}
	upTo = min(upTo, last)
	if upTo < first {
		return nil
	}
	request := struct {
		Sequence uint64 `json:"seq"` // the first to stay
	}{upTo + 1}
	if err := st.streams.api(ctx, "STREAM.PURGE."+st.stream, request, nil); err != nil {
		return fmt.Errorf("purge journal %s up to %d: %w", st.name, upTo, err)
	}
	return nil
}

// Leader is the node that leads the stream.
func (st *Stream) Leader(ctx context.Context) (messages.NodeID, error) {
	info, err := st.led(ctx)
	if err != nil {
		return 0, fmt.Errorf("find leader of journal %s: %w", st.name, err)
	}
	id, ok := natsNode(info.Cluster.Leader)
	if !ok {
		return 0, fmt.Errorf("find leader of journal %s: server %s is no node", st.name, info.Cluster.Leader)
	}
	return id, nil
}

// StepDown moves the lead to a node, or away from the leader if preferred is
// negative. It does nothing if that node leads, and with an external cluster, whose
// servers aren't nodes, it does nothing for a node.
func (st *Stream) StepDown(ctx context.Context, preferred messages.NodeID) error {
	request := struct {
		Placement any `json:"placement,omitempty"`
	}{}
	if preferred >= 0 {
		if !st.streams.server.Embedded() {
			return nil
		}
		if leader, err := st.Leader(ctx); err != nil || leader == preferred {
			return err
		}
		request.Placement = map[string]string{"preferred": natsName(preferred)}
	}
	if err := st.streams.api(ctx, "STREAM.LEADER.STEPDOWN."+st.stream, request, nil); err != nil {
		return fmt.Errorf("move lead of journal %s to node %s: %w", st.name, strconv.Itoa(int(preferred)), err)
	}
	return nil
}

// Scale sets the number of replicas. It returns when the change was accepted;
// new replicas catch up afterwards.
func (st *Stream) Scale(ctx context.Context, replicas int) error {
	info, err := st.led(ctx)
	if err != nil {
		return fmt.Errorf("scale journal %s: %w", st.name, err)
	}
	if info.Config.Replicas == replicas {
		return nil
	}
	c := info.Config
	c.Replicas, c.Placement = replicas, nil
	if err := st.update(ctx, c); err != nil {
		return fmt.Errorf("scale journal %s to %d replicas: %w", st.name, replicas, err)
	}
	return nil
}
