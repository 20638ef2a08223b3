package compact

import (
	"encoding/binary"

	"kagami/messages/batch"
)

// Rule says which records of a log are about the same thing.
type Rule struct {
	// Identity of a record: of two with the same one the later one counts. Nil: the
	// record has none. A second identity, wider, which only a record without value
	// has as its own: that one takes the place of everything within.
	Identity func(r batch.Record) (id, within []byte)
	// KeepNameless keeps records without an identity; else they go, as in Kafka.
	KeepNameless bool
	// SupersededMillis is the age from which a superseded record, or a record without
	// value that has nothing left to delete, may go. 0 at once, -1 never.
	SupersededMillis int64
	// Whole reads the log from its start each time: what was superseded and too young
	// the last time may be old enough now.
	Whole bool
}

// ByKey is the rule of every Kafka topic.
func ByKey() Rule {
	return Rule{Identity: func(r batch.Record) (id, within []byte) { return r.Key, nil }}
}

// Types of records of __mirror_state (records.md).
const mirrorPartitionState = 2

// MirrorState is the rule of __mirror_state. The key of a partition's state is only
// its mirror's, so topic and partition from the value belong to its identity; a
// tombstone takes the place of all states of the mirror (OP-1). What is superseded
// stays until the audit retention has passed (OP-27): auditMillis, -1 = for ever.
func MirrorState(auditMillis int64) Rule {
	return Rule{Identity: mirrorIdentity, KeepNameless: true, SupersededMillis: auditMillis, Whole: true}
}

func mirrorIdentity(r batch.Record) (id, within []byte) {
	if len(r.Key) < 2 {
		return nil, nil
	}
	if binary.BigEndian.Uint16(r.Key) != mirrorPartitionState || r.Value == nil {
		return r.Key, nil
	}
	// version int16 | topic compact string | partition int32 | ...
	v := r.Value
	if len(v) < 2 || binary.BigEndian.Uint16(v) != 0 {
		return nil, nil // of a later version: it stays
	}
	size, n := binary.Uvarint(v[2:])
	if n <= 0 || size == 0 || size-1 > uint64(len(v)) || len(v) < 2+n+int(size-1)+4 {
		return nil, nil
	}
	place := v[2+n : 2+n+int(size-1)+4]
	return append(append(append(make([]byte, 0, len(r.Key)+len(place)+1), r.Key...), 0), place...), r.Key
}
