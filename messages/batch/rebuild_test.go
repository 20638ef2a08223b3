package batch

import (
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// TestRebuild: in every codec the records that stay keep offset, time and content,
// and the batch its offsets, with and without a delete horizon (KIP-534).
func TestRebuild(t *testing.T) {
	props := Plain()
	props.BaseOffset, props.LeaderEpoch, props.Attributes = 100, 7, AttrTransactional
	props.ProducerID, props.ProducerEpoch, props.BaseSequence = 9, 1, 40
	plain := Append(nil, props, sample()...)
	all := collect(t, plain)
	for name, codec := range map[string]Codec{"none": CodecNone, "gzip": CodecGzip, "snappy": CodecSnappy, "lz4": CodecLZ4, "zstd": CodecZstd} {
		t.Run(name, func(t *testing.T) {
			h, err := ParseHeader(plain)
			require.NoError(t, err)
			b, err := Recompress(plain, h, codec, DefaultLevel(codec), 1<<20)
			require.NoError(t, err)
			require.NoError(t, CheckCRC(b))
			require.Empty(t, cmp.Diff(all, collect(t, b)))
			h, err = ParseHeader(b)
			require.NoError(t, err)
			require.Equal(t, codec, h.Codec())
			for _, horizon := range []int64{NoHorizon, 1_700_000_000_000} {
				got, err := Rebuild(h, all[1:2], horizon)
				require.NoError(t, err)
				require.NoError(t, CheckCRC(got))
				require.Empty(t, cmp.Diff(all[1:2], collect(t, got)))
				g, err := ParseHeader(got)
				require.NoError(t, err)
				at, ok := g.DeleteHorizon()
				require.Equal(t, horizon, at)
				require.Equal(t, horizon != NoHorizon, ok)
				want := h
				want.Length, want.CRC, want.Records, want.BaseTimestamp, want.MaxTimestamp = g.Length, g.CRC, 1, g.BaseTimestamp, 4000
				if ok {
					want.Attributes |= AttrDeleteHorizon
				}
				require.Equal(t, want, g)
			}
		})
	}
}

// TestRebuildKeepsBrokerTime: with LogAppendTime every record's time is the batch's.
func TestRebuildKeepsBrokerTime(t *testing.T) {
	b := Append(nil, Plain(), sample()...)
	SetLogAppendTime(b, 77)
	h, err := ParseHeader(b)
	require.NoError(t, err)
	got, err := Rebuild(h, collect(t, b)[:1], 500)
	require.NoError(t, err)
	rs := collect(t, got)
	require.Len(t, rs, 1)
	require.Equal(t, int64(77), rs[0].Timestamp)
}

// TestEmptied: what is left of a batch whose records are all gone.
func TestEmptied(t *testing.T) {
	props := Plain()
	props.BaseOffset, props.LeaderEpoch = 100, 7
	props.ProducerID, props.ProducerEpoch, props.BaseSequence = 9, 1, 40
	h, err := ParseHeader(Append(nil, props, sample()...))
	require.NoError(t, err)
	h.Attributes |= int16(CodecZstd) | AttrDeleteHorizon
	b := Emptied(h)
	require.NoError(t, CheckCRC(b))
	require.Empty(t, collect(t, b))
	g, err := ParseHeader(b)
	require.NoError(t, err)
	require.Equal(t, []int64{100, 102, 9000, 9000}, []int64{g.BaseOffset, g.LastOffset(), g.MaxTimestamp, g.BaseTimestamp})
	require.Equal(t, int32(42), g.LastSequence())
	require.Zero(t, g.Attributes)
	require.Equal(t, "000000000000000a"+"00000031"+"00000003"+"02"+"19dc66c7"+"0000"+"00000004"+"0000000000000005"+"0000000000000005"+
		"ffffffffffffffff"+"ffff"+"ffffffff"+"00000000", hex.EncodeToString(Filler(10, 14, 3, 5)))
}
