package simjournal

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func payloadOf(sequence uint64, size int) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, size), sequence)[:max(size, 8)]
}

func drain(t *testing.T, f *Follower) (got []uint64) {
	t.Helper()
	for {
		sequence, payload, ok := f.Next()
		if !ok {
			return got
		}
		require.Equal(t, sequence, binary.BigEndian.Uint64(payload))
		got = append(got, sequence)
	}
}

func mustHole(t *testing.T, f *Follower, limit int, from, to uint64) {
	t.Helper()
	a, b, ok := f.Hole(limit)
	require.True(t, ok, "no hole")
	require.Equal(t, [2]uint64{from, to}, [2]uint64{a, b})
}

func mustNoHole(t *testing.T, f *Follower) {
	t.Helper()
	a, b, ok := f.Hole(100)
	require.False(t, ok, "hole %d to %d", a, b)
}

func TestFollowerFillsHoles(t *testing.T) {
	f := NewFollower(5, FollowerOptions{MessagesMax: 10})
	mustNoHole(t, f)
	f.Deliver(4, payloadOf(4, 8)) // old
	f.Deliver(5, payloadOf(5, 8))
	require.Equal(t, []uint64{5}, drain(t, f))
	f.Deliver(8, payloadOf(8, 8))
	f.Deliver(8, payloadOf(8, 8))
	f.Deliver(10, payloadOf(10, 8))
	require.Empty(t, drain(t, f))
	mustHole(t, f, 100, 6, 7)
	mustHole(t, f, 1, 6, 6)
	f.Deliver(7, payloadOf(7, 8))
	f.Deliver(6, payloadOf(6, 8))
	require.Equal(t, []uint64{6, 7, 8}, drain(t, f))
	mustHole(t, f, 100, 9, 9)
	f.Available(1, 30) // the feed is silent, but the stream has more
	f.Deliver(9, payloadOf(9, 8))
	require.Equal(t, []uint64{9, 10}, drain(t, f))
	mustHole(t, f, 100, 11, 20) // what there is room for
	f.Deliver(21, payloadOf(21, 8))
	kept, size := f.Kept()
	require.Zero(t, kept+size, "kept beyond its room")
}

func TestFollowerNeedsCopy(t *testing.T) {
	f := NewFollower(5, FollowerOptions{})
	f.Available(5, 20)
	require.False(t, f.NeedCopy())
	f.Available(6, 20)
	require.True(t, f.NeedCopy())
	mustNoHole(t, f)
	f.Deliver(6, payloadOf(6, 8))
	require.Empty(t, drain(t, f))
	f.Deliver(5, payloadOf(5, 8)) // it was on its way
	require.False(t, f.NeedCopy())
	require.Equal(t, []uint64{5, 6}, drain(t, f))
	require.False(t, f.NeedCopy())
	f.Available(15, 20)
	require.True(t, f.NeedCopy())
	f.Resume(18)
	require.False(t, f.NeedCopy())
	require.Equal(t, uint64(18), f.Expected())
	mustHole(t, f, 100, 18, 20)
}

func TestFollowerRewound(t *testing.T) {
	f := NewFollower(11, FollowerOptions{})
	f.Available(1, 10)
	require.False(t, f.Rewound())
	f.Available(1, 9)
	require.True(t, f.Rewound())
	f.Available(1, 12)
	require.False(t, f.Rewound())
}

// TestFollowerBytes: when there is no room the lower message has it.
func TestFollowerBytes(t *testing.T) {
	f := NewFollower(1, FollowerOptions{MessagesMax: 100, BytesMax: 1000})
	for _, sequence := range []uint64{9, 7, 5, 3} {
		f.Deliver(sequence, payloadOf(sequence, 300))
	}
	kept, size := f.Kept()
	require.Equal(t, []int{3, 900}, []int{kept, size})
	mustHole(t, f, 100, 1, 2)
	f.Deliver(8, payloadOf(8, 300)) // no room, and nothing higher to drop
	f.Deliver(1, payloadOf(1, 5000))
	require.Equal(t, []uint64{1}, drain(t, f))
	mustHole(t, f, 100, 2, 9)
}

// TestFollowerRandom: whatever the feed does, everything goes out once, in order.
func TestFollowerRandom(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		const last = 200
		f := NewFollower(1, FollowerOptions{MessagesMax: 1 + rnd.IntN(20), BytesMax: 8 + rnd.IntN(400)})
		live, want := uint64(0), uint64(1)
		for steps := 0; want <= last; steps++ {
			require.Less(t, steps, 20_000, "seed %d doesn't end", seed)
			switch rnd.IntN(4) {
			case 0:
				live = min(last, live+1+uint64(rnd.IntN(5)))
				f.Deliver(live, payloadOf(live, 8+rnd.IntN(50)))
			case 1:
				old := 1 + rnd.Uint64N(max(live, 1))
				if old <= live {
					f.Deliver(old, payloadOf(old, 8+rnd.IntN(50)))
				}
			case 2:
				if rnd.IntN(5) == 0 {
					f.Available(1, live)
				}
				if from, to, ok := f.Hole(1 + rnd.IntN(10)); ok {
					if from < want || to > live {
						t.Fatalf("seed %d: hole %d to %d, expected %d, live %d", seed, from, to, want, live)
					}
					for ; from <= to; from++ {
						if rnd.IntN(5) > 0 {
							f.Deliver(from, payloadOf(from, 8+rnd.IntN(50)))
						}
					}
				}
			case 3:
				for _, sequence := range drain(t, f) {
					require.Equal(t, want, sequence, "seed %d", seed)
					want++
				}
			}
			kept, size := f.Kept()
			if kept > f.opts.MessagesMax || kept > 1 && size > f.opts.BytesMax+58 {
				t.Fatalf("seed %d: keeps %d messages, %d bytes", seed, kept, size)
			}
		}
		kept, size := f.Kept()
		require.Zero(t, kept+size)
	}
}
