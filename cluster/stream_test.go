package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/messages"
)

func openTestStreams(tb testing.TB, srv *Server, change func(*StreamsOptions)) *Streams {
	tb.Helper()
	o := StreamsOptions{CheckInterval: 200 * time.Millisecond, Logger: zap.NewNop()}
	if change != nil {
		change(&o)
	}
	s, err := OpenStreams(tb.Context(), srv, o)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

// published is one message of a test and what became of it.
type published struct {
	sequence uint64
	err      error
}

// publishAll sends texts and waits for all outcomes.
func publishAll(st *Stream, texts ...string) []published {
	out := make([]published, len(texts))
	var waiting sync.WaitGroup
	waiting.Add(len(texts))
	for i, text := range texts {
		st.Publish("id-"+text, []byte(text), func(sequence uint64, err error) {
			out[i] = published{sequence, err}
			waiting.Done()
		})
	}
	waiting.Wait()
	return out
}

// publishSafely repeats what has an unknown outcome until it is stored.
func publishSafely(tb testing.TB, st *Stream, texts ...string) (last uint64) {
	tb.Helper()
	for _, text := range texts {
		eventually(tb, "publish "+text, func() bool {
			p := publishAll(st, text)[0]
			if p.err != nil && !errors.Is(p.err, ErrOutcomeUnknown) {
				tb.Fatal(p.err)
			}
			last = p.sequence
			return p.err == nil
		})
	}
	return last
}

func numbered(from, to int) []string {
	var out []string
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf("m%d", i))
	}
	return out
}

// following collects what a follower gets.
type following struct {
	mu      sync.Mutex
	next    uint64
	texts   []string
	err     error
	ended   chan struct{}
	stop    context.CancelFunc
	proceed chan struct{} // nil, or one for each message
}

func follow(tb testing.TB, st *Stream, from uint64, slow bool) *following {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	f := &following{next: from, ended: make(chan struct{}), stop: cancel}
	if slow {
		f.proceed = make(chan struct{}, 1<<16)
	}
	go func() {
		defer close(f.ended)
		err := st.Follow(ctx, from, f.apply(ctx))
		f.mu.Lock()
		defer f.mu.Unlock()
		f.err = err
	}()
	tb.Cleanup(func() { cancel(); <-f.ended })
	return f
}

func (f *following) apply(ctx context.Context) func(uint64, []byte) error {
	return func(sequence uint64, payload []byte) error {
		if f.proceed != nil {
			select {
			case <-f.proceed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if sequence != f.next {
			return fmt.Errorf("got sequence %d, want %d", sequence, f.next)
		}
		f.next++
		f.texts = append(f.texts, string(payload))
		return nil
	}
}

func (f *following) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.texts)
}

// wait until n messages came and return them.
func (f *following) wait(tb testing.TB, n int) []string {
	tb.Helper()
	eventually(tb, fmt.Sprintf("%d messages", n), func() bool {
		select {
		case <-f.ended:
			tb.Fatalf("follower ended after %d messages: %v", f.count(), f.err)
		default:
		}
		return f.count() >= n
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.texts...)
}

// result waits for the end of the follower.
func (f *following) result(tb testing.TB) error {
	tb.Helper()
	select {
	case <-f.ended:
	case <-time.After(testClusterWait):
		tb.Fatal("the follower doesn't end")
	}
	return f.err
}

func TestStreamPublishAndFollow(t *testing.T) {
	c := startTestCluster(t, 3, nil)
	streams := map[messages.NodeID]*Streams{}
	for id, srv := range c.servers {
		streams[id] = openTestStreams(t, srv, nil)
	}
	leader := messages.NodeID(2)
	first, err := streams[1].OpenStream(testContext(t), StreamOptions{Name: "0", Replicas: 3, Leader: &leader})
	require.NoError(t, err)
	eventually(t, "preferred leader", func() bool { got, err := first.Leader(t.Context()); return err == nil && got == leader })

	early := follow(t, first, 1, false)
	publishSafely(t, first, numbered(1, 1)...) // until the leader's interest has travelled, nobody is there
	got := publishAll(first, numbered(1, 500)...)
	for i, p := range got {
		require.Equal(t, published{uint64(i + 1), nil}, p)
	}
	require.Equal(t, numbered(1, 500), early.wait(t, 500))

	// Other nodes see the same, from any place on, and may write.
	third, err := streams[3].Open(testContext(t), "0", 3)
	require.NoError(t, err)
	late := follow(t, third, 401, false)
	require.Equal(t, numbered(401, 500), late.wait(t, 100))
	require.Equal(t, published{501, nil}, publishAll(third, "m501")[0])
	require.Equal(t, published{7, nil}, publishAll(third, "m7")[0], "an id that is known isn't stored twice")
	require.Equal(t, numbered(1, 501), early.wait(t, 501))
	require.Equal(t, numbered(401, 501), late.wait(t, 101))

	lo, hi, err := third.Bounds(t.Context())
	require.NoError(t, err)
	require.Equal(t, []uint64{1, 501}, []uint64{lo, hi})
	state, err := third.State(t.Context())
	require.NoError(t, err)
	require.Equal(t, leader, state.Leader)
	require.Equal(t, uint64(501), state.MessageCount)
	_, err = streams[1].Lookup(testContext(t), "nothing")
	require.ErrorIs(t, err, ErrNoStream)
}

// TestStreamHoles: what was purged is told, also when nothing comes after it.
func TestStreamHoles(t *testing.T) {
	c := startTestCluster(t, 3, nil)
	s := openTestStreams(t, c.servers[1], nil)
	st, err := s.Open(testContext(t), "holes", 3)
	require.NoError(t, err)
	publishSafely(t, st, numbered(1, 10)...)

	// A follower that is held up while what it hasn't seen goes away.
	slow := follow(t, st, 1, true)
	slow.proceed <- struct{}{}
	slow.wait(t, 1)

	require.NoError(t, st.Purge(testContext(t), 0))
	lo, hi, err := st.Bounds(testContext(t))
	require.NoError(t, err)
	require.Equal(t, []uint64{1, 10}, []uint64{lo, hi}, "a purge up to nothing")
	require.NoError(t, st.Purge(testContext(t), 4))
	for _, tc := range []struct{ from, first uint64 }{{1, 5}, {4, 5}} {
		err = follow(t, st, tc.from, false).result(t)
		var hole *HoleError
		require.ErrorAs(t, err, &hole)
		require.Equal(t, HoleError{"holes", tc.from, tc.first}, *hole)
	}
	require.Equal(t, numbered(5, 10), follow(t, st, 5, false).wait(t, 6))

	idle := follow(t, st, 11, false)
	require.NoError(t, st.Purge(testContext(t), 1000))
	lo, hi, err = st.Bounds(testContext(t))
	require.NoError(t, err)
	require.Equal(t, []uint64{11, 10}, []uint64{lo, hi}, "a purge of everything")
	err = follow(t, st, 10, false).result(t)
	require.Equal(t, &HoleError{"holes", 10, 11}, err)
	require.NoError(t, st.Purge(testContext(t), 1000), "again")

	publishSafely(t, st, "m11")
	require.Equal(t, []string{"m11"}, idle.wait(t, 1))
	require.Equal(t, []string{"m11"}, follow(t, st, 11, false).wait(t, 1))
}

// TestStreamSlowFollower: what doesn't fit into memory is read again.
func TestStreamSlowFollower(t *testing.T) {
	c := startTestCluster(t, 3, func(o *ServerOptions) { o.MessageBytesMax = 64 << 10 })
	s := openTestStreams(t, c.servers[1], func(o *StreamsOptions) { o.FollowBytesMax, o.CheckInterval = 1, time.Hour })
	require.Equal(t, 128<<10, s.opts.FollowBytesMax)
	st, err := s.Open(testContext(t), "slow", 3)
	require.NoError(t, err)
	slow := follow(t, st, 1, true)
	slow.proceed <- struct{}{}
	publishSafely(t, st, "m1")
	slow.wait(t, 1) // it is subscribed and waits in its next message

	var texts []string
	for i := range 200 {
		texts = append(texts, fmt.Sprintf("%d-%s", i, strings.Repeat("x", 4<<10)))
	}
	for _, p := range publishAll(st, texts...) {
		require.NoError(t, p.err)
	}
	// It makes room, so that it gets some that come later: a gap is before them.
	for range 10 {
		slow.proceed <- struct{}{}
	}
	slow.wait(t, 11)
	for _, p := range publishAll(st, "later", "latest") {
		require.NoError(t, p.err)
	}
	texts = append(texts, "later", "latest")
	for range texts {
		slow.proceed <- struct{}{}
	}
	require.Equal(t, append([]string{"m1"}, texts...), slow.wait(t, 203))
}

// TestStreamFull: a full stream refuses and says so; a purge helps.
func TestStreamFull(t *testing.T) {
	c := startTestCluster(t, 3, nil)
	s := openTestStreams(t, c.servers[1], func(o *StreamsOptions) { o.BytesMax = 64 << 10 })
	st, err := s.Open(testContext(t), "full", 3)
	require.NoError(t, err)
	big := strings.Repeat("x", 10<<10)
	var stored uint64
	eventually(t, "a refusal", func() bool {
		p := publishAll(st, fmt.Sprintf("%d-%s", stored, big))[0]
		if errors.Is(p.err, ErrJournalFull) {
			return true
		}
		require.NoError(t, p.err)
		stored = p.sequence
		return false
	})
	require.Positive(t, stored)
	require.NoError(t, st.Purge(testContext(t), stored))
	require.Equal(t, published{stored + 1, nil}, publishAll(st, "small")[0])

	wider := openTestStreams(t, c.servers[2], func(o *StreamsOptions) { o.BytesMax = 1 << 20 })
	again, err := wider.Open(testContext(t), "full", 3)
	require.NoError(t, err)
	info, err := again.info(testContext(t))
	require.NoError(t, err)
	require.Equal(t, int64(1<<20), info.Config.MaxBytes)
}

func TestStreamPublishErrors(t *testing.T) {
	c := startTestCluster(t, 2, nil)
	s := openTestStreams(t, c.servers[1], nil)
	none := s.stream("none")
	p := publishAll(none, "x")[0]
	require.ErrorIs(t, p.err, ErrOutcomeUnknown)
	require.ErrorIs(t, p.err, ErrNoResponders)
	p = publishAll(none, strings.Repeat("x", 21<<20))[0]
	require.ErrorIs(t, p.err, ErrTooLarge)

	// Somebody takes it and never answers.
	hear, err := c.servers[1].connect("ear", zap.NewNop())
	require.NoError(t, err)
	defer hear.Close()
	_, err = hear.SubscribeSync(none.subject)
	require.NoError(t, err)
	require.NoError(t, hear.Flush())
	hasty := openTestStreams(t, c.servers[1], func(o *StreamsOptions) { o.PublishTimeout = 50 * time.Millisecond })
	p = publishAll(hasty.stream("none"), "x")[0]
	require.ErrorIs(t, p.err, ErrOutcomeUnknown)
	require.NotErrorIs(t, p.err, ErrNoResponders)

	ended := make(chan error, 1)
	none.Publish("", []byte("x"), func(_ uint64, err error) { ended <- err })
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-ended, ErrClosed)
	require.ErrorIs(t, publishAll(none, "x")[0].err, ErrClosed)
	require.ErrorIs(t, none.Follow(t.Context(), 1, nil), ErrClosed)
}
