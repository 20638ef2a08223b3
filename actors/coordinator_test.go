package actors

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/fsm"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// logOf shows a stateLog as a log, of which only these are called.
type logOf struct {
	persistence.Log
	of *stateLog
}

func (l logOf) LogStart() int64 { return 0 }
func (l logOf) End() int64      { return l.of.End() }
func (l logOf) Read(offset int64, n int, upTo int64, one bool) (persistence.Chunk, error) {
	return l.of.Read(offset, n, upTo, one)
}

// stateLog is a log of __mirror_state in memory: only what the coordinator uses.
type stateLog struct {
	mu       sync.Mutex
	bytes    []byte
	end      int64
	appends  int
	fail     error
	gate     chan struct{} // if set, appends wait for it
	delay    time.Duration // of the disk
	follower atomic.Bool
	changes  atomic.Uint64 // of the tenure
	watch    func()
}

func (l *stateLog) Log() persistence.Log { return logOf{of: l} }
func (l *stateLog) Leads() bool          { return !l.follower.Load() }
func (l *stateLog) Tenure() uint64       { return 1 + l.changes.Load() }

func (l *stateLog) Watch(f func()) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watch = f
	return func() {}
}

// change is that of the leadership, n times.
func (l *stateLog) change(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.follower.Store(l.changes.Add(n)&1 == 1)
	if l.watch != nil {
		l.watch()
	}
}

func (l *stateLog) End() int64 { l.mu.Lock(); defer l.mu.Unlock(); return l.end }

func (l *stateLog) Read(offset int64, _ int, upTo int64, _ bool) (persistence.Chunk, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := l.bytes
	for len(rest) > 0 {
		h, whole, next, err := batch.Next(rest)
		if err != nil {
			return persistence.Chunk{}, err
		}
		if h.LastOffset() >= offset {
			return persistence.NewChunk(persistence.Chunk{Bytes: whole, Len: len(whole), FirstOffset: h.BaseOffset, NextOffset: h.LastOffset() + 1}, nil), nil
		}
		rest = next
	}
	return persistence.Chunk{NextOffset: upTo}, nil
}

func (l *stateLog) AppendInternal(ctx context.Context, batches []byte) (persistence.AppendInfo, error) {
	if l.gate != nil {
		select {
		case <-l.gate:
		case <-ctx.Done():
			return persistence.AppendInfo{}, context.Cause(ctx)
		}
	}
	if err := (clock.Wall{}).Sleep(ctx, l.delay); err != nil {
		return persistence.AppendInfo{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		err := l.fail
		l.fail = nil
		return persistence.AppendInfo{}, err
	}
	l.appends++
	info := persistence.AppendInfo{FirstOffset: l.end}
	for rest := batches; len(rest) > 0; {
		h, whole, next, err := batch.Next(rest)
		if err != nil {
			return persistence.AppendInfo{}, err
		}
		batch.SetOffsetAndEpoch(whole, l.end, 1)
		if h.Records != 1 || h.Codec() != batch.CodecNone {
			return persistence.AppendInfo{}, errors.New("want uncompressed single-record batches")
		}
		l.end++
		rest = next
	}
	l.bytes = append(l.bytes, batches...)
	info.LastOffset = l.end - 1
	return info, nil
}

// localBus serves subjects in the process.
type localBus struct {
	mu       sync.Mutex
	handlers map[string]func(context.Context, []byte) []byte
}

func (b *localBus) MirrorRead(n, epoch int32) string  { return fmt.Sprintf("read.%d.%d", n, epoch) }
func (b *localBus) MirrorWrite(n, epoch int32) string { return fmt.Sprintf("write.%d.%d", n, epoch) }

func (b *localBus) Serve(subject string, h func(context.Context, []byte) []byte) (func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.handlers == nil {
		b.handlers = map[string]func(context.Context, []byte) []byte{}
	}
	b.handlers[subject] = h
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.handlers, subject)
	}, nil
}

func (b *localBus) request(ctx context.Context, subject string, body []byte) ([]byte, error) {
	b.mu.Lock()
	h := b.handlers[subject]
	b.mu.Unlock()
	if h == nil {
		return nil, errors.New("nobody serves " + subject)
	}
	return h(ctx, body), nil
}

// stateImage has the topic __mirror_state with one partition, a mirror, and its
// topic t with partitions led by node 1 under epoch.
func stateImage(tb testing.TB, mirror string, desired messages.Desired, epoch int32, partitions int) *metadata.Image {
	tb.Helper()
	value := messages.FormatMirrorName(mirror, desired)
	servers := "source:9092"
	var recs []metadata.Record
	for _, topic := range []string{messages.MirrorStateTopic, "t"} {
		rec := wire.NewTopicRecord()
		rec.Name, rec.TopicID = topic, messages.TopicID{byte(len(topic))}
		recs = append(recs, &rec)
		n := partitions
		if topic == messages.MirrorStateTopic {
			n = 1
		}
		for p := range n {
			recs = append(recs, metadata.PartitionRecord(rec.TopicID, int32(p), metadata.Partition{
				Leader: 1, LeaderEpoch: epoch, Replicas: []messages.NodeID{1}, ISR: []messages.NodeID{1},
			}))
		}
	}
	recs = append(recs, metadata.ConfigRecord(messages.ResourceClusterMirror, mirror, "bootstrap.servers", &servers))
	if desired != messages.DesiredNone {
		recs = append(recs, metadata.ConfigRecord(messages.ResourceTopic, "t", messages.MirrorNameConfig, &value))
	}
	d, err := metadata.EmptyImage().Apply(10, recs)
	require.NoError(tb, err)
	return d.New
}

// oneShard is a coordinator over a log, asked directly.
type oneShard struct {
	t      *testing.T
	system *actor.ActorSystem
	bus    *localBus
	log    *stateLog
	number int32
	epoch  int32
	image  atomic.Pointer[metadata.Image]
	pid    *actor.PID
	wg     sync.WaitGroup
}

func newOneShard(t *testing.T, log *stateLog) *oneShard {
	t.Helper()
	s := &oneShard{t: t, system: NewSystem(zap.NewNop()), bus: &localBus{}, log: log, number: 3, epoch: 5}
	s.image.Store(stateImage(t, "m", messages.DesiredActive, 5, 2))
	s.pid = s.system.Root.Spawn(props(clock.Wall{}, zap.NewNop(), func() actor.Actor {
		c := &coordinator{
			number: s.number, epoch: s.epoch, replica: log, server: s.bus, clock: clock.Wall{}, log: zap.NewNop(), helpers: &s.wg,
			image: func() *metadata.Image { return s.image.Load() },
		}
		c.ctx, c.cancel = context.WithCancel(context.Background())
		return c
	}))
	t.Cleanup(func() {
		_ = s.system.Root.StopFuture(s.pid).Wait()
		s.wg.Wait()
		s.system.Shutdown()
	})
	return s
}

// ask repeats until somebody serves.
func (s *oneShard) ask(subject string, body []byte) []byte {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	for {
		out, err := s.bus.request(ctx, subject, body)
		if err == nil && out != nil {
			return out
		}
		require.NoError(s.t, ctx.Err())
		require.NoError(s.t, clock.Wall{}.Sleep(ctx, time.Millisecond))
	}
}

func (s *oneShard) write(states ...int8) *wire.WriteMirrorStatesResponse {
	s.t.Helper()
	req := wire.NewWriteMirrorStatesRequest()
	req.MirrorName = "m"
	topic := wire.NewWriteMirrorStatesRequestTopicStates()
	topic.Name = "t"
	for n, st := range states {
		p := wire.NewWriteMirrorStatesRequestPartitionStateData()
		p.PartitionIndex, p.State, p.Cause, p.ErrorText = int32(n), st, "test", "why"
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	for {
		resp := wire.NewPtrWriteMirrorStatesResponse()
		require.NoError(s.t, resp.ReadFrom(s.ask(s.bus.MirrorWrite(s.number, s.epoch), req.AppendTo(nil))))
		if resp.Topics[0].Partitions[0].ErrorCode != kafkaCoordinatorLoading {
			return resp
		}
	}
}

func (s *oneShard) read(n int32) messages.PartitionState {
	s.t.Helper()
	req := wire.NewReadMirrorStatesRequest()
	req.MirrorName = "m"
	topic := wire.NewReadMirrorStatesRequestTopicStates()
	topic.Name = "t"
	p := wire.NewReadMirrorStatesRequestPartitionRef()
	p.PartitionIndex = n
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	for {
		resp := wire.NewPtrReadMirrorStatesResponse()
		require.NoError(s.t, resp.ReadFrom(s.ask(s.bus.MirrorRead(s.number, s.epoch), req.AppendTo(nil))))
		if got := resp.Topics[0].Partitions[0]; got.ErrorCode != kafkaCoordinatorLoading {
			require.Zero(s.t, got.ErrorCode)
			return stateOf(got)
		}
	}
}

// TestD17CoordinatorReplays: what one life of a coordinator stored, the next one
// knows.
func TestD17CoordinatorReplays(t *testing.T) {
	log := &stateLog{}
	first := newOneShard(t, log)
	first.write(0, 0)
	resp := first.write(7, 2)
	require.Equal(t, int16(1), resp.Topics[0].Partitions[0].RetryAttempt)
	require.Equal(t, int8(0), resp.Topics[0].Partitions[0].PreviousState)
	live := []messages.PartitionState{first.read(0), first.read(1)}
	require.Equal(t, "why", live[0].Error)

	second := newOneShard(t, log)
	if d := cmp.Diff(live, []messages.PartitionState{second.read(0), second.read(1)}); d != "" {
		t.Error(d)
	}
	require.Equal(t, messages.StateMirroring, second.read(1).State)
	refused := second.write(6)
	require.Equal(t, wire.CodeInvalidClusterMirrorStates, refused.Topics[0].Partitions[0].ErrorCode, "FAILED never goes to STOPPED")
	require.NotEmpty(t, refused.Topics[0].Partitions[0].ErrorMessage)
}

// TestGroupCommit: what arrives while an append is on its way becomes one append.
func TestGroupCommit(t *testing.T) {
	log := &stateLog{gate: make(chan struct{}, 100)}
	s := newOneShard(t, log)
	var done sync.WaitGroup
	ask := func() { done.Go(func() { s.write(0) }) }
	s.read(0) // it is loaded
	for range 20 {
		ask()
	}
	go func() {
		for range 100 {
			log.gate <- struct{}{}
		}
	}()
	done.Wait()
	require.LessOrEqual(t, log.appends, 2, "the same state again makes no record")
}

func TestFailedAppendReadsAgain(t *testing.T) {
	log := &stateLog{}
	s := newOneShard(t, log)
	s.write(0)
	log.mu.Lock()
	log.fail = fmt.Errorf("disk: %w", messages.ErrStorage)
	log.mu.Unlock()
	require.Equal(t, kafkaStorage, s.write(2).Topics[0].Partitions[0].ErrorCode)
	require.Equal(t, messages.StateLogTruncation, s.read(0).State, "not what wasn't stored")
	require.Zero(t, s.write(2).Topics[0].Partitions[0].ErrorCode)
}

func TestNotCoordinator(t *testing.T) {
	log := &stateLog{}
	s := newOneShard(t, log)
	s.write(0)
	log.follower.Store(true)
	require.Equal(t, kafkaNotCoordinator, s.write(2).Topics[0].Partitions[0].ErrorCode)
}

// TestD13TombstonesOfADeletedMirror: also when the deletion was missed.
func TestD13TombstonesOfADeletedMirror(t *testing.T) {
	log := &stateLog{}
	first := newOneShard(t, log)
	first.write(0, 0)
	first.image.Store(metadata.EmptyImage())
	first.system.Root.Send(first.pid, coordinatorImage{})
	for first.read(0).State != messages.StateUnknown {
		require.NoError(t, t.Context().Err())
	}
	require.Equal(t, messages.StateUnknown, newOneShard(t, log).read(0).State)
}

func TestStateRecordCodec(t *testing.T) {
	full := messages.PartitionState{
		State: messages.StateFailed, Previous: messages.StateMirroring, RetryAttempt: 3, LME: messages.NoEpoch, Error: "a = b",
		CutRecords: 4, CutBytes: 500, CutFrom: 8, CutTo: 12, GapFrom: 1, GapTo: 2, GapAtMillis: 99, LeaderEpoch: 7, WriteNumber: 1 << 40,
	}
	tp := messages.TopicPartition{Topic: "my-topic", Partition: 0}
	tests := map[string]fsm.Record{
		"state": {
			Kind: fsm.RecordState, Mirror: "my-mirror", Partition: tp, State: full, Created: 17,
			Cause: "error (row 14)", Principal: "User:node-1", RequestID: "r",
		},
		"bare state": {Kind: fsm.RecordState, Mirror: "m", Partition: tp, State: func() messages.PartitionState {
			s := messages.UnknownPartitionState()
			s.State = messages.StateMirroring
			return s
		}(), Created: messages.NoOffset},
		"epochs":           {Kind: fsm.RecordEpochs, Mirror: "m", Epochs: map[messages.TopicPartition]int32{tp: 5}, Created: messages.NoOffset},
		"no epochs":        {Kind: fsm.RecordEpochs, Mirror: "m", Epochs: map[messages.TopicPartition]int32{}, Created: messages.NoOffset},
		"states tombstone": {Kind: fsm.RecordStatesTombstone, Mirror: "m", Created: messages.NoOffset, Cause: "mirror deleted"},
		"epochs tombstone": {Kind: fsm.RecordEpochsTombstone, Mirror: "m", Created: messages.NoOffset},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			b, err := encodeStateRecord(want, 1)
			require.NoError(t, err)
			for rec, err := range batch.Records(b) {
				require.NoError(t, err)
				got, err := decodeStateRecord(rec)
				require.NoError(t, err)
				if d := cmp.Diff(want, got); d != "" {
					t.Error(d)
				}
			}
		})
	}
}
