package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/cluster/journal"
	"kagami/messages"
	"kagami/messages/batch"
)

// mirrored are n batches of one record of some bytes, from base on.
func mirrored(base int64, n, bytes int) []byte {
	var out []byte
	for i := range n {
		b := batch.Append(nil, batch.Plain(), batch.Record{Value: make([]byte, bytes)})
		batch.SetOffsetAndEpoch(b, base+int64(i), 0)
		out = append(out, b...)
	}
	return out
}

func TestPieces(t *testing.T) {
	op := journal.Operation{Kind: journal.OpAppend, Generation: 3, Base: 5, End: 46, Batches: mirrored(6, 40, 20<<10)}
	var whole []byte
	end := op.Base
	for _, p := range pieces(op) {
		require.Equal(t, end, p.Base)
		require.LessOrEqual(t, len(p.Batches), pieceBytesMax)
		require.EqualValues(t, 3, p.Generation)
		end, whole = p.End, append(whole, p.Batches...)
	}
	require.Equal(t, op.End, end)
	require.Equal(t, op.Batches, whole)
	for _, few := range [][]byte{mirrored(0, 1, 1<<20), mirrored(0, 3, 10)} {
		require.Len(t, pieces(journal.Operation{Batches: few}), 1)
	}
	require.Len(t, pieces(journal.Operation{Batches: mirrored(0, 3, 1<<20)}), 3)
}

// mirrorOfTwo is a partition that is being mirrored, led by the first of two nodes.
func mirrorOfTwo(t *testing.T) (*several, *Replica, *memStream) {
	t.Helper()
	s := newSeveral(t, 1, 2)
	s.topic("t", 7, 1, 2)
	r := s.nodes[1].get("t")
	require.Eventually(t, r.Leads, 20*time.Second, time.Millisecond)
	for _, mode := range []messages.Mode{messages.ModeSealed, messages.ModeMirroring} {
		_, err := r.SetMode(t.Context(), mode)
		require.NoError(t, err)
	}
	return s, r, s.streams[s.nodes[1].journal.shardOf(r.Key()).id]
}

// TestAppendInPieces: a large append goes through the journal as several operations
// and is one append for who asked for it.
func TestAppendInPieces(t *testing.T) {
	s, r, _ := mirrorOfTwo(t)
	for i := range int64(5) {
		info, err := r.AppendMirror(t.Context(), 100*i, mirrored(100*i, 100, 20<<10))
		require.NoError(t, err)
		require.Equal(t, []int64{100 * i, 100*i + 99, 100 * (i + 1), 100}, []int64{info.FirstOffset, info.LastOffset, info.End, int64(info.Batches)})
	}
	s.equal(1, "t")
}

// TestAppendInPiecesLost: messages of the pieces get lost and are sent again, in another
// order. What lands is a beginning of the append, the rest is refused everywhere.
func TestAppendInPiecesLost(t *testing.T) {
	s, r, st := mirrorOfTwo(t)
	for round := range 20 {
		st.mu.Lock()
		st.lose = 1 + round%3
		st.mu.Unlock()
		end := r.State().End
		_, err := r.AppendMirror(t.Context(), end, mirrored(end, 60, 20<<10))
		if err != nil {
			require.True(t, errors.Is(err, ErrNotLogEnd) || errors.Is(err, messages.ErrNotLeader), "%v", err)
		}
	}
	s.equal(1, "t")
}

// TestAppendInPiecesUnknown: after pieces whose outcome isn't known the next append is
// in a new generation. The late pieces would fit behind what it may have appended.
func TestAppendInPiecesUnknown(t *testing.T) {
	s, r, st := mirrorOfTwo(t)
	before := r.State().Generation
	st.stall(true)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, fmt.Errorf("%w: test", messages.ErrTimedOut))
	defer cancel()
	_, err := r.AppendMirrorAt(ctx, before, 0, mirrored(0, 60, 20<<10))
	require.ErrorIs(t, err, messages.ErrTimedOut)
	require.True(t, r.unsure)
	st.stall(false)
	require.Eventually(t, r.Leads, 20*time.Second, time.Millisecond)
	_, err = r.AppendMirrorAt(t.Context(), before, r.State().End, mirrored(r.State().End, 1, 10))
	require.ErrorIs(t, err, messages.ErrNotLeader, "the old generation")
	now := r.State()
	require.Greater(t, now.Generation, before)
	_, err = r.AppendMirrorAt(t.Context(), now.Generation, now.End, mirrored(now.End, 1, 10))
	require.NoError(t, err)
	s.equal(1, "t")
}
