package metadata

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

// replayed is the image of a partition's bytes on top of base.
func replayed(t *testing.T, base *Image, log []byte) *Image {
	t.Helper()
	for len(log) > 0 {
		_, whole, rest, err := batch.Next(log)
		require.NoError(t, err)
		step, err := base.Replay(whole)
		require.NoError(t, err)
		require.Same(t, base, step.Delta.Old)
		base, log = step.Delta.New, rest
	}
	return base
}

// TestReplayIsTheStore: batch by batch without a store gives the store's image,
// older claims and snapshots included.
func TestReplayIsTheStore(t *testing.T) {
	p := newFakePartition()
	s := openStore(t, p, nil)
	mustAppend(t, s, claim(1, 1))
	mustAppend(t, s, topicRecords("t", 1, 2)...)
	mustAppend(t, s, claim(2, 2))
	_, err := s.AppendAll(t.Context(), []Change{{Records: []Record{topicConfig("t", "retention.ms", "1")}, Claim: 1}})
	require.ErrorIs(t, err, ErrStale)
	mustAppend(t, s, topicConfig("t", "retention.ms", "2"), bump(1, 0, 7))
	got := replayed(t, EmptyImage(), p.bytes)
	require.Equal(t, dump(t, s.Image()), dump(t, got))
	require.Equal(t, s.Image().Offset(), got.Offset())
	require.Equal(t, dump(t, got), dump(t, replayed(t, got, p.bytes)), "what is applied already changes nothing")
}

func TestReplaySaysWhoAsked(t *testing.T) {
	p := newFakePartition()
	s := openStore(t, p, nil)
	who := messages.Requester{Principal: "User:alice", ClientID: "c", Host: "h", RequestID: "r"}
	_, err := s.Append(t.Context(), topicRecords("t", 1, 1), who)
	require.NoError(t, err)
	step, err := EmptyImage().Replay(p.bytes)
	require.NoError(t, err)
	require.Equal(t, who, step.Requester)
	require.Len(t, step.Records, 2)
	require.Contains(t, step.Delta.Topics, "t")
	_, err = EmptyImage().Replay(p.bytes[:len(p.bytes)-1])
	require.ErrorIs(t, err, batch.ErrCorrupt)
}

func TestImageBefore(t *testing.T) {
	dir := t.TempDir()
	p := newFakePartition()
	s := openStore(t, p, func(o *Options) { o.Dir = dir })
	mustAppend(t, s, topicRecords("t", 1, 1)...)
	first := s.Image()
	require.NoError(t, s.writeSnapshot(t.Context(), first, 1, false))
	mustAppend(t, s, topicConfig("t", "retention.ms", "2"))
	require.NoError(t, s.writeSnapshot(t.Context(), s.Image(), 1, false))

	whole, err := ImageBefore(persistence.OSFS{}, dir, 0)
	require.NoError(t, err)
	require.Equal(t, messages.NoOffset, whole.Offset(), "nothing is gone")
	got, err := ImageBefore(persistence.OSFS{}, dir, 1)
	require.NoError(t, err)
	require.Equal(t, first.Offset(), got.Offset(), "the oldest one, so that most of the log is told")
	require.Equal(t, dump(t, first), dump(t, got))
	require.NoError(t, os.WriteFile(filepath.Join(dir, snapshotName(first.Offset()+1, 1)), []byte("x"), 0o600))
	got, err = ImageBefore(persistence.OSFS{}, dir, 1)
	require.NoError(t, err)
	require.Equal(t, s.Image().Offset(), got.Offset(), "the next one that is good")
	_, err = ImageBefore(persistence.OSFS{}, dir, 100)
	require.ErrorIs(t, err, persistence.ErrCorrupt)
}
