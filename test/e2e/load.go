package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Records says what Produce writes. The zero value with Count set is plain
// records with keys, spread over the partitions.
type Records struct {
	Count      int
	From       int  // number of the first record; keys, values and timestamps follow from it
	Size       int  // bytes of a value; default 100
	Headers    int  // headers per record, one of them with an empty value
	NullKeys   bool // every second record has no key
	NullValues bool // every third record has no value
	Keys       int  // number of different keys; default: all differ
	Seed       uint64
	PerFlush   int // records between two flushes, each of which ends the batches; default 40
}

// loadStart is the timestamp of record 0, recent enough for any retention. It is
// one moment per process, so that the same records are the same bytes.
var loadStart = time.Now().Add(-time.Hour)

// record makes the i-th record. Values can be compressed, but not to nothing.
func (r Records) record(topic string, i int, rng *rand.Rand) *kgo.Record {
	rec := &kgo.Record{Topic: topic, Timestamp: loadStart.Add(time.Duration(i) * time.Millisecond)}
	key := i
	if r.Keys > 0 {
		key = i % r.Keys
	}
	if !r.NullKeys || i%2 == 0 {
		rec.Key = fmt.Appendf(nil, "key-%d", key)
	}
	if !r.NullValues || i%3 != 0 {
		size := r.Size
		if size == 0 {
			size = 100
		}
		rec.Value = make([]byte, size)
		for j := range rec.Value {
			rec.Value[j] = "abcdefghijklmnop"[rng.IntN(16)]
		}
		copy(rec.Value, fmt.Sprintf("value-%d ", i))
	}
	for h := range r.Headers {
		header := kgo.RecordHeader{Key: fmt.Sprintf("h%d", h)}
		if h > 0 {
			header.Value = fmt.Appendf(nil, "%d of %d", h, i)
		}
		rec.Headers = append(rec.Headers, header)
	}
	return rec
}

// Produce writes records in several batches and waits until all are stored.
func Produce(ctx context.Context, bootstrap, topic string, records Records, opts ...kgo.Opt) error {
	cl, err := producer(bootstrap, opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	return produce(ctx, cl, topic, records)
}

func producer(bootstrap string, opts ...kgo.Opt) (*kgo.Client, error) {
	all := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ProducerBatchMaxBytes(1_000_000),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.UnknownTopicRetries(20),
		kgo.ProducerLinger(0),
		kgo.MetadataMinAge(50 * time.Millisecond),
	}
	cl, err := kgo.NewClient(append(all, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("make producer: %w", err)
	}
	return cl, nil
}

func produce(ctx context.Context, cl *kgo.Client, topic string, records Records) error {
	rng := rand.New(rand.NewPCG(records.Seed, 1))
	perFlush := records.PerFlush
	if perFlush == 0 {
		perFlush = 40 // several batches, not one
	}
	var first error
	var once sync.Once
	for i := range records.Count {
		cl.Produce(ctx, records.record(topic, records.From+i, rng), func(_ *kgo.Record, err error) {
			if err != nil {
				once.Do(func() { first = err })
			}
		})
		if i%perFlush == perFlush-1 {
			if err := cl.Flush(ctx); err != nil {
				return fmt.Errorf("write %s: %w", topic, err)
			}
		}
	}
	if err := cl.Flush(ctx); err != nil {
		return fmt.Errorf("write %s: %w", topic, err)
	}
	if first != nil {
		return fmt.Errorf("write %s: %w", topic, first)
	}
	return nil
}

// Transactions writes count transactions by two producers in turn, with plain
// records in between; every third one is aborted. With open, one more is left
// open until the caller aborts it by the returned function.
func Transactions(ctx context.Context, bootstrap, topic string, count int, open bool, opts ...kgo.Opt) (end func(), err error) {
	var cls [2]*kgo.Client
	closeAll := func() {
		for _, cl := range cls {
			if cl != nil {
				cl.Close()
			}
		}
	}
	defer func() {
		if err != nil || !open {
			closeAll()
		}
	}()
	for i := range cls {
		o := append([]kgo.Opt{kgo.TransactionalID(fmt.Sprintf("%s-tx-%d", topic, i)), kgo.TransactionTimeout(10 * time.Minute)}, opts...)
		if cls[i], err = producer(bootstrap, o...); err != nil {
			return nil, err
		}
	}
	for i := range count {
		for j, cl := range cls { // both open at once: their batches interleave
			if err := cl.BeginTransaction(); err != nil {
				return nil, fmt.Errorf("begin transaction: %w", err)
			}
			if err := produce(ctx, cl, topic, Records{Count: 5, Seed: uint64(i*2 + j)}); err != nil {
				return nil, err
			}
		}
		if err := Produce(ctx, bootstrap, topic, Records{Count: 2, Seed: uint64(i)}, opts...); err != nil {
			return nil, err
		}
		for j, cl := range cls {
			commit := kgo.TransactionEndTry((i+j)%3 != 0)
			if err := cl.EndTransaction(ctx, commit); err != nil {
				return nil, fmt.Errorf("end transaction: %w", err)
			}
		}
	}
	if !open {
		return func() {}, nil
	}
	if err := cls[0].BeginTransaction(); err != nil {
		return nil, fmt.Errorf("begin transaction: %w", err)
	}
	end = func() {
		// The outcome shows in the log: an error here leaves it open, for a while.
		_ = cls[0].EndTransaction(context.WithoutCancel(ctx), kgo.TryAbort)
		closeAll()
	}
	return end, produce(ctx, cls[0], topic, Records{Count: 5, Seed: 99})
}

// Load writes to a topic until it is stopped.
type Load struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	acked  atomic.Int64

	mu     sync.Mutex
	stored map[string][]string // value -> partition:offset that was acknowledged, with KeepOffsets
}

// LoadOptions of StartLoad.
type LoadOptions struct {
	Topics      []string
	Size        int           // bytes of a value; default 200
	Pause       time.Duration // between two rounds of one record per topic and partition hint; default 2 ms
	Burst       int           // records per topic and round; default 5
	KeepOffsets bool          // remember where each record was acknowledged
	Client      []kgo.Opt
}

// StartLoad starts an idempotent producer in the background. Records that aren't
// acknowledged when it is stopped are waited for.
func StartLoad(bootstrap string, opts LoadOptions) (*Load, error) {
	cl, err := producer(bootstrap, append([]kgo.Opt{kgo.RecordRetries(1 << 20)}, opts.Client...)...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{cancel: cancel, done: make(chan struct{}), stored: map[string][]string{}}
	if opts.Pause == 0 {
		opts.Pause = 2 * time.Millisecond
	}
	if opts.Burst == 0 {
		opts.Burst = 5
	}
	go func() {
		defer close(l.done)
		defer cl.Close()
		l.err = l.run(ctx, cl, opts)
	}()
	return l, nil
}

func (l *Load) run(ctx context.Context, cl *kgo.Client, opts LoadOptions) error {
	records := Records{Size: opts.Size, Headers: 1}
	if records.Size == 0 {
		records.Size = 200
	}
	rng := rand.New(rand.NewPCG(7, 7))
	tick := time.NewTicker(opts.Pause)
	defer tick.Stop()
	var failed atomic.Pointer[error]
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			flush, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), time.Minute, errors.New("flush of the load takes too long"))
			defer cancel()
			if err := cl.Flush(flush); err != nil {
				return fmt.Errorf("flush load: %w", context.Cause(flush))
			}
			if err := failed.Load(); err != nil {
				return *err
			}
			return nil
		case <-tick.C:
		}
		for _, topic := range opts.Topics {
			for b := range opts.Burst {
				cl.Produce(context.WithoutCancel(ctx), records.record(topic, i*opts.Burst+b, rng), func(r *kgo.Record, err error) {
					if err != nil {
						failed.CompareAndSwap(nil, &err)
						return
					}
					l.acked.Add(1)
					if opts.KeepOffsets {
						l.mu.Lock()
						l.stored[string(r.Value)] = append(l.stored[string(r.Value)], fmt.Sprintf("%d:%d", r.Partition, r.Offset))
						l.mu.Unlock()
					}
				})
			}
		}
	}
}

// Acked is the number of records acknowledged so far.
func (l *Load) Acked() int64 { return l.acked.Load() }

// Stop ends the load, waits for what is in flight, and returns the first error.
// It may be called twice.
func (l *Load) Stop() error {
	l.cancel()
	<-l.done
	return l.err
}

// Stored tells where each record was acknowledged, by its value. After Stop.
func (l *Load) Stored() map[string][]string { return l.stored }
