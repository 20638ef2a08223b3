package batch

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func collect(tb testing.TB, b []byte) []Record {
	tb.Helper()
	var out []Record
	for r, err := range DecompressRecords(b, 1<<20) {
		require.NoError(tb, err)
		r.Size = 0
		out = append(out, r)
	}
	return out
}

func sample() []Record {
	return []Record{
		{Offset: 100, Timestamp: 5000, Sequence: -1, Key: []byte("k"), Value: []byte("v"), Headers: []RecordHeader{{"h", []byte("x")}, {"null", nil}}},
		{Offset: 101, Timestamp: 4000, Sequence: -1, Key: nil, Value: []byte{}},
		{Offset: 102, Timestamp: 9000, Sequence: -1, Key: []byte{}, Value: nil},
	}
}

func TestAppendAndRecords(t *testing.T) {
	props := Plain()
	props.BaseOffset, props.LeaderEpoch = 100, 7
	b := Append([]byte("before"), props, sample()...)[6:]
	require.NoError(t, CheckCRC(b))
	h, whole, rest, err := Next(append(b, 1, 2))
	require.NoError(t, err)
	require.Equal(t, b, whole)
	require.Equal(t, []byte{1, 2}, rest)
	require.Equal(t, int64(102), h.LastOffset())
	require.Equal(t, int64(5000), h.BaseTimestamp)
	require.Equal(t, int64(9000), h.MaxTimestamp)
	require.Equal(t, int32(-1), h.LastSequence())
	require.Empty(t, cmp.Diff(sample(), collect(t, b)))

	var k kmsg.RecordBatch // another reader sees the same
	require.NoError(t, k.ReadFrom(b))
	require.Equal(t, int32(3), k.NumRecords)
	require.Equal(t, int32(7), k.PartitionLeaderEpoch)
}

func TestLogAppendTimeAndSequences(t *testing.T) {
	props := Plain()
	props.ProducerID, props.ProducerEpoch, props.BaseSequence = 9, 1, 1<<31-2
	b := Append(nil, props, sample()...)
	SetLogAppendTime(b, 77)
	rs := collect(t, b)
	require.Equal(t, int64(77), rs[0].Timestamp)
	require.Equal(t, []int32{1<<31 - 2, 1<<31 - 1, 0}, []int32{rs[0].Sequence, rs[1].Sequence, rs[2].Sequence})
	v, ok := rs[0].Header("h")
	require.True(t, ok)
	require.Equal(t, "x", string(v))
}

// compress replaces the records of b as a producer with that codec would.
func compress(tb testing.TB, b []byte, codec Codec, pack func([]byte) []byte) []byte {
	tb.Helper()
	out := append(append([]byte{}, b[:HeaderSize]...), pack(b[HeaderSize:])...)
	binary.BigEndian.PutUint32(out[8:], uint32(len(out)-Overhead))
	binary.BigEndian.PutUint16(out[21:], uint16(codec))
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], castagnoli))
	return out
}

func codecs(tb testing.TB) map[string]struct {
	codec Codec
	pack  func([]byte) []byte
} {
	tb.Helper()
	return map[string]struct {
		codec Codec
		pack  func([]byte) []byte
	}{
		"gzip": {CodecGzip, func(b []byte) []byte {
			var out bytes.Buffer
			w := gzip.NewWriter(&out)
			_, _ = w.Write(b)
			require.NoError(tb, w.Close())
			return out.Bytes()
		}},
		"snappy raw": {CodecSnappy, func(b []byte) []byte { return snappy.Encode(nil, b) }},
		"snappy xerial": {CodecSnappy, func(b []byte) []byte {
			out := append(append([]byte{}, xerialMagic...), 0, 0, 0, 1, 0, 0, 0, 1)
			for _, part := range [][]byte{b[:3], b[3:]} {
				block := snappy.Encode(nil, part)
				out = binary.BigEndian.AppendUint32(out, uint32(len(block)))
				out = append(out, block...)
			}
			return out
		}},
		"lz4": {CodecLZ4, func(b []byte) []byte {
			var out bytes.Buffer
			w := lz4.NewWriter(&out)
			_, _ = w.Write(b)
			require.NoError(tb, w.Close())
			return out.Bytes()
		}},
		"zstd": {CodecZstd, func(b []byte) []byte {
			w, err := zstd.NewWriter(nil)
			require.NoError(tb, err)
			return w.EncodeAll(b, nil)
		}},
	}
}

func TestDecompressRecords(t *testing.T) {
	props := Plain()
	props.BaseOffset = 100
	plain := Append(nil, props, sample()...)
	for name, c := range codecs(t) {
		t.Run(name, func(t *testing.T) {
			b := compress(t, plain, c.codec, c.pack)
			require.NoError(t, CheckCRC(b))
			require.Empty(t, cmp.Diff(sample(), collect(t, b)))
			for _, err := range Records(b) {
				require.ErrorIs(t, err, ErrCompressed)
			}
			_, err := Decompress(c.codec, c.pack(bytes.Repeat([]byte("a"), 1<<20)), 1<<20-1)
			require.ErrorIs(t, err, ErrCorrupt, "a limit is a limit")
			out, err := Decompress(c.codec, c.pack(bytes.Repeat([]byte("a"), 1<<20)), 1<<20)
			require.NoError(t, err)
			require.Len(t, out, 1<<20)
			_, err = Decompress(c.codec, []byte("no such thing"), 1<<20)
			require.ErrorIs(t, err, ErrCorrupt)
		})
	}
	_, err := Decompress(5, nil, 1)
	require.ErrorIs(t, err, ErrCorrupt)
}

// D24: the control record of records.md, byte for byte.
func TestD24MirrorPIDReset(t *testing.T) {
	b := MirrorPIDReset(12, 4711, "lBq12jYZRp-9wF3M9MPopg")
	require.NoError(t, CheckCRC(b))
	h, err := ParseHeader(b)
	require.NoError(t, err)
	require.True(t, h.IsControl())
	require.False(t, h.IsTransactional())
	require.Equal(t, CodecNone, h.Codec())
	require.Equal(t, []any{int64(-1), int16(-1), int32(-1), int32(12), int64(4711), int64(4711), int32(1)},
		[]any{h.ProducerID, h.ProducerEpoch, h.BaseSequence, h.LeaderEpoch, h.BaseTimestamp, h.MaxTimestamp, h.Records})
	rs := collect(t, b)
	require.Equal(t, "00000007", hex.EncodeToString(rs[0].Key))
	require.Equal(t, strings.ReplaceAll("00 00 17 6c 42 71 31 32 6a 59 5a 52 70 2d 39 77 46 33 4d 39 4d 50 6f 70 67 00", " ", ""), hex.EncodeToString(rs[0].Value))
	c, err := ParseControl(b)
	require.NoError(t, err)
	require.Equal(t, ControlMirrorPIDReset, c.Type)
	require.Equal(t, int32(-1), c.CoordinatorEpoch)
}

func TestMarkers(t *testing.T) {
	for want, b := range map[ControlType][]byte{
		ControlAbort:  AbortMarker(5, 3, 8, 1),
		ControlCommit: CommitMarker(5, 3, 8, 1),
	} {
		h, err := ParseHeader(b)
		require.NoError(t, err)
		require.NoError(t, CheckCRC(b))
		require.True(t, h.IsControl() && h.IsTransactional())
		require.Equal(t, []any{int64(5), int16(3), int32(-1)}, []any{h.ProducerID, h.ProducerEpoch, h.BaseSequence})
		c, err := ParseControl(b)
		require.NoError(t, err)
		require.Equal(t, want, c.Type)
		require.Equal(t, int32(8), c.CoordinatorEpoch)
	}
	_, err := ParseControl(Single(1, nil, nil))
	require.ErrorIs(t, err, ErrCorrupt)
}

// FuzzRecordBatch: any bytes give records or an error, never a panic; records
// that come out stay inside the batch's offsets.
func FuzzRecordBatch(f *testing.F) {
	plain := Append(nil, Plain(), sample()...)
	f.Add(plain)
	f.Add(MirrorPIDReset(1, 2, "x"))
	f.Add(AbortMarker(1, 2, 3, 4))
	for _, c := range codecs(f) {
		f.Add(compress(f, plain, c.codec, c.pack))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			return
		}
		_ = CheckCRC(b)
		_, _ = ParseControl(b)
		n := 0
		for r, err := range DecompressRecords(b, 1<<20) {
			if err != nil {
				return
			}
			n++
			if r.Offset < h.BaseOffset || r.Offset > h.LastOffset() {
				t.Fatalf("offset %d outside [%d, %d]", r.Offset, h.BaseOffset, h.LastOffset())
			}
		}
		if n != int(h.Records) {
			t.Fatalf("%d records, header says %d", n, h.Records)
		}
	})
}
