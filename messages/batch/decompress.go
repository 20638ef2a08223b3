package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"iter"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is the compression of a batch, bits 0 to 2 of its attributes.
type Codec int8

// Kafka's codecs.
const (
	CodecNone   Codec = 0
	CodecGzip   Codec = 1
	CodecSnappy Codec = 2
	CodecLZ4    Codec = 3
	CodecZstd   Codec = 4
)

// String is Kafka's name of the codec.
func (c Codec) String() string {
	switch c {
	case CodecNone:
		return "none"
	case CodecGzip:
		return "gzip"
	case CodecSnappy:
		return "snappy"
	case CodecLZ4:
		return "lz4"
	case CodecZstd:
		return "zstd"
	default:
		return fmt.Sprintf("Codec(%d)", int8(c))
	}
}

// Codec is the batch's compression.
func (h Header) Codec() Codec { return Codec(h.Attributes & AttrCompressionMask) }

// DecompressRecords walks the records of one batch, decompressing it when it
// is compressed. limit bounds the decompressed bytes: a batch beyond it is
// refused before it is in memory. Errors as [Records] has them.
func DecompressRecords(b []byte, limit int) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		h, whole, _, err := Next(b)
		if err != nil {
			yield(Record{}, err)
			return
		}
		payload := whole[HeaderSize:]
		if h.Codec() != CodecNone {
			if payload, err = Decompress(h.Codec(), payload, limit); err != nil {
				yield(Record{}, fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err))
				return
			}
		}
		walk(h, payload, yield)
	}
}

// Decompress returns the decompressed payload, at most limit bytes of it. More,
// broken data and unknown codecs wrap [ErrCorrupt]. It may be called from
// several goroutines.
func Decompress(codec Codec, payload []byte, limit int) ([]byte, error) {
	var out []byte
	var err error
	switch codec {
	case CodecNone:
		return payload, nil
	case CodecGzip:
		var r *gzip.Reader
		if r, err = gzip.NewReader(bytes.NewReader(payload)); err == nil {
			out, err = readLimited(r, limit)
		}
	case CodecSnappy:
		out, err = unsnappy(payload, limit)
	case CodecLZ4:
		out, err = readLimited(lz4.NewReader(bytes.NewReader(payload)), limit)
	case CodecZstd:
		var r *zstd.Decoder
		r, err = zstd.NewReader(bytes.NewReader(payload), zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(1<<27))
		if err == nil {
			out, err = readLimited(r, limit)
			r.Close()
		}
	default:
		return nil, fmt.Errorf("%w: unknown codec %d", ErrCorrupt, codec)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: decompress %s: %w", ErrCorrupt, codec, err)
	}
	return out, nil
}

func readLimited(r io.Reader, limit int) ([]byte, error) {
	out, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err == nil && len(out) > limit {
		return nil, tooLarge(limit)
	}
	return out, err
}

func tooLarge(limit int) error { return fmt.Errorf("more than %d bytes", limit) }

// Java clients frame snappy as the xerial library does:
//
//	0x82 "SNAPPY" 0x00 | version int32 | compatible version int32 | (length int32 | block)*
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeader = 16

func unsnappy(payload []byte, limit int) ([]byte, error) {
	if len(payload) < xerialHeader || !bytes.HasPrefix(payload, xerialMagic) {
		return snappyBlock(nil, payload, limit)
	}
	var out []byte
	for rest := payload[xerialHeader:]; len(rest) > 0; {
		if len(rest) < 4 {
			return nil, io.ErrUnexpectedEOF
		}
		size := int64(binary.BigEndian.Uint32(rest))
		if size > int64(len(rest)-4) {
			return nil, io.ErrUnexpectedEOF
		}
		var err error
		if out, err = snappyBlock(out, rest[4:4+size], limit); err != nil {
			return nil, err
		}
		rest = rest[4+size:]
	}
	return out, nil
}

func snappyBlock(dst, block []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return nil, err
	}
	if n > limit-len(dst) {
		return nil, tooLarge(limit)
	}
	if int64(n) > 64*int64(len(block))+64 {
		// no snappy block can grow that much: don't allocate on its word
		return nil, s2.ErrCorrupt
	}
	plain, err := s2.Decode(nil, block)
	if err != nil {
		return nil, err
	}
	if dst == nil {
		return plain, nil
	}
	return append(dst, plain...), nil
}
