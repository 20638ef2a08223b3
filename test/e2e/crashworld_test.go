package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"kagami/client"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
	"kagami/test/kafka/stub"
)

const (
	crashMirror = "m"
	crashTopic  = "t"
	// crashTryTimeout bounds one attempt at a request: a node that is killed in the
	// middle closes the connection, so it is rarely used up.
	crashTryTimeout = 5 * time.Second
	// crashRunTimeout bounds one run; an undisturbed one takes three seconds.
	crashRunTimeout = time.Minute
	// lateWait is how long a stopped partition is watched for batches that come
	// from the source, which has new ones. A fetcher would take milliseconds.
	lateWait = 100 * time.Millisecond
)

// crashWorld is one run of the scenario: a scripted source, and a node that kills
// itself at a fault point and is started again.
type crashWorld struct {
	ctx    context.Context
	source *stub.Cluster
	node   *Node
	adm    *client.Client
	cl     *kgo.Client
	id     messages.TopicID

	envs    [][]string // of the starts after the first; then none
	crashes int        // written by watch until it has ended
	failed  error      // of a start that wasn't a crash
	stop    context.CancelFunc
	ended   chan struct{}

	acked []ackedRecord
}

// ackedRecord is a record that a producer was told is stored.
type ackedRecord struct {
	value  string
	offset int64
}

// newCrashWorld starts the node with the first of envs, and again with the next
// one whenever it dies.
func newCrashWorld(ctx context.Context, dir string, envs ...[]string) (*crashWorld, error) {
	path, err := FaultServer()
	if err != nil {
		return nil, err
	}
	w := &crashWorld{ctx: ctx, ended: make(chan struct{}), id: messages.NewTopicID()}
	if w.source, err = stub.Start(stub.Options{ClusterID: "the-source"}); err != nil {
		return nil, err
	}
	w.node, err = PrepareNode(NodeOptions{Dir: dir, Program: path, Properties: map[string]string{
		"mirror.state.topic.num.partitions":   "1",
		"mirror.metadata.refresh.interval.ms": "300",
	}})
	if err != nil {
		return nil, errors.Join(err, w.source.Close())
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(w.node.Bootstrap()), kgo.RequestRetries(0), kgo.MaxVersions(kversion.V3_3_0()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
	}
	if w.adm, err = client.New(opts[:2]...); err == nil {
		w.cl, err = kgo.NewClient(opts...)
	}
	if err != nil {
		return nil, errors.Join(err, w.source.Close())
	}
	watching, stop := context.WithCancel(ctx)
	w.stop = stop
	if len(envs) > 0 {
		w.node.SetEnv(envs[0]...)
		w.envs = envs[1:]
	}
	go w.watch(watching)
	return w, nil
}

// watch keeps the node running.
func (w *crashWorld) watch(ctx context.Context) {
	defer close(w.ended)
	for {
		err := w.node.Start(ctx)
		if err != nil && (w.node.process == nil || w.node.process.Running()) {
			if ctx.Err() == nil {
				w.failed = err
			}
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-w.node.process.Done():
		}
		w.crashes++
		if !strings.Contains(fmt.Sprint(w.node.process.Err()), "killed") {
			w.failed = fmt.Errorf("the node ended by itself: %w\n%s", w.node.process.Err(), w.node.process.Tail(40))
			return
		}
		w.node.SetEnv()
		if len(w.envs) > 0 {
			w.node.SetEnv(w.envs[0]...)
			w.envs = w.envs[1:]
		}
	}
}

// close ends the run; the node shuts down cleanly.
func (w *crashWorld) close() error {
	w.stop()
	<-w.ended
	w.adm.Close()
	w.cl.Close()
	return errors.Join(w.failed, w.shutDown(), w.node.Close(), w.source.Close())
}

// shutDown stops the node cleanly. A point that is reached only now is a crash as
// well; the process after it stops cleanly.
func (w *crashWorld) shutDown() error {
	if w.node.process == nil || w.failed != nil {
		return nil
	}
	err := w.node.Stop()
	if err == nil || !strings.Contains(err.Error(), "killed") || strings.Contains(err.Error(), "did not end") {
		return err
	}
	w.crashes++
	w.node.SetEnv()
	ctx, cancel := context.WithTimeout(context.Background(), nodeStartTimeout)
	defer cancel()
	if err := w.node.Start(ctx); err != nil {
		return err
	}
	return w.node.Stop()
}

// try repeats a request until it is answered. done says which errors of a repeated
// request mean that the one without an answer was carried out.
func (w *crashWorld) try(what string, f func(ctx context.Context) error, done ...error) error {
	unanswered := false
	var last error
	for {
		ctx, cancel := context.WithTimeout(w.ctx, crashTryTimeout)
		err := f(ctx)
		cancel()
		if err == nil {
			return nil
		}
		if unanswered && slices.ContainsFunc(done, func(d error) bool { return errors.Is(err, d) }) {
			return nil
		}
		last, unanswered = err, true
		select {
		case <-w.ctx.Done():
			return fmt.Errorf("%s: %w, last: %w", what, context.Cause(w.ctx), last)
		case <-w.ended:
			return fmt.Errorf("%s: the node is gone: %w", what, w.failed)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// topics is try for a request about topics.
func (w *crashWorld) topics(what string, f func(context.Context, string, []string) (client.TopicResults, error), done ...error) error {
	return w.try(what, func(ctx context.Context) error {
		res, err := f(ctx, crashMirror, []string{crashTopic})
		return errors.Join(err, res.Err())
	}, done...)
}

// look waits until the partition's description is right.
func (w *crashWorld) look(ok func(client.DescribedPartition) error) (found client.DescribedPartition, err error) {
	err = w.try("describe", func(ctx context.Context) error {
		ps, err := Partitions(ctx, w.adm, crashMirror)
		if err != nil {
			return err
		}
		for _, p := range ps {
			if p.Topic == crashTopic {
				found = p
				return ok(p)
			}
		}
		return errors.New("the partition isn't described")
	})
	return found, err
}

func (w *crashWorld) await(state string) (client.DescribedPartition, error) {
	return w.look(func(p client.DescribedPartition) error {
		if p.State != state {
			return fmt.Errorf("it is %s (%s), want %s", p.State, p.ErrorText, state)
		}
		return nil
	})
}

// awaitCopied waits until all of the source is here.
func (w *crashWorld) awaitCopied() (client.DescribedPartition, error) {
	var end int64
	w.source.Read(func(s *stub.State) { end = s.Topics[crashTopic].Partitions[0].End() })
	return w.look(func(p client.DescribedPartition) error {
		if p.State != "MIRRORING" || p.DestinationOffset != end || p.RetryAttempt != 0 {
			return fmt.Errorf("it is %s (%s) at %d after %d failures, the source at %d", p.State, p.ErrorText, p.DestinationOffset, p.RetryAttempt, end)
		}
		return nil
	})
}

// part changes the partition on the source.
func (w *crashWorld) part(f func(p *stub.Partition)) {
	w.source.Update(func(s *stub.State) { f(s.Topics[crashTopic].Partitions[0]) })
}

// produce stores one record of an idempotent producer. Repeats carry the same
// sequence number, so that they are stored once.
func (w *crashWorld) produce(value string, pid int64, sequence int32) error {
	return w.try("produce "+value, func(ctx context.Context) error {
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = -1, int32(crashTryTimeout.Milliseconds())
		t := kmsg.NewProduceRequestTopic()
		t.Topic = crashTopic
		p := kmsg.NewProduceRequestTopicPartition()
		p.Records = stub.Build(stub.Spec{
			Producer: true, ProducerID: pid, BaseSequence: sequence,
			Records: []stub.Record{{Value: []byte(value)}}, Timestamp: time.Now().UnixMilli(),
		})
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		resp, err := req.RequestWith(ctx, w.cl)
		if err != nil {
			return err
		}
		answer := resp.Topics[0].Partitions[0]
		if answer.ErrorCode != 0 {
			return kerr.ErrorForCode(answer.ErrorCode)
		}
		w.acked = append(w.acked, ackedRecord{value, answer.BaseOffset})
		return nil
	})
}

// refused says that a plain write isn't taken.
func (w *crashWorld) refused() error {
	return w.try("a write that must be refused", func(ctx context.Context) error {
		res := w.cl.ProduceSync(ctx, &kgo.Record{Topic: crashTopic, Value: []byte("refused")})
		if err := res.FirstErr(); !errors.Is(err, kerr.PolicyViolation) {
			return fmt.Errorf("the answer is %w, want POLICY_VIOLATION", err)
		}
		return nil
	})
}

// run is the scenario: mirror, failover, writes on both sides, failback that
// cuts ours, epochs that the source has raised, a failure, pause, resume, failover
// with open transactions, a start that fails and is stopped, and the end of the mirror.
func (w *crashWorld) run() (end crashEnd, err error) {
	steps := []struct {
		name string
		do   func() error
	}{
		{"mirror", w.mirror},
		{"failover out of a pause", func() (err error) {
			if err = w.pauseTopic(); err == nil {
				end.First, err = w.stopTopic()
			}
			return err
		}},
		{"first writes", func() error { return errors.Join(w.produce("lost 1", 5, 0), w.produce("lost 2", 5, 1)) }},
		{"failback", func() (err error) { end.Cut, err = w.failback(); return err }},
		{"fencing", func() error {
			w.part(func(p *stub.Partition) { p.Epoch = 30; p.Fill(2) })
			_, err := w.awaitCopied()
			return err
		}},
		{"failure", w.failure},
		{"pause", w.pause},
		{"second failover", func() (err error) { end.Last, err = w.failover(); return err }},
		{"failover out of a failed start", func() (err error) { end.Third, err = w.stopUnaligned(); return err }},
		{"end of the mirror", w.endMirror},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return end, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return end, nil
}

func (w *crashWorld) mirror() error {
	w.source.Update(func(s *stub.State) {
		s.NewTopic(crashTopic, w.id, 1)
		s.Topics[crashTopic].Partitions[0].Fill(4)
	})
	err := w.try("create mirror", func(ctx context.Context) error {
		return w.adm.CreateClusterMirror(ctx, crashMirror, map[string]*string{"bootstrap.servers": new(w.source.Address())})
	}, messages.ErrMirrorExists)
	if err == nil {
		err = w.startTopic()
	}
	if err == nil {
		_, err = w.awaitCopied()
	}
	return err
}

func (w *crashWorld) startTopic() error {
	return w.topics("start", func(ctx context.Context, mirror string, topics []string) (client.TopicResults, error) {
		return w.adm.StartMirrorTopics(ctx, mirror, topics, client.StartOptions{
			TopicMetadata: map[string]client.TopicMetadata{crashTopic: {ID: w.id, Partitions: 1}},
		})
	}, messages.ErrTopicInMirror)
}

// failback: the source knows epoch 0 to the end of what we copied, and went on.
func (w *crashWorld) failback() (client.DescribedPartition, error) {
	w.source.Update(func(s *stub.State) {
		s.Versions = stub.VersionsWithMirrors()
		s.Mirrors[0] = append(s.Mirrors[0], stub.Mirror(crashMirror, messages.StateStopped,
			map[messages.TopicPartition]int32{{Topic: crashTopic}: 0}))
		s.Topics[crashTopic].Partitions[0].Epoch = 1
		s.Topics[crashTopic].Partitions[0].Fill(2)
	})
	if err := w.startTopic(); err != nil {
		return client.DescribedPartition{}, err
	}
	p, err := w.awaitCopied()
	if err == nil {
		err = w.refused()
	}
	return p, err
}

// failure: the source's partition loses its leader for a while.
func (w *crashWorld) failure() error {
	const notLeader = 6
	w.part(func(p *stub.Partition) { p.Leader, p.Code, p.NoHint = -1, notLeader, true; p.Fill(1) })
	if _, err := w.await("FAILED"); err != nil {
		return err
	}
	w.part(func(p *stub.Partition) { p.Leader, p.Code = 0, 0 })
	// A retry or a crash may have been faster.
	err := w.topics("recover", func(ctx context.Context, m string, t []string) (client.TopicResults, error) {
		res, err := w.adm.RecoverMirrorTopics(ctx, m, t)
		if errors.Is(res.Err(), messages.ErrInvalidMirrorStates) {
			return nil, err
		}
		return res, err
	})
	if err != nil {
		return err
	}
	_, err = w.awaitCopied()
	return err
}

func (w *crashWorld) pauseTopic() error {
	if err := w.topics("pause", w.adm.PauseMirrorTopics, messages.ErrAlreadyPaused); err != nil {
		return err
	}
	_, err := w.await("PAUSED")
	return err
}

func (w *crashWorld) stopTopic() (client.DescribedPartition, error) {
	err := w.topics("stop", func(ctx context.Context, m string, t []string) (client.TopicResults, error) {
		return w.adm.StopMirrorTopics(ctx, m, t)
	})
	if err != nil {
		return client.DescribedPartition{}, err
	}
	return w.await("STOPPED")
}

// stopUnaligned stops after the source, asked where to cut, gave no answer.
func (w *crashWorld) stopUnaligned() (client.DescribedPartition, error) {
	const unknownServerError = -1
	w.source.Update(func(s *stub.State) { s.Mirrors[0][0].ErrorCode = unknownServerError })
	if err := w.startTopic(); err != nil {
		return client.DescribedPartition{}, err
	}
	if _, err := w.await("FAILED"); err != nil {
		return client.DescribedPartition{}, err
	}
	return w.stopTopic()
}

func (w *crashWorld) pause() error {
	if err := w.pauseTopic(); err != nil {
		return err
	}
	w.part(func(p *stub.Partition) { p.Fill(1) })
	if err := w.topics("resume", w.adm.ResumeMirrorTopics, messages.ErrNotPaused); err != nil {
		return err
	}
	_, err := w.awaitCopied()
	return err
}

// failover stops with two open transactions, and writes under the id of one of
// them, in the middle of its sequence.
func (w *crashWorld) failover() (client.DescribedPartition, error) {
	w.part(func(p *stub.Partition) {
		for pid := range int64(2) {
			p.Put(stub.Build(stub.Spec{
				Base: p.End(), Epoch: p.Epoch, Producer: true, ProducerID: 5 + pid, BaseSequence: 3, Transactional: true,
				Records: []stub.Record{{Value: []byte("open")}},
			}))
		}
	})
	if _, err := w.awaitCopied(); err != nil {
		return client.DescribedPartition{}, err
	}
	p, err := w.stopTopic()
	if err != nil {
		return p, err
	}
	w.part(func(p *stub.Partition) { p.Fill(1) }) // must not be fetched
	if err := errors.Join(w.produce("kept 1", 5, 9), w.produce("kept 2", 5, 10)); err != nil {
		return p, err
	}
	time.Sleep(lateWait)
	return w.await("STOPPED")
}

// endMirror deletes the mirror; the topic stays and takes writes.
func (w *crashWorld) endMirror() error {
	err := w.try("delete mirror", func(ctx context.Context) error { return w.adm.DeleteClusterMirror(ctx, crashMirror) }, messages.ErrUnknownMirror)
	if err != nil {
		return err
	}
	if err := w.produce("kept 3", 5, 11); err != nil {
		return err
	}
	return w.try("wait for tombstones", func(context.Context) error {
		_, live, err := mirrorStates(w.node.DataDir())
		if err == nil && live > 0 {
			err = fmt.Errorf("%d keys of the mirror are left", live)
		}
		return err
	})
}

// crashEnd is what a run comes to.
type crashEnd struct {
	// After the first stop, the failback, the second and the third stop.
	First, Cut, Last, Third client.DescribedPartition

	Copied     []Batch  // up to the last of the source's
	Tail       []string // what follows: kinds, with pid or value
	TailEpochs []int32
	States     []string // of __mirror_state, in order
	DLE        int32    // at the end
	Acked      []ackedRecord
	Stored     map[string][]int64 // value -> offsets, of the tail
}

// read adds what the stopped node's files say.
func (w *crashWorld) read(end *crashEnd) error {
	end.Acked = w.acked
	var sourceEnd int64
	w.source.Read(func(s *stub.State) { sourceEnd = s.Topics[crashTopic].Partitions[0].End() - 1 })
	log, err := readLog(filepath.Join(w.node.DataDir(), crashTopic+"-0"))
	if err != nil {
		return err
	}
	end.Stored = map[string][]int64{}
	for rest := log; len(rest) > 0; {
		h, whole, next, err := batch.Next(rest)
		if err == nil {
			err = batch.CheckCRC(whole)
		}
		if err != nil {
			return fmt.Errorf("log at byte %d: %w", len(log)-len(rest), err)
		}
		rest = next
		if h.BaseOffset < sourceEnd {
			one, err := splitBatches(whole)
			if err != nil {
				return err
			}
			end.Copied = append(end.Copied, one...)
			continue
		}
		end.TailEpochs = append(end.TailEpochs, h.LeaderEpoch)
		if h.IsControl() {
			c, err := batch.ParseControl(whole)
			if err != nil {
				return err
			}
			end.Tail = append(end.Tail, strings.TrimSuffix(fmt.Sprintf("%s of %d", c.Type, h.ProducerID), " of -1"))
			continue
		}
		for r, err := range batch.Records(whole) {
			if err != nil {
				return err
			}
			end.Tail = append(end.Tail, string(r.Value))
			end.Stored[string(r.Value)] = append(end.Stored[string(r.Value)], r.Offset)
		}
	}
	end.States, _, err = mirrorStates(w.node.DataDir())
	return err
}

// sourceBatches is the source's log without the batch that came after the stop.
func (w *crashWorld) sourceBatches() ([]Batch, error) {
	var b []byte
	w.source.Read(func(s *stub.State) { b = s.Topics[crashTopic].Partitions[0].Bytes() })
	all, err := splitBatches(b)
	if err != nil || len(all) == 0 {
		return all, err
	}
	return all[:len(all)-1], nil
}

func readLog(folder string) ([]byte, error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.log"))
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
	var out []byte
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		out = append(out, b...)
	}
	return out, nil
}

// mirrorStates lists what was ever stored of the partition, states by name and
// last mirror epochs as "LME n", and counts the keys that have a value.
func mirrorStates(data string) (list []string, live int, err error) {
	log, err := readLog(filepath.Join(data, messages.MirrorStateTopic+"-0"))
	if err != nil {
		return nil, 0, err
	}
	keys := map[string]bool{}
	for len(log) > 0 {
		_, whole, rest, err := batch.Next(log)
		if err != nil {
			return list, 0, err // or the node is writing there
		}
		log = rest
		for r, err := range batch.Records(whole) {
			if err != nil {
				return list, 0, err
			}
			keys[string(r.Key)] = r.Value != nil
			text, err := stateText(r)
			if err != nil {
				return list, 0, err
			}
			list = append(list, text)
		}
	}
	for _, on := range keys {
		if on {
			live++
		}
	}
	return list, live, nil
}

func stateText(r batch.Record) (string, error) {
	kind, err := wire.MirrorStateType(r.Key)
	switch {
	case err != nil:
		return "", err
	case r.Value == nil:
		return "tombstone", nil
	case kind == wire.RecordTypeLastMirrorEpochs:
		v := wire.NewPtrLastMirrorEpochsValue()
		if err := v.ReadFrom(r.Value); err != nil {
			return "", err
		}
		text := "LME"
		for _, t := range v.Topics {
			for _, p := range t.Partitions {
				text += fmt.Sprintf(" %d", p.LastMirrorEpoch)
			}
		}
		return text, nil
	default:
		v := wire.NewPtrMirrorPartitionStateValue()
		if err := v.ReadFrom(r.Value); err != nil {
			return "", err
		}
		text := messages.State(v.State).String()
		if cause, ok := r.Header("cause"); ok && v.State == int8(messages.StateFailed) {
			text += " (" + string(cause) + ")"
		}
		return text, nil
	}
}

// dle is the topic's leader epoch by the node's metadata.
func (w *crashWorld) dle() (epoch int32, err error) {
	err = w.try("metadata", func(ctx context.Context) error {
		req := kmsg.NewPtrMetadataRequest()
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(crashTopic)
		req.Topics = append(req.Topics, t)
		resp, err := req.RequestWith(ctx, w.cl) // kadm's answer may be a cached one
		if err != nil {
			return err
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return fmt.Errorf("%d topics", len(resp.Topics))
		}
		p := resp.Topics[0].Partitions[0]
		epoch = p.LeaderEpoch
		return kerr.ErrorForCode(p.ErrorCode)
	})
	return epoch, err
}

// runCrash runs the scenario once.
func runCrash(t *testing.T, envs ...[]string) (end crashEnd, w *crashWorld, err error) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeoutCause(context.Background(), crashRunTimeout, errors.New("the run takes too long"))
	defer cancel()
	w, err = newCrashWorld(ctx, dir, envs...)
	if err != nil {
		return end, nil, err
	}
	end, err = w.run()
	if err == nil {
		end.DLE, err = w.dle()
	}
	if err = errors.Join(err, w.close()); err == nil {
		err = w.read(&end)
	}
	if err != nil && w.node.process != nil {
		err = fmt.Errorf("%w\n--- kagami:\n%s", err, w.node.process.Tail(60))
	}
	return end, w, err
}
