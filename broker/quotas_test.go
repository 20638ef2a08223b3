package broker

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// manualClock stands still until it is moved.
type manualClock struct {
	mu     sync.Mutex
	now    time.Time
	timers map[*manualTimer]struct{}
}

type manualTimer struct {
	at time.Time
	f  func()
}

func newManualClock() *manualClock {
	return &manualClock{now: time.Now(), timers: map[*manualTimer]struct{}{}}
}

func (c *manualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *manualClock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &manualTimer{at: c.now.Add(d), f: f}
	c.timers[t] = struct{}{}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, there := c.timers[t]
		delete(c.timers, t)
		return there
	}
}

func (c *manualClock) Sleep(ctx context.Context, d time.Duration) error {
	done := make(chan struct{})
	defer c.AfterFunc(d, func() { close(done) })()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// advance moves time and runs what is due.
func (c *manualClock) advance(d time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	var due []func()
	for t := range c.timers {
		if !t.at.After(c.now) {
			due = append(due, t.f)
			delete(c.timers, t)
		}
	}
	c.mu.Unlock()
	for _, f := range due {
		f()
	}
}

// awaitTimers waits until so many wait for the clock.
func (c *manualClock) awaitTimers(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.timers) >= n
	}, 10*time.Second, time.Millisecond)
}

func withClock(clk *manualClock) worldOption {
	return func(w *world, _ *Config) { w.clk = clk }
}

func quota(user, client string) messages.QuotaEntity {
	var e messages.QuotaEntity
	part := func(n string) messages.QuotaPart {
		switch n {
		case "":
			return messages.QuotaPart{}
		case "*":
			return messages.QuotaPart{Set: true, Default: true}
		default:
			return messages.QuotaPart{Set: true, Name: n}
		}
	}
	e.User, e.ClientID = part(user), part(client)
	return e
}

func TestWhichQuotaCounts(t *testing.T) {
	all := []struct {
		user, client string
		rate         float64
	}{{"", "*", 1}, {"", "c", 2}, {"*", "", 3}, {"*", "*", 4}, {"*", "c", 5}, {"u", "", 6}, {"u", "*", 7}, {"u", "c", 8}}
	img := metadata.EmptyImage()
	who := messages.Requester{Principal: "User:u", ClientID: "c"}
	for _, q := range all {
		d, err := img.Apply(img.Offset()+1, []metadata.Record{metadata.QuotaRecord(quota(q.user, q.client), messages.QuotaFetchRate, &q.rate)})
		require.NoError(t, err)
		img = d.New
		s, ok := shareOf(img, who, messages.QuotaFetchRate)
		require.True(t, ok)
		require.InDelta(t, q.rate, s.rate, 0, "each one goes before those that were set before it")
		require.Equal(t, q.user != "", s.key.byUser)
		require.Equal(t, q.client != "", s.key.byClient)
		_, ok = shareOf(img, who, messages.QuotaProduceRate)
		require.False(t, ok)
	}
	// A user's quota is shared by its clients, a client id's by its users.
	other, ok := shareOf(img, messages.Requester{Principal: "User:v", ClientID: "d"}, messages.QuotaFetchRate)
	require.True(t, ok)
	require.InDelta(t, 4, other.rate, 0)
	require.Equal(t, bucketKey{limit: messages.QuotaFetchRate, user: "v", client: "d", byUser: true, byClient: true}, other.key)
}

func TestQuotaBuckets(t *testing.T) {
	q := newQuotas(10 * time.Second)
	now := time.Unix(1000, 0)
	s := share{key: bucketKey{limit: "x", user: "u"}, rate: 100}
	require.Zero(t, q.take(now, s, 1000), "a window's worth is there at first")
	require.Equal(t, 2*time.Second, q.take(now, s, 200))
	require.Equal(t, time.Second, q.debt(now.Add(time.Second), s))
	require.Zero(t, q.debt(now.Add(time.Minute), s))
	require.Equal(t, time.Second, q.take(now.Add(time.Hour), s, 1100), "no more than a window's worth stays")
	require.Equal(t, time.Hour, q.take(now.Add(time.Hour), s, 1e18))
	for i := range 3 * quotaBucketsMax {
		q.take(now, share{key: bucketKey{limit: "x", client: string(rune(i))}, rate: 1}, 1)
	}
	require.LessOrEqual(t, len(q.buckets), quotaBucketsMax)
}

// TestQuotaOfBytes: a producer above its share is told to wait and isn't read until then,
// others go on.
func TestQuotaOfBytes(t *testing.T) {
	clk := newManualClock()
	w := newWorld(t, withClock(clk))
	topic := w.topic("t", 1, nil)
	w.apply(metadata.QuotaRecord(quota("", "raw"), messages.QuotaProduceRate, new(1000.0)))
	c, other := w.dial(), w.dial()
	records := oneBatch(string(make([]byte, 12_000)))
	resp := c.call(produceRequest(9, 1, "t", topic.ID, 0, records)).(*kmsg.ProduceResponse)
	require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode, "it is stored all the same")
	require.Greater(t, resp.ThrottleMillis, int32(1900))
	require.Less(t, resp.ThrottleMillis, int32(2500))

	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version = 5
	create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "late", NumPartitions: 1, ReplicationFactor: 1}}
	n := c.send(create)
	for range 20 {
		other.call(sample(w, 3, 9, 0))
	}
	require.Nil(t, w.Image().Topic("late"), "the connection isn't read")
	clk.awaitTimers(t, 1)
	clk.advance(time.Duration(resp.ThrottleMillis) * time.Millisecond)
	require.Zero(t, c.receive(create, n).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
}

func TestQuotaOfFetchedBytes(t *testing.T) {
	clk := newManualClock()
	w := newWorld(t, withClock(clk))
	topic := w.topic("t", 1, nil)
	c, other := w.dial(), w.dial()
	c.call(produceRequest(9, 1, "t", topic.ID, 0, oneBatch(string(make([]byte, 20_000)))))
	w.apply(metadata.QuotaRecord(quota("*", ""), messages.QuotaFetchRate, new(1000.0)))
	fetch := fetchRequest(12, fetchPart{"t", topic.ID, 0, 0})
	first := c.call(fetch).(*kmsg.FetchResponse)
	require.NotEmpty(t, first.Topics[0].Partitions[0].RecordBatches, "a batch that is larger than the share comes through")
	require.Greater(t, first.ThrottleMillis, int32(9000))
	// The same user on another connection has used it up, too: nothing for it now.
	second := other.call(fetch).(*kmsg.FetchResponse)
	require.Empty(t, second.Topics[0].Partitions[0].RecordBatches)
	require.Greater(t, second.ThrottleMillis, int32(9000))
	clk.awaitTimers(t, 2)
	clk.advance(time.Minute)
	require.NotEmpty(t, other.call(fetch).(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches)
}

func TestQuotaOfMutations(t *testing.T) {
	clk := newManualClock()
	w := newWorld(t, withClock(clk))
	w.apply(metadata.QuotaRecord(quota("", "*"), messages.QuotaMutationRate, new(1.0)))
	c := w.dial()
	create := func(version int16, name string) *kmsg.CreateTopicsResponse {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.Version = version
		req.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: name, NumPartitions: 12, ReplicationFactor: 1}}
		return c.call(req).(*kmsg.CreateTopicsResponse)
	}
	require.Zero(t, create(7, "a").Topics[0].ErrorCode, "the last one of a window's worth may go over it")
	refused := create(7, "b")
	require.Equal(t, int16(89), refused.Topics[0].ErrorCode)
	require.Equal(t, int32(2000), refused.ThrottleMillis)
	clk.awaitTimers(t, 1)
	clk.advance(2 * time.Second)
	require.Equal(t, int32(12_000), create(5, "c").ThrottleMillis, "older clients wait")
	require.NotNil(t, w.Image().Topic("c"))
}

// TestQuotaOfTime: handling takes no time on a clock that stands still, so there is
// nothing to wait for; a long poll isn't work either.
func TestQuotaOfTime(t *testing.T) {
	clk := newManualClock()
	w := newWorld(t, withClock(clk))
	topic := w.topic("t", 1, nil)
	w.apply(metadata.QuotaRecord(quota("", "*"), messages.QuotaRequests, new(1.0)))
	c := w.dial()
	poll := fetchRequest(12, fetchPart{"t", topic.ID, 0, 0})
	poll.MaxWaitMillis, poll.MinBytes = 60_000, 1
	n := c.send(poll)
	clk.awaitTimers(t, 1)
	clk.advance(time.Minute)
	require.Zero(t, c.receive(poll, n).(*kmsg.FetchResponse).ThrottleMillis)
	s, ok := shareOf(w.Image(), messages.Requester{Principal: anonymous, ClientID: "raw"}, messages.QuotaRequests)
	require.True(t, ok)
	s.rate /= 100
	w.srv.quotas.take(clk.Now(), s, 50) // as if it had worked for 50 s
	require.Equal(t, int32(1000), c.call(sample(w, 3, 9, 0)).(*kmsg.MetadataResponse).ThrottleMillis, "a second at most")
}
