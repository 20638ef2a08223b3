package persistence

import (
	"encoding/hex"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
)

// The formats on disk, byte by byte. Kafka's kafka-dump-log reads all of them
// but the last two, which are ours.
func TestGoldenFormats(t *testing.T) {
	hexOf := func(b []byte) string { return hex.EncodeToString(b) }
	id := messages.TopicID{0x75, 0x98, 0xd2, 0x4e, 0x6f, 0x8b, 0x45, 0x4a, 0x93, 0x1c, 0x88, 0x67, 0x9c, 0x4c, 0xab, 0x37}
	var prod producerState
	p := prod.get(7)
	p.epoch, p.coordEpoch, p.lastTimestamp, p.txnFirst = 2, 3, 0x0102030405, 40
	p.batches = []ProducerBatch{{FirstSequence: 5, LastSequence: 9, FirstOffset: 41, LastOffset: 45, Timestamp: 0x0102030405}}
	prod.get(8)
	st := newLogState(messages.PartitionKey{TopicID: id, CreatedAt: 9, Partition: 3}, 4)
	st.number, st.cleanedTo, st.purgedTo = 6, 7, 5
	line := (&manifestLog{
		topic: "t", partition: 1, topicID: id, createdAt: 2, number: 3, start: 4, end: 5, hasProducers: true,
		epochs: []EpochEntry{{6, 4}}, segs: []manifestSegment{{4, 70, 5, 100, 4, 0}}, firstTS: 100, lastTimeTS: 100,
	}).encode()
	for _, c := range []struct{ name, got, want string }{
		{"segment name", segmentName(12, logSuffix), "00000000000000000012.log"},
		{"longest segment name", segmentName(math.MaxInt64, timeSuffix), "09223372036854775807.timeindex"},
		{"offset index entry", hexOf(appendOffsetEntry(nil, 100, offsetEntry{102, 77})), "000000020000004d"},
		{"time index entry", hexOf(appendTimeEntry(nil, 100, timeEntry{0x0102030405, 103})), "000000010203040500000003"},
		{
			"transaction index entry", hexOf(appendTxnEntry(nil, AbortedTxn{7, 40, 46, 47})),
			"0000" + "0000000000000007" + "0000000000000028" + "000000000000002e" + "000000000000002f",
		},
		{
			"producer snapshot", hexOf(prod.encode()),
			"0001" + "8dddeb84" + "00000002" +
				"0000000000000007" + "0002" + "00000009" + "000000000000002d" + "00000004" + "0000000102030405" + "00000003" + "0000000000000028" +
				"0000000000000008" + "ffff" + "ffffffff" + "ffffffffffffffff" + "00000000" + "ffffffffffffffff" + "ffffffff" + "ffffffffffffffff",
		},
		{"epochs", string(encodeEpochs([]EpochEntry{{0, 0}, {5, 120}})), "0\n2\n0 0\n5 120\n"},
		{"partition metadata", string(encodePartitionMetadata(id)), "version: 0\ntopic_id: dZjSTm-LRUqTHIhnnEyrNw\n"},
		{
			"state slot", hexOf(st.encode()),
			"4b4753540001" + "0000" + "0000000000000006" + hexOf(id[:]) + "0000000300000000" + "0000000000000009" +
				"0000000000000004" + "0000000000000004" + "0000000000000004" + "ffffffffffffffff" + "ffffffffffffffff" + "0000000000000000" + "6282c046" + strings.Repeat("00", 28) +
				"4b47434c" + "00000000" + "0000000000000006" + "0000000000000007" + "0000000000000005" + "7a9d6f83",
		},
		{
			"manifest", hexOf(encodeManifest([][]byte{line})),
			"4b474d460001" + "00000001" + "29" + "0174" + "00" + hexOf(id[:]) + "02040608" + "0a02c801c801" + "02" + "0c08" + "02" + "088c0102c80100" + "00" + "e1342b33",
		},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, c.got) })
	}
}

func TestNextVersionsAreRefused(t *testing.T) {
	_, err := decodeEpochs("f", []byte("1\n0\n"))
	require.ErrorIs(t, err, ErrCorrupt)
	snap := (&producerState{}).encode()
	snap[1] = 2
	_, err = decodeProducers("f", snap)
	require.ErrorIs(t, err, ErrCorrupt)
	entry := appendTxnEntry(nil, AbortedTxn{1, 2, 3, 4})
	entry[1] = 1
	_, err = decodeTxnEntry(entry)
	require.ErrorIs(t, err, ErrCorrupt)
	require.True(t, decodePartitionMetadata([]byte("version: 1\ntopic_id: dZjSTm-LRUqTHIhnnEyrNw\n")).IsZero())
	require.Nil(t, decodeManifest(nil))
}

func TestRoundTrips(t *testing.T) {
	st := newLogState(messages.PartitionKey{TopicID: messages.TopicID{1}, CreatedAt: 1 << 50, Partition: 9}, 1<<40)
	st.cutTo, st.restartAt, st.number = 5, 6, 7
	got, ok := decodeSlot(st.encode())
	require.True(t, ok)
	require.Equal(t, st, got)
	e := &manifestLog{topic: "a", folder: "b", segs: []manifestSegment{{1, 2, 3, -1, 1, 4}, {5, 6, 7, 8, 9, 0}}, firstTS: -1, lastTimeTS: -1}
	back, err := decodeManifestLog(e.encode())
	require.NoError(t, err)
	require.Equal(t, e, back)
	require.Equal(t, int32(math.MaxInt32-1), sequenceBefore(1, 3))
	require.Equal(t, int32(2), sequenceBefore(5, 3))
}

func TestFolderNames(t *testing.T) {
	long := strings.Repeat("n", 249)
	for _, tp := range []messages.TopicPartition{
		{Topic: "a-0", Partition: 1}, {Topic: "a.b_c", Partition: 2147483647}, {Topic: long, Partition: 99999}, {Topic: long, Partition: 100000},
	} {
		name := folderName(tp)
		require.LessOrEqual(t, len(name), 255)
		got, shortened, ok := parseFolderName(name)
		require.True(t, ok)
		require.Equal(t, !shortened, got == tp)
		require.LessOrEqual(t, len(scratchName(name, deleteSuffix)), 255)
		require.True(t, leftover(scratchName(name, deleteSuffix)))
		require.False(t, leftover(name))
	}
	for _, bad := range []string{"a", "-1", "a-", "a-01", "a-x", "a-2147483648", "a b-0"} {
		_, _, ok := parseFolderName(bad)
		require.False(t, ok, bad)
	}
	require.Equal(t, "/x/00000000000000000003.log", (&cachedFile{dir: "/x", base: 3, suffix: logSuffix}).path())
	require.Equal(t, "x", filepath.Base("/x"))
}
