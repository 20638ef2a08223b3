package actors

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"kagami/internal/clock"
	"kagami/messages"
	"kagami/persistence/metadata"
)

// memoryStore is a metadata log in memory with faults.
type memoryStore struct {
	mu      sync.Mutex
	img     *metadata.Image
	appends int
	who     []messages.Requester

	fail  func(changes []metadata.Change) (landed bool, err error) // asked before each append; nil = no fault
	block chan struct{}                                            // appends wait for it to close; nil = no
}

func (s *memoryStore) Image() *metadata.Image { s.mu.Lock(); defer s.mu.Unlock(); return s.img }

func (s *memoryStore) AppendAll(ctx context.Context, changes []metadata.Change) ([]int64, error) {
	s.mu.Lock()
	block, fail := s.block, s.fail
	s.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	var landed bool
	var fault error
	if fail != nil {
		if landed, fault = fail(changes); fault != nil && !landed {
			return nil, fault
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.appends++
	var offsets []int64
	for _, c := range changes {
		d, err := s.img.Apply(s.img.Offset()+1, c.Records)
		if err != nil {
			return nil, err
		}
		s.img = d.New
		s.who = append(s.who, c.Requester)
		offsets = append(offsets, s.img.Offset())
	}
	return offsets, fault
}

func (s *memoryStore) setFault(f func([]metadata.Change) (bool, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

func startController(t *testing.T, s *memoryStore, change func(*ControllerOptions)) *Controller {
	t.Helper()
	o := ControllerOptions{
		Node: 1, ClusterID: "c", Store: s, Live: func() []messages.NodeID { return []messages.NodeID{1} },
		Clock: clock.Wall{}, Logger: zap.NewNop(),
	}
	if change != nil {
		change(&o)
	}
	system := NewSystem(zap.NewNop())
	c, err := NewController(t.Context(), system, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Error(err)
		}
		system.Shutdown()
	})
	return c
}

func newTopic(name string) messages.CreateTopics {
	return messages.CreateTopics{Topics: []messages.NewTopic{{Name: name, Partitions: 1, ReplicationFactor: 1}}}
}

var alice = messages.Requester{Principal: "User:alice", RequestID: "r"}

func TestControllerTakesManyCommands(t *testing.T) {
	s := &memoryStore{img: metadata.EmptyImage()}
	claims := make(chan int32, 4)
	c := startController(t, s, func(o *ControllerOptions) {
		o.Claim = func(_ context.Context, epoch int32) error { claims <- epoch; return nil }
		o.CommandsMax = 50
	})
	if err := c.WaitClaimed(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := <-claims; e != 1 || s.Image().ClusterID() != "c" || s.Image().ControllerEpoch() != 1 {
		t.Fatalf("claimed epoch %d, image epoch %d", e, s.Image().ControllerEpoch())
	}
	const n = 200
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			out := c.Submit(t.Context(), alice, newTopic(fmt.Sprintf("t%d", i/2))) // each name twice: one wins
			if out.Err != nil || s.Image().Offset() < out.Offset || s.Image().Topic(fmt.Sprintf("t%d", i/2)) == nil {
				t.Errorf("%+v", out)
			}
			if err := out.Items[0].Err; err != nil && !errors.Is(err, messages.ErrTopicExists) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.img.Topics()) != n/2 || len(s.who) != n/2+1 || s.who[1] != alice {
		t.Fatalf("%d topics, %d changes", len(s.img.Topics()), len(s.who))
	}
}

func TestControllerGroupsCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{img: metadata.EmptyImage()}
		c := startController(t, s, nil)
		if err := c.WaitClaimed(t.Context()); err != nil {
			t.Fatal(err)
		}
		block := make(chan struct{})
		s.mu.Lock()
		s.block = block
		s.mu.Unlock()
		const n = 10
		outs := make(chan messages.Outcome, n)
		for i := range n {
			go func() { outs <- c.Submit(t.Context(), alice, newTopic(fmt.Sprint(i/2))) }()
		}
		synctest.Wait() // one is being written, the others wait
		close(block)
		exists := 0
		for range n {
			out := <-outs
			if out.Err != nil {
				t.Fatal(out.Err)
			}
			if errors.Is(out.Items[0].Err, messages.ErrTopicExists) {
				exists++
			}
		}
		if s.appends != 3 || exists != n/2 || len(s.who) != 1+n/2 { // the claim, the first, the rest together
			t.Fatalf("%d appends, %d refused, %d changes", s.appends, exists, len(s.who))
		}
	})
}

func TestControllerClaimsAgainAfterAnUnknownAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{img: metadata.EmptyImage()}
		c := startController(t, s, nil)
		if err := c.WaitClaimed(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, landed := range []bool{true, false} {
			name := fmt.Sprintf("landed-%v", landed)
			epoch := s.Image().ControllerEpoch()
			s.setFault(func([]metadata.Change) (bool, error) { return landed, errors.New("disk") })
			if out := c.Submit(t.Context(), alice, newTopic(name)); !errors.Is(out.Err, messages.ErrStorage) {
				t.Fatalf("%s: %v", name, out.Err)
			}
			// While the log fails, commands wait; afterwards they see what landed.
			done := make(chan messages.Outcome)
			go func() { done <- c.Submit(t.Context(), alice, newTopic(name)) }()
			time.Sleep(2500 * time.Millisecond)
			s.setFault(nil)
			out := <-done
			if out.Err != nil || errors.Is(out.Items[0].Err, messages.ErrTopicExists) != landed || s.Image().ControllerEpoch() <= epoch {
				t.Fatalf("%s: %+v, epoch %d after %d", name, out, s.Image().ControllerEpoch(), epoch)
			}
		}
	})
}

// TestControllerSaysWhatBecameOfAChange: NOT_CONTROLLER only if nothing was done, so that who
// asks again can't do it twice.
func TestControllerSaysWhatBecameOfAChange(t *testing.T) {
	for name, row := range map[string]struct{ fault, want, never error }{
		"refused":    {fmt.Errorf("injected: %w", messages.ErrNotLeader), messages.ErrNotController, messages.ErrStorage},
		"cut off":    {fmt.Errorf("injected: %w: %w", messages.ErrNotLeader, messages.ErrTimedOut), messages.ErrTimedOut, messages.ErrNotLeader},
		"not seen":   {fmt.Errorf("injected: %w", metadata.ErrMissed), messages.ErrTimedOut, messages.ErrNotController},
		"by another": {fmt.Errorf("injected: %w", metadata.ErrStale), messages.ErrNotController, messages.ErrStorage},
		"disk":       {errors.New("injected"), messages.ErrStorage, messages.ErrNotController},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &memoryStore{img: metadata.EmptyImage()}
				c := startController(t, s, nil)
				if err := c.WaitClaimed(t.Context()); err != nil {
					t.Fatal(err)
				}
				s.setFault(func([]metadata.Change) (bool, error) { return false, row.fault })
				if out := c.submitHere(t.Context(), alice, newTopic("a")); !errors.Is(out.Err, row.want) || errors.Is(out.Err, row.never) {
					t.Fatalf("%v", out.Err)
				}
				s.setFault(nil)
				if out := c.Submit(t.Context(), alice, newTopic("a")); out.Err != nil || out.Items[0].Err != nil {
					t.Fatalf("%+v", out)
				}
			})
		})
	}
}

func TestControllerLosesItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{img: metadata.EmptyImage()}
		c := startController(t, s, nil)
		if err := c.WaitClaimed(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.setFault(func([]metadata.Change) (bool, error) { return false, metadata.ErrStale })
		if out := c.Submit(t.Context(), alice, newTopic("t")); !errors.Is(out.Err, messages.ErrNotController) {
			t.Fatal(out.Err)
		}
	})
}

func TestControllerDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{img: metadata.EmptyImage()}
		c := startController(t, s, func(o *ControllerOptions) {
			o.CommandsMax, o.SubmitTimeout, o.AppendTimeout = 2, 3*time.Second, time.Minute
		})
		if err := c.WaitClaimed(t.Context()); err != nil {
			t.Fatal(err)
		}
		block := make(chan struct{})
		s.mu.Lock()
		s.block = block
		s.mu.Unlock()
		var wg sync.WaitGroup
		for i := range 4 { // one in flight, one waiting, two without a credit
			wg.Go(func() {
				start := time.Now()
				out := c.Submit(t.Context(), alice, newTopic(fmt.Sprint(i)))
				if !errors.Is(out.Err, messages.ErrTimedOut) || time.Since(start) != 3*time.Second || out.Offset != messages.NoOffset {
					t.Errorf("%+v after %s", out, time.Since(start))
				}
			})
		}
		wg.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if out := c.Submit(ctx, alice, newTopic("x")); !errors.Is(out.Err, messages.ErrTimedOut) {
			t.Errorf("%+v", out)
		}
		close(block)
		// What nobody waits for any more isn't done late: only the one in flight was.
		if out := c.Submit(t.Context(), alice, newTopic("last")); out.Err != nil || len(s.Image().Topics()) != 2 {
			t.Errorf("%+v, %d topics", out, len(s.Image().Topics()))
		}
	})
}

func TestControllerCloseAnswersEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{img: metadata.EmptyImage()}
		c := startController(t, s, nil)
		if err := c.WaitClaimed(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.block = make(chan struct{})
		s.mu.Unlock()
		outs := make(chan messages.Outcome, 3)
		for i := range 3 {
			go func() { outs <- c.Submit(t.Context(), alice, newTopic(fmt.Sprint(i))) }()
		}
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if out := <-outs; out.Err == nil {
				t.Fatalf("%+v", out)
			}
		}
		if out := c.Submit(t.Context(), alice, newTopic("late")); !errors.Is(out.Err, messages.ErrNotController) {
			t.Fatal(out.Err)
		}
	})
}

func TestControllerRestartsAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{img: metadata.EmptyImage()}
		first := true
		c := startController(t, s, func(o *ControllerOptions) {
			o.Live = func() []messages.NodeID {
				if first {
					first = false
					panic("injected")
				}
				return []messages.NodeID{1}
			}
		})
		if err := c.WaitClaimed(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = c.Submit(ctx, alice, newTopic("poison"))
		if out := c.Submit(t.Context(), alice, newTopic("t")); out.Err != nil || out.Items[0].Err != nil {
			t.Fatalf("%+v", out)
		}
		if e := s.Image().ControllerEpoch(); e != 2 {
			t.Fatalf("epoch %d, want a second claim", e)
		}
	})
}

func TestControllerServesBumps(t *testing.T) {
	s := &memoryStore{img: metadata.EmptyImage()}
	c := startController(t, s, nil)
	out := c.Submit(t.Context(), alice, messages.CreateTopics{Topics: []messages.NewTopic{{Name: "t", Partitions: 2, ReplicationFactor: 1}}})
	if out.Err != nil || out.Items[0].Err != nil {
		t.Fatalf("%+v", out)
	}
	id := out.Items[0].TopicID
	request := func(ctx context.Context, payload []byte) ([]byte, error) { return c.HandleBump(ctx, payload), nil }
	errs, err := RequestBumps(t.Context(), request, 7, []messages.EpochBump{
		{TopicID: id, Partition: 1, MinLeaderEpoch: 11}, {TopicID: messages.TopicID{9}}, {TopicID: id, Partition: 7}, {TopicID: id, Partition: 0, MinLeaderEpoch: -1},
	})
	if err != nil || errs[0] != nil || errs[3] != nil || !errors.Is(errs[1], messages.ErrUnknownTopicID) || !errors.Is(errs[2], messages.ErrUnknownTopicOrPartition) {
		t.Fatalf("%v, %v", errs, err)
	}
	if p := s.Image().Topic("t").Partitions; p[1].LeaderEpoch != 12 || p[0].LeaderEpoch != 1 {
		t.Fatalf("%+v", p)
	}
	if who := s.who[len(s.who)-1]; who != (messages.Requester{Principal: "User:node-7", RequestID: "bus"}) {
		t.Fatalf("asked by %+v", who)
	}
	if _, err := RequestBumps(t.Context(), func(ctx context.Context, _ []byte) ([]byte, error) { return c.HandleBump(ctx, []byte{9, 9}), nil }, 7, nil); !errors.Is(err, messages.ErrInvalidRequest) {
		t.Fatalf("garbage: %v", err)
	}
	if _, err := RequestBumps(t.Context(), func(context.Context, []byte) ([]byte, error) { return nil, errors.New("no bus") }, 7, nil); err == nil {
		t.Fatal("bus error lost")
	}
}

func TestControllerOptionsReportEveryFault(t *testing.T) {
	err := ControllerOptions{Node: -1, CommandsMax: -1}.Validate()
	if err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) != 7 {
		t.Fatalf("got %v", err)
	}
}
