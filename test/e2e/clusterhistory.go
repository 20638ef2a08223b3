package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/batch"
	"kagami/test/kafka"
)

// History is what clients of a cluster were told while nodes of it died: producers
// that are idempotent, plain ones, ones that talk to one node each whatever the
// metadata says, and readers. Check compares it with the log that is left.
type History struct {
	cluster    *Cluster
	topic      string
	id         [16]byte
	partitions int32

	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	acked  map[string]place // value -> where it was acknowledged
	read   map[place]string // what readers saw where
	faults []string         // what must never happen, seen at once
	counts map[string]int   // acknowledged, by kind of producer

	lastAck map[int32]time.Time // of idempotent producers, by partition
	gap     time.Duration       // longest between two of these since Gap was called
}

type place struct {
	partition int32
	offset    int64
}

// Kinds of producers: the first part of each value.
const (
	kindIdempotent = "idempotent"
	kindPlain      = "plain"
	kindPinned     = "pinned"
)

// historyClient has time-outs that are short against the time a test may last: a
// node that is stopped by SIGSTOP keeps its connections open and says nothing.
var historyClient = []kgo.Opt{
	kgo.ProduceRequestTimeout(3 * time.Second), kgo.RequestTimeoutOverhead(2 * time.Second), kgo.RetryTimeout(5 * time.Second),
	kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(time.Second), kgo.RecordRetries(1 << 20),
	kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ConnIdleTimeout(time.Minute), kgo.DialTimeout(2 * time.Second),
}

// historyPause is the pause of a producer between two records of each partition.
const historyPause = 15 * time.Millisecond

// StartHistory starts the clients of a topic that takes writes. The caller calls Check.
func StartHistory(c *Cluster, topic kadm.TopicDetail) (*History, error) {
	ctx, cancel := context.WithCancel(context.Background())
	h := &History{
		cluster: c, topic: topic.Topic, id: topic.ID, partitions: int32(len(topic.Partitions)), cancel: cancel, acked: map[string]place{},
		read: map[place]string{}, counts: map[string]int{}, lastAck: map[int32]time.Time{},
	}
	var clients []*kgo.Client
	start := func(opts ...kgo.Opt) (*kgo.Client, error) {
		cl, err := producer(c.Bootstrap(), append(slices.Clone(historyClient), opts...)...)
		if err == nil {
			clients = append(clients, cl)
		}
		return cl, err
	}
	for i, kind := range []string{kindIdempotent, kindIdempotent, kindPlain} {
		var opts []kgo.Opt
		if kind == kindPlain {
			opts = append(opts, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
		}
		cl, err := start(opts...)
		if err != nil {
			return nil, h.abandon(err, clients)
		}
		h.running.Go(func() { h.produce(ctx, cl, kind, i) })
	}
	for range 2 {
		cl, err := start(h.readFromStart()...)
		if err != nil {
			return nil, h.abandon(err, clients)
		}
		h.running.Go(func() { h.consume(ctx, cl) })
	}
	for _, id := range c.IDs() {
		h.running.Go(func() { h.pin(ctx, id) })
	}
	return h, nil
}

func (h *History) abandon(err error, clients []*kgo.Client) error {
	h.cancel()
	for _, cl := range clients {
		cl.Close()
	}
	return err
}

func (h *History) fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, fmt.Sprintf(format, args...))
}

// acknowledge notes an acknowledgement; the first of a value counts.
func (h *History) acknowledge(kind, value string, at place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before, twice := h.acked[value]; twice {
		h.faults = append(h.faults, fmt.Sprintf("%s acknowledged at %v and at %v", value, before, at))
	}
	h.acked[value] = at
	h.counts[kind]++
	if kind != kindIdempotent {
		return
	}
	now := time.Now()
	if last, ok := h.lastAck[at.partition]; ok {
		h.gap = max(h.gap, now.Sub(last))
	}
	h.lastAck[at.partition] = now
}

// produce writes numbered values to every partition until ctx ends, and then waits
// for all answers.
func (h *History) produce(ctx context.Context, cl *kgo.Client, kind string, number int) {
	defer cl.Close()
	tick := time.NewTicker(historyPause)
	defer tick.Stop()
	all := context.WithoutCancel(ctx)
	for n := 0; ctx.Err() == nil; n++ {
		for p := range h.partitions {
			value := fmt.Sprintf("%s-%d-%d-%d", kind, number, p, n)
			// A full buffer blocks: what waits is bounded.
			cl.Produce(all, &kgo.Record{Topic: h.topic, Partition: p, Value: []byte(value)}, func(r *kgo.Record, err error) {
				if err != nil {
					h.fault("%s wasn't acknowledged: %v", value, err)
					return
				}
				h.acknowledge(kind, value, place{r.Partition, r.Offset})
			})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	flush, cancel := context.WithTimeoutCause(all, 2*time.Minute, errors.New("the last records aren't acknowledged"))
	defer cancel()
	if err := cl.Flush(flush); err != nil {
		h.fault("%s-%d: %v: %v", kind, number, err, context.Cause(flush))
	}
}

func (h *History) readFromStart() []kgo.Opt {
	// A reader that is told that its offset isn't there must not start anew unseen.
	return []kgo.Opt{kgo.ConsumeTopics(h.topic), kgo.ConsumeStartOffset(kgo.NewOffset().At(0)), kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxWait(200 * time.Millisecond)}
}

// consume reads until ctx ends. Offsets rise, and two readers never see different
// values in one place.
func (h *History) consume(ctx context.Context, cl *kgo.Client) {
	defer cl.Close()
	next := map[int32]int64{}
	for ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		fetches.EachError(func(_ string, p int32, err error) {
			if lost := (*kgo.ErrDataLoss)(nil); errors.As(err, &lost) || errors.Is(err, kerr.OffsetOutOfRange) {
				h.fault("a reader of partition %d: %v", p, err)
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset < next[r.Partition] {
				h.fault("a reader of partition %d goes back from %d to %d", r.Partition, next[r.Partition], r.Offset)
			}
			next[r.Partition] = r.Offset + 1
			h.mu.Lock()
			defer h.mu.Unlock()
			at := place{r.Partition, r.Offset}
			if before, known := h.read[at]; known && before != string(r.Value) {
				h.faults = append(h.faults, fmt.Sprintf("readers see %q and %q at %v", before, r.Value, at))
			}
			h.read[at] = string(r.Value)
		})
	}
}

// pin produces to one node, whichever node leads. Each value is sent once; if it is
// acknowledged, it is in the log, once, wherever the leadership was.
func (h *History) pin(ctx context.Context, id int) {
	cl, err := producer(h.cluster.Node(id).Bootstrap(), historyClient...)
	if err != nil {
		h.fault("pin to node %d: %v", id, err)
		return
	}
	defer cl.Close()
	tick := time.NewTicker(3 * historyPause)
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		p := int32(n) % h.partitions
		value := fmt.Sprintf("%s-%d-%d-%d", kindPinned, id, p, n)
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		offset, err := h.produceRaw(one, cl.Broker(id), p, value)
		cancel()
		if err == nil {
			h.acknowledge(kindPinned, value, place{p, offset})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (h *History) produceRaw(ctx context.Context, b *kgo.Broker, partition int32, value string) (int64, error) {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 3000
	t, p := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	t.Topic, t.TopicID, p.Partition = h.topic, h.id, partition // by name or by id, as the version has it
	p.Records = batch.Append(nil, batch.Plain(), batch.Record{Value: []byte(value)})
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	raw, err := b.Request(ctx, req)
	if err != nil {
		return 0, err
	}
	resp := raw.(*kmsg.ProduceResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("the answer names other partitions")
	}
	got := resp.Topics[0].Partitions[0]
	return got.BaseOffset, kerr.ErrorForCode(got.ErrorCode)
}

// Stop ends the producers, waits for what they sent, and ends the readers.
func (h *History) Stop() {
	h.cancel()
	h.running.Wait()
}

// Counts are the acknowledged records by kind of producer, and those read.
func (h *History) Counts() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(h.counts)) {
		out = append(out, fmt.Sprintf("%s %d", kind, h.counts[kind]))
	}
	return fmt.Sprintf("acknowledged: %s; read: %d", strings.Join(out, ", "), len(h.read))
}

// Gap is the longest time since the last call in which no record of some partition was
// acknowledged to an idempotent producer.
func (h *History) Gap() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	gap := h.gap
	h.gap = 0
	return gap.Round(time.Millisecond)
}

// Check stops the clients and compares what they were told with the log. It returns
// every fault; what is checked:
//
//   - an acknowledged record is in the log where it was acknowledged, and only there
//     if its producer is idempotent or sent it once
//   - records of one producer are in their order in each partition (of a plain one,
//     which may repeat a record, by their first places)
//   - a record that was read is in the log in that place
//   - readers never went back, and each place had one value
func (h *History) Check(ctx context.Context, side *Side) error {
	h.Stop()
	log, err := h.finalLog(ctx, side)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	faults := append(slices.Clone(h.faults), checkHistory(h.acked, h.read, log)...)
	if len(faults) > 0 {
		return fmt.Errorf("%d faults:\n%s", len(faults), strings.Join(faults[:min(len(faults), 20)], "\n"))
	}
	for _, kind := range []string{kindIdempotent, kindPlain, kindPinned} {
		if h.counts[kind] == 0 {
			return fmt.Errorf("no %s record was acknowledged", kind)
		}
	}
	if len(h.read) == 0 {
		return errors.New("nothing was read")
	}
	return nil
}

// finalLog reads all values of the topic.
func (h *History) finalLog(ctx context.Context, side *Side) (map[place]string, error) {
	var ends map[int32]Ends
	err := kafka.Poll(ctx, func() (err error) {
		ends, err = side.TopicEnds(ctx, h.topic)
		return err
	})
	if err != nil {
		return nil, err
	}
	cl, err := producer(h.cluster.Bootstrap(), h.readFromStart()...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	left := map[int32]bool{}
	for p, e := range ends {
		left[p] = e.End > 0
	}
	maps.DeleteFunc(left, func(_ int32, some bool) bool { return !some })
	log := map[place]string{}
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			log[place{r.Partition, r.Offset}] = string(r.Value)
			if r.Offset+1 >= ends[r.Partition].End {
				delete(left, r.Partition)
			}
		})
	}
	return log, nil
}

// checkHistory compares acknowledgements and reads with a log.
func checkHistory(acked map[string]place, read, log map[place]string) []string {
	var faults []string
	places := map[string][]place{}
	for at, value := range log {
		places[value] = append(places[value], at)
	}
	for value, at := range acked {
		if log[at] != value {
			faults = append(faults, fmt.Sprintf("%s was acknowledged at %v, there is %q", value, at, log[at]))
		}
	}
	for at, value := range read {
		if log[at] != value {
			faults = append(faults, fmt.Sprintf("%q was read at %v, there is %q", value, at, log[at]))
		}
	}
	type series struct {
		producer string
		number   int
		first    int64
	}
	byProducer := map[string][]series{}
	for value, at := range places {
		kind, _, _ := strings.Cut(value, "-")
		if len(at) > 1 && kind != kindPlain {
			faults = append(faults, fmt.Sprintf("%s is in the log %d times: %v", value, len(at), at))
		}
		i := strings.LastIndex(value, "-")
		var number int
		if _, err := fmt.Sscan(value[i+1:], &number); err != nil || kind == kindPinned {
			continue // of others, or of a producer that doesn't wait for its answers
		}
		first := slices.MinFunc(at, func(a, b place) int { return int(a.offset - b.offset) })
		byProducer[value[:i]] = append(byProducer[value[:i]], series{value[:i], number, first.offset})
	}
	for producer, all := range byProducer {
		slices.SortFunc(all, func(a, b series) int { return a.number - b.number })
		for i := 1; i < len(all); i++ {
			if all[i].first < all[i-1].first {
				faults = append(faults, fmt.Sprintf("%s: number %d at %d, number %d at %d", producer, all[i-1].number, all[i-1].first, all[i].number, all[i].first))
			}
		}
	}
	slices.Sort(faults)
	return faults
}
