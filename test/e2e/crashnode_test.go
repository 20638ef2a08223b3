package e2e

import (
	"bytes"
	gocmp "cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"kagami/client"
	"kagami/messages"
	"kagami/test/kafka/stub"
)

const (
	crashMirror = "m"
	crashTopic  = "t"
	// crashTryTimeout bounds one attempt at a request: a node that is killed in the
	// middle closes the connection, so it is rarely used up.
	crashTryTimeout = 5 * time.Second
	// crashRunTimeout bounds one run; an undisturbed one takes three seconds.
	crashRunTimeout = 2 * time.Minute
	// lateWait is how long a stopped partition is watched for batches that come
	// from the source, which has new ones. A fetcher would take milliseconds.
	lateWait = 100 * time.Millisecond
)

// crashNode is a node that kills itself at fault points and is started again,
// and clients that repeat a request until it is answered.
type crashNode struct {
	ctx  context.Context
	node *Node
	adm  *client.Client
	cl   *kgo.Client
	fifo string // see hold

	always  []string   // environment of the next process and of those that follow
	again   []string   // the same from the second one on
	envs    [][]string // of the starts after the first, added; then none
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

// crashNodeOptions of a node. hold names the fault points that crashNode.hold
// holds, see invariant.Reached; holdAgain those of the processes after the first,
// if others. A process that starts may not be held where its replica is locked: it
// waits for the replica before it serves anyone.
type crashNodeOptions struct {
	dir             string
	hold, holdAgain string
	props           map[string]string
	envs            [][]string
}

// newCrashNode starts the node with the first of envs, and again with the next
// one whenever it dies.
func newCrashNode(ctx context.Context, o crashNodeOptions) (*crashNode, error) {
	path, err := FaultServer()
	if err != nil {
		return nil, err
	}
	n := &crashNode{ctx: ctx, ended: make(chan struct{}), envs: o.envs, fifo: filepath.Join(o.dir, "fifo")}
	if o.hold != "" {
		n.always = []string{"KAGAMI_FAULT_HOLD=" + o.hold + "=" + n.fifo}
		n.again = []string{"KAGAMI_FAULT_HOLD=" + gocmp.Or(o.holdAgain, o.hold) + "=" + n.fifo}
	}
	props := map[string]string{"mirror.state.topic.num.partitions": "1", "mirror.metadata.refresh.interval.ms": "300"}
	maps.Copy(props, o.props)
	if n.node, err = PrepareNode(NodeOptions{Dir: o.dir, Program: path, Properties: props}); err != nil {
		return nil, err
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(n.node.Bootstrap()), kgo.RequestRetries(0), kgo.MaxVersions(kversion.V3_3_0()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
	}
	if n.adm, err = client.New(opts[:2]...); err != nil {
		return nil, err
	}
	if n.cl, err = kgo.NewClient(opts...); err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	n.stop = stop
	n.nextEnv()
	go n.watch(watching)
	return n, nil
}

// nextEnv sets the environment of the next process.
func (n *crashNode) nextEnv() {
	env := n.always
	if len(n.envs) > 0 {
		env, n.envs = append(slices.Clone(env), n.envs[0]...), n.envs[1:]
	}
	n.node.SetEnv(env...)
	n.always = n.again
}

// watch keeps the node running.
func (n *crashNode) watch(ctx context.Context) {
	defer close(n.ended)
	for {
		err := n.node.Start(ctx)
		if err != nil && (n.node.process == nil || n.node.process.Running()) {
			if ctx.Err() == nil {
				n.failed = err
			}
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-n.node.process.Done():
		}
		n.crashes++
		if !strings.Contains(fmt.Sprint(n.node.process.Err()), "killed") {
			n.failed = fmt.Errorf("the node ended by itself: %w\n%s", n.node.process.Err(), n.node.process.Tail(40))
			return
		}
		n.nextEnv()
	}
}

// close ends the run; the node shuts down cleanly.
func (n *crashNode) close() error {
	n.stop()
	<-n.ended
	n.adm.Close()
	n.cl.Close()
	return errors.Join(n.failed, n.shutDown(), n.node.Close())
}

// shutDown stops the node cleanly. A point that is reached only now is a crash as
// well; the process after it stops cleanly.
func (n *crashNode) shutDown() error {
	if n.node.process == nil || n.failed != nil {
		return nil
	}
	err := n.node.Stop()
	if err == nil || !strings.Contains(err.Error(), "killed") || strings.Contains(err.Error(), "did not end") {
		return err
	}
	n.crashes++
	n.node.SetEnv()
	ctx, cancel := context.WithTimeout(context.Background(), nodeStartTimeout)
	defer cancel()
	if err := n.node.Start(ctx); err != nil {
		return err
	}
	return n.node.Stop()
}

// try repeats a request until it is answered. done says which errors of a repeated
// request mean that the one without an answer was carried out.
func (n *crashNode) try(what string, f func(ctx context.Context) error, done ...error) error {
	unanswered := false
	var last error
	for {
		ctx, cancel := context.WithTimeout(n.ctx, crashTryTimeout)
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
		case <-n.ctx.Done():
			return fmt.Errorf("%s: %w, last: %w", what, context.Cause(n.ctx), last)
		case <-n.ended:
			return fmt.Errorf("%s: the node is gone: %w, last: %w", what, errors.Join(n.failed, context.Cause(n.ctx)), last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// hold lets the node run until it is held at a point of its options, where it
// stays while f runs; begin brings it there. A process that dies meanwhile is
// followed by one that is held again.
func (n *crashNode) hold(begin, f func() error) error {
	if err := syscall.Mkfifo(n.fifo, 0o600); err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	if err := begin(); err != nil {
		return err
	}
	var pipe *os.File
	err := n.try("wait for a held point", func(context.Context) (err error) {
		pipe, err = os.OpenFile(n.fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return err
	}
	err = f()
	return errors.Join(err, os.Remove(n.fifo), pipe.Close())
}

// topics is try for a request about topics.
func (n *crashNode) topics(what string, f func(context.Context, string, []string) (client.TopicResults, error), done ...error) error {
	return n.try(what, func(ctx context.Context) error {
		res, err := f(ctx, crashMirror, []string{crashTopic})
		return errors.Join(err, res.Err())
	}, done...)
}

func (n *crashNode) createMirror(bootstrap string) error {
	return n.try("create mirror", func(ctx context.Context) error {
		return n.adm.CreateClusterMirror(ctx, crashMirror, map[string]*string{"bootstrap.servers": &bootstrap})
	}, messages.ErrMirrorExists)
}

func (n *crashNode) startTopic(id messages.TopicID, partitions int32) error {
	return n.topics("start", func(ctx context.Context, mirror string, topics []string) (client.TopicResults, error) {
		return n.adm.StartMirrorTopics(ctx, mirror, topics, client.StartOptions{
			TopicMetadata: map[string]client.TopicMetadata{crashTopic: {ID: id, Partitions: partitions}},
		})
	}, messages.ErrTopicInMirror)
}

func (n *crashNode) askStop() error {
	return n.topics("stop", func(ctx context.Context, m string, t []string) (client.TopicResults, error) {
		return n.adm.StopMirrorTopics(ctx, m, t)
	})
}

// askStopSeen is askStop, and returns when the partition has seen it.
func (n *crashNode) askStopSeen() error {
	if err := n.askStop(); err != nil {
		return err
	}
	return n.try("see the stop", func(ctx context.Context) error {
		rows, err := n.node.Query(ctx, "partitions")
		if err == nil && (len(rows) == 0 || rows[0]["desired"] != "stopped") {
			err = fmt.Errorf("partitions are %v", rows)
		}
		return err
	})
}

func (n *crashNode) stopTopic() (client.DescribedPartition, error) {
	if err := n.askStop(); err != nil {
		return client.DescribedPartition{}, err
	}
	return n.await("STOPPED")
}

func (n *crashNode) askPause() error {
	return n.topics("pause", n.adm.PauseMirrorTopics, messages.ErrAlreadyPaused)
}

func (n *crashNode) pauseTopic() error {
	if err := n.askPause(); err != nil {
		return err
	}
	_, err := n.await("PAUSED")
	return err
}

func (n *crashNode) resumeTopic() error {
	return n.topics("resume", n.adm.ResumeMirrorTopics, messages.ErrNotPaused)
}

// look waits until the description of partition 0 is right.
func (n *crashNode) look(ok func(client.DescribedPartition) error) (found client.DescribedPartition, err error) {
	err = n.try("describe", func(ctx context.Context) error {
		ps, err := Partitions(ctx, n.adm, crashMirror)
		if err != nil {
			return err
		}
		for _, p := range ps {
			if p.Topic == crashTopic && p.Partition == 0 {
				found = p
				return ok(p)
			}
		}
		return errors.New("the partition isn't described")
	})
	return found, err
}

func (n *crashNode) await(states ...string) (client.DescribedPartition, error) {
	return n.look(func(p client.DescribedPartition) error {
		if !slices.Contains(states, p.State) {
			return fmt.Errorf("it is %s (%s), want %v", p.State, p.ErrorText, states)
		}
		return nil
	})
}

// awaitEnd waits until all up to end is here, healthy.
func (n *crashNode) awaitEnd(end int64) (client.DescribedPartition, error) {
	return n.look(func(p client.DescribedPartition) error {
		if p.State != "MIRRORING" || p.DestinationOffset != end || p.RetryAttempt != 0 {
			return fmt.Errorf("it is %s (%s) at %d after %d failures, the source at %d", p.State, p.ErrorText, p.DestinationOffset, p.RetryAttempt, end)
		}
		return nil
	})
}

// produceOnce sends one record and returns its offset.
func (n *crashNode) produceOnce(ctx context.Context, spec stub.Spec) (int64, error) {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, int32(crashTryTimeout.Milliseconds())
	t := kmsg.NewProduceRequestTopic()
	t.Topic = crashTopic
	p := kmsg.NewProduceRequestTopicPartition()
	spec.Timestamp = time.Now().UnixMilli()
	p.Records = stub.Build(spec)
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, n.cl) // a kgo producer waits for ten seconds after a lost connection
	if err != nil {
		return 0, err
	}
	answer := resp.Topics[0].Partitions[0]
	return answer.BaseOffset, kerr.ErrorForCode(answer.ErrorCode)
}

// produce stores one record of an idempotent producer. Repeats carry the same
// sequence number, so that they are stored once.
func (n *crashNode) produce(value string, pid int64, sequence int32) error {
	return n.try("produce "+value, func(ctx context.Context) error {
		offset, err := n.produceOnce(ctx, stub.Spec{
			Producer: true, ProducerID: pid, BaseSequence: sequence, Records: []stub.Record{{Value: []byte(value)}},
		})
		if err == nil {
			n.acked = append(n.acked, ackedRecord{value, offset})
		}
		return err
	})
}

// refused says that a plain write isn't taken.
func (n *crashNode) refused() error {
	return n.try("a write that must be refused", func(ctx context.Context) error {
		_, err := n.produceOnce(ctx, stub.Spec{Records: []stub.Record{{Value: []byte("refused")}}})
		if !errors.Is(err, kerr.PolicyViolation) {
			return errors.Join(errors.New("want POLICY_VIOLATION"), err)
		}
		return nil
	})
}

// listOffset asks for the earliest (-2) or latest (-1) offset.
func (n *crashNode) listOffset(ctx context.Context, timestamp int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = crashTopic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp, p.CurrentLeaderEpoch = timestamp, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, n.cl)
	if err != nil {
		return 0, err
	}
	got := resp.Topics[0].Partitions[0]
	return got.Offset, kerr.ErrorForCode(got.ErrorCode)
}

// logStart waits until the topic begins at an offset.
func (n *crashNode) logStart(want int64) error {
	return n.try("log start", func(ctx context.Context) error {
		got, err := n.listOffset(ctx, -2)
		if err == nil && got != want {
			err = fmt.Errorf("it is %d, want %d", got, want)
		}
		return err
	})
}

// dle is the topic's leader epoch by the node's metadata.
func (n *crashNode) dle() (epoch int32, err error) {
	err = n.try("metadata", func(ctx context.Context) error {
		req := kmsg.NewPtrMetadataRequest()
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(crashTopic)
		req.Topics = append(req.Topics, t)
		resp, err := req.RequestWith(ctx, n.cl) // kadm's answer may be a cached one
		if err != nil {
			return err
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) == 0 {
			return fmt.Errorf("%d topics", len(resp.Topics))
		}
		p := resp.Topics[0].Partitions[0]
		epoch = p.LeaderEpoch
		return kerr.ErrorForCode(p.ErrorCode)
	})
	return epoch, err
}

// auditAgrees says that a replay of the node's files, as `kagami audit --at`
// prints it, is what the node describes.
func (n *crashNode) auditAgrees() error {
	type row struct {
		Topic           string
		Partition       int32
		State           string
		LastMirrorEpoch int32
		Retry           int16
		LeaderEpoch     int32
		CutRecords      int64
		CutFrom, CutTo  int64
		GapFrom, GapTo  int64
	}
	return n.try("audit", func(ctx context.Context) error {
		live, err := Partitions(ctx, n.adm, crashMirror)
		if err != nil {
			return err
		}
		var want, got []row
		for _, p := range live {
			want = append(want, row{p.Topic, p.Partition, p.State, p.LastMirrorEpoch, p.RetryAttempt, p.LeaderEpoch, p.CutRecords, p.CutFrom, p.CutTo, p.GapFrom, p.GapTo})
		}
		at := strconv.FormatInt(time.Now().UnixMilli()+1, 10)
		cmd := exec.CommandContext(ctx, n.node.program, "audit", "--mirror", crashMirror, "--data", n.node.DataDir(), "--at", at, "--json")
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%w: %s", err, said.String())
		}
		for line := range bytes.Lines(out) {
			r := row{CutFrom: -1, CutTo: -1, GapFrom: -1, GapTo: -1}
			if err := json.Unmarshal(line, &r); err != nil {
				return fmt.Errorf("read %q: %w", line, err)
			}
			got = append(got, r)
		}
		if d := cmp.Diff(want, got); d != "" || said.Len() > 0 {
			return fmt.Errorf("the replay differs (-live +replay): %s%s", said.String(), d)
		}
		return nil
	})
}
