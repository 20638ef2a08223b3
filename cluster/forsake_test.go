package cluster

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/cluster/journal"
	"kagami/messages"
	"kagami/persistence"
)

// muteStream takes messages, and nothing comes of them until it is heard.
type muteStream struct {
	*memStream
	heard   atomic.Bool
	taken   atomic.Int32
	givenUp atomic.Int32
}

func (m *muteStream) Publish(id string, payload []byte, done func(uint64, error)) {
	m.taken.Add(1)
	if m.heard.Load() {
		m.memStream.Publish(id, payload, done)
	}
}

func (m *muteStream) GiveUp(context.Context) error {
	m.givenUp.Add(1)
	return nil
}

// muteJournal is a node whose journal shards are mute. alive says whether it hears
// another node. over may put something over the streams.
func muteJournal(t *testing.T, alive *atomic.Bool, over func(int32, *muteStream) stream) (*Journal, []*muteStream) {
	t.Helper()
	checkpoints, err := OpenCheckpoints(persistence.OSFS{}, t.TempDir(), zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, checkpoints.Close()) })
	var streams []*muteStream
	j, err := NewJournal(t.Context(), JournalOptions{
		Node: 1, Incarnation: messages.NewTopicID(), Shards: 1, Checkpoints: checkpoints, Logger: zap.NewNop(),
		BeatInterval: 5 * time.Millisecond, IsolatedAfter: 50 * time.Millisecond, CheckpointInterval: time.Hour, TrimInterval: time.Hour, TrimBytes: 1000,
		Trim: func() TrimView {
			return TrimView{Nodes: []messages.NodeID{1, 2, 3}, Beat: func(id messages.NodeID) (Beat, bool, bool) { return Beat{}, id == 2 && alive.Load(), true }}
		},
		open: func(_ context.Context, shard int32) (stream, error) {
			st := &muteStream{memStream: newMemStream()}
			if streams = append(streams, st); over != nil {
				return over(shard, st), nil
			}
			return st, nil
		},
	})
	require.NoError(t, err)
	t.Cleanup(j.Close)
	for id := MetadataShard; id < 1; id++ {
		j.start(id, func(context.Context, messages.PartitionKey) (*Replica, error) { return nil, nil })
	}
	return j, streams
}

// TestForsake: a node that no other one hears gives up the streams that it may lead, once
// each time; one that hears a majority doesn't.
func TestForsake(t *testing.T) {
	alive := new(atomic.Bool)
	alive.Store(true)
	j, streams := muteJournal(t, alive, nil)
	isolated := func() bool { return len(j.unforsaken()) == len(streams) }
	require.Eventually(t, isolated, 20*time.Second, time.Millisecond)
	for range 20 {
		require.Zero(t, streams[0].givenUp.Load(), "a majority is there")
		require.NoError(t, j.clock.Sleep(t.Context(), time.Millisecond))
	}
	for round := int32(1); round <= 2; round++ {
		alive.Store(false)
		for _, st := range streams {
			require.Eventually(t, func() bool { return st.givenUp.Load() == round }, 20*time.Second, time.Millisecond)
		}
		for _, st := range streams {
			st.heard.Store(true)
		}
		require.Eventually(t, func() bool { return !j.shards[0].alone() && !j.shards[MetadataShard].alone() }, 20*time.Second, time.Millisecond)
		for _, st := range streams {
			require.Equal(t, round, st.givenUp.Load())
			st.heard.Store(false)
		}
	}
}

// TestBeatsUnheard: while nothing comes back beats come more seldom, and at their pace
// again as soon as something does, if only another node's message.
func TestBeatsUnheard(t *testing.T) {
	st := &muteStream{memStream: newMemStream()}
	j := &Journal{opts: JournalOptions{BeatInterval: time.Second}.withDefaults(), log: zap.NewNop()}
	s := &shard{j: j, stream: st, log: j.log, proposer: journal.NewProposer(journal.Author{Node: 1}, journal.ProposerOptions{})}
	at := time.Unix(1000, 0)
	for _, step := range []struct {
		after time.Duration
		moves bool
		want  bool
	}{
		{0, false, true}, {1, false, false}, {2, false, false}, {3, false, false}, {4, false, true}, {5, false, false},
		{6, true, true}, {7, false, false}, {7, true, true}, {10, false, false}, {11, false, true},
	} {
		now := at.Add(step.after * time.Second)
		s.moves = s.moves || step.moves
		got := s.beatDue(now)
		require.Equal(t, step.want, got, "%+v", step)
		if got {
			s.beat(now)
		}
	}
	require.EqualValues(t, 5, st.taken.Load())
}
