package batch

import (
	"encoding/binary"
	"fmt"
)

// ControlType is the kind of a control record, from its key:
//
//	key: version int16 | type int16
type ControlType int16

// The kinds that matter here. Others are skipped by whoever meets them.
const (
	ControlAbort          ControlType = 0
	ControlCommit         ControlType = 1
	ControlMirrorPIDReset ControlType = 7
)

// String is the name that Kafka's dump tool prints.
func (t ControlType) String() string {
	switch t {
	case ControlAbort:
		return "ABORT"
	case ControlCommit:
		return "COMMIT"
	case 2:
		return "LEADER_CHANGE"
	case 3:
		return "SNAPSHOT_HEADER"
	case 4:
		return "SNAPSHOT_FOOTER"
	case 5:
		return "KRAFT_VERSION"
	case 6:
		return "KRAFT_VOTERS"
	case ControlMirrorPIDReset:
		return "MIRROR_PID_RESET"
	default:
		return "UNKNOWN"
	}
}

// Control is what a control batch says.
type Control struct {
	Type             ControlType
	CoordinatorEpoch int32  // ABORT and COMMIT; -1 otherwise
	Value            []byte // the record's value, into the batch
}

// AbortMarker builds the control batch that aborts the open transaction of a
// producer. producerEpoch must be at least the producer's current one.
func AbortMarker(producerID int64, producerEpoch int16, coordinatorEpoch int32, millis int64) []byte {
	return endMarker(ControlAbort, producerID, producerEpoch, coordinatorEpoch, millis)
}

// CommitMarker builds the control batch that commits it.
func CommitMarker(producerID int64, producerEpoch int16, coordinatorEpoch int32, millis int64) []byte {
	return endMarker(ControlCommit, producerID, producerEpoch, coordinatorEpoch, millis)
}

// value of a marker: version int16 = 0 | coordinator epoch int32
func endMarker(kind ControlType, producerID int64, producerEpoch int16, coordinatorEpoch int32, millis int64) []byte {
	props := Plain()
	props.Attributes = AttrControl | AttrTransactional
	props.ProducerID, props.ProducerEpoch = producerID, producerEpoch
	value := binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(coordinatorEpoch))
	return Append(nil, props, Record{Timestamp: millis, Key: controlKey(kind), Value: value})
}

// MirrorPIDReset builds the control batch that drops all producer state of a
// partition (records.md). leaderEpoch is the bumped one, millis is now.
//
//	value: version int16 = 0 | source cluster id compact string | tags
func MirrorPIDReset(leaderEpoch int32, millis int64, sourceClusterID string) []byte {
	props := Plain()
	props.Attributes, props.LeaderEpoch = AttrControl, leaderEpoch
	value := binary.AppendUvarint([]byte{0, 0}, uint64(len(sourceClusterID)+1))
	value = append(append(value, sourceClusterID...), 0)
	return Append(nil, props, Record{Timestamp: millis, Key: controlKey(ControlMirrorPIDReset), Value: value})
}

func controlKey(kind ControlType) []byte {
	return binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(kind))
}

// ParseControl reads the control record of the control batch b. Unknown
// versions and types are no error; a batch that is no control batch, has no
// record or a broken key is one, and wraps [ErrCorrupt].
func ParseControl(b []byte) (Control, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return Control{}, err
	}
	if !h.IsControl() {
		return Control{}, fmt.Errorf("%w: batch at offset %d is no control batch", ErrCorrupt, h.BaseOffset)
	}
	for r, err := range Records(b) {
		if err != nil {
			return Control{}, err
		}
		if len(r.Key) < 4 {
			return Control{}, fmt.Errorf("%w: control record at offset %d has a key of %d bytes", ErrCorrupt, r.Offset, len(r.Key))
		}
		c := Control{Type: ControlType(binary.BigEndian.Uint16(r.Key[2:])), CoordinatorEpoch: -1, Value: r.Value}
		if c.Type == ControlAbort || c.Type == ControlCommit {
			if len(r.Value) < 6 {
				return Control{}, fmt.Errorf("%w: marker at offset %d has a value of %d bytes", ErrCorrupt, r.Offset, len(r.Value))
			}
			c.CoordinatorEpoch = int32(binary.BigEndian.Uint32(r.Value[2:]))
		}
		return c, nil
	}
	return Control{}, fmt.Errorf("%w: control batch at offset %d has no record", ErrCorrupt, h.BaseOffset)
}
