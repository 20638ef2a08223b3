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

	"kagami/cluster"
	"kagami/fsm"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// StateClient asks the coordinator of a mirror, wherever it is, with bodies of
// the KIP's requests. [NewStateClient] makes one over the bus.
type StateClient interface {
	ReadMirrorStates(ctx context.Context, mirror string, body []byte) ([]byte, error)
	WriteMirrorStates(ctx context.Context, mirror string, body []byte) ([]byte, error)
}

// EpochBumper asks the controller for higher leader epochs (BumpLeaderEpochs over
// the bus): one error per bump in order, or an error for all.
type EpochBumper interface {
	Bump(ctx context.Context, bumps []messages.EpochBump) ([]error, error)
}

// Limits and delays of the keeper.
const (
	keeperBatchMax    = 2000 // partitions in one request
	keeperDelayFirst  = 100 * time.Millisecond
	keeperDelayMax    = 5 * time.Second
	keeperDelayMoving = 500 * time.Millisecond // while the coordinator moves or loads
	keeperTimeout     = 10 * time.Second       // of one request: above the coordinator's own
	keeperBumpTimeout = 15 * time.Second
	keeperBumpGather  = 5 * time.Millisecond
)

// Messages to the keeper. dead tells it that nobody waits any more.
type (
	keeperWrite struct {
		write fsm.Write
		life  int64
		to    *actor.PID
		dead  *atomic.Bool
	}
	keeperRead struct {
		mirror string
		tp     messages.TopicPartition
		epoch  int32
		number int64
		life   int64
		to     *actor.PID
		dead   *atomic.Bool
	}
	// keeperBump is answered on reply, which has room for it.
	keeperBump struct {
		bump  messages.EpochBump
		reply chan<- error
	}
	keeperWritten struct {
		mirror string
		sent   []keeperWrite
		resp   *wire.WriteMirrorStatesResponse
		err    error
	}
	keeperHasRead struct {
		mirror string
		sent   []keeperRead
		resp   *wire.ReadMirrorStatesResponse
		err    error
	}
	keeperBumped struct {
		sent []keeperBump
		errs []error
		err  error
	}
	keeperBumpNow struct{}
	keeperAgain   struct {
		mirror string
		write  bool
	}
)

// keeper gathers what the partitions of a node ask of coordinators and of the
// controller: one request per mirror and kind is on its way at a time, and what is
// asked meanwhile goes into the next one. So 10,000 partitions that stop at once
// cost a few requests per step. A request is repeated until the coordinator
// answers for good (states.md, "Writing a state" rule 5).
type keeper struct {
	states  StateClient
	bumper  EpochBumper
	clock   clock.Clock
	log     *zap.Logger
	helpers *sync.WaitGroup

	ctx     context.Context //nolint:containedctx // bounds the requests, ended in Stopping
	cancel  context.CancelFunc
	mirrors map[string]*keeperQueue
	bumps   []keeperBump
	bumping bool
}

type keeperQueue struct {
	writes               []keeperWrite
	reads                []keeperRead
	writing, reading     bool // on the way, or waiting to be repeated
	writeDelay, readWait time.Duration
}

// Receive handles one message; it never waits.
func (k *keeper) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Stopping, *actor.Restarting:
		k.cancel()
	case keeperWrite:
		q := k.queue(m.write.Mirror)
		q.writes = append(q.writes, m)
		k.nextWrite(c, m.write.Mirror)
	case keeperRead:
		q := k.queue(m.mirror)
		q.reads = append(q.reads, m)
		k.nextRead(c, m.mirror)
	case keeperBump:
		k.bumps = append(k.bumps, m)
		k.gatherBumps(c)
	case keeperBumpNow:
		k.bumping = false
		k.nextBump(c)
	case keeperWritten:
		k.written(c, m)
	case keeperHasRead:
		k.hasRead(c, m)
	case keeperBumped:
		k.bumping = false
		for i, b := range m.sent {
			err := m.err
			if err == nil {
				err = m.errs[i]
			}
			b.reply <- err
		}
		k.gatherBumps(c)
	case keeperAgain:
		if m.write {
			k.queue(m.mirror).writing = false
			k.nextWrite(c, m.mirror)
		} else {
			k.queue(m.mirror).reading = false
			k.nextRead(c, m.mirror)
		}
	}
}

func (k *keeper) queue(mirror string) *keeperQueue {
	q := k.mirrors[mirror]
	if q == nil {
		q = &keeperQueue{}
		k.mirrors[mirror] = q
	}
	return q
}

func (k *keeper) nextWrite(c actor.Context, mirror string) {
	q := k.queue(mirror)
	if q.writing {
		return
	}
	var sent []keeperWrite
	n := 0
	for ; n < len(q.writes) && len(sent) < keeperBatchMax; n++ {
		if !q.writes[n].dead.Load() {
			sent = append(sent, q.writes[n])
		}
	}
	q.writes = append(q.writes[:0:0], q.writes[n:]...)
	if len(sent) == 0 {
		k.forget(mirror)
		return
	}
	q.writing = true
	root, self, ctx := c.ActorSystem().Root, c.Self(), k.ctx
	k.helpers.Go(func() {
		ctx, cancel := context.WithTimeoutCause(ctx, keeperTimeout, messages.ErrTimedOut)
		defer cancel()
		resp := wire.NewPtrWriteMirrorStatesResponse()
		body, err := k.states.WriteMirrorStates(ctx, mirror, writeRequest(mirror, sent))
		if err == nil {
			err = resp.ReadFrom(body)
		}
		root.Send(self, keeperWritten{mirror: mirror, sent: sent, resp: resp, err: err})
	})
}

func (k *keeper) forget(mirror string) {
	if q := k.mirrors[mirror]; q != nil && !q.writing && !q.reading && len(q.writes) == 0 && len(q.reads) == 0 {
		delete(k.mirrors, mirror)
	}
}

// writeRequest keeps the order of sent within a topic; a partition has one write
// on its way at a time, so the order of topics says nothing.
func writeRequest(mirror string, sent []keeperWrite) []byte {
	req := wire.NewWriteMirrorStatesRequest()
	req.MirrorName = mirror
	topics := map[string]int{}
	for _, s := range sent {
		w := s.write
		i, ok := topics[w.Partition.Topic]
		if !ok {
			i = len(req.Topics)
			topics[w.Partition.Topic] = i
			t := wire.NewWriteMirrorStatesRequestTopicStates()
			t.Name = w.Partition.Topic
			req.Topics = append(req.Topics, t)
		}
		p := wire.NewWriteMirrorStatesRequestPartitionStateData()
		p.PartitionIndex, p.State, p.LastMirrorEpoch = w.Partition.Partition, int8(w.State), w.LME
		p.LeaderEpoch, p.WriteNumber, p.Ticket = w.LeaderEpoch, w.Number, w.Ticket
		p.Cause, p.Principal, p.RequestID = w.Cause, w.Principal, w.RequestID
		n := w.Notes
		p.ErrorText, p.CutRecords, p.CutBytes, p.CutFrom, p.CutTo = n.Error, n.CutRecords, n.CutBytes, n.CutFrom, n.CutTo
		p.GapFrom, p.GapTo, p.GapAtMs = n.GapFrom, n.GapTo, n.GapAtMillis
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	return req.AppendTo(nil)
}

// written answers those that are through and repeats the others.
func (k *keeper) written(c actor.Context, m keeperWritten) {
	q := k.queue(m.mirror)
	answers := map[messages.TopicPartition]wire.WriteMirrorStatesResponsePartitionResult{}
	for _, t := range m.resp.Topics {
		for _, p := range t.Partitions {
			answers[messages.TopicPartition{Topic: t.Name, Partition: p.PartitionIndex}] = p
		}
	}
	var again []keeperWrite
	why := m.err
	for _, s := range m.sent {
		a, ok := answers[s.write.Partition]
		in := writeOutcome(s.write.Number, a, ok && m.err == nil)
		if in == nil {
			again = append(again, s)
			if why == nil {
				why = answerError(max(a.ErrorCode, m.resp.ErrorCode), a.ErrorMessage)
			}
			continue
		}
		reachedOutput(fsm.PersistWrite{Write: s.write}, "after")
		c.ActorSystem().Root.Send(s.to, partitionInput{life: s.life, in: in})
	}
	if len(again) == 0 {
		q.writing, q.writeDelay = false, 0
		k.nextWrite(c, m.mirror)
		return
	}
	q.writes = append(again, q.writes...)
	q.writeDelay = keeperDelay(q.writeDelay, why)
	k.repeat(c, keeperAgain{mirror: m.mirror, write: true}, q.writeDelay, len(again), why)
}

// keeperDelay follows delay. A coordinator that moves is there again soon, and every
// partition that just got a leader waits for it.
func keeperDelay(delay time.Duration, why error) time.Duration {
	most := keeperDelayMax
	if errors.Is(why, messages.ErrNotCoordinator) || errors.Is(why, messages.ErrCoordinatorLoading) {
		most = keeperDelayMoving
	}
	return min(max(2*delay, keeperDelayFirst), most)
}

func (k *keeper) repeat(c actor.Context, m keeperAgain, delay time.Duration, n int, why error) {
	k.log.Warn("mirror states: coordinator is asked again", zap.String(messages.FieldMirror, m.mirror), zap.Bool("write", m.write),
		zap.Int("partitions", n), zap.Duration("after", delay), zap.Error(why))
	root, self := c.ActorSystem().Root, c.Self()
	k.clock.AfterFunc(delay, func() { root.Send(self, m) })
}

// writeOutcome is the answer to give, nil if the write is to be repeated.
func writeOutcome(number int64, a wire.WriteMirrorStatesResponsePartitionResult, ok bool) fsm.Input {
	if !ok {
		return nil
	}
	switch a.ErrorCode {
	case kafkaNone:
		return fsm.Written{Number: number, Previous: messages.State(a.PreviousState), Attempt: a.RetryAttempt}
	case kafkaFencedLeaderEpoch:
		return fsm.WriteRefused{Number: number, Fenced: true, Text: a.ErrorMessage}
	case wire.CodeInvalidClusterMirrorStates, kafkaInvalidRequest:
		return fsm.WriteRefused{Number: number, Text: a.ErrorMessage}
	default: // not coordinator, loading, timeout, a failing disk: it may be better later
		return nil
	}
}

func (k *keeper) nextRead(c actor.Context, mirror string) {
	q := k.queue(mirror)
	if q.reading {
		return
	}
	var sent []keeperRead
	n := 0
	for ; n < len(q.reads) && len(sent) < keeperBatchMax; n++ {
		if !q.reads[n].dead.Load() {
			sent = append(sent, q.reads[n])
		}
	}
	q.reads = append(q.reads[:0:0], q.reads[n:]...)
	if len(sent) == 0 {
		k.forget(mirror)
		return
	}
	q.reading = true
	root, self, ctx := c.ActorSystem().Root, c.Self(), k.ctx
	k.helpers.Go(func() {
		ctx, cancel := context.WithTimeoutCause(ctx, keeperTimeout, messages.ErrTimedOut)
		defer cancel()
		resp, err := readStates(ctx, k.states, mirror, sent)
		root.Send(self, keeperHasRead{mirror: mirror, sent: sent, resp: resp, err: err})
	})
}

func readStates(ctx context.Context, states StateClient, mirror string, reads []keeperRead) (*wire.ReadMirrorStatesResponse, error) {
	req := wire.NewReadMirrorStatesRequest()
	req.MirrorName = mirror
	topics := map[string]int{}
	for _, r := range reads {
		i, ok := topics[r.tp.Topic]
		if !ok {
			i = len(req.Topics)
			topics[r.tp.Topic] = i
			t := wire.NewReadMirrorStatesRequestTopicStates()
			t.Name = r.tp.Topic
			req.Topics = append(req.Topics, t)
		}
		p := wire.NewReadMirrorStatesRequestPartitionRef()
		p.PartitionIndex, p.LeaderEpoch, p.WriteNumber = r.tp.Partition, r.epoch, r.number
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	resp := wire.NewPtrReadMirrorStatesResponse()
	body, err := states.ReadMirrorStates(ctx, mirror, req.AppendTo(nil))
	if err != nil {
		return resp, err
	}
	return resp, resp.ReadFrom(body)
}

func (k *keeper) hasRead(c actor.Context, m keeperHasRead) {
	q := k.queue(m.mirror)
	found := map[messages.TopicPartition]wire.ReadMirrorStatesResponsePartitionStateData{}
	why := m.err
	if why == nil && m.resp.ErrorCode != 0 {
		why = stateError(m.resp.ErrorCode)
	}
	for _, t := range m.resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				why = stateError(p.ErrorCode)
				continue
			}
			found[messages.TopicPartition{Topic: t.Name, Partition: p.PartitionIndex}] = p
		}
	}
	var again []keeperRead
	for _, s := range m.sent {
		answer, ok := found[s.tp]
		if !ok || m.err != nil {
			again = append(again, s)
			continue
		}
		c.ActorSystem().Root.Send(s.to, partitionRead{life: s.life, number: s.number, state: stateOf(answer), ticket: answer.Ticket})
	}
	if len(again) == 0 {
		q.reading, q.readWait = false, 0
		k.nextRead(c, m.mirror)
		return
	}
	q.reads = append(again, q.reads...)
	q.readWait = keeperDelay(q.readWait, why)
	k.repeat(c, keeperAgain{mirror: m.mirror}, q.readWait, len(again), why)
}

var errNoBumpAnswer = errors.New("the controller left partitions out of its answer")

// gatherBumps waits a little for more: every request makes a new image, and an
// image with one partition costs as much as one with a thousand.
func (k *keeper) gatherBumps(c actor.Context) {
	if k.bumping || len(k.bumps) == 0 {
		return
	}
	k.bumping = true
	root, self := c.ActorSystem().Root, c.Self()
	k.clock.AfterFunc(keeperBumpGather, func() { root.Send(self, keeperBumpNow{}) })
}

func (k *keeper) nextBump(c actor.Context) {
	if k.bumping || len(k.bumps) == 0 {
		return
	}
	n := min(len(k.bumps), keeperBatchMax)
	sent := append([]keeperBump(nil), k.bumps[:n]...)
	k.bumps = append(k.bumps[:0:0], k.bumps[n:]...)
	k.bumping = true
	bumps := make([]messages.EpochBump, len(sent))
	for i, b := range sent {
		bumps[i] = b.bump
	}
	root, self, ctx := c.ActorSystem().Root, c.Self(), k.ctx
	k.helpers.Go(func() {
		ctx, cancel := context.WithTimeoutCause(ctx, keeperBumpTimeout, messages.ErrTimedOut)
		defer cancel()
		reached("keeper", "bump", "before")
		errs, err := k.bumper.Bump(ctx, bumps)
		reached("keeper", "bump", "after")
		if err == nil && len(errs) != len(bumps) {
			err = fmt.Errorf("%w: %d of %d", errNoBumpAnswer, len(errs), len(bumps))
		}
		root.Send(self, keeperBumped{sent: sent, errs: errs, err: err})
	})
}

// busRequester is what a StateClient needs of the bus. *cluster.Bus is one.
type busRequester interface {
	MirrorRead(shard, epoch int32) string
	MirrorWrite(shard, epoch int32) string
	Request(ctx context.Context, subject string, payload []byte) ([]byte, error)
}

// busStates finds a mirror's shard by the image's __mirror_state.
type busStates struct {
	bus   busRequester
	image func() *metadata.Image
	clock clock.Clock
}

// NewStateClient asks coordinators over the bus, those that image names: one that
// was succeeded is never asked, and not waited for. While there is no __mirror_state
// errors wrap messages.ErrCoordinatorNotAvailable, while nobody serves a shard under the
// image's epoch, or another image comes, messages.ErrNotCoordinator.
func NewStateClient(bus busRequester, image func() *metadata.Image, c clock.Clock) StateClient {
	return busStates{bus: bus, image: image, clock: c}
}

// ReadMirrorStates is described at [StateClient].
func (b busStates) ReadMirrorStates(ctx context.Context, mirror string, body []byte) ([]byte, error) {
	return b.ask(ctx, mirror, b.bus.MirrorRead, body)
}

// WriteMirrorStates is described at [StateClient].
func (b busStates) WriteMirrorStates(ctx context.Context, mirror string, body []byte) ([]byte, error) {
	return b.ask(ctx, mirror, b.bus.MirrorWrite, body)
}

func (b busStates) ask(ctx context.Context, mirror string, subject func(shard, epoch int32) string, body []byte) ([]byte, error) {
	t := b.image().Topic(messages.MirrorStateTopic)
	if t == nil || len(t.Partitions) == 0 {
		return nil, fmt.Errorf("%s doesn't exist yet: %w", messages.MirrorStateTopic, messages.ErrCoordinatorNotAvailable)
	}
	shard := messages.CoordinatorShard(mirror, int32(len(t.Partitions)))
	epoch := t.Partitions[shard].LeaderEpoch
	still := func() bool {
		now := b.image().Topic(messages.MirrorStateTopic)
		return now != nil && int(shard) < len(now.Partitions) && now.Partitions[shard].LeaderEpoch == epoch
	}
	out, err := requestWhile(ctx, b.clock, still, fmt.Errorf("%w: another node has become it", messages.ErrNotCoordinator), func(ctx context.Context) ([]byte, error) {
		return b.bus.Request(ctx, subject(shard, epoch), body)
	})
	if errors.Is(err, cluster.ErrNoResponders) {
		err = fmt.Errorf("%w: %w", messages.ErrNotCoordinator, err)
	}
	if err != nil {
		return nil, fmt.Errorf("ask coordinator of mirror %s: %w", mirror, err)
	}
	return out, nil
}

// ReadMirrorStates asks a mirror's coordinator for stored states. A partition
// that it can't answer for now is an error: NOT_COORDINATOR and the like come as
// the sentinels of package messages.
func ReadMirrorStates(ctx context.Context, states StateClient, mirror string, tps []messages.TopicPartition) (map[messages.TopicPartition]messages.PartitionState, error) {
	reads := make([]keeperRead, len(tps))
	for i, tp := range tps {
		reads[i] = keeperRead{tp: tp, epoch: messages.NoEpoch}
	}
	resp, err := readStates(ctx, states, mirror, reads)
	if err == nil && resp.ErrorCode != 0 {
		err = stateError(resp.ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("read states of mirror %s: %w", mirror, err)
	}
	out := make(map[messages.TopicPartition]messages.PartitionState, len(tps))
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return nil, fmt.Errorf("read state of %s-%d in mirror %s: %w", t.Name, p.PartitionIndex, mirror, stateError(p.ErrorCode))
			}
			out[messages.TopicPartition{Topic: t.Name, Partition: p.PartitionIndex}] = stateOf(p)
		}
	}
	return out, nil
}

// stateError is coordinatorCode the other way round.
func stateError(code int16) error { return answerError(code, "") }

func answerError(code int16, text string) error {
	switch code {
	case kafkaNotCoordinator:
		return messages.ErrNotCoordinator
	case kafkaCoordinatorLoading:
		return messages.ErrCoordinatorLoading
	case kafkaCoordinatorMissing:
		return messages.ErrCoordinatorNotAvailable
	case kafkaRequestTimedOut:
		return messages.ErrTimedOut
	default:
		return wire.ErrorForCode(code, text)
	}
}
