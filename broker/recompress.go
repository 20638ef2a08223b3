package broker

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

	"kagami/messages/batch"
)

// codecOf is the codec that a topic's compression.type asks for; ok is false for
// "producer", which keeps what the producer chose.
func codecOf(compressionType string) (c batch.Codec, ok bool) {
	switch compressionType {
	case "uncompressed":
		return batch.CodecNone, true
	case "gzip":
		return batch.CodecGzip, true
	case "snappy":
		return batch.CodecSnappy, true
	case "lz4":
		return batch.CodecLZ4, true
	case "zstd":
		return batch.CodecZstd, true
	default:
		return 0, false
	}
}

// compression is a codec and its level, as the topic's configs have them.
type compression struct {
	codec batch.Codec
	level int
}

// recompress returns the batch b, which is sound, with its records compressed
// by another codec. The records themselves stay byte for byte: a batch is its
// header and one compressed run of them. Length, codec bits and CRC change.
func recompress(b []byte, h batch.Header, to compression) ([]byte, error) {
	plain, err := batch.Decompress(h.Codec(), b[batch.HeaderSize:], decompressedBytesMax)
	if err != nil {
		return nil, err
	}
	out := bytes.NewBuffer(make([]byte, 0, batch.HeaderSize+len(plain)/2))
	out.Write(b[:batch.HeaderSize])
	if err := compress(out, plain, to); err != nil {
		return nil, fmt.Errorf("compress with %s: %w", to.codec, err)
	}
	nb, be := out.Bytes(), binary.BigEndian
	be.PutUint32(nb[8:], uint32(len(nb)-batch.Overhead))
	be.PutUint16(nb[21:], be.Uint16(nb[21:])&^batch.AttrCompressionMask|uint16(to.codec))
	be.PutUint32(nb[17:], crc32.Checksum(nb[21:], castagnoli))
	return nb, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func compress(dst *bytes.Buffer, plain []byte, to compression) error {
	var w io.WriteCloser
	var err error
	switch to.codec {
	case batch.CodecNone:
		dst.Write(plain)
		return nil
	case batch.CodecSnappy:
		compressSnappy(dst, plain)
		return nil
	case batch.CodecGzip:
		w, err = gzip.NewWriterLevel(dst, to.level)
	case batch.CodecLZ4:
		lw := lz4.NewWriter(dst)
		err = lw.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.CompressionLevelOption(lz4Level(to.level)), lz4.ConcurrencyOption(1))
		w = lw
	case batch.CodecZstd:
		w, err = zstd.NewWriter(dst, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(to.level)), zstd.WithEncoderConcurrency(1))
	default:
		err = fmt.Errorf("unknown codec %d", to.codec)
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
	dst.WriteString("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
	var buf []byte
	for len(plain) > 0 {
		part := plain[:min(block, len(plain))]
		plain = plain[len(part):]
		buf = s2.EncodeSnappy(buf[:cap(buf)], part)
		_ = binary.Write(dst, binary.BigEndian, int32(len(buf)))
		dst.Write(buf)
	}
}
