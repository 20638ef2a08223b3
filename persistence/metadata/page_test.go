package metadata

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/persistence"
)

// readPages replays everything from the beginning in pages of bytesMax.
func readPages(t *testing.T, s *Store, bytesMax int) (img *Image, log, all []byte, pages int) {
	t.Helper()
	img = EmptyImage()
	req := PageRequest{Snapshot: SnapshotPlace{Offset: messages.NoOffset}, BytesMax: bytesMax}
	var snapshot []byte
	for {
		page, err := s.ReadPage(req)
		require.NoError(t, err)
		pages++
		all = append(all, page.Batches...)
		switch {
		case page.Snapshot.Offset < 0:
			if len(page.Batches) == 0 {
				require.Equal(t, page.End, req.Offset)
				return img, log, all, pages
			}
			log = append(log, page.Batches...)
			img = replayed(t, img, page.Batches)
			req.Offset = img.Offset() + 1
		default:
			snapshot = append(snapshot, page.Batches...)
			req.Snapshot = page.Snapshot
			if page.Snapshot.Position < 0 {
				img, err = ReplaySnapshot(snapshot, page.Snapshot.Offset)
				require.NoError(t, err)
				req.Snapshot.Offset, req.Offset = messages.NoOffset, page.Snapshot.Offset
			}
		}
	}
}

// TestPagesAreTheLog: whoever replays the pages has the store's image, without
// the secrets, whether the log is whole or a snapshot stands for its beginning.
func TestPagesAreTheLog(t *testing.T) {
	for _, every := range []int64{-1, 10} {
		t.Run(fmt.Sprintf("snapshot every %d", every), func(t *testing.T) {
			p := newFakePartition()
			s := openStore(t, p, func(o *Options) { o.SnapshotRecords = every })
			secret, plain := "password=\"s3cret\"", "h:1"
			mustAppend(t, s, claim(1, 1))
			for i := range byte(30) {
				mustAppend(t, s, topicRecords(fmt.Sprintf("t%d", i), i+1, 2)...)
				mustAppend(t, s, ConfigRecord(messages.ResourceClusterMirror, "m", "sasl.jaas.config", &secret),
					ConfigRecord(messages.ResourceClusterMirror, "m", "bootstrap.servers", &plain))
				mustAppend(t, s, ConfigRecord(messages.ResourceClusterMirror, "m", "of.another.build", &secret))
				s.snap.wait()
			}
			if every > 0 {
				require.Positive(t, p.LogStart(), "a snapshot replaced the beginning")
			}
			for _, bytesMax := range []int{1, 1000, 1 << 20} {
				img, log, all, pages := readPages(t, s, bytesMax)
				require.Equal(t, s.Image().Offset(), img.Offset())
				require.NotContains(t, string(all), "s3cret")
				require.Equal(t, map[string]string{"sasl.jaas.config": HiddenValue, "of.another.build": HiddenValue, "bootstrap.servers": "h:1"}, img.Mirror("m").Configs)
				require.Len(t, img.Topics(), 30)
				if bytesMax == 1 && every < 0 {
					require.Greater(t, pages, 60, "a batch a page")
				}
				if every < 0 {
					require.Len(t, log, len(all))
					require.Less(t, bytes.Count(p.bytes, []byte("s3cret")), len(log))
				}
			}
		})
	}
}

func TestPageFaults(t *testing.T) {
	p := newFakePartition()
	s := openStore(t, p, nil)
	mustAppend(t, s, claim(1, 1))
	none := SnapshotPlace{Offset: messages.NoOffset}
	_, err := s.ReadPage(PageRequest{Offset: 99, Snapshot: none, BytesMax: 1})
	require.ErrorIs(t, err, persistence.ErrOffsetOutOfRange)
	_, err = s.ReadPage(PageRequest{Snapshot: SnapshotPlace{Offset: 5, Epoch: 1}, BytesMax: 1})
	require.ErrorIs(t, err, ErrSnapshotGone)
	page, err := s.ReadPage(PageRequest{Offset: 1, Snapshot: none, BytesMax: 1})
	require.NoError(t, err)
	require.Empty(t, page.Batches)
	require.NoError(t, p.RaiseLogStart(t.Context(), 1))
	_, err = s.ReadPage(PageRequest{Snapshot: none, BytesMax: 1})
	require.ErrorIs(t, err, persistence.ErrCorrupt, "no snapshot stands for what is gone")
}
