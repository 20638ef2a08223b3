package audit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence/metadata"
)

// Faults of a question.
var (
	// ErrUnknownMirror: nothing is recorded of such a mirror.
	ErrUnknownMirror = errors.New("unknown mirror")
	// ErrNoSuchTime: the history doesn't reach the time that was asked for.
	ErrNoSuchTime = errors.New("no state is known at that time")
)

// feed is one log: its batches, and what they tell of the mirror.
type feed struct {
	batches func(ctx context.Context) iter.Seq2[[]byte, error] // nil: there is no log
	take    func(b []byte) ([]Event, error)
	next    int64 // offset that comes next
	base    int64 // where it began; what is below is gone

	upTo   int64  // ms; freeze is called before the first later batch; 0: never
	freeze func() // keeps the state as of upTo

	order    int64 // largest timestamp so far: the order of events, even if a clock went back
	first    int64 // timestamp of the first batch; 0: none yet
	holeAt   int64 // timestamp of the first batch after the last hole; 0: no hole
	compared bool  // freeze was called
}

// timed is an event and its place among those of another log.
type timed struct {
	Event
	order int64
}

// events yields what hasn't been yielded yet, oldest first.
func (f *feed) events(ctx context.Context) iter.Seq2[timed, error] {
	return func(yield func(timed, error) bool) {
		if f.batches == nil {
			return
		}
		for b, err := range f.batches(ctx) {
			var events []Event
			if err == nil {
				events, err = f.batch(b)
			}
			for _, e := range events {
				if !yield(timed{e, f.order}, nil) {
					return
				}
			}
			if err != nil {
				yield(timed{}, err)
				return
			}
		}
	}
}

func (f *feed) batch(b []byte) ([]Event, error) {
	h, err := batch.ParseHeader(b)
	if err != nil {
		return nil, err
	}
	f.order = max(f.order, h.MaxTimestamp)
	if f.first == 0 {
		f.first = f.order
	}
	if h.BaseOffset > f.next {
		f.holeAt = f.order // what was there has been removed
	}
	f.next = h.LastOffset() + 1
	if f.upTo != 0 && f.order > f.upTo && !f.compared {
		f.compared = true
		f.freeze()
	}
	return f.take(b)
}

// history is all that is recorded of one mirror. One goroutine at a time.
type history struct {
	mirror   string
	fold     *states
	states   *feed
	requests *requests // nil: the metadata log can't be read
	refused  error     // why
	torn     []*folder // that may end in bytes that can't be read
	metadata *feed
	known    []string // mirrors of the running cluster

	asked map[string]messages.Requester // by topic: who asked for what is desired of it
	first int64                         // of the mirror's first event, ms; 0: none yet
}

func newHistory(mirror string) *history {
	h := &history{mirror: mirror, fold: newStates(mirror), metadata: &feed{}, asked: map[string]messages.Requester{}}
	h.states = &feed{take: h.fold.take, freeze: h.fold.freeze}
	return h
}

// readRequests adds the metadata log: batches yields what comes after base.
func (h *history) readRequests(base *metadata.Image, batches func(context.Context) iter.Seq2[[]byte, error]) {
	h.requests = newRequests(h.mirror, base)
	next := base.Offset() + 1
	h.metadata = &feed{batches: batches, take: h.requests.take, freeze: h.requests.freeze, next: next, base: next}
}

// events yields what is there and hasn't been yielded yet, in order of time. At
// the same time a request stands before what it leads to.
func (h *history) events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		nextState, stopStates := iter.Pull2(h.states.events(ctx))
		defer stopStates()
		nextRequest, stopRequests := iter.Pull2(h.metadata.events(ctx))
		defer stopRequests()
		state, err1, isState := nextState()
		request, err2, isRequest := nextRequest()
		for isState || isRequest {
			if err := errors.Join(err1, err2); err != nil {
				yield(Event{}, err)
				return
			}
			var e Event
			if isRequest && (!isState || request.order <= state.order) {
				e = h.noted(request)
				request, err2, isRequest = nextRequest()
			} else {
				e = h.noted(state)
				state, err1, isState = nextState()
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// noted adds what only both logs together tell.
func (h *history) noted(t timed) Event {
	if h.first == 0 {
		h.first = t.order
	}
	e := t.Event
	if slices.Contains([]Kind{KindStart, KindPause, KindResume, KindStop}, e.Kind) {
		h.asked[e.Topic] = e.By
	}
	if by, ok := h.asked[e.Topic]; ok && e.Kind == KindTransition && strings.HasPrefix(e.Cause, "desired ") {
		e.For = &by
	}
	return e
}

// drain reads to the present end and gives each event to emit.
func (h *history) drain(ctx context.Context, emit func(Event) error) error {
	for e, err := range h.events(ctx) {
		if err == nil {
			err = emit(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// check is for after a drain: an unknown mirror is an error that names those
// that are known.
func (h *history) check() error {
	names := maps.Clone(h.fold.others)
	for _, n := range h.known {
		names[n] = struct{}{}
	}
	if h.requests != nil {
		maps.Copy(names, h.requests.others)
	}
	if _, known := names[h.mirror]; known {
		return nil
	}
	return fmt.Errorf("%w: nothing is recorded of %s (%s)", ErrUnknownMirror, h.mirror, joinNames(slices.Sorted(maps.Keys(names))))
}

// notes is for after a drain: what the history can't tell, a line each.
func (h *history) notes() []string {
	var out []string
	if h.requests == nil {
		out = append(out, fmt.Sprintf("requests come only from record headers: %v", h.refused))
	} else if h.metadata.holeOrStart() && h.metadata.first == 0 {
		out = append(out, "no requests are known: a snapshot replaced the metadata log")
	} else if h.metadata.holeOrStart() {
		out = append(out, "requests are known from "+timeText(h.metadata.completeFrom())+" on: the metadata log before is gone, a snapshot replaced it")
	}
	if h.states.holeAt != 0 {
		out = append(out, "states are complete from "+timeText(h.states.holeAt)+" on: superseded records before are gone (mirror.state.audit.retention.ms)")
	}
	for _, f := range h.torn {
		if f.torn != "" {
			out = append(out, f.torn)
		}
	}
	if n := h.fold.unreadable; n > 0 {
		out = append(out, fmt.Sprintf("%d records of %s can't be read, the first at %v", n, messages.MirrorStateTopic, h.fold.firstUnreadable))
	}
	return out
}

// holeOrStart: the log doesn't begin at its beginning.
func (f *feed) holeOrStart() bool { return f.holeAt != 0 || f.base > 0 }

func (f *feed) completeFrom() int64 { return max(f.holeAt, f.first) }

// Row is one partition at a moment.
type Row struct {
	Topic     string
	Partition int32
	messages.PartitionState
	Since   int64            // ms; 0 if unknown
	Desired messages.Desired // DesiredNone if unknown
}

// at reads everything and returns the state at a moment, ms. Errors wrap
// [ErrNoSuchTime] or [ErrUnknownMirror].
func (h *history) at(ctx context.Context, millis int64) ([]Row, error) {
	upTo := max(1, millis) // 0 is no limit, and nothing was before 1970
	h.states.upTo, h.metadata.upTo = upTo, upTo
	if err := h.drain(ctx, func(Event) error { return nil }); err != nil {
		return nil, err
	}
	if err := h.check(); err != nil {
		return nil, err
	}
	if h.states.holeAt > millis {
		return nil, fmt.Errorf("%w: the history is complete only from %s on, superseded records before are gone (mirror.state.audit.retention.ms)",
			ErrNoSuchTime, timeText(h.states.holeAt))
	}
	fold := h.fold
	if fold.frozen != nil {
		fold = fold.frozen
	}
	if h.requests == nil {
		if h.first == 0 || h.first > millis {
			return nil, h.notYet()
		}
		return fold.rows(), nil
	}
	if h.metadata.holeOrStart() && h.metadata.completeFrom() > millis {
		return nil, fmt.Errorf("%w: the metadata log begins at %s, a snapshot replaced what was before", ErrNoSuchTime, timeText(h.metadata.completeFrom()))
	}
	image := h.requests.image
	if h.requests.frozen != nil {
		image = h.requests.frozen
	}
	switch {
	case image.Mirror(h.mirror) != nil:
		return fold.rowsOf(image), nil
	case h.first > millis:
		return nil, h.notYet()
	}
	return nil, fmt.Errorf("%w: mirror %s did not exist then", ErrNoSuchTime, h.mirror)
}

func (h *history) notYet() error {
	if h.first == 0 {
		return fmt.Errorf("%w: mirror %s has no history yet", ErrNoSuchTime, h.mirror)
	}
	return fmt.Errorf("%w: the history of mirror %s begins at %s", ErrNoSuchTime, h.mirror, timeText(h.first))
}

// rows are the partitions that have a record.
func (s *states) rows() []Row {
	var out []Row
	for _, tp := range s.shard.Partitions(s.mirror) {
		out = append(out, s.row(tp, messages.NoOffset, messages.DesiredNone))
	}
	return out
}

// rowsOf are the partitions of the mirror's topics in an image, as the
// coordinator answers for them. The epoch is the image's where it is newer: after
// a crash it rises without a change of state.
func (s *states) rowsOf(image *metadata.Image) []Row {
	var out []Row
	for _, t := range image.TopicsOfMirror(s.mirror) {
		for i := range t.Partitions {
			r := s.row(messages.TopicPartition{Topic: t.Name, Partition: int32(i)}, t.CreatedAt, t.Desired)
			r.LeaderEpoch = max(r.LeaderEpoch, t.Partitions[i].LeaderEpoch)
			out = append(out, r)
		}
	}
	return out
}

func (s *states) row(tp messages.TopicPartition, created int64, desired messages.Desired) Row {
	st := s.shard.Get(s.mirror, tp, created)
	r := Row{Topic: tp.Topic, Partition: tp.Partition, PartitionState: st, Desired: desired}
	if st.State != messages.StateUnknown {
		r.Since = s.since[tp]
	}
	return r
}
