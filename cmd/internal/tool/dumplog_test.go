package tool

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/messages/batch"
	"kagami/messages/wire"
	"kagami/test/kafka"
)

// run calls a tool and returns what it printed.
func run(t *testing.T, f func(Streams) int) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = f(Streams{Out: &out, Err: &errs})
	return code, out.String(), errs.String()
}

func dump(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return run(t, func(s Streams) int { return DumpLog(t.Context(), args, s) })
}

func place(b []byte, base int64, epoch int32) []byte {
	batch.SetOffsetAndEpoch(b, base, epoch)
	return b
}

func stateRecord(state, previous int8, retry int16) []byte {
	v := wire.NewPtrMirrorPartitionStateValue()
	v.TopicName, v.State, v.PreviousState, v.RetryAttempt = "my-topic", state, previous, retry
	return v.AppendTo(nil)
}

// mirrorStateSegment is a segment of __mirror_state with a record of each kind.
func mirrorStateSegment() []byte {
	key := (&wire.MirrorPartitionStateKey{MirrorName: "my-mirror"}).AppendTo(nil)
	epochs := wire.NewPtrLastMirrorEpochsValue()
	epochs.Topics = []wire.LastMirrorEpochsValueTopicEpochs{{Name: "my-topic", Partitions: []wire.LastMirrorEpochsValuePartitionEpoch{{PartitionIndex: 0, LastMirrorEpoch: 5}}}}
	var b []byte
	add := func(offset int64, one []byte) { b = append(b, place(one, offset, 3)...) }
	add(0, batch.Single(1771239071191, key, stateRecord(0, 16, 0)))
	add(1, batch.Single(1771239071200, key, stateRecord(2, 16, 0), batch.RecordHeader{Key: "cause", Value: []byte("x")}, batch.RecordHeader{Key: "principal"}))
	add(2, batch.Single(1771239071300, (&wire.LastMirrorEpochsKey{MirrorName: "my-mirror"}).AppendTo(nil), epochs.AppendTo(nil)))
	add(3, batch.Single(1771239071400, key, nil))
	add(4, batch.Single(1771239071500, []byte{0, 9}, []byte{0, 0}))
	return b
}

func writeFile(t *testing.T, name string, b []byte) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o750))
	require.NoError(t, os.WriteFile(name, b, 0o600))
	return name
}

const segmentName = "00000000000000000000.log"

func TestDumpMirrorState(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "__mirror_state-12", segmentName), mirrorStateSegment())
	code, out, errs := dump(t, "--mirror-state-decoder", "--files", file)
	require.Zero(t, code, errs)
	var records []string
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "|") {
			records = append(records, strings.TrimSuffix(line, "\n"))
		}
	}
	require.Empty(t, cmp.Diff([]string{
		`| offset: 0 CreateTime: 1771239071191 keySize: 13 valueSize: 20 sequence: -1 headerKeys: [] key: {"type":"2","data":{"mirrorName":"my-mirror"}} payload: {"version":"0","data":{"topicName":"my-topic","partition":0,"state":0,"previousState":16,"retryAttempt":0}}`,
		`| offset: 1 CreateTime: 1771239071200 keySize: 13 valueSize: 20 sequence: -1 headerKeys: [cause,principal] key: {"type":"2","data":{"mirrorName":"my-mirror"}} payload: {"version":"0","data":{"topicName":"my-topic","partition":0,"state":2,"previousState":16,"retryAttempt":0}}`,
		`| offset: 2 CreateTime: 1771239071300 keySize: 13 valueSize: 24 sequence: -1 headerKeys: [] key: {"type":"1","data":{"mirrorName":"my-mirror"}} payload: {"version":"0","data":{"topics":[{"name":"my-topic","partitions":[{"partitionIndex":0,"lastMirrorEpoch":5}]}]}}`,
		`| offset: 3 CreateTime: 1771239071400 keySize: 13 valueSize: -1 sequence: -1 headerKeys: [] key: {"type":"2","data":{"mirrorName":"my-mirror"}} payload: <DELETE>`,
		`| offset: 4 CreateTime: 1771239071500 keySize: 2 valueSize: 2 sequence: -1 headerKeys: [] key: Unknown record type 9 at offset 4, skipping.`,
	}, records))
}

func TestDumpJSONLines(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "__mirror_state-12", segmentName), mirrorStateSegment())
	code, out, errs := dump(t, "--format", "json-lines", "--mirror-state-decoder", "--files", dir)
	require.Zero(t, code, errs)
	require.Empty(t, cmp.Diff(strings.Join([]string{
		`{"key":{"type":2,"data":{"mirrorName":"my-mirror"}},"value":{"version":0,"data":{"topicName":"my-topic","partition":0,"state":0,"previousState":16,"retryAttempt":0}}}`,
		`{"key":{"type":2,"data":{"mirrorName":"my-mirror"}},"value":{"version":0,"data":{"topicName":"my-topic","partition":0,"state":2,"previousState":16,"retryAttempt":0}}}`,
		`{"key":{"type":1,"data":{"mirrorName":"my-mirror"}},"value":{"version":0,"data":{"topics":[{"name":"my-topic","partitions":[{"partitionIndex":0,"lastMirrorEpoch":5}]}]}}}`,
		`{"key":{"type":2,"data":{"mirrorName":"my-mirror"}},"value":null}`,
		"",
	}, "\n"), out))
}

// dataSegment has what a data topic can have: several records, nulls, headers,
// a producer, markers, LogAppendTime, a hole, a MIRROR_PID_RESET.
func dataSegment() []byte {
	records := []batch.Record{
		{Timestamp: 1000, Key: []byte("k1"), Value: []byte("v1"), Headers: []batch.RecordHeader{{Key: "h1", Value: []byte("x")}, {Key: "h2"}}},
		{Timestamp: 2000, Value: []byte("no key")},
		{Timestamp: 1500, Key: []byte("no value")},
	}
	producer := batch.Plain()
	producer.ProducerID, producer.ProducerEpoch, producer.BaseSequence = 4000, 2, 7
	producer.Attributes = batch.AttrTransactional
	appendTime := batch.Append(nil, batch.Plain(), records...)
	batch.SetLogAppendTime(appendTime, 12345)
	var b []byte
	for _, part := range []struct {
		base  int64
		bytes []byte
	}{
		{0, batch.Append(nil, batch.Plain(), records...)},
		{3, batch.Append(nil, producer, records...)},
		{6, batch.AbortMarker(4000, 2, 9, 3000)},
		{7, batch.CommitMarker(4001, 0, 0, 3001)},
		{20, appendTime},
	} {
		b = append(b, place(part.bytes, part.base, 5)...)
	}
	return b
}

// compressed is a batch as kgo's producer makes it.
func compressed(t *testing.T, codec string) []byte {
	t.Helper()
	code := map[string]int8{"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[codec]
	c := map[string]kgo.CompressionCodec{"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}[codec]
	packer, err := kgo.DefaultCompressor(c)
	require.NoError(t, err)
	plain := batch.Append(nil, batch.Plain(), batch.Record{Timestamp: 5, Key: []byte("k"), Value: bytes.Repeat([]byte("v"), 300)}, batch.Record{Timestamp: 6, Value: []byte("w")})
	payload, _ := packer.Compress(new(bytes.Buffer), plain[batch.HeaderSize:])
	out := append(append([]byte{}, plain[:batch.HeaderSize]...), payload...)
	be := binary.BigEndian
	be.PutUint32(out[8:], uint32(len(out)-batch.Overhead))
	be.PutUint16(out[21:], uint16(code))
	be.PutUint32(out[17:], crc32.Checksum(out[21:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

// Kafka's own tool and ours print the same for the same files.
// TestDumpNothing: what can't be dumped is a failure that names it.
func TestDumpNothing(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, segmentName)
	for name, args := range map[string][]string{
		"missing segment":         {"--files", missing},
		"missing folder":          {"--files", filepath.Join(dir, "t-0")},
		"folder without segments": {"--files", dir},
		"no mirror states":        {"--files", dir, "--mirror-state-decoder"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, errs := dump(t, args...)
			require.Equal(t, 1, code)
			require.Contains(t, errs, args[1])
		})
	}
}

func TestDumpLogAsKafkas(t *testing.T) {
	kafka.Require(t, kafka.Latest)
	dir := t.TempDir()
	data := writeFile(t, filepath.Join(dir, "t-0", segmentName), dataSegment())
	broken := dataSegment()
	broken[70] ^= 1 // inside the first batch: its CRC is wrong
	bad := writeFile(t, filepath.Join(dir, "bad-0", segmentName), broken)
	state := writeFile(t, filepath.Join(dir, "__mirror_state-12", "00000000000000000007.log"), mirrorStateSegment())
	tail := writeFile(t, filepath.Join(dir, "tail-0", segmentName), append(dataSegment(), dataSegment()[:40]...))
	be := binary.BigEndian
	index := writeFile(t, filepath.Join(dir, "t-0", "00000000000000000000.index"), be.AppendUint32(be.AppendUint32(nil, 5), 111))
	timeIndex := writeFile(t, filepath.Join(dir, "t-0", "00000000000000000000.timeindex"), be.AppendUint32(be.AppendUint64(nil, 2000), 1))
	txn := be.AppendUint16(nil, 0)
	for _, v := range []uint64{4000, 3, 6, 6} {
		txn = be.AppendUint64(txn, v)
	}
	txnIndex := writeFile(t, filepath.Join(dir, "t-0", "00000000000000000000.txnindex"), txn)
	entries := be.AppendUint32(nil, 2)
	for _, e := range []struct{ sequence, open int64 }{{9, 3}, {-1, -1}} {
		entries = be.AppendUint16(be.AppendUint64(entries, 4000), 2)
		entries = be.AppendUint64(be.AppendUint32(entries, uint32(e.sequence)), 5)
		entries = be.AppendUint64(be.AppendUint32(entries, 2), 77)
		entries = be.AppendUint64(be.AppendUint32(entries, 8), uint64(e.open))
	}
	snapshot := be.AppendUint32([]byte{0, 1}, crc32.Checksum(entries, crc32.MakeTable(crc32.Castagnoli)))
	snapshotFile := writeFile(t, filepath.Join(dir, "t-0", "00000000000000000023.snapshot"), append(snapshot, entries...))
	empty := writeFile(t, filepath.Join(dir, "t-1", "00000000000000000000.index"), nil)
	emptyTime := writeFile(t, filepath.Join(dir, "t-1", "00000000000000000000.timeindex"), nil)
	writeFile(t, filepath.Join(dir, "t-1", segmentName), nil)
	rows := map[string][]string{
		"producer snapshot":    {"--files", snapshotFile},
		"empty index":          {"--files", empty},
		"empty time index":     {"--files", emptyTime},
		"empty index sanity":   {"--files", empty + "," + emptyTime, "--index-sanity-check"},
		"empty log":            {"--files", filepath.Join(dir, "t-1", segmentName)},
		"shallow":              {"--files", data},
		"two files":            {"--files", data + "," + state},
		"deep":                 {"--files", data, "--deep-iteration"},
		"print data":           {"--files", data, "--print-data-log"},
		"skip record metadata": {"--files", data, "--print-data-log", "--skip-record-metadata"},
		"state as data":        {"--files", state, "--deep-iteration"},
		"bad CRC":              {"--files", bad},
		"cut off tail":         {"--files", tail},
		"max bytes":            {"--files", data, "--max-bytes", "300"},
		"no such kind of file": {"--files", writeFile(t, filepath.Join(dir, "t-0", "x.txt"), nil)},
		"offset index":         {"--files", index},
		"index sanity":         {"--files", index, "--index-sanity-check"},
		"verify index":         {"--files", index, "--verify-index-only"},
		"time index":           {"--files", timeIndex},
		"transaction index":    {"--files", txnIndex},
	}
	for _, codec := range []string{"gzip", "snappy", "lz4", "zstd"} {
		rows[codec] = []string{"--files", writeFile(t, filepath.Join(dir, codec+"-0", segmentName), compressed(t, codec)), "--print-data-log"}
	}
	for name, args := range rows {
		t.Run(name, func(t *testing.T) {
			want, err := kafka.Tool(t.Context(), kafka.DumpLog, args...)
			if err != nil {
				t.Logf("Kafka's tool: %v", err)
			}
			code, out, errs := dump(t, args...)
			require.Zero(t, code, errs)
			require.Empty(t, cmp.Diff(want.Stdout, out))
		})
	}
}
