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

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TxnHistory is what transactional clients were told while nodes died: members of a
// group that consume, transform and produce in transactions, producers of transactions
// over several partitions that commit, abort, or are abandoned in the middle, and
// committed readers. Check compares it with the logs that are left, see judgeTxns.
type TxnHistory struct {
	bootstrap string
	opts      TxnHistoryOptions

	stopFeed, stopWork context.CancelFunc
	feeders, workers   sync.WaitGroup

	mu       sync.Mutex
	fed      map[int32]int64 // acknowledged records of the input, by partition
	attempts map[string]*txnAttempt
	reads    []map[txnPlace]string // by reader
	faults   []string
	next     int
}

// TxnHistoryOptions of the clients. The zero value isn't useful.
type TxnHistoryOptions struct {
	Partitions            int32
	Transformers, Writers int
	// Next: the group is one of the consumer protocol (KIP-848).
	Next bool
	// Cleaned: the logs of coordinators are compacted, and judged by their ends alone.
	Cleaned bool
	// Timeout of transactions, at least what a loss of a node lasts.
	Timeout time.Duration
}

// Topics of a TxnHistory, and its group.
const (
	txnIn    = "txn-in"
	txnOut   = "txn-out"
	txnWide  = "txn-wide"
	txnGroup = "txn-group"
)

type txnPlace struct {
	topic     string
	partition int32
	offset    int64
}

// What a client knows of an outcome.
type txnOutcome int

const (
	txnUnknown   txnOutcome = iota // its end wasn't answered
	txnCommitted                   // it was told so
	txnAborted                     // it was told so, or never asked for a commit
)

// txnAttempt is one transaction of one producer.
type txnAttempt struct {
	id      string // transactional id
	number  int    // rises with the attempts of an id
	records int    // handed to the client
	outcome txnOutcome
}

func (a *txnAttempt) name() string { return fmt.Sprintf("%s|%d", a.id, a.number) }

// txnClient are short time-outs, as in historyClient, for a client of transactions.
func (h *TxnHistory) txnClient(opts ...kgo.Opt) []kgo.Opt {
	all := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(h.bootstrap, ",")...), kgo.ProduceRequestTimeout(3 * time.Second), kgo.RequestTimeoutOverhead(2 * time.Second),
		kgo.RetryTimeout(5 * time.Second), kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(time.Second), kgo.DialTimeout(2 * time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.UnknownTopicRetries(50), kgo.FetchMaxWait(200 * time.Millisecond),
	}
	return append(all, opts...)
}

// StartTxnHistory starts the clients; the topics exist. The caller calls Stop or Check.
func StartTxnHistory(bootstrap string, opts TxnHistoryOptions) (*TxnHistory, error) {
	h := &TxnHistory{bootstrap: bootstrap, opts: opts, fed: map[int32]int64{}, attempts: map[string]*txnAttempt{}}
	feeding, stopFeed := context.WithCancel(context.Background())
	working, stopWork := context.WithCancel(context.Background())
	h.stopFeed, h.stopWork = stopFeed, stopWork
	feeder, err := producer(bootstrap, append(slices.Clone(historyClient), kgo.RecordRetries(1<<20))...)
	if err != nil {
		return nil, err
	}
	h.feeders.Go(func() { h.feed(feeding, feeder) })
	for i := range opts.Transformers {
		h.workers.Go(func() { h.transform(working, fmt.Sprintf("transformer-%d", i)) })
	}
	for i := range opts.Writers {
		h.workers.Go(func() { h.write(working, fmt.Sprintf("writer-%d", i), i) })
	}
	for range 2 {
		seen := map[txnPlace]string{}
		h.reads = append(h.reads, seen)
		cl, err := kgo.NewClient(h.txnClient(h.committedReader(txnOut, txnWide)...)...)
		if err != nil {
			h.Stop()
			return nil, fmt.Errorf("make reader: %w", err)
		}
		h.workers.Go(func() { h.read(working, cl, seen) })
	}
	return h, nil
}

func (h *TxnHistory) committedReader(topics ...string) []kgo.Opt {
	return []kgo.Opt{
		kgo.ConsumeTopics(topics...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeStartOffset(kgo.NewOffset().At(0)),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	}
}

func (h *TxnHistory) fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, fmt.Sprintf(format, args...))
}

// feed writes the input until ctx ends.
func (h *TxnHistory) feed(ctx context.Context, cl *kgo.Client) {
	defer cl.Close()
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		for p := range h.opts.Partitions {
			cl.Produce(context.WithoutCancel(ctx), &kgo.Record{Topic: txnIn, Partition: p, Value: []byte("x")}, func(r *kgo.Record, err error) {
				if err != nil {
					h.fault("the input wasn't acknowledged: %v", err)
					return
				}
				h.mu.Lock()
				defer h.mu.Unlock()
				h.fed[r.Partition]++
			})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	flush, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), 2*time.Minute, errors.New("the last input isn't acknowledged"))
	defer cancel()
	if err := cl.Flush(flush); err != nil {
		h.fault("%v: %v", err, context.Cause(flush))
	}
}

// begin notes a new transaction; its outcome isn't known.
func (h *TxnHistory) begin(id string) *txnAttempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	a := &txnAttempt{id: id, number: h.next}
	h.attempts[a.name()] = a
	return a
}

func (h *TxnHistory) ended(a *txnAttempt, outcome txnOutcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a.outcome = outcome
}

// transform copies the input to the output in transactions of the group. What fails is
// begun anew, as an application does. Every fifth transaction is aborted.
func (h *TxnHistory) transform(ctx context.Context, id string) {
	protocol := []kgo.Opt{kgo.HeartbeatInterval(500 * time.Millisecond), kgo.SessionTimeout(6 * time.Second)}
	if h.opts.Next {
		protocol = []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.CooperativeStickyBalancer())}
	}
	for ctx.Err() == nil {
		s, err := kgo.NewGroupTransactSession(h.txnClient(append(protocol, kgo.TransactionalID(id), kgo.ConsumerGroup(txnGroup), kgo.ConsumeTopics(txnIn),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.TransactionTimeout(h.opts.Timeout))...)...)
		if err != nil {
			h.fault("make %s: %v", id, err)
			return
		}
		for n := 0; ctx.Err() == nil && h.transformOnce(ctx, s, id, n%5 != 4); n++ {
		}
		s.Close()
	}
}

// transformOnce is one transaction; false: the session is of no use any more.
func (h *TxnHistory) transformOnce(ctx context.Context, s *kgo.GroupTransactSession, id string, commit bool) bool {
	fetches := s.PollRecords(ctx, 40)
	if fetches.NumRecords() == 0 {
		return true
	}
	if err := s.Begin(); err != nil {
		return false
	}
	a, written := h.begin(id), kgo.AbortingFirstErrPromise(s.Client())
	all := context.WithoutCancel(ctx)
	fetches.EachRecord(func(r *kgo.Record) {
		a.records++
		s.Produce(all, &kgo.Record{Topic: txnOut, Partition: r.Partition, Value: fmt.Appendf(nil, "%s|%d/%d", a.name(), r.Partition, r.Offset)}, written.Promise())
	})
	commit = written.Err() == nil && commit
	if !commit {
		h.ended(a, txnAborted)
	}
	end, cancel := context.WithTimeout(all, 30*time.Second)
	defer cancel()
	done, err := s.End(end, kgo.TransactionEndTry(commit))
	switch {
	case err != nil:
		return false
	case done:
		h.ended(a, txnCommitted)
	default:
		h.ended(a, txnAborted)
	}
	return true
}

// write writes transactions over several partitions. Of eight, one is aborted and one
// abandoned in the middle, by a client that doesn't come back to it.
func (h *TxnHistory) write(ctx context.Context, id string, number int) {
	for n := number; ctx.Err() == nil; {
		cl, err := kgo.NewClient(h.txnClient(kgo.TransactionalID(id), kgo.TransactionTimeout(h.opts.Timeout))...)
		if err != nil {
			h.fault("make %s: %v", id, err)
			return
		}
		for going := true; going && ctx.Err() == nil; n++ {
			going = h.writeOnce(ctx, cl, id, n)
		}
		cl.Close()
	}
}

func (h *TxnHistory) writeOnce(ctx context.Context, cl *kgo.Client, id string, n int) bool {
	if cl.BeginTransaction() != nil {
		return false
	}
	a, written := h.begin(id), kgo.AbortingFirstErrPromise(cl)
	all, cancel := context.WithTimeout(context.WithoutCancel(ctx), 40*time.Second)
	defer cancel()
	for i := range 1 + n%7 {
		a.records++
		cl.Produce(all, &kgo.Record{Topic: txnWide, Partition: int32(n+i) % h.opts.Partitions, Value: fmt.Appendf(nil, "%s|%d", a.name(), i)}, written.Promise())
	}
	commit := written.Err() == nil && n%8 != 5
	if !commit || n%8 == 7 {
		h.ended(a, txnAborted)
	}
	if n%8 == 7 {
		return false
	}
	switch err := cl.EndTransaction(all, kgo.TransactionEndTry(commit)); {
	case err != nil:
		return false
	case commit:
		h.ended(a, txnCommitted)
	}
	return true
}

// read notes what a committed reader sees; its offsets rise.
func (h *TxnHistory) read(ctx context.Context, cl *kgo.Client, seen map[txnPlace]string) {
	defer cl.Close()
	next := map[string]int64{}
	for ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		fetches.EachError(func(topic string, p int32, err error) {
			if lost := (*kgo.ErrDataLoss)(nil); errors.As(err, &lost) || errors.Is(err, kerr.OffsetOutOfRange) {
				h.fault("a reader of %s-%d: %v", topic, p, err)
			}
		})
		h.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			at := fmt.Sprintf("%s-%d", r.Topic, r.Partition)
			if r.Offset < next[at] {
				h.faults = append(h.faults, fmt.Sprintf("a reader of %s goes back from %d to %d", at, next[at], r.Offset))
			}
			next[at] = r.Offset + 1
			seen[txnPlace{r.Topic, r.Partition, r.Offset}] = string(r.Value)
		})
		h.mu.Unlock()
	}
}

// Committed is how many transactions were acknowledged.
func (h *TxnHistory) Committed() int { return h.count()[txnCommitted] }

func (h *TxnHistory) count() map[txnOutcome]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[txnOutcome]int{}
	for _, a := range h.attempts {
		out[a.outcome]++
	}
	return out
}

// Counts are the transactions by what clients know of them.
func (h *TxnHistory) Counts() string {
	n := h.count()
	return fmt.Sprintf("%d committed, %d aborted, %d of unknown outcome", n[txnCommitted], n[txnAborted], n[txnUnknown])
}

// Stop ends all clients. It may be called twice.
func (h *TxnHistory) Stop() {
	h.stopFeed()
	h.feeders.Wait()
	h.stopWork()
	h.workers.Wait()
}

// judgeTxns compares what clients were told with what committed readers see in the end:
//
//   - a transaction that was committed is whole, each record once
//   - nothing of one that was aborted
//   - all or nothing of one whose outcome isn't known
//   - transactions of a producer are in their order in each partition
//   - readers saw before what is there now, without a hole
func judgeTxns(attempts map[string]*txnAttempt, log map[txnPlace]string, reads []map[txnPlace]string) []string {
	var faults []string
	found, times := map[string]int{}, map[string]int{}
	for _, at := range slices.SortedFunc(maps.Keys(log), compareTxnPlaces) {
		value := log[at]
		i := strings.LastIndex(value, "|")
		found[value[:i]]++
		if times[value]++; times[value] == 2 {
			faults = append(faults, value+" is there twice")
		}
		if attempts[value[:i]] == nil {
			faults = append(faults, value+" wasn't sent")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(attempts)) {
		a, n := attempts[name], found[name]
		switch {
		case n == a.records && a.outcome != txnAborted, n == 0 && a.outcome != txnCommitted:
		default:
			faults = append(faults, fmt.Sprintf("%s: %d of %d records are there, outcome %d", name, n, a.records, a.outcome))
		}
	}
	faults = append(faults, txnOrder(attempts, log)...)
	for i, seen := range reads {
		faults = append(faults, txnReads(i, log, seen)...)
	}
	return faults
}

func compareTxnPlaces(a, b txnPlace) int {
	if c := strings.Compare(a.topic, b.topic); c != 0 {
		return c
	}
	if a.partition != b.partition {
		return int(a.partition - b.partition)
	}
	return int(a.offset - b.offset)
}

// txnOrder finds transactions of a producer that aren't in order in a partition.
func txnOrder(attempts map[string]*txnAttempt, log map[txnPlace]string) []string {
	var faults []string
	last := map[string]int{}
	for _, at := range slices.SortedFunc(maps.Keys(log), compareTxnPlaces) {
		a := attempts[log[at][:strings.LastIndex(log[at], "|")]]
		if a == nil {
			continue
		}
		series := fmt.Sprintf("%s in %s-%d", a.id, at.topic, at.partition)
		if a.number < last[series] {
			faults = append(faults, fmt.Sprintf("%s: %d after %d", series, a.number, last[series]))
		}
		last[series] = a.number
	}
	return faults
}

// txnReads finds what a reader saw that isn't there, and what is there below its
// position that it didn't see.
func txnReads(reader int, log, seen map[txnPlace]string) []string {
	var faults []string
	type part struct {
		topic     string
		partition int32
	}
	upTo := map[part]int64{}
	for at, value := range seen {
		if log[at] != value {
			faults = append(faults, fmt.Sprintf("reader %d saw %q at %v, there is %q", reader, value, at, log[at]))
		}
		p := part{at.topic, at.partition}
		upTo[p] = max(upTo[p], at.offset)
	}
	for at, value := range log {
		if _, ok := seen[at]; !ok && at.offset < upTo[part{at.topic, at.partition}] {
			faults = append(faults, fmt.Sprintf("reader %d didn't see %q at %v", reader, value, at))
		}
	}
	return faults
}
