package cluster

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
)

// TestBehindOfMany: a beat has room for some keys; more than that come out as all of
// their shards, so that nobody takes one for whole that isn't.
func TestBehindOfMany(t *testing.T) {
	const shards = 16
	for _, n := range []int{0, 3, behindMax, behindMax + 1, 20_000} {
		var keys, all []messages.PartitionKey
		for i := range 2*n + 10 {
			key := messages.PartitionKey{TopicID: messages.TopicID{byte(i), byte(i >> 8), 1}, CreatedAt: int64(i / 7), Partition: int32(i % 50)}
			if all = append(all, key); i < n {
				keys = append(keys, key)
			}
		}
		b := encodeBehind(slices.Clone(keys), shards)
		require.LessOrEqual(t, len(b), beatExtensionMax)
		got := ExpandBehind(DecodeBehind(b), shards, slices.Values(all))
		set := NewBehindSet(b, shards)
		for _, key := range keys {
			if _, ok := slices.BinarySearchFunc(got, key, compareKeys); !ok || !set.Has(key) {
				t.Fatalf("of %d: %s isn't named", n, key)
			}
		}
		if n <= behindMax {
			require.Len(t, got, n)
			require.False(t, set.Has(all[len(all)-1]))
		}
		require.Equal(t, b, encodeBehind(slices.Clone(keys), shards), "the same each time")
	}
}
