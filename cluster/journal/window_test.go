package journal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
)

// TestWindow: proposers of one node share what is in flight, and one whose stream
// doesn't answer leaves the others a message at a time.
func TestWindow(t *testing.T) {
	const size = 1000
	w := NewWindow(3 * size)
	add := func(p *Proposer, n int) {
		for i := range n {
			p.Add(Entry{Key: messages.PartitionKey{TopicID: messages.TopicID{1}, Partition: int32(i)}, Op: Operation{Kind: OpAppend, Batches: make([]byte, size-200)}})
		}
	}
	next := func(p *Proposer) (uint64, bool) {
		number, _, ok := p.Next()
		return number, ok
	}
	options := ProposerOptions{GatherBytesMax: 1, Window: w}
	stuck, other := NewProposer(Author{Node: 1}, options), NewProposer(Author{Node: 1}, options)
	add(stuck, 10)
	add(other, 10)
	sent := 0
	for _, ok := next(stuck); ok; _, ok = next(stuck) {
		sent++
	}
	require.Equal(t, 3, sent)
	require.Positive(t, stuck.Starved())
	require.False(t, w.Room(stuck.Starved()))
	for range 3 {
		number, ok := next(other)
		require.True(t, ok, "nothing of it is in flight")
		_, ok = next(other)
		require.False(t, ok)
		require.Positive(t, other.Starved())
		other.Acked(number, 1)
	}
	for number := uint64(1); number <= 3; number++ {
		stuck.Acked(number, number)
	}
	require.Zero(t, w.Used())
	_, ok := next(other)
	require.True(t, ok)
	require.Zero(t, other.Starved())
	_, ok = next(other)
	require.True(t, ok, "there is room again")
}
