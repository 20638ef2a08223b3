package broker

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"kagami/fsm/group"
	"kagami/messages"
	"kagami/messages/groups"
	"kagami/persistence/metadata"
)

// fakeGroups is a coordinator of all groups whose log is memory: every write is
// stored at once.
type fakeGroups struct {
	mu      sync.Mutex
	core    *group.Core
	ticket  group.Ticket
	waiting map[group.Ticket]chan groups.Answer
	err     error                  // refuses everything
	image   func() *metadata.Image // where groups of the consumer protocol are tested, else nil
}

// fakeTopics is an image as groups see it.
type fakeTopics struct{ *metadata.Image }

func (t fakeTopics) Version() int64 { return t.Offset() }

func (t fakeTopics) Topic(name string) (messages.TopicID, int32, bool) {
	topic := t.Image.Topic(name)
	if topic == nil {
		return messages.TopicID{}, 0, false
	}
	return topic.ID, int32(len(topic.Partitions)), true
}

func (t fakeTopics) Name(id messages.TopicID) (string, bool) {
	topic := t.TopicByID(id)
	if topic == nil {
		return "", false
	}
	return topic.Name, true
}

func (t fakeTopics) Names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, topic := range t.Topics() {
			if !yield(topic.Name) {
				return
			}
		}
	}
}

func newFakeGroups() *fakeGroups {
	return &fakeGroups{waiting: map[group.Ticket]chan groups.Answer{}, core: group.New(group.Config{
		SessionMin: 1, SessionMax: 1_800_000, SizeMax: 100, MetadataMax: 4096, Retention: 1_000_000,
		Consumer: group.ConsumerConfig{Session: 45_000, Interval: 5_000}, ConsumerSizeMax: 100, Assignors: []string{group.AssignorUniform, group.AssignorRange}, Migration: group.MigrateBoth,
	})}
}

func (f *fakeGroups) Ask(ctx context.Context, gone <-chan struct{}, req groups.Request) groups.Answer {
	reply := make(chan groups.Answer, 1)
	if err := f.ask(req, reply); err != nil {
		return groups.Refusal(req, err)
	}
	select {
	case a := <-reply:
		return a
	case <-gone:
	case <-ctx.Done():
	}
	return groups.Refusal(req, messages.ErrTimedOut)
}

func (f *fakeGroups) ask(req groups.Request, reply chan groups.Answer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	if f.image != nil {
		f.core.SetTopics(fakeTopics{f.image()})
	}
	f.ticket++
	f.waiting[f.ticket] = reply
	now := time.Now().UnixMilli()
	f.perform(now, f.core.Handle(now, f.ticket, fmt.Sprintf("id-%d", f.ticket), req))
	if at, ok := f.core.Wake(); ok && at <= now { // without an initial delay the first generation is due at once
		f.perform(now, f.core.Tick(now))
	}
	return nil
}

func (f *fakeGroups) perform(now int64, e group.Effects) {
	for _, r := range e.Replies {
		f.waiting[r.Ticket] <- r.Answer
		delete(f.waiting, r.Ticket)
	}
	for _, w := range e.Writes {
		f.perform(now, f.core.Stored(now, w.ID))
	}
}

func (f *fakeGroups) List(context.Context) ([]groups.Listed, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.core.List(), f.err
}
