package metadata

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"kagami/messages"
	"kagami/persistence"
)

// Journal changes the metadata partition; *cluster.Replica is one.
type Journal interface {
	// AppendInternal appends whole batches, assigns their offsets and leader epoch,
	// and returns when they are committed and durable.
	AppendInternal(ctx context.Context, batches []byte) (persistence.AppendInfo, error)
	// RaiseLogStart drops the log below offset, which snapshots cover.
	RaiseLogStart(ctx context.Context, offset int64) error
	// Roll begins a new segment of this node's copy, so that the old one can go.
	Roll(ctx context.Context) error
}

// Source reads the metadata partition; *cluster.Replica is one.
type Source interface {
	Log() persistence.Log
	// State tells the high watermark: the store applies only what is below.
	State() persistence.ReplicaState
	// Watch calls f, which never blocks, after the high watermark moved.
	Watch(f func()) (cancel func())
}

// Change is one atomic change: records that are written as one batch, and who
// asked for them (it goes into the record headers, for audits).
type Change struct {
	Records   []Record
	Requester messages.Requester
	// Claim is the controller epoch of the author; 0 = the newest claim known
	// here. A change of an older claim is ignored by everybody: ErrStale.
	Claim int32
}

// Options of a store. Journal, Source and Dir are required.
type Options struct {
	Journal Journal
	Source  Source
	Dir     string // folder of the snapshots: the partition's own folder
	// FS under Dir; default the machine's.
	FS  persistence.FS
	Now func() int64 // ms since 1970, for batch timestamps

	// SnapshotRecords and SnapshotBytes: a snapshot is written once that many
	// records or bytes were applied since the last one. Zero means the default
	// (10,000 records, 20 MiB); negative means never for that reason.
	SnapshotRecords int64
	SnapshotBytes   int64

	// SecretsKey is the id of the key that secrets are encrypted with, "" for none.
	SecretsKey string

	// Missed is called, by the applying goroutine, when the log starts above the image,
	// because it was copied from another node: it puts a snapshot into Dir that reaches
	// the log's start, and the store goes on from that. Nil, or an error: the log can't
	// be applied any more. It ends with its ctx.
	Missed func(ctx context.Context) error
	// Failed is told why the log can't be applied any more; the image stays as it is
	// for good. It must not block.
	Failed func(error)
	Logger *zap.Logger
}

func (o Options) withDefaults() Options {
	if o.SnapshotRecords == 0 {
		o.SnapshotRecords = 10_000
	}
	if o.SnapshotBytes == 0 {
		o.SnapshotBytes = 20 << 20
	}
	if o.FS == nil {
		o.FS = persistence.OSFS{}
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

// Validate reports every fault of o.
func (o Options) Validate() error {
	var errs []error
	if o.Journal == nil {
		errs = append(errs, errors.New("metadata store: no journal"))
	}
	if o.Source == nil {
		errs = append(errs, errors.New("metadata store: no source"))
	}
	if o.Dir == "" {
		errs = append(errs, errors.New("metadata store: no snapshot folder"))
	}
	if o.Now == nil {
		errs = append(errs, errors.New("metadata store: no clock"))
	}
	return errors.Join(errs...)
}

// Store replays the metadata log into images and appends to it.
//
// All methods may be called by any goroutine. The image moves only in the
// store's own applying goroutine; subscribers are called from it, one after the
// other, in the order of the log.
type Store struct {
	opts  Options
	log   *zap.Logger
	image atomic.Pointer[Image]

	stop    context.CancelCauseFunc
	wake    chan struct{} // capacity 1: the log has grown
	done    chan struct{} // closed when the applying goroutine has ended
	unwatch func()

	mu      sync.Mutex
	applied int64           // offset of the newest image that every subscriber has seen
	failed  error           // why applying stopped for good; nil while it works
	changed chan struct{}   // closed and replaced whenever applied moved or failed is set
	subs    []*subscription // in order of subscription
	stale   map[int64]struct{}
	// jumpedOver is the offset up to which changes weren't seen one by one, from the one
	// above jumpedFrom on.
	jumpedFrom, jumpedOver int64

	snap snapshotter // touched by the applying goroutine only
}

type subscription struct {
	f       func(Delta)
	gone    atomic.Bool
	greeted bool // touched by the applying goroutine only
}

// Open loads the newest good snapshot, replays the log up to the high watermark
// and starts to follow it. The caller closes the store; ctx bounds the loading
// only. Errors: damaged snapshots with a log that starts above the last good one
// wrap persistence.ErrCorrupt; a record of a newer build wraps ErrUnknownRecord.
func Open(ctx context.Context, opts Options) (*Store, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	s := &Store{
		opts: opts, log: opts.Logger.Named("metadata"),
		wake: make(chan struct{}, 1), done: make(chan struct{}), changed: make(chan struct{}),
		stale: make(map[int64]struct{}), jumpedFrom: messages.NoOffset, jumpedOver: messages.NoOffset,
	}
	if err := s.load(ctx); err != nil {
		return nil, fmt.Errorf("open metadata store in %s: %w", opts.Dir, err)
	}
	runCtx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	s.stop = stop
	s.unwatch = opts.Source.Watch(s.poke)
	s.poke()
	go s.run(runCtx)
	return s, nil
}

// Image is the newest image. It never blocks.
func (s *Store) Image() *Image { return s.image.Load() }

// Append writes records as one atomic batch and returns the offset of its last
// record, once the image shows them. On error nothing of it is known to be
// stored, and nothing known not to be: look at a later image.
func (s *Store) Append(ctx context.Context, records []Record, by messages.Requester) (int64, error) {
	offsets, err := s.AppendAll(ctx, []Change{{Records: records, Requester: by}})
	if err != nil {
		return messages.NoOffset, err
	}
	return offsets[0], nil
}

// AppendAll writes several changes in one go, each a batch of its own and
// atomic for itself, in order, and returns the offset of the last record of each.
// A crash in the middle keeps the first few, whole.
func (s *Store) AppendAll(ctx context.Context, changes []Change) ([]int64, error) {
	var batches []byte
	offsets := make([]int64, len(changes))
	claim, now := s.Image().ControllerEpoch(), s.opts.Now()
	next := int64(0)
	for i, c := range changes {
		var err error
		if c.Claim == 0 {
			c.Claim = claim
		}
		if batches, err = appendBatch(batches, c, now); err != nil {
			return nil, fmt.Errorf("encode metadata change: %w", err)
		}
		next += int64(len(c.Records))
		offsets[i] = next - 1
	}
	info, err := s.opts.Journal.AppendInternal(ctx, batches)
	if err != nil {
		return nil, fmt.Errorf("append to the metadata log: %w", err)
	}
	for i := range offsets {
		offsets[i] += info.FirstOffset
	}
	s.poke()
	if err := s.WaitFor(ctx, info.LastOffset); err != nil {
		return nil, err
	}
	for _, o := range offsets {
		if s.unseen(o) {
			return nil, fmt.Errorf("append to the metadata log at offset %d: whether it was of the newest claim isn't known: %w", o, ErrMissed)
		}
		if s.takeStale(o) {
			return nil, fmt.Errorf("append to the metadata log at offset %d: %w", o, ErrStale)
		}
	}
	return offsets, nil
}

// Subscribe has f called with everything that is there, as a delta from the
// empty image, and then with every change that follows, in order, from the
// applying goroutine: f must not block and must not call Append, WaitFor or
// Close. After cancel returns, f may still be running once.
func (s *Store) Subscribe(f func(Delta)) (cancel func()) {
	sub := &subscription{f: f}
	s.mu.Lock()
	s.subs = append(slices.Clip(s.subs), sub)
	s.mu.Unlock()
	s.poke()
	return func() {
		sub.gone.Store(true)
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, o := range s.subs {
			if o == sub {
				s.subs = append(s.subs[:i:i], s.subs[i+1:]...)
				return
			}
		}
	}
}

// WaitFor waits until the image is at or above offset and every subscriber has
// been told. It returns the cause of
// ctx, ErrClosed, or the error that stopped the replay.
func (s *Store) WaitFor(ctx context.Context, offset int64) error {
	for {
		s.mu.Lock()
		applied, changed, failed := s.applied, s.changed, s.failed
		s.mu.Unlock()
		if applied >= offset {
			return nil
		}
		if failed != nil {
			return failed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for metadata offset %d: %w", offset, context.Cause(ctx))
		}
	}
}

// Close stops following the log and waits for a snapshot that is being written.
// It doesn't close the log. It may be called twice.
func (s *Store) Close() error {
	s.unwatch()
	s.stop(ErrClosed)
	<-s.done
	return nil
}

func (s *Store) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
