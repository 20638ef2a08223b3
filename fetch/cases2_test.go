package fetch_test

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/fetch"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/test/kafka/stub"
)

// C40: one session for three partitions; a removed one is forgotten, and one that
// comes back can't be fed from the old position.
func TestC40SessionForgetsAndRestarts(t *testing.T) {
	c := oneTopic(t, 3, func(_ *stub.State, topic *stub.Topic) {
		for _, p := range topic.Partitions {
			p.Fill(20)
		}
	})
	w := newWorker(t, c.Address(), nil)
	sinks := make([]*memSink, 3)
	for i := range sinks {
		sinks[i] = newMemSink()
		require.NoError(t, w.Add(t.Context(), assignment(sinks[i], int32(i))))
	}
	for _, s := range sinks {
		s.waitEnd(t, 20)
	}
	require.NoError(t, w.Remove(t.Context(), tp("t", 1)))
	require.NoError(t, c.Wait(within(t, 10*time.Second), func(_ *stub.State, seen []stub.Seen) bool { return forgets(seen, 1) }))
	_, err := sinks[1].Truncate(t.Context(), 10, "test")
	require.NoError(t, err)
	c.Update(func(st *stub.State) { st.StickySessions = true })
	require.NoError(t, w.Add(t.Context(), assignment(sinks[1], 1)))
	sinks[1].waitEnd(t, 20)
	require.Equal(t, sourceBytes(c, 1), sinks[1].bytes())
	require.Len(t, c.Broker(0).Sessions(), 1, "the old session is closed by the request that opens the new one")
}

func forgets(seen []stub.Seen, partition int32) bool {
	for _, r := range fetches(seen) {
		for _, f := range r.ForgottenTopics {
			if slices.Contains(f.Partitions, partition) {
				return true
			}
		}
	}
	return false
}

// C40: an evicted session leads to a new full one, and to nothing else.
func TestC40EvictedSession(t *testing.T) {
	for _, sessions := range []bool{true, false} {
		t.Run(fmt.Sprint("sessions ", sessions), func(t *testing.T) {
			c := oneTopic(t, 1, func(st *stub.State, topic *stub.Topic) {
				topic.Partitions[0].Fill(5)
				st.NoSessions = !sessions
			})
			s := newMemSink()
			follow(t, c, s, nil)
			s.waitEnd(t, 5)
			for i := range 3 {
				c.Broker(0).DropSessions()
				c.Update(func(st *stub.State) { st.Topics["t"].Partitions[0].Fill(1) })
				s.waitEnd(t, int64(6+i))
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			require.Equal(t, []fetch.Event{fetch.FirstSuccess{}}, s.events)
		})
	}
}

// C41: a source as old as 2.1.
func TestC41OldSource(t *testing.T) {
	c := startStub(t, 1)
	c.Update(func(st *stub.State) {
		st.Versions = stub.Versions21()
		st.NewTopic("t", messages.TopicID{}, 1).Partitions[0].Fill(100)
	})
	s := newMemSink()
	w, _ := follow(t, c, s, func(a *fetch.Assignment) { a.TopicID = messages.TopicID{} })
	s.waitEnd(t, 100)
	require.Equal(t, sourceBytes(c, 0), s.bytes())
	src := newSource(t, c.Address())
	topics, err := src.Topics(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, topics.Topics["t"].ID.IsZero())
	m, err := src.LastMirrorEpochs(t.Context(), "m")
	require.NoError(t, err)
	require.False(t, m.Supported)
	requireLME(t, messages.NoEpoch, m, tp("t", 0))
	_, err = src.TopicConfigs(t.Context(), []string{"t"})
	require.NoError(t, err)
	require.Zero(t, c.Dropped(), "a version or request that the source doesn't offer was sent")
	require.Empty(t, c.Seen(keyEpochEnd))
	for _, r := range fetches(c.Seen(keyFetch)) {
		require.Equal(t, int16(10), r.Version)
	}
	// Without ids a log that ends below ours is never overlaid.
	c.Update(func(st *stub.State) { st.NewTopic("t", messages.TopicID{}, 1).Partitions[0].Fill(40) })
	require.ErrorIs(t, waitEvent[fetch.Failed](t, s).Err, fetch.ErrSourceBehind)
	require.Equal(t, int64(100), s.State().End)
	require.Zero(t, w.Len())
}

// C41: without ids a batch epoch that goes back is another topic's.
func TestC41EpochWentBack(t *testing.T) {
	c := startStub(t, 1)
	c.Update(func(st *stub.State) {
		st.Versions = stub.Versions21()
		p := st.NewTopic("t", messages.TopicID{}, 1).Partitions[0]
		p.Epoch = 4
		p.Fill(10)
	})
	s := newMemSink()
	follow(t, c, s, func(a *fetch.Assignment) { a.TopicID, a.LeaderEpoch = messages.TopicID{}, 4 })
	s.waitEnd(t, 10)
	c.Update(func(st *stub.State) {
		p := st.NewTopic("t", messages.TopicID{}, 1).Partitions[0]
		p.Fill(12)
		p.Epoch = 4
	})
	require.ErrorIs(t, waitEvent[fetch.Failed](t, s).Err, fetch.ErrTopicRecreated)
	require.Equal(t, int64(10), s.State().End)
}

// C42a: a throttled answer holds no topics; that is neither an error nor the end.
func TestC42ThrottledAnswers(t *testing.T) {
	const pause = 60 * time.Millisecond
	c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) { topic.Partitions[0].Fill(5) })
	left := 10
	c.Intercept(keyFetch, func(req *stub.Request) stub.Reply {
		if left == 0 {
			return stub.Reply{}
		}
		left--
		resp := kmsg.NewPtrFetchResponse()
		resp.Version, resp.ThrottleMillis = req.Version, int32(pause.Milliseconds())
		return stub.Reply{Response: resp}
	})
	s := newMemSink()
	_, lag := follow(t, c, s, nil)
	require.Equal(t, int64(-1), lag.Snapshot().Lag)
	s.waitEnd(t, 5)
	seen := c.Seen(keyFetch)
	for i := 1; i <= 10; i++ {
		require.GreaterOrEqual(t, seen[i].At.Sub(seen[i-1].At), pause-5*time.Millisecond)
	}
	waitEvent[fetch.FirstSuccess](t, s)
	require.Equal(t, 1, len(s.events))
}

// C46a: a broker that is advertised under a name nobody knows. The error names
// it; the other broker's partitions go on.
func TestC46UnreachableBroker(t *testing.T) {
	c := startStub(t, 2)
	c.Update(func(st *stub.State) {
		topic := st.NewTopic("t", topicID, 2)
		topic.Partitions[1].Leader = 1
		topic.Partitions[0].Fill(5)
		topic.Partitions[1].Fill(5)
	})
	c.Broker(1).Advertise("internal.invalid:9092")
	src := newSource(t, c.Address())
	topics, err := src.Topics(t.Context(), []string{"t"})
	require.NoError(t, err)
	leader := topics.Topics["t"].Partitions[1].Leader
	require.Equal(t, "internal.invalid:9092", leader.Address())
	good, bad := newMemSink(), newMemSink()
	follow(t, c, good, nil)
	w := newWorker(t, leader.Address(), func(cfg *fetch.WorkerConfig) { cfg.SourceBroker = 1 })
	a := assignment(bad, 1)
	require.NoError(t, w.Add(t.Context(), a))
	good.waitEnd(t, 5)
	require.Eventually(t, func() bool { return a.Lag.Snapshot().LastError != nil }, 20*time.Second, 5*time.Millisecond)
	err = a.Lag.Snapshot().LastError.Err
	require.ErrorContains(t, err, "internal.invalid:9092")
	require.True(t, fetch.IsConnection(err))
	require.True(t, fetch.Retriable(err))
	require.Empty(t, bad.events)
	require.NoError(t, w.Close())
	c.Broker(1).Advertise("")
	topics, err = src.Topics(t.Context(), []string{"t"})
	require.NoError(t, err)
	again := newWorker(t, topics.Topics["t"].Partitions[1].Leader.Address(), func(cfg *fetch.WorkerConfig) { cfg.SourceBroker = 1 })
	require.NoError(t, again.Add(t.Context(), a))
	bad.waitEnd(t, 5)
	require.Nil(t, a.Lag.Snapshot().LastError)
}

// An outage leaves the partition where it is; it catches up by itself.
func TestOutageKeepsMirroring(t *testing.T) {
	c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) { topic.Partitions[0].Fill(5) })
	s := newMemSink()
	w, lag := follow(t, c, s, nil)
	s.waitEnd(t, 5)
	c.Broker(0).Down()
	require.Eventually(t, func() bool { return lag.Snapshot().LastError != nil }, 20*time.Second, time.Millisecond)
	require.Equal(t, 1, w.Len())
	require.NoError(t, c.Broker(0).Up())
	c.Update(func(st *stub.State) { st.Topics["t"].Partitions[0].Fill(5) })
	s.waitEnd(t, 10)
	require.Equal(t, 1, len(s.events))
	require.Equal(t, sourceBytes(c, 0), s.bytes())
}

func TestBlackHoleDoesNotHoldRemoveOrClose(t *testing.T) {
	c := oneTopic(t, 1, nil)
	c.Broker(0).BlackHole(true)
	s := newMemSink()
	w, _ := follow(t, c, s, nil)
	require.NoError(t, c.Wait(within(t, 10*time.Second), func(_ *stub.State, _ []stub.Seen) bool { return true }))
	require.NoError(t, w.Remove(within(t, time.Second), tp("t", 0)))
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	require.ErrorIs(t, w.Add(t.Context(), assignment(s, 0)), fetch.ErrClosed)
}

func TestEpochAboveDLERefusesAll(t *testing.T) {
	c := oneTopic(t, 2, func(_ *stub.State, topic *stub.Topic) {
		p := topic.Partitions[0]
		p.Fill(3)
		p.Epoch = 7
		p.Fill(3)
	})
	s := newMemSink()
	s.dle = 6
	w, _ := follow(t, c, s, func(a *fetch.Assignment) { a.LeaderEpoch = 7 })
	require.Equal(t, fetch.BatchEpochAboveDLE{BatchEpoch: 7, LeaderEpoch: 6}, waitEvent[fetch.BatchEpochAboveDLE](t, s))
	require.Equal(t, int64(0), s.State().End)
	require.Zero(t, w.Len())
	// The epoch is raised; what was refused is fetched again.
	s.mu.Lock()
	s.dle = 17
	s.mu.Unlock()
	a := assignment(s, 0)
	a.LeaderEpoch = 7
	require.NoError(t, w.Add(t.Context(), a))
	s.waitEnd(t, 6)
}

func TestEpochAboveSLEAsksForRefresh(t *testing.T) {
	c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) {
		topic.Partitions[0].Put(stub.Build(stub.Spec{Base: 0, Epoch: 5, Records: value(3)}))
	})
	s := newMemSink()
	follow(t, c, s, nil)
	require.Equal(t, fetch.BatchEpochAboveSLE{BatchEpoch: 5, SourceEpoch: 0}, waitEvent[fetch.BatchEpochAboveSLE](t, s))
	require.Zero(t, s.State().End)
}

func TestNearEpochOncePerEpoch(t *testing.T) {
	c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) {
		topic.Partitions[0].Epoch = 8
		topic.Partitions[0].Fill(3)
	})
	s := newMemSink()
	s.dle = 10
	follow(t, c, s, func(a *fetch.Assignment) { a.LeaderEpoch = 8 })
	for i := range 5 {
		s.waitEnd(t, int64(3+i))
		c.Update(func(st *stub.State) { st.Topics["t"].Partitions[0].Fill(1) })
	}
	s.waitEnd(t, 8)
	require.Equal(t, 1, countEvents[fetch.NearEpoch](s))
}

// The same leader, elected again: its new epoch is told if it comes close to ours,
// with no record under it.
func TestNearEpochOfTheSameLeader(t *testing.T) {
	c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) { topic.Partitions[0].Fill(5) })
	s := newMemSink()
	s.dle = 100
	follow(t, c, s, nil)
	s.waitEnd(t, 5)
	c.Update(func(st *stub.State) { p := st.Topics["t"].Partitions[0]; p.Epoch = 97; p.Fill(1) })
	s.waitEnd(t, 6)
	require.Zero(t, countEvents[fetch.NearEpoch](s), "far enough")
	c.Update(func(st *stub.State) { st.Topics["t"].Partitions[0].Epoch = 98 })
	require.Equal(t, fetch.NearEpoch{BatchEpoch: messages.NoEpoch, SourceEpoch: 98, LeaderEpoch: 100}, waitEvent[fetch.NearEpoch](t, s))
}

func TestLeaderMoves(t *testing.T) {
	for name, want := range map[string]struct {
		change func(*stub.State)
		event  func(*testing.T, *memSink, *stub.Cluster)
	}{
		"with a hint": {
			func(st *stub.State) { p := st.Topics["t"].Partitions[0]; p.Leader, p.Epoch = 1, 4 },
			func(t *testing.T, s *memSink, c *stub.Cluster) {
				t.Helper()
				l := waitEvent[fetch.SourceLeaderMoved](t, s).Leader
				require.Equal(t, messages.NodeID(1), l.ID)
				require.Equal(t, int32(4), l.Epoch)
				require.Equal(t, c.Broker(1).Address(), l.Address())
			},
		},
		"without a hint": {
			func(st *stub.State) { p := st.Topics["t"].Partitions[0]; p.Leader, p.NoHint = 1, true },
			func(t *testing.T, s *memSink, _ *stub.Cluster) {
				t.Helper()
				require.True(t, fetch.Retriable(waitEvent[fetch.LeaderUnknown](t, s).Err))
			},
		},
		"fenced, same leader": {
			func(st *stub.State) { p := st.Topics["t"].Partitions[0]; p.Epoch = 4; p.Fill(3) },
			func(t *testing.T, s *memSink, _ *stub.Cluster) {
				t.Helper()
				s.waitEnd(t, 8)
				require.Len(t, s.events, 1)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := startStub(t, 2)
			c.Update(func(st *stub.State) { st.NewTopic("t", topicID, 1).Partitions[0].Fill(5) })
			s := newMemSink()
			follow(t, c, s, nil)
			s.waitEnd(t, 5)
			c.Update(want.change)
			want.event(t, s, c)
		})
	}
}

// The source lost data: cut to its end, when it is known to be the same topic.
func TestSourceLostData(t *testing.T) {
	c := oneTopic(t, 1, func(st *stub.State, topic *stub.Topic) {
		topic.Partitions[0].Fill(10)
		st.Versions[keyFetch] = stub.Range{Min: 4, Max: 11} // no diverging epoch
	})
	s := newMemSink()
	follow(t, c, s, nil)
	s.waitEnd(t, 10)
	c.Update(func(st *stub.State) { st.Topics["t"].Partitions[0].Truncate(6) })
	require.Equal(t, int64(6), waitEvent[fetch.Truncated](t, s).Cut.From)
	c.Update(func(st *stub.State) { st.Topics["t"].Partitions[0].Fill(2) })
	s.waitEnd(t, 8)
}

// What the log refuses because the partition changed hands is dropped and
// fetched again; any other refusal fails the partition.
func TestSinkRefusals(t *testing.T) {
	for name, want := range map[string]struct {
		err   error
		fails bool
	}{
		"not leader":   {messages.ErrNotLeader, false},
		"fenced":       {messages.ErrFencedLeaderEpoch, false},
		"sealed":       {messages.ErrReadOnlyTopic, false},
		"disk failure": {messages.ErrStorage, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) { topic.Partitions[0].Fill(5) })
			s := newMemSink()
			refusals := 3
			s.appendErr = func() error {
				if refusals == 0 {
					return nil
				}
				refusals--
				return fmt.Errorf("refuse: %w", want.err)
			}
			follow(t, c, s, nil)
			if want.fails {
				require.ErrorIs(t, waitEvent[fetch.Failed](t, s).Err, want.err)
				return
			}
			s.waitEnd(t, 5)
			require.Zero(t, countEvents[fetch.Failed](s))
		})
	}
}

// Remove returns only when the append that runs is over, and none follows.
func TestRemoveWaitsForTheAppend(t *testing.T) {
	c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) { topic.Partitions[0].Fill(5) })
	s := newMemSink()
	gate := make(chan struct{})
	s.gate = gate
	w, lag := follow(t, c, s, nil)
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.inAppend }, 10*time.Second, time.Millisecond)
	c.Update(func(st *stub.State) { st.Topics["t"].Partitions[0].Fill(5) })
	removed := make(chan error, 1)
	go func() { removed <- w.Remove(t.Context(), tp("t", 0)) }()
	select {
	case <-removed:
		t.Fatal("removed while an append runs")
	case <-time.After(50 * time.Millisecond):
	}
	close(gate)
	require.NoError(t, <-removed)
	end := s.State().End
	require.Equal(t, int64(-1), lag.Snapshot().Lag)
	other := newMemSink()
	require.NoError(t, w.Add(t.Context(), assignment(other, 0)))
	other.waitEnd(t, 10)
	require.Equal(t, end, s.State().End)
}

// A partition whose append hangs is left out beyond its credit and holds nobody.
func TestSlowPartitionHoldsNobody(t *testing.T) {
	c := oneTopic(t, 2, func(_ *stub.State, topic *stub.Topic) {
		for range 200 {
			topic.Partitions[0].Put(stub.Build(stub.Spec{Base: topic.Partitions[0].End(), Records: value(10000)}))
		}
	})
	slow, fast := newMemSink(), newMemSink()
	gate := make(chan struct{})
	slow.gate = gate
	budget := fetch.NewBudget(1 << 20)
	w := newWorker(t, c.Address(), func(cfg *fetch.WorkerConfig) {
		cfg.PartitionMaxBytes, cfg.Credit, cfg.Budget = 50000, 100000, budget
	})
	require.NoError(t, w.Add(t.Context(), assignment(slow, 0)))
	require.NoError(t, w.Add(t.Context(), assignment(fast, 1)))
	for i := range 20 {
		c.Update(func(st *stub.State) { st.Topics["t"].Partitions[1].Fill(1) })
		fast.waitEnd(t, int64(i+1))
	}
	require.LessOrEqual(t, budget.Used(), int64(100000+50000+(64<<10)))
	close(gate)
	slow.waitEnd(t, 200)
	require.Equal(t, sourceBytes(c, 0), slow.bytes())
	require.NoError(t, w.Close())
	require.Zero(t, budget.Used())
}

// C42b: a throttle smaller than one batch lets it through, and leaves the others
// alone.
func TestC42ThrottledPartition(t *testing.T) {
	c := oneTopic(t, 2, func(_ *stub.State, topic *stub.Topic) {
		topic.Partitions[0].Put(stub.Build(stub.Spec{Records: value(50000)}))
	})
	s, free := newMemSink(), newMemSink()
	meter := fetch.NewMeter(clock.Wall{}, 1000)
	w := newWorker(t, c.Address(), func(cfg *fetch.WorkerConfig) { cfg.Throttle = meter })
	a := assignment(s, 0)
	a.Throttled = true
	require.NoError(t, w.Add(t.Context(), a))
	require.NoError(t, w.Add(t.Context(), assignment(free, 1)))
	s.waitEnd(t, 1)
	require.True(t, meter.Exceeded())
	c.Update(func(st *stub.State) { st.Topics["t"].Partitions[0].Fill(1); st.Topics["t"].Partitions[1].Fill(9) })
	free.waitEnd(t, 9)
	require.Equal(t, int64(1), s.State().End)
	meter.SetLimit(fetch.Unlimited)
	s.waitEnd(t, 2)
}

func TestClientIDTowardsTheSource(t *testing.T) {
	c := oneTopic(t, 1, nil)
	s := newMemSink()
	w := newWorker(t, c.Address(), func(cfg *fetch.WorkerConfig) { cfg.Number = 3 })
	require.NoError(t, w.Add(t.Context(), assignment(s, 0)))
	waitEvent[fetch.FirstSuccess](t, s)
	for _, r := range c.Seen(keyFetch) {
		require.Equal(t, "broker-7-fetcher-3-mirror-m", r.ClientID)
		require.Equal(t, int16(18), r.Version)
	}
	require.Equal(t, "MirrorFetcherThread-3-0-m", w.Config().Name())
}

// The error table, code by code: what the partition does.
func TestErrorTable(t *testing.T) {
	for _, code := range []int16{2, 3, 5, 9, 29, 35, 56, 75, 87, 100, 103, 109, 42} {
		t.Run(strconv.Itoa(int(code)), func(t *testing.T) {
			c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) { topic.Partitions[0].Fill(5); topic.Partitions[0].Code = code })
			s := newMemSink()
			w, lag := follow(t, c, s, nil)
			require.Eventually(t, func() bool { return lag.Snapshot().LastError != nil }, 10*time.Second, time.Millisecond)
			require.Equal(t, 1, w.Len())
			c.Update(func(st *stub.State) { st.Topics["t"].Partitions[0].Code = 0 })
			s.waitEnd(t, 5)
			wantRefresh := code == 3 || code == 5 || code == 9 || code == 100 || code == 103
			require.Equal(t, wantRefresh, countEvents[fetch.RefreshWanted](s) == 1)
			require.Zero(t, countEvents[fetch.Failed](s))
		})
	}
}

func TestAddressOfLeader(t *testing.T) {
	require.Equal(t, "[::1]:9", fetch.Leader{Host: "::1", Port: 9}.Address())
	require.Empty(t, fetch.Leader{}.Address())
	_, _, err := net.SplitHostPort(fetch.Broker{Host: "fe80::1%lo", Port: 9092}.Address())
	require.NoError(t, err)
}

// C46b: a source on an IPv6 address.
func TestC46IPv6Source(t *testing.T) {
	c, err := stub.Start(stub.Options{Host: "::1"})
	if err != nil {
		t.Skip("this machine has no IPv6: ", err)
	}
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	c.Update(func(st *stub.State) { st.NewTopic("t", topicID, 1).Partitions[0].Fill(3) })
	topics, err := newSource(t, c.Address()).Topics(t.Context(), nil)
	require.NoError(t, err)
	leader := topics.Topics["t"].Partitions[0].Leader
	require.Equal(t, "::1", leader.Host)
	require.Equal(t, c.Address(), leader.Address())
	s := newMemSink()
	follow(t, c, s, nil)
	s.waitEnd(t, 3)
}

// D33: many throttled partitions ask for no more together than the rate has room for.
func TestD33ThrottledPartitionsShareTheRoom(t *testing.T) {
	const parts, rate = 20, 300_000
	c := oneTopic(t, parts, func(_ *stub.State, topic *stub.Topic) {
		for _, p := range topic.Partitions {
			p.Put(stub.Build(stub.Spec{Records: value(900_000)}))
		}
	})
	meter := fetch.NewMeter(clock.Wall{}, rate)
	w := newWorker(t, c.Address(), func(cfg *fetch.WorkerConfig) { cfg.Throttle, cfg.MaxBytes = meter, 100<<20 })
	sinks := make([]*memSink, parts)
	for i := range sinks {
		sinks[i] = newMemSink()
		a := assignment(sinks[i], int32(i))
		a.Throttled = true
		require.NoError(t, w.Add(t.Context(), a))
	}
	require.Eventually(t, meter.Exceeded, time.Minute, time.Millisecond)
	var copied int
	for _, s := range sinks {
		copied += int(s.State().End)
	}
	require.LessOrEqual(t, copied, 1+10*rate/900_000, "of 900 kB each: ten seconds' worth and one more at most")
	meter.SetLimit(fetch.Unlimited)
	for _, s := range sinks {
		s.waitEnd(t, 1)
	}
}
