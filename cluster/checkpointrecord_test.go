package cluster

import (
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kagami/messages"
)

// goldenCheckpoint is version 1 of a record: kind, mode, pending, 0; topic id;
// created at; partition, epoch, node, 0; sequence, generation, log start, log
// end, mode offset, pending offset; the CRC comes first.
const goldenCheckpoint = "b342d8c4" + "01020300" + "0102030405060708090a0b0c0d0e0f10" + "0000000000000011" +
	"00000012" + "00000013" + "00000014" + "00000000" +
	"0000000000000015" + "0000000000000016" + "0000000000000017" + "0000000000000018" + "0000000000000019" + "000000000000001a"

func TestCheckpointGolden(t *testing.T) {
	want := Checkpoint{
		Key: messages.PartitionKey{TopicID: messages.TopicID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, CreatedAt: 0x11, Partition: 0x12},
		State: JournalState{
			Mode: messages.ModeSealed, Epoch: 0x13, Node: 0x14, Sequence: 0x15, Generation: 0x16, LogStart: 0x17, LogEnd: 0x18, ModeOffset: 0x19,
		},
		Pending: OpTruncate, PendingOffset: 0x1a,
	}
	b := appendCheckpointRecord(nil, checkpointPut, want)
	require.Equal(t, goldenCheckpoint, hex.EncodeToString(b))
	kind, got, ok := parseCheckpointRecord(b)
	require.True(t, ok)
	require.Equal(t, byte(checkpointPut), kind)
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("(-want +got):\n%s", d)
	}
	require.Equal(t, "4b4147414d494350"+"00000001"+"00000000", hex.EncodeToString(checkpointHeader()))
}

// FuzzCheckpoints: any bytes are read without a panic and with no more records
// than they have room for; what is read can be written and read again.
func FuzzCheckpoints(f *testing.F) {
	golden, err := hex.DecodeString(goldenCheckpoint)
	require.NoError(f, err)
	f.Add(append(checkpointHeader(), golden...))
	f.Add(append(append(checkpointHeader(), golden...), golden[:50]...))
	f.Add([]byte(checkpointMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		live, records, damaged, err := replayCheckpoints(b)
		if err != nil {
			return
		}
		if len(live)*checkpointRecordSize > len(b) || damaged > records+1 {
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
