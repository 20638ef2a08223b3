package cases

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/client"
	"kagami/messages"
	"kagami/test/kafka/stub"
)

// TestC32OneCorruptBatch: a damaged batch fails its own partition only.
func TestC32OneCorruptBatch(t *testing.T) {
	const limit = 6
	w := owned(t, fmt.Sprintf("mirror.failed.retry.max.attempts=%d", limit), "mirror.failed.retry.initial.backoff.ms=100", "mirror.failed.retry.max.backoff.ms=400")
	five := func(base int64) []byte {
		return stub.Build(stub.Spec{Base: base, Records: []stub.Record{{Value: []byte("a")}, {Value: []byte("b")}, {Value: []byte("c")}, {Value: []byte("d")}, {Value: []byte("e")}}})
	}
	length := func(n int32) []byte {
		b := five(0)
		for i := range 4 {
			b[8+i] = byte(n >> (24 - 8*i))
		}
		return b
	}
	topic := w.topic("t", 5, func(tp *stub.Topic) {
		bad := five(5)
		bad[70] ^= 4
		tp.Partitions[0].Put(five(0))
		tp.Partitions[0].PutRaw(5, 9, 0, bad)
		tp.Partitions[1].Put(five(0), five(5))
		tp.Partitions[2].PutRaw(0, 4, 0, length(1<<31-1))
		tp.Partitions[3].PutRaw(0, 4, 0, length(-1))
		tp.Partitions[4].Put(stub.Build(stub.Spec{Payload: make([]byte, 80-61), Count: 1_000_000, LastOffsetDelta: 999_999}))
	})
	w.create()
	require.NoError(t, w.tryStart(topic))
	w.awaitEnd(topic, 0, 5)
	w.failed(topic, 0, "5")
	w.awaitEnd(topic, 1, 10)
	w.part(topic, 0, func(p *stub.Partition) {
		p.Batches = p.Batches[:1]
		p.Put(five(5))
	})
	w.awaitEnd(topic, 0, 10)
	for p := range int32(5) {
		if p >= 2 {
			d := w.awaitLook(topic, p, func(d client.DescribedPartition) bool { return d.State == "FAILED" && d.RetryAttempt == limit })
			require.NotEmpty(t, d.ErrorText)
			require.Zero(t, w.end(topic, p))
			continue
		}
		w.awaitLook(topic, p, func(d client.DescribedPartition) bool { return d.State == "MIRRORING" && d.RetryAttempt == 0 })
		require.NoError(t, w.equal(topic, p))
	}
	moves := len(w.path(topic))
	w.refreshes(2)
	require.Len(t, w.path(topic), moves, "retries have stopped")
	memory, err := w.node.Process().MemoryPeak()
	require.NoError(t, err)
	require.Less(t, memory, int64(512<<20))
}

// TestC38Growth: partitions that come later are copied from their start, at once
// or after a pause.
func TestC38Growth(t *testing.T) {
	w := shared(t)
	topic := w.topic("t", 2, nil)
	paused := w.topic("paused", 2, nil)
	w.mirrored(topic, paused)
	w.pause(paused)

	stop := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() { // about 100 records a second on p0 and p1
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				w.part(topic, 0, func(p *stub.Partition) { p.Fill(1) })
				w.part(topic, 1, func(p *stub.Partition) { p.Fill(1) })
			}
		}
	})
	var mu sync.Mutex
	var gap time.Duration
	last := time.Now()
	w.src.Edit(keyFetch, func(r *stub.Request, resp kmsg.Response) {
		for _, ft := range resp.(*kmsg.FetchResponse).Topics {
			for _, fp := range ft.Partitions {
				if fp.Partition == 0 && len(fp.RecordBatches) > 0 {
					mu.Lock()
					gap, last = max(gap, time.Since(last)), time.Now()
					mu.Unlock()
				}
			}
		}
	})
	grow := func(s *stub.State, name string) {
		tp := s.Topics[name]
		tp.Partitions = append(tp.Partitions, &stub.Partition{}, &stub.Partition{})
		tp.Partitions[2].Fill(5)
	}
	w.src.Update(func(s *stub.State) {
		grow(s, topic)
		grow(s, paused)
	})
	w.groupCommits(topic, 2, 3)
	w.await(func() error {
		if n := w.partitions(topic); n != 4 {
			return fmt.Errorf("%d partitions", n)
		}
		return nil
	})
	w.awaitEnd(topic, 2, 5)
	close(stop)
	load.Wait()
	w.awaitState("MIRRORING", topic)
	w.awaitEqual(topic)
	w.awaitGroup(topic, 2, 3)
	require.Zero(t, w.begin(topic, 2))
	require.Zero(t, w.end(topic, 3))
	mu.Lock()
	require.Less(t, gap, 2*time.Second, "p0 never pauses") // a busy machine may, the product not for a refresh
	mu.Unlock()
	require.Equal(t, 2, w.partitions(paused), "no metadata sync while PAUSED")

	w.stop(topic)
	for p := range int32(4) {
		req := produceRequest(-1, map[string][]byte{topic: plain("x")})
		req.Topics[0].Partitions[0].Partition = p
		require.Zero(t, ask[*kmsg.ProduceResponse](w, req, 9).Topics[0].Partitions[0].ErrorCode, "p%d", p)
	}
	w.resume(paused)
	w.await(func() error {
		if n := w.partitions(paused); n != 4 {
			return fmt.Errorf("%d partitions", n)
		}
		return nil
	})
	w.awaitEqual(paused)
	w.awaitState("MIRRORING", paused)
}

func (w *world) partitions(topic string) int {
	w.t.Helper()
	l, err := w.kadm().ListTopics(w.ctx, topic)
	require.NoError(w.t, err)
	return len(l[topic].Partitions)
}

// TestC38FivePartitionsHere: start refuses; found later, FAILED and nothing touched.
func TestC38FivePartitionsHere(t *testing.T) {
	w := shared(t)
	topic := w.topic("t", 4, func(tp *stub.Topic) { tp.Partitions[0].Fill(5) })
	_, err := w.kadm().CreateTopic(w.ctx, 5, 1, nil, topic)
	require.NoError(t, err)
	w.write(topic, "ours", 0)
	w.create()
	w.src.Update(func(s *stub.State) { s.Topics[topic].ID = messages.TopicID{} }) // no id: only the count is wrong
	require.ErrorIs(t, w.tryStart(topic), kerr.InvalidRequest)
	require.Equal(t, int64(1), w.end(topic, 0))
	w.write(topic, "still ours", 1)

	later := w.topic("later", 3, func(tp *stub.Topic) { tp.Partitions[0].Fill(5) })
	w.start(later)
	w.awaitEqual(later)
	w.src.Update(func(s *stub.State) { s.Topics[later].Partitions = s.Topics[later].Partitions[:2] })
	for p := range int32(3) {
		w.failed(later, p, "3 partitions here, 2 on the source")
	}
	require.Equal(t, int64(5), w.end(later, 0))
}

// TestC40ClientSession: three partitions in one session; one leaves it, is cut and
// comes back; a session that is gone or out of step is made anew.
func TestC40ClientSession(t *testing.T) {
	w := shared(t)
	w.src.Update(func(s *stub.State) { s.Versions = stub.VersionsWithMirrors() })
	two := w.topic("two", 2, func(tp *stub.Topic) { tp.Partitions[0].Fill(3) })
	topic := w.topic("t", 1, func(tp *stub.Topic) {
		p := tp.Partitions[0]
		p.Epoch = 1
		p.Fill(10)
		p.Epoch = 2
		p.Fill(10)
	})
	w.mirrored(two, topic)
	tp := messages.TopicPartition{Topic: topic}
	w.await(func() error {
		for _, s := range w.src.Broker(0).Sessions() {
			if len(s) == 3 {
				return nil
			}
		}
		return fmt.Errorf("sessions %v", w.src.Broker(0).Sessions())
	})
	w.pause(topic)
	w.await(func() error { // told to the source
		for _, s := range w.src.Broker(0).Sessions() {
			if _, still := s[tp]; still {
				return fmt.Errorf("not forgotten: %v", s)
			}
		}
		return nil
	})
	w.stop(topic)
	w.src.Update(func(s *stub.State) {
		s.Mirrors[0] = append(s.Mirrors[0], stub.Mirror(w.mirror, messages.StateStopped, map[messages.TopicPartition]int32{tp: 1}))
		p := s.Topics[topic].Partitions[0]
		p.Truncate(10)
		p.Epoch = 3
		p.Fill(15)
	})
	before := len(w.src.Seen(keyFetch))
	w.start(topic)
	w.awaitEqual(topic)
	first := int64(-1)
	id := w.metadata(topic)[topic].ID
	for _, s := range w.src.Seen(keyFetch)[before:] {
		for _, ft := range s.Body.(*kmsg.FetchRequest).Topics {
			if messages.TopicID(ft.TopicID) == id && first < 0 {
				first = ft.Partitions[0].FetchOffset
			}
		}
	}
	require.Equal(t, int64(10), first, "the new position")

	moves := len(w.path(topic)) + len(w.path(two))
	w.src.Broker(0).DropSessions() // 70
	w.part(topic, 0, func(p *stub.Partition) { p.Fill(1) })
	w.awaitEqual(topic)
	var once sync.Once
	w.src.Edit(keyFetch, func(_ *stub.Request, resp kmsg.Response) {
		once.Do(func() {
			r := resp.(*kmsg.FetchResponse)
			r.ErrorCode, r.Topics, r.SessionID = 71, nil, 0
		})
	})
	w.part(two, 0, func(p *stub.Partition) { p.Fill(1) })
	w.part(topic, 0, func(p *stub.Partition) { p.Fill(1) })
	w.awaitEqual(topic)
	w.awaitEqual(two)
	require.Equal(t, moves, len(w.path(topic))+len(w.path(two)), "no change of state")
}

// TestC41OldSource: a source of 2.1 is asked only for what it offers.
func TestC41OldSource(t *testing.T) {
	w := owned(t)
	w.src.Update(func(s *stub.State) { s.Versions = stub.Versions21() })
	topic := w.topic("t", 1, func(tp *stub.Topic) {
		tp.ID = messages.TopicID{}
		tp.Partitions[0].Epoch = 2
		tp.Partitions[0].Fill(100)
	})
	w.mirrored(topic)
	id := w.topicID(topic)
	require.NotZero(t, id)
	w.restart()
	w.awaitState("MIRRORING", topic)
	w.part(topic, 0, func(p *stub.Partition) { p.Fill(1) })
	w.awaitEqual(topic)
	require.Equal(t, id, w.topicID(topic))
	w.stop(topic)
	w.write(topic, "x", 102)
	require.Zero(t, w.src.Dropped(), "connections closed for what isn't offered")
	require.Empty(t, w.src.Seen(23), "OffsetForLeaderEpoch")

	// Made anew there: without ids only the log tells.
	again := w.topic("again", 1, func(tp *stub.Topic) {
		tp.ID = messages.TopicID{}
		tp.Partitions[0].Epoch = 2
		tp.Partitions[0].Fill(10)
	})
	w.start(again)
	w.awaitEqual(again)
	w.src.Update(func(s *stub.State) {
		p := s.NewTopic(again, messages.TopicID{}, 1).Partitions[0]
		p.Fill(5)
	})
	w.failed(again, 0, "ends at 5")
	w.refreshes(2)
	w.failed(again, 0, "ends at 5")
	require.Equal(t, int64(10), w.end(again, 0), "no silent overlay")
}

func (w *world) topicID(topic string) messages.TopicID {
	w.t.Helper()
	l, err := w.kadm().ListTopics(w.ctx, topic)
	require.NoError(w.t, err)
	return messages.TopicID(l[topic].ID)
}

// TestC42ThrottledReplies: an empty answer with a throttle time is neither an
// error nor the end of the log.
func TestC42ThrottledReplies(t *testing.T) {
	w := shared(t)
	topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(7) })
	var mu sync.Mutex
	throttled := 0
	w.src.Intercept(keyFetch, func(r *stub.Request) stub.Reply {
		mu.Lock()
		defer mu.Unlock()
		if throttled == 10 {
			return stub.Reply{}
		}
		throttled++
		resp := kmsg.NewPtrFetchResponse()
		resp.Version, resp.ThrottleMillis = r.Version, 500
		return stub.Reply{Response: resp}
	})
	w.create()
	w.start(topic)
	w.await(func() error {
		p := w.look(topic, 0)
		mu.Lock()
		defer mu.Unlock()
		if throttled == 10 {
			return nil
		}
		require.Equal(t, "MIRRORING", p.State)
		require.NotZero(t, p.Lag, "lag isn't known")
		return fmt.Errorf("%d throttled answers", throttled)
	})
	w.awaitEqual(topic)
	seen := w.src.Seen(keyFetch)
	require.GreaterOrEqual(t, len(seen), 11)
	for i := 1; i <= 10; i++ {
		require.GreaterOrEqual(t, seen[i].At.Sub(seen[i-1].At), 490*time.Millisecond, "fetch %d", i)
	}
	require.Equal(t, []string{"LOG_TRUNCATION", "MIRRORING"}, w.path(topic))
}

// TestC42RateBelowOneBatch: the throttle lets a batch through that is larger than
// a second's budget, and keeps the average.
func TestC42RateBelowOneBatch(t *testing.T) {
	w := owned(t)
	batch := func(base int64, size int) []byte {
		return stub.Build(stub.Spec{Base: base, Records: []stub.Record{{Value: make([]byte, size-61-12)}}})
	}
	topic := w.topic("slow", 1, nil)
	free := w.topic("free", 1, nil)
	w.mirrored(topic, free)
	w.alterTopic(topic, "mirror.replication.throttled.replicas", "*")
	_, code, msg := w.alter(kmsg.ConfigResourceTypeBroker, "1", "mirror.replication.throttled.rate", "1000")
	require.Zero(t, code, msg)
	from := time.Now()
	w.part(topic, 0, func(p *stub.Partition) { p.Put(batch(0, 5000)) })
	w.part(free, 0, func(p *stub.Partition) {
		for range 50 {
			p.Put(batch(p.End(), 10_000))
		}
	})
	w.awaitIn(10*time.Second, func() error {
		if w.end(topic, 0) < 1 {
			return fmt.Errorf("nothing yet")
		}
		return w.equal(free, 0)
	})
	seconds := 0
	w.awaitIn(40*time.Second, func() error { // 1000 bytes each second, for 20 of them
		d := time.Since(from)
		for seconds < 20 && d > time.Duration(seconds)*time.Second {
			w.part(topic, 0, func(p *stub.Partition) { p.Put(batch(p.End(), 1000)) })
			seconds++
		}
		if d < 30*time.Second {
			return fmt.Errorf("only %s", d)
		}
		return nil
	})
	var stored int
	for _, h := range headers(t, w.bytes(topic, 0)) {
		stored += len(h.raw)
	}
	rate := float64(stored) / time.Since(from).Seconds()
	require.Less(t, rate, 1500.0)
	require.Greater(t, rate, 500.0)
	require.Equal(t, "MIRRORING", w.look(topic, 0).State)
}

// TestC46UnreachableAddress: one broker advertises a name that only insiders know.
func TestC46UnreachableAddress(t *testing.T) {
	w := shared(t)
	w.src = source(t, stub.Options{Brokers: 2, ClusterID: "source-of-" + w.mirror})
	topic := w.topic("t", 2, func(tp *stub.Topic) {
		tp.Partitions[0].Fill(3)
		tp.Partitions[1].Leader = 1
		tp.Partitions[1].Fill(4)
	})
	w.src.Broker(1).Advertise("internal.invalid:9092")
	w.create()
	require.NoError(t, w.tryStart(topic))
	w.awaitEnd(topic, 0, 3)
	w.await(func() error {
		row := w.detail(topic, 1)
		if text := fmt.Sprint(row["error"]); !strings.Contains(text, "internal.invalid:9092") {
			return fmt.Errorf("%v: %s", row["state"], text)
		}
		return nil
	})
	w.part(topic, 0, func(p *stub.Partition) { p.Fill(3) })
	w.awaitEnd(topic, 0, 6)
	w.src.Broker(1).Advertise("")
	w.awaitEqual(topic)
	w.awaitState("MIRRORING", topic)
}
