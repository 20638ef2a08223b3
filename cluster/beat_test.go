package cluster

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kagami/messages"
)

func testBeat(node messages.NodeID, incarnation byte, number uint64) *Beat {
	return &Beat{Node: node, Incarnation: messages.TopicID{incarnation}, Number: number}
}

// TestBeatGolden: the bytes of version 1, and that the next one is refused.
func TestBeatGolden(t *testing.T) {
	b := &Beat{
		Node: 3, Incarnation: messages.TopicID{0xab, 15: 0xcd}, Number: 300, Leads: 7, Extension: []byte("ext"), Leaving: true, Starting: true, bye: true,
		Shards: []ShardProgress{{-1, 5, 4}, {12, 1 << 40, 0}},
	}
	const golden = "010706ab0000000000000000000000000000cdac020702010504188080808080200003657874"
	require.Equal(t, golden, hex.EncodeToString(b.encode()))
	got, err := decodeBeat(b.encode())
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(b, got, cmp.AllowUnexported(Beat{})))

	next := b.encode()
	next[0]++
	_, err = decodeBeat(next)
	require.ErrorContains(t, err, "version 2")
	for n := range b.encode() {
		_, err := decodeBeat(b.encode()[:n])
		require.ErrorIs(t, err, errBeat, "%d bytes", n)
	}
	_, err = decodeBeat(append(b.encode(), 0))
	require.ErrorIs(t, err, errBeat)
}

// FuzzBeat: no panic, and what is read is written alike.
func FuzzBeat(f *testing.F) {
	f.Add((&Beat{Node: 1, Number: 1, Shards: []ShardProgress{{0, 1, 1}}, Extension: []byte("x")}).encode())
	f.Add(testBeat(-1, 1, 1<<60).encode())
	f.Fuzz(func(t *testing.T, in []byte) {
		b, err := decodeBeat(in)
		if err != nil {
			return
		}
		again, err := decodeBeat(b.encode())
		require.NoError(t, err)
		b.Leads = max(0, b.Leads)
		require.True(t, bytes.Equal(b.encode(), again.encode()))
	})
}

// TestBeatTable goes through the life of nodes: each step is a beat, or time
// that passes, and who is alive after it.
func TestBeatTable(t *testing.T) {
	type step struct {
		after time.Duration
		beat  *Beat // nil: a sweep
		live  []messages.NodeID
		out   beatOutcome
	}
	bye := testBeat(2, 1, 3)
	bye.bye = true
	strangeBye := testBeat(1, 9, 3)
	strangeBye.bye = true
	nobody, two, twoThree := []messages.NodeID{}, []messages.NodeID{2}, []messages.NodeID{2, 3}
	changed, taken := beatOutcome{changed: true}, beatOutcome{taken: true}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"come, be silent, come again", []step{
			{0, testBeat(2, 1, 1), two, changed},
			{900 * time.Millisecond, nil, two, beatOutcome{}},
			{0, testBeat(2, 1, 2), two, beatOutcome{}},
			{900 * time.Millisecond, nil, two, beatOutcome{}},
			{100 * time.Millisecond, nil, nobody, changed},
			{0, testBeat(2, 1, 3), two, changed},
		}},
		{"an overtaken beat keeps nobody alive", []step{
			{0, testBeat(2, 1, 5), two, changed},
			{999 * time.Millisecond, testBeat(2, 1, 4), two, beatOutcome{}},
			{time.Millisecond, nil, nobody, changed},
		}},
		{"goodbye", []step{
			{0, testBeat(2, 1, 1), two, changed},
			{0, testBeat(3, 1, 1), twoThree, changed},
			{0, bye, []messages.NodeID{3}, changed},
			{0, testBeat(2, 1, 2), []messages.NodeID{3}, beatOutcome{}}, // overtaken by the goodbye
			{0, testBeat(2, 2, 1), twoThree, changed},
		}},
		{"a restart", []step{
			{0, testBeat(2, 1, 100), two, changed},
			{0, testBeat(2, 2, 1), two, beatOutcome{}},
			{0, testBeat(2, 1, 101), two, beatOutcome{}}, // was on its way
			{0, testBeat(2, 2, 2), two, beatOutcome{}},
		}},
		{"two processes of one id", []step{
			{0, testBeat(2, 1, 1), two, changed},
			{0, testBeat(2, 2, 1), two, beatOutcome{}},
			{0, testBeat(2, 1, 2), two, beatOutcome{}},
			{0, testBeat(2, 2, 2), two, beatOutcome{}},
			{0, testBeat(2, 1, 3), two, taken},
		}},
		{"our own id", []step{
			{0, testBeat(1, 1, 1), nobody, beatOutcome{}}, // we are incarnation 1
			{0, testBeat(1, 9, 1), nobody, beatOutcome{}},
			{2 * time.Second, testBeat(1, 9, 2), nobody, beatOutcome{}}, // too long ago: another one that ended
			{0, strangeBye, nobody, beatOutcome{}},
			{0, testBeat(1, 9, 4), nobody, taken},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table := newBeatTable(1, messages.TopicID{1}, time.Second)
			now := time.Unix(1000, 0)
			for i, s := range tc.steps {
				now = now.Add(s.after)
				var out beatOutcome
				if s.beat == nil {
					out.changed = table.sweep(now)
				} else {
					out = table.receive(now, s.beat)
				}
				require.Equal(t, s.out, out, "step %d", i)
				require.Equal(t, s.live, table.live(), "step %d", i)
			}
		})
	}
}

func TestBeatTableBack(t *testing.T) {
	table := newBeatTable(1, messages.TopicID{1}, time.Second)
	start := time.Unix(1000, 0)
	require.True(t, table.sent(start, testBeat(1, 1, 1)))
	table.receive(start, testBeat(2, 1, 1))
	late := start.Add(time.Minute)
	table.back(late)
	require.False(t, table.sweep(late), "nobody died because this process slept")
	require.True(t, table.sweep(late.Add(time.Second)))
	require.Equal(t, []messages.NodeID{1}, table.live())
}

func TestElapsedSeesSleep(t *testing.T) {
	start := time.Unix(1000, 0)
	require.Equal(t, time.Minute, elapsed(start, start.Add(time.Minute)))
	now := time.Now()
	require.Equal(t, time.Hour, elapsed(now, now.Round(0).Add(time.Hour)), "the monotonic clock stood still")
}
