package broker

import "kagami/messages/batch"

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

// recompress returns the batch b, which is sound, with its records compressed by
// another codec.
func recompress(b []byte, h batch.Header, to compression) ([]byte, error) {
	return batch.Recompress(b, h, to.codec, to.level, decompressedBytesMax)
}
