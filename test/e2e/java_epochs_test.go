package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/test/kafka"
)

// epochWatch compares the leader epochs of one partition on both sides, all the time.
type epochWatch struct {
	looks    atomic.Int64
	sle, dle atomic.Int32
	fault    chan string // the first one
	done     chan struct{}
}

// watchEpochs starts an epochWatch of partition 0 that ends with the test. A is
// asked first: what B says later may not be below.
func (w *world) watchEpochs(topic string) *epochWatch {
	w.t.Helper()
	e := &epochWatch{fault: make(chan string, 1), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(w.ctx)
	w.t.Cleanup(func() {
		cancel()
		<-e.done
	})
	go func() {
		defer close(e.done)
		var last int32
		for ctx.Err() == nil {
			sle, err := w.a.epoch(ctx, topic)
			if err != nil {
				continue // it is asked again
			}
			dle, err := w.b.epoch(ctx, topic)
			if err != nil {
				continue // the node is down
			}
			if dle < sle || dle < last {
				select {
				case e.fault <- fmt.Sprintf("A showed epoch %d, then B %d, and %d before", sle, dle, last):
				default:
				}
			}
			last = max(last, dle)
			e.sle.Store(sle)
			e.dle.Store(dle)
			e.looks.Add(1)
		}
	}()
	return e
}

// epoch asks for partition 0's leader epoch. kadm would remember an answer.
func (s *Side) epoch(ctx context.Context, topic string) (int32, error) {
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &topic
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, s.cl)
	if err != nil {
		return -1, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) == 0 || resp.Topics[0].Partitions[0].LeaderEpoch < 0 {
		return -1, fmt.Errorf("%s: no epoch of %s", s.Name, topic)
	}
	return resp.Topics[0].Partitions[0].LeaderEpoch, nil
}

func (e *epochWatch) check(t *testing.T) {
	t.Helper()
	select {
	case fault := <-e.fault:
		t.Errorf("DLE >= SLE is broken after %d looks: %s", e.looks.Load(), fault)
	default:
	}
}

// electUntil moves the leader of partition 0 to and fro until its epoch is at
// least the given one, and calls each after every move.
func (w *world) electUntil(topic string, least int32, each func()) {
	w.t.Helper()
	for {
		id, epoch, err := w.source.Leader(w.ctx, topic, 0)
		require.NoError(w.t, err)
		if epoch >= least {
			return
		}
		require.NoError(w.t, w.source.ElectLeader(w.ctx, topic, 0, 3-id))
		each()
	}
}

// epochEnd asks B where an epoch ends (OffsetForLeaderEpoch).
func (w *world) epochEnd(topic string, epoch int32) (int32, int64) {
	w.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.node.Bootstrap()))
	require.NoError(w.t, err)
	defer cl.Close()
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	rp.LeaderEpoch = epoch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(w.ctx, cl)
	require.NoError(w.t, err)
	p := resp.Topics[0].Partitions[0]
	require.NoError(w.t, kerr.ErrorForCode(p.ErrorCode))
	return p.LeaderEpoch, p.EndOffset
}

// strict makes a consumer break where it would else start somewhere else.
func strict(protocol string) map[string]string {
	return settings("auto.offset.reset=none", "group.protocol="+protocol)
}

// TestC16JavaConsumersAndEpochs: both of Kafka's consumers, with a position that
// carries an epoch of A, read a mirror topic while A elects leaders, over the stop,
// and over a kill -9 of the node before and after it. They get on, they are never reset, and they
// don't ask for metadata again and again. A consumer with an epoch that nobody has
// shows how it would look: it holds all metadata for too old and reads nothing.
func TestC16JavaConsumersAndEpochs(t *testing.T) {
	kafka.RequireJava(t)
	// The interval that users have: what keeps DLE ahead is what the fetcher hears.
	w := newWorld(t, NodeOptions{Properties: settings("mirror.metadata.refresh.interval.ms=30000")})
	const topic, old, killed, young = "c16", 12, 19, 25
	w.topic(topic, 1, 2)
	w.electUntil(topic, old, func() {})
	_, epoch, err := w.source.Leader(w.ctx, topic, 0)
	require.NoError(t, err)
	w.load(topic, Records{Count: 50})
	w.create("m")
	w.start("m", topic)
	w.equal(topic)
	watch := w.watchEpochs(topic)

	job := func(name, protocol, assign string, more ...string) kafka.JavaJob {
		return kafka.JavaJob{
			Kind: kafka.JavaConsume, Name: name, Bootstrap: w.node.Bootstrap(), Topic: topic,
			Settings: settings(append(more, "assign="+assign)...), Client: strict(protocol),
		}
	}
	committed := fmt.Sprintf("0:40:%d", epoch)
	j := w.java(job("classic", "classic", committed), job("async", "consumer", committed),
		job("control", "consumer", "0:40:1000", "millis=5000"))
	readers := []string{"classic", "async"}
	next := int64(50) // the end of the log
	all := func() {
		t.Helper()
		for _, reader := range readers {
			w.reads(j, reader, next-1)
		}
	}
	all()
	end, endOffset := w.epochEnd(topic, epoch)
	require.Equal(t, []int64{int64(epoch), 50}, []int64{int64(end), endOffset})

	writer, err := producer(w.source.Bootstrap(), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }))
	require.NoError(t, err)
	defer writer.Close()
	record := func() {
		require.NoError(t, produce(w.ctx, writer, topic, Records{Count: 1, From: int(next)}))
		next++
	}
	w.electUntil(topic, killed, record)
	require.NoError(t, kafka.Poll(w.ctx, func() error {
		if len(j.ClientLog("control", tooOld)) == 0 {
			return errors.New("the epoch above B's wasn't seen")
		}
		return nil
	}))
	require.Empty(t, j.Events("control", "record")) // a client that finds no node begins anew, and forgets the epoch
	require.NoError(t, w.node.Kill9())              // and while it is down the epoch rises, too
	w.electUntil(topic, killed+1, record)
	require.NoError(t, w.node.Start(w.ctx))
	w.electUntil(topic, young, record)
	all()
	require.NoError(t, kafka.Poll(w.ctx, func() error {
		if watch.sle.Load() < young {
			return fmt.Errorf("A shows epoch %d", watch.sle.Load())
		}
		return nil
	}))
	require.GreaterOrEqual(t, watch.dle.Load(), int32(young))
	end, endOffset = w.epochEnd(topic, epoch)
	require.Equal(t, []int64{int64(epoch), 50}, []int64{int64(end), endOffset}, "as before")
	w.equal(topic)
	// And without records, further than one bump reaches.
	w.electUntil(topic, young+13, func() { w.runFor(200 * time.Millisecond) })
	_, sle, err := w.source.Leader(w.ctx, topic, 0)
	require.NoError(t, err)
	watch.check(t)

	own := func() {
		t.Helper()
		require.NoError(t, Produce(w.ctx, w.node.Bootstrap(), topic, Records{Count: 3, From: int(next)}))
		next = w.end(w.b, topic, 0)
		all()
	}
	mirrored := next
	w.run("--stop", "--mirror", "m", "--topics", topic)
	w.await("m", "STOPPED", topic)
	own()
	require.Equal(t, mirrored+4, next, "the reset and three records")

	// Consumers that come to B only now, with what they committed on A: the last
	// record's epoch, an old one, and the newest that A had, of no record at all.
	late := w.java(job("late-last", "classic", fmt.Sprintf("0:%d:%d", mirrored, young)), job("late-old", "consumer", committed),
		job("late-newest", "classic", fmt.Sprintf("0:%d:%d", mirrored, sle)))
	for _, reader := range []string{"late-last", "late-old", "late-newest"} {
		w.reads(late, reader, next-1)
	}
	require.NoError(t, w.node.Kill9())
	require.NoError(t, w.node.Start(w.ctx))
	own()
	own()
	want := w.values(w.node.Bootstrap(), topic, 0, Ends{Start: 40, End: next})
	looks := watch.looks.Load()
	require.Positive(t, looks)
	watch.check(t)
	t.Logf("%d looks at both sides' epochs; at the end A %d, B %d", looks, watch.sle.Load(), watch.dle.Load())
	for _, reader := range readers {
		w.sameOffsets(j, reader, want)
		w.calm(j, reader, 1, 0)
	}
	for _, reader := range []string{"late-last", "late-old", "late-newest"} {
		w.reads(late, reader, next-1)
		w.calm(late, reader, 1, 0)
	}
}

// sameOffsets: a job has read exactly these records, by offset.
func (w *world) sameOffsets(j *kafka.Java, job string, want []placed) {
	w.t.Helper()
	got := w.reads(j, job, want[len(want)-1].offset)
	require.Len(w.t, got, len(want))
	for i := range want {
		require.Equal(w.t, want[i].offset, got[i].offset)
	}
}
