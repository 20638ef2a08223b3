package journal

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kagami/messages"
)

var update = flag.Bool("update", false, "rewrite golden files")

func testAuthor(node messages.NodeID) Author {
	a := Author{Node: node}
	for i := range a.Incarnation {
		a.Incarnation[i] = byte(0xa0 + i)
	}
	return a
}

func testKey(p int32) messages.PartitionKey {
	k := messages.PartitionKey{CreatedAt: 0x0102030405060708, Partition: p}
	for i := range k.TopicID {
		k.TopicID[i] = byte(i + 1)
	}
	return k
}

// testMessage has every kind and every field once.
func testMessage() Message {
	return Message{Author: testAuthor(7), Number: 0x1122334455, Entries: []Entry{
		{Key: testKey(0), Op: Operation{Kind: OpClaim, Epoch: 9, Node: 7}},
		{Key: testKey(1), Op: Operation{Kind: OpAppend, Generation: At(12, 3), Class: messages.ClassMirror, Base: 100, End: 203, Batches: []byte("the batches, unchanged")}},
		{Key: testKey(2), Op: Operation{Kind: OpTruncate, Generation: 1 << 40, Offset: 77, Reason: "diverged at epoch 4"}},
		{Key: testKey(3), Op: Operation{Kind: OpRestartAt, Generation: 5, Offset: 1 << 50, Reason: "retention"}},
		{Key: testKey(4), Op: Operation{Kind: OpRaiseLogStart, Generation: 6, Offset: 3}},
		{Key: testKey(5), Op: Operation{Kind: OpMode, Generation: 7, Mode: messages.ModeSealed}},
		{Key: testKey(6), Op: Operation{Kind: OpBaseline, Mode: messages.ModeMirroring, Epoch: 2, Node: 1, Offset: 10, End: 20}},
		{Key: testKey(-1), Op: Operation{Kind: 99, Class: -3, Mode: -4, Generation: -1, Base: -2, End: -3, Offset: -4, Epoch: -5, Node: -6}},
	}}
}

func TestPositions(t *testing.T) {
	last := int64(0)
	for _, at := range []struct {
		sequence uint64
		index    int
	}{{1, 0}, {1, 1}, {1, MessageEntriesMax - 1}, {2, 0}, {1<<51 - 1, MessageEntriesMax - 1}} {
		p := At(at.sequence, at.index)
		if p <= last {
			t.Fatalf("position of %+v is %d, not above %d", at, p, last)
		}
		if got := SequenceOf(p); got != at.sequence {
			t.Fatalf("sequence of %d is %d, want %d", p, got, at.sequence)
		}
		last = p
	}
}

// TestMessageGolden: what version 1 looks like, for ever.
func TestMessageGolden(t *testing.T) {
	const golden = "testdata/message1.hex"
	m := testMessage()
	got := m.AppendTo([]byte("in front"))
	got = got[len("in front"):]
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(hexLines(got)), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	if d := cmp.Diff(string(want), hexLines(got)); d != "" {
		t.Fatalf("bytes of version 1 changed (-golden +now):\n%s", d)
	}
	b, err := hex.DecodeString(strings.Join(strings.Fields(string(want)), ""))
	require.NoError(t, err)
	back, err := Parse(b)
	require.NoError(t, err)
	if d := cmp.Diff(m, back); d != "" {
		t.Fatalf("golden bytes (-want +parsed):\n%s", d)
	}
}

func hexLines(b []byte) string {
	var s strings.Builder
	for len(b) > 0 {
		n := min(16, len(b))
		s.WriteString(hex.EncodeToString(b[:n]) + "\n")
		b = b[n:]
	}
	return s.String()
}

func TestMessageBatchesAreNotCopied(t *testing.T) {
	m := testMessage()
	b := m.AppendTo(nil)
	back, err := Parse(b)
	require.NoError(t, err)
	batches := back.Entries[1].Op.Batches
	at := bytes.Index(b, batches)
	b[at] ^= 0xff
	require.Equal(t, b[at], batches[0], "batches are a copy")
	require.Equal(t, len(batches), cap(batches), "an append to the batches would write over the next entry")
}

func TestMessageBeat(t *testing.T) {
	m := Message{Author: testAuthor(1), Number: 5}
	back, err := Parse(m.AppendTo(nil))
	require.NoError(t, err)
	require.Equal(t, m, back)
}

func TestMessageLongReason(t *testing.T) {
	m := Message{Entries: []Entry{{Op: Operation{Kind: OpTruncate, Reason: strings.Repeat("ä", ReasonBytesMax)}}}}
	b := m.AppendTo(nil)
	require.LessOrEqual(t, len(b), messageHeaderSize+m.Entries[0].size())
	back, err := Parse(b)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("ä", ReasonBytesMax/2), back.Entries[0].Op.Reason)
	m.Entries[0].Op.Reason = "x" + m.Entries[0].Op.Reason // now the limit is inside a character
	back, err = Parse(m.AppendTo(nil))
	require.NoError(t, err)
	require.Equal(t, "x"+strings.Repeat("ä", ReasonBytesMax/2-1), back.Entries[0].Op.Reason)
}

// TestMessageDamaged: every cut and every flipped bit is found.
func TestMessageDamaged(t *testing.T) {
	m := testMessage()
	b := m.AppendTo(nil)
	for n := range b {
		if _, err := Parse(b[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes are taken for a message", n, len(b))
		}
	}
	_, err := Parse(append(bytes.Clone(b), 0))
	require.ErrorIs(t, err, ErrDamagedMessage)
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			_, err := Parse(b)
			if i == 0 && b[0] > messageVersion {
				require.ErrorIs(t, err, ErrNewerMessage)
			} else {
				require.ErrorIs(t, err, ErrDamagedMessage, "byte %d, bit %d", i, bit)
			}
			b[i] ^= 1 << bit
		}
	}
}

func TestMessageOfTheNextVersion(t *testing.T) {
	m := testMessage()
	b := m.AppendTo(nil)
	b[0] = messageVersion + 1
	_, err := Parse(b)
	require.ErrorIs(t, err, ErrNewerMessage)
	require.ErrorContains(t, err, "update this node")
}

// FuzzMessage: no bytes make Parse panic or take memory beyond their own size,
// and what is parsed is written as it was.
func FuzzMessage(f *testing.F) {
	m := testMessage()
	f.Add(m.AppendTo(nil))
	m.Entries = m.Entries[:1]
	f.Add(m.AppendTo(nil))
	m.Entries = nil
	f.Add(m.AppendTo(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		fixed := bytes.Clone(b)
		if len(fixed) >= messageHeaderSize { // a checksum that fits, or nothing gets past it
			setChecksum(fixed)
		}
		for _, b := range [][]byte{b, fixed} {
			m, err := Parse(b)
			if err != nil {
				continue
			}
			if again := m.AppendTo(nil); !bytes.Equal(b, again) {
				t.Fatalf("parsed %x, written %x", b, again)
			}
		}
	})
}
