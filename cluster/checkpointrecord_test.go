package cluster

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kagami/cluster/journal"
	"kagami/messages"
	"kagami/persistence"
)

// goldenBody is version 1 of a record: kind, mode, pending, 0; topic id;
// created at; partition, epoch, node, 0; sequence, generation, log start, log
// end, mode offset, pending offset; the CRC comes first. Version 2 adds records,
// bytes, offsets and mirror of cuts, version 3 the place of the last cut and, in
// byte 7, which journal it is.
const (
	goldenHead = "010203"
	goldenBody = "0102030405060708090a0b0c0d0e0f10" + "0000000000000011" +
		"00000012" + "00000013" + "00000014" + "00000000" +
		"0000000000000015" + "0000000000000016" + "0000000000000017" + "0000000000000018" + "0000000000000019" + "000000000000001a"
	goldenCheckpoint1 = "b342d8c4" + goldenHead + "00" + goldenBody
	goldenCuts        = "000000000000001b" + "000000000000001c" + "000000000000001d" + "000000000000001e" + "000000000000001f"
	goldenCheckpoint2 = "c2f01b25" + goldenHead + "00" + goldenBody + goldenCuts
	goldenCheckpoint  = "1ea63437" + goldenHead + "01" + goldenBody + goldenCuts + "0000000000000020"
)

func TestCheckpointGolden(t *testing.T) {
	want := Checkpoint{
		Key: messages.PartitionKey{TopicID: messages.TopicID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, CreatedAt: 0x11, Partition: 0x12},
		State: journal.State{
			Mode: messages.ModeSealed, Epoch: 0x13, Node: 0x14, Sequence: 0x15, Generation: 0x16, LogStart: 0x17, LogEnd: 0x18, ModeOffset: 0x19, CutAt: 0x20,
		},
		Replicated: true,
		Pending:    journal.OpTruncate, PendingOffset: 0x1a,
		Cuts: CutCount{Mirror: 0x1f, Cut: persistence.Cut{Records: 0x1b, Bytes: 0x1c, From: 0x1d, To: 0x1e}},
	}
	b := appendCheckpointRecord(nil, checkpointPut, want)
	require.Equal(t, goldenCheckpoint, hex.EncodeToString(b))
	kind, got, ok := parseCheckpointRecord(b)
	require.True(t, ok)
	require.Equal(t, byte(checkpointPut), kind)
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("(-want +got):\n%s", d)
	}
	require.Equal(t, "4b4147414d494350"+"00000003"+"00000000", hex.EncodeToString(checkpointHeader()))
}

// TestCheckpointsOlderVersions: a file of an early build is read and rewritten.
func TestCheckpointsOlderVersions(t *testing.T) {
	t.Run("1", func(t *testing.T) { testOlderVersion(t, "00000001", goldenCheckpoint1, CutCount{}) })
	t.Run("2", func(t *testing.T) {
		testOlderVersion(t, "00000002", goldenCheckpoint2, CutCount{Mirror: 0x1f, Cut: persistence.Cut{Records: 0x1b, Bytes: 0x1c, From: 0x1d, To: 0x1e}})
	})
}

func testOlderVersion(t *testing.T, version, record string, cuts CutCount) {
	t.Helper()
	folder := t.TempDir()
	path := filepath.Join(folder, CheckpointFileName)
	old, err := hex.DecodeString("4b4147414d494350" + version + "00000000" + record + record)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, old, 0o600))
	for range 2 {
		c := openCheckpoints(t, folder)
		cp, ok := c.Take(messages.PartitionKey{TopicID: messages.TopicID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, CreatedAt: 0x11, Partition: 0x12})
		require.True(t, ok)
		require.Equal(t, int64(0x1a), cp.PendingOffset)
		require.Equal(t, cuts, cp.Cuts)
		require.False(t, cp.Replicated)
		require.Zero(t, cp.State.CutAt)
		require.NoError(t, c.Close())
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Len(t, b, checkpointHeaderSize+checkpointRecordSize)
	}
}

// FuzzCheckpoints: any bytes are read without a panic and with no more records
// than they have room for; what is read can be written and read again.
func FuzzCheckpoints(f *testing.F) {
	golden, err := hex.DecodeString(goldenCheckpoint)
	require.NoError(f, err)
	old, err := hex.DecodeString("4b4147414d494350" + "00000001" + "00000000" + goldenCheckpoint1)
	require.NoError(f, err)
	f.Add(old)
	f.Add(append(checkpointHeader(), golden...))
	f.Add(append(append(checkpointHeader(), golden...), golden[:50]...))
	f.Add([]byte(checkpointMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		live, records, damaged, err := replayCheckpoints(b)
		if err != nil {
			return
		}
		if len(live)*checkpointRecordSize1 > len(b) || damaged > records+1 {
			t.Fatalf("%d bytes gave %d partitions, %d of %d records damaged", len(b), len(live), damaged, records)
		}
		out := checkpointHeader()
		for _, cp := range live {
			out = appendCheckpointRecord(out, checkpointPut, cp)
		}
		again, _, bad, err := replayCheckpoints(out)
		if d := cmp.Diff(live, again); err != nil || bad > 0 || d != "" {
			t.Fatalf("read again: %v, %d damaged (-want +got):\n%s", err, bad, d)
		}
	})
}
