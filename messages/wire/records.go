package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kbin"
)

// MetadataRecord is any record of the metadata log.
type MetadataRecord interface {
	Key() int16 // record type, KRaft's number where KRaft has the record
	MaxVersion() int16
	SetVersion(v int16)
	GetVersion() int16
	AppendTo(dst []byte) []byte // the body without the frame
	ReadFrom(src []byte) error  // of the body
	Default()
}

// metadataFrame is KRaft's version of the frame around a metadata record:
//
//	uvarint frame version = 1 | uvarint record type | uvarint record version | body
const metadataFrame = 1

// AppendMetadataRecord appends a framed record in the version it is set to.
func AppendMetadataRecord(dst []byte, rec MetadataRecord) []byte {
	dst = kbin.AppendUvarint(dst, metadataFrame)
	dst = kbin.AppendUvarint(dst, uint32(rec.Key()))
	dst = kbin.AppendUvarint(dst, uint32(rec.GetVersion()))
	return rec.AppendTo(dst)
}

// ReadMetadataRecord decodes a framed record. An unknown type wraps
// [ErrUnknownType], an unknown frame or record version [ErrVersion].
func ReadMetadataRecord(src []byte) (MetadataRecord, error) {
	r := reader{src: src}
	frame, key, version := r.uvarint(), r.uvarint(), r.uvarint()
	switch {
	case r.err != nil:
		return nil, fmt.Errorf("decode metadata record: %w", r.err)
	case frame != metadataFrame:
		return nil, fmt.Errorf("decode metadata record: %w: frame version %d, known is %d", ErrVersion, frame, metadataFrame)
	case key > math.MaxInt16:
		return nil, fmt.Errorf("decode metadata record: %w: %d", ErrUnknownType, key)
	case version > math.MaxInt16:
		return nil, fmt.Errorf("decode metadata record: %w: record version %d", ErrVersion, version)
	}
	rec := NewMetadataRecord(int16(key))
	if rec == nil {
		return nil, fmt.Errorf("decode metadata record: %w: %d", ErrUnknownType, key)
	}
	rec.SetVersion(int16(version))
	if err := rec.ReadFrom(r.src); err != nil {
		return nil, err
	}
	return rec, nil
}

// MetadataRecordName is the schema's name of a record type, such as
// TopicRecord, or "" for an unknown type.
func MetadataRecordName(key int16) string { return metadataRecordName(key) }

// MirrorStateType reads the record type in front of a key of __mirror_state:
// [RecordTypeLastMirrorEpochs], [RecordTypePartitionState], or one that this
// build doesn't know.
func MirrorStateType(key []byte) (int16, error) {
	if len(key) < 2 {
		return 0, fmt.Errorf("decode __mirror_state key: %w: %d bytes", ErrMalformed, len(key))
	}
	return int16(binary.BigEndian.Uint16(key)), nil
}

// longPartitionState turns the short form of a MirrorPartitionState value,
// which ends after State and the tag byte, into the form of version 0: early
// builds wrote it (records.md, Type 2).
//
//	short: version 2 | name 1..5+n | partition 4 | state 1 |                 | tags 1 (0x00)
//	long:  version 2 | name 1..5+n | partition 4 | state 1 | previous 1 | retry 2 | tags
func longPartitionState(src []byte) []byte {
	r := reader{src: src}
	version := r.int16()
	_ = r.string(true)
	if r.err != nil || version != 0 || len(r.src) != 6 || r.src[5] != 0 {
		return src
	}
	long := append([]byte{}, src[:len(src)-1]...)
	return append(long, 16, 0, 0, 0)
}
