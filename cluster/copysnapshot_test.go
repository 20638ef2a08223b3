package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/internal/clock"
	"kagami/messages"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// Snapshots come in pieces, whole; one that is replaced in between, that ends early,
// or an answer that can't be read costs another try and nothing else.
func TestFetchSnapshot(t *testing.T) {
	b := openTestBus(t, nil)
	piece := func(size int, name string, content []byte) []byte {
		out := binary.BigEndian.AppendUint64([]byte{copyVersion, copyPiece}, uint64(size))
		return append(append(append(out, byte(len(name))), name...), content...)
	}
	whole := []byte("0123456789")
	offset := func(request []byte) int { return int(binary.BigEndian.Uint64(request[1:])) }
	for node, tc := range []struct {
		name   string
		answer func(asked int, request []byte) []byte
		want   string
	}{
		{"pieces", func(_ int, r []byte) []byte { return piece(10, "s", whole[offset(r):min(offset(r)+3, 10)]) }, ""},
		{"ends early", func(_ int, r []byte) []byte { return piece(10, "s", whole[min(offset(r), 6):6]) }, "ends at 6 of 10"},
		{"replaced", func(asked int, r []byte) []byte {
			if asked == 0 {
				return piece(10, "s", whole[:3])
			}
			return append([]byte{copyVersion, copyRefused}, fmt.Sprintf("snapshot %s is gone", r[9:])...)
		}, "snapshot s is gone"},
		{"another name", func(asked int, _ []byte) []byte { return piece(10, fmt.Sprint("s", asked), whole[:3]) }, "s1 came instead of s0"},
		{"nothing", func(int, []byte) []byte { return nil }, "damaged answer"},
		{"name beyond the end", func(int, []byte) []byte { return append(piece(10, "", nil)[:10], 200, 'x') }, "damaged answer"},
		{"other version", func(int, []byte) []byte { return append([]byte{9}, piece(10, "s", whole)[1:]...) }, "damaged answer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id, asked := messages.NodeID(node+10), 0
			serve(t, b, b.NodeSnapshot(id), func(_ context.Context, r []byte) []byte {
				defer func() { asked++ }()
				return tc.answer(asked, r)
			})
			name, content, err := fetchSnapshot(testContext(t), b, id)
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "s", name)
			require.Equal(t, whole, content)
		})
	}
}

// A real one goes from folder to folder, and one that went meanwhile isn't mixed with
// the one that took its place.
func TestServeSnapshots(t *testing.T) {
	b := openTestBus(t, nil)
	dir := t.TempDir()
	alone := startNode(t, t.TempDir())
	defer alone.stop()
	j := &Journal{opts: JournalOptions{Node: 1}, log: zap.NewNop(), clock: clock.Wall{}}
	stop, err := j.ServeSnapshots(b, dir)
	require.NoError(t, err)
	defer stop()
	_, _, err = fetchSnapshot(testContext(t), b, 1)
	require.ErrorContains(t, err, "newest snapshot")

	store := func(topics int) {
		s, err := metadata.Open(t.Context(), metadata.Options{
			Journal: alone.meta, Source: alone.meta, Dir: dir, Now: func() int64 { return 1 }, SnapshotRecords: 1, Logger: zap.NewNop(),
		})
		require.NoError(t, err)
		for range topics {
			alone.change(topicRecords(fmt.Sprint("t", alone.meta.Log().End()), byte(alone.meta.Log().End()), 1, "", "")...)
			require.NoError(t, s.WaitFor(testContext(t), alone.meta.Log().End()-1))
		}
		require.NoError(t, s.Close())
	}
	store(2)
	name, content, err := fetchSnapshot(testContext(t), b, 1)
	require.NoError(t, err)
	into := t.TempDir()
	end, err := metadata.PutSnapshot(persistence.OSFS{}, into, name, content)
	require.NoError(t, err)
	require.Positive(t, end)

	// The newest is another one now: asked for by its old name, it is refused or given
	// whole from what is kept.
	store(3)
	request := append(binary.BigEndian.AppendUint64([]byte{copyVersion}, 5), name...)
	answer, err := b.Request(testContext(t), b.NodeSnapshot(1), request)
	require.NoError(t, err)
	require.Equal(t, content[5:], answer[11+int(answer[10]):], "the rest of the one that was begun")
	fresh, _, err := fetchSnapshot(testContext(t), b, 1)
	require.NoError(t, err)
	require.NotEqual(t, name, fresh)
	answer, err = b.Request(testContext(t), b.NodeSnapshot(1), request)
	require.NoError(t, err)
	require.Equal(t, byte(copyRefused), answer[1])
	require.Contains(t, string(answer), "is gone")
}
