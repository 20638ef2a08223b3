package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/cluster/journal"
	"kagami/messages"
)

// fullStream takes nothing, until it has room.
type fullStream struct {
	*memStream
	room   atomic.Int64
	purged atomic.Uint64
}

func (f *fullStream) Publish(id string, payload []byte, done func(uint64, error)) {
	if f.room.Load() == 0 {
		go done(0, fmt.Errorf("publish: %w", ErrJournalFull))
		return
	}
	f.memStream.Publish(id, payload, done)
}

func (f *fullStream) State(ctx context.Context) (StreamState, error) {
	s, err := f.memStream.State(ctx)
	s.Bytes = 1 << 20
	return s, err
}

func (f *fullStream) Purge(ctx context.Context, upTo uint64) error {
	f.purged.Store(upTo)
	return f.memStream.Purge(ctx, upTo)
}

func (f *fullStream) Widen(_ context.Context, bytes int64) error {
	f.room.Store(bytes)
	return nil
}

// TestTrimFull: streams that are full, and take no beats either, are trimmed as soon as a
// dead node may be given up: the metadata's, and one of data, which has to take a mark
// first. Metadata that is really old lets nobody be given up.
func TestTrimFull(t *testing.T) {
	streams := map[int32]*fullStream{}
	j, _ := muteJournal(t, new(atomic.Bool), func(id int32, m *muteStream) stream {
		f := &fullStream{memStream: m.memStream}
		f.room.Store(1)
		for n := range 10 {
			stored := make(chan error)
			m := journal.Message{Author: journal.Author{Node: 3}, Number: uint64(n)}
			f.Publish(fmt.Sprint(n), m.AppendTo(nil), func(_ uint64, err error) { stored <- err })
			require.NoError(t, <-stored)
		}
		f.room.Store(0)
		streams[id] = f
		return f
	})
	require.Eventually(t, func() bool {
		return j.Isolated(MetadataShard) && j.shards[MetadataShard].applied.Load() == 10 && j.shards[0].applied.Load() == 10
	}, 20*time.Second, time.Millisecond)
	j.mu.Lock()
	j.data = &Replicas{}
	j.mu.Unlock()
	j.shards[0].covered.Store(0)
	v := TrimView{
		Nodes: []messages.NodeID{1, 2},
		Beat: func(id messages.NodeID) (Beat, bool, bool) {
			needs := map[messages.NodeID]uint64{1: 9, 2: 3}[id]
			return Beat{Shards: []ShardProgress{{MetadataShard, 10, needs}, {0, 10, needs}}}, id == 1, true
		},
		Sole: func(messages.NodeID, int32) bool { return false },
	}
	j.shards[MetadataShard].applied.Store(8)
	require.NoError(t, j.trim(t.Context(), v, MetadataShard))
	require.EqualValues(t, 2, streams[MetadataShard].purged.Load(), "this node may not know the newest")
	j.shards[MetadataShard].applied.Store(10)
	for id, f := range streams {
		require.NoError(t, j.trim(t.Context(), v, id))
		require.EqualValues(t, 8, f.purged.Load(), "shard %d", id)
		require.Zero(t, f.room.Load(), "shard %d", id)
	}
	_, last, err := streams[0].Bounds(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 11, last, "the mark")
}

// TestStreamWiden: a full stream takes something again when it is given room.
func TestStreamWiden(t *testing.T) {
	c := startTestCluster(t, 2, nil)
	s := openTestStreams(t, c.servers[1], func(o *StreamsOptions) { o.BytesMax = 64 << 10 })
	st, err := s.Open(testContext(t), "wide", 1)
	require.NoError(t, err)
	fill := func() (err error) {
		ctx := testContext(t) // a stream that is new or was changed may have no leader for a moment
		for err == nil || errors.Is(err, ErrOutcomeUnknown) && ctx.Err() == nil {
			err = publishAll(st, fmt.Sprint(time.Now().UnixNano(), strings.Repeat("x", 1000)))[0].err
		}
		return err
	}
	require.ErrorIs(t, fill(), ErrJournalFull)
	require.NoError(t, st.Widen(testContext(t), 64<<10))
	publishSafely(t, st, "after")
	require.ErrorIs(t, fill(), ErrJournalFull)
	_, last, err := st.Bounds(testContext(t))
	require.NoError(t, err)
	require.NoError(t, st.Purge(testContext(t), last-1))
	require.NoError(t, st.Widen(testContext(t), 0))
	publishSafely(t, st, "narrow")
}
