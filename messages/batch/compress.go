package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// DefaultLevel is Kafka's default compression level of a codec.
func DefaultLevel(codec Codec) int {
	switch codec {
	case CodecGzip:
		return -1
	case CodecLZ4:
		return 9
	case CodecZstd:
		return 3
	case CodecNone, CodecSnappy:
	}
	return 0
}

// Recompress returns the sound batch b with its records compressed by another codec,
// at a level of that codec. The records themselves stay byte for byte: a batch is its
// header and one compressed run of them. Length, codec bits and CRC change. limit
// bounds the decompressed bytes.
func Recompress(b []byte, h Header, codec Codec, level, limit int) ([]byte, error) {
	plain, err := Decompress(h.Codec(), b[HeaderSize:], limit)
	if err != nil {
		return nil, err
	}
	return pack(b[:HeaderSize], plain, codec, level)
}

// pack makes a batch of a header and the records behind it.
func pack(header, plain []byte, codec Codec, level int) ([]byte, error) {
	out := bytes.NewBuffer(make([]byte, 0, HeaderSize+len(plain)/2))
	out.Write(header)
	if err := compressInto(out, plain, codec, level); err != nil {
		return nil, fmt.Errorf("compress with %s: %w", codec, err)
	}
	b, be := out.Bytes(), binary.BigEndian
	be.PutUint32(b[8:], uint32(len(b)-Overhead))
	be.PutUint16(b[21:], be.Uint16(b[21:])&^AttrCompressionMask|uint16(codec))
	be.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return b, nil
}

func compressInto(dst *bytes.Buffer, plain []byte, codec Codec, level int) error {
	var w io.WriteCloser
	var err error
	switch codec {
	case CodecNone:
		dst.Write(plain)
		return nil
	case CodecSnappy:
		compressSnappy(dst, plain)
		return nil
	case CodecGzip:
		w, err = gzip.NewWriterLevel(dst, level)
	case CodecLZ4:
		lw := lz4.NewWriter(dst)
		err = lw.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.CompressionLevelOption(lz4Level(level)), lz4.ConcurrencyOption(1))
		w = lw
	case CodecZstd:
		w, err = zstd.NewWriter(dst, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(level)), zstd.WithEncoderConcurrency(1))
	default:
		err = fmt.Errorf("unknown codec %d", codec)
	}
	if err != nil {
		return err
	}
	if _, err := w.Write(plain); err != nil {
		_ = w.Close()
		return err
	}
	return w.Close()
}

// lz4Level maps Kafka's 1 to 17 on the levels of the library: fast, 1 to 9.
func lz4Level(level int) lz4.CompressionLevel {
	levels := []lz4.CompressionLevel{lz4.Fast, lz4.Level1, lz4.Level2, lz4.Level3, lz4.Level4, lz4.Level5, lz4.Level6, lz4.Level7, lz4.Level8, lz4.Level9}
	return levels[max(0, min((level-1)/2, len(levels)-1))]
}

// compressSnappy writes the frame that Java's snappy streams have, in blocks of
// 32 KiB as they do:
//
//	0x82 "SNAPPY" 0x00 | version int32 = 1 | compatible int32 = 1 | (length int32 | block)*
func compressSnappy(dst *bytes.Buffer, plain []byte) {
	const block = 32 << 10
	dst.Write(xerialMagic)
	dst.WriteString("\x00\x00\x00\x01\x00\x00\x00\x01")
	var buf []byte
	for len(plain) > 0 {
		part := plain[:min(block, len(plain))]
		plain = plain[len(part):]
		buf = s2.EncodeSnappy(buf[:cap(buf)], part)
		_ = binary.Write(dst, binary.BigEndian, int32(len(buf)))
		dst.Write(buf)
	}
}
