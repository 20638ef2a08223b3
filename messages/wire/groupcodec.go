package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/groups"
)

// Versions of the records of __consumer_offsets: keys 0 and 1 are offsets, 2 are
// groups of the classic protocol, the others are in consumercodec.go. Values are written in the version that Kafka writes today and every
// broker since 2.3 reads; an offset with an expiry of its own needs version 1.
const (
	offsetKeyOld       = 0
	offsetKeyVersion   = 1
	groupKeyVersion    = 2
	offsetValueExpires = 1
	offsetValueVersion = 3
	groupValueVersion  = 3
	groupValueMax      = 4 // of both kinds; what comes later isn't read
)

// ErrOtherGroupRecord is about a record of __consumer_offsets of a kind or version that
// this build doesn't know.
var ErrOtherGroupRecord = errors.New("record of an unknown kind")

// EncodeGroupRecord is the key and the value of a record, nil for a tombstone.
func EncodeGroupRecord(r groups.Record) (key, value []byte) {
	if r.Kind == groups.KindOffset {
		k := kmsg.OffsetCommitKey{Version: offsetKeyVersion, Group: r.Group, Topic: r.Topic, Partition: r.Partition}
		key = k.AppendTo(nil)
		if !r.Gone {
			value = encodeOffset(r.Offset)
		}
		return key, value
	}
	if r.Kind == groups.KindShare || r.Kind == groups.KindSharePartitions {
		return encodeShare(r)
	}
	if r.Kind != groups.KindGroup {
		if key = encodeConsumerKey(r); !r.Gone {
			value = encodeConsumerValue(r)
		}
		return key, value
	}
	k := kmsg.GroupMetadataKey{Version: groupKeyVersion, Group: r.Group}
	key = k.AppendTo(nil)
	if !r.Gone {
		value = encodeGroup(r.State)
	}
	return key, value
}

func encodeOffset(o *groups.Offset) []byte {
	v := kmsg.NewOffsetCommitValue()
	v.Version, v.Offset, v.LeaderEpoch, v.Metadata, v.CommitTimestamp, v.ExpireTimestamp = offsetValueVersion, o.Offset, o.LeaderEpoch, o.Metadata, o.CommitMillis, o.ExpireMillis
	if o.ExpireMillis != -1 {
		v.Version = offsetValueExpires
	}
	return v.AppendTo(nil)
}

func encodeGroup(s *groups.State) []byte {
	v := kmsg.NewGroupMetadataValue()
	v.Version, v.ProtocolType, v.Generation, v.CurrentStateTimestamp = groupValueVersion, s.ProtocolType, s.Generation, s.SinceMillis
	if s.Protocol != "" {
		v.Protocol = &s.Protocol
	}
	if s.Leader != "" {
		v.Leader = &s.Leader
	}
	for _, m := range s.Members {
		vm := kmsg.NewGroupMetadataValueMember()
		vm.MemberID, vm.ClientID, vm.ClientHost = m.Member, m.ClientID, m.ClientHost
		vm.RebalanceTimeoutMillis, vm.SessionTimeoutMillis = m.RebalanceMillis, m.SessionMillis
		vm.Subscription, vm.Assignment = notNull(m.Metadata), notNull(m.Assignment)
		if m.Instance != "" {
			vm.InstanceID = &m.Instance
		}
		v.Members = append(v.Members, vm)
	}
	return v.AppendTo(nil)
}

func notNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// DecodeGroupRecord reads a record of __consumer_offsets. Strings and bytes of the
// result don't point into key and value.
func DecodeGroupRecord(key, value []byte) (groups.Record, error) {
	if len(key) < 2 {
		return groups.Record{}, fmt.Errorf("group record: key of %d bytes: %w", len(key), ErrOtherGroupRecord)
	}
	out := groups.Record{Gone: value == nil}
	var err error
	switch version := int16(binary.BigEndian.Uint16(key)); version {
	case offsetKeyOld, offsetKeyVersion:
		k := kmsg.NewOffsetCommitKey()
		if err = k.ReadFrom(key); err != nil {
			return out, fmt.Errorf("read offset key: %w", err)
		}
		out.Kind, out.Group, out.Topic, out.Partition = groups.KindOffset, k.Group, k.Topic, k.Partition
		if value != nil {
			out.Offset, err = decodeOffset(value)
		}
	case groupKeyVersion:
		k := kmsg.NewGroupMetadataKey()
		if err = k.ReadFrom(key); err != nil {
			return out, fmt.Errorf("read group key: %w", err)
		}
		out.Kind, out.Group = groups.KindGroup, k.Group
		if value != nil {
			out.State, err = decodeGroup(value)
		}
	case shareKeyVersion, sharePartitionsKeyVersion:
		return decodeShare(version, key, value)
	default:
		r, known, err := decodeConsumer(version, key, value)
		if !known {
			err = fmt.Errorf("group record: key version %d: %w", version, ErrOtherGroupRecord)
		}
		return r, err
	}
	return out, err
}

func decodeOffset(value []byte) (*groups.Offset, error) {
	v := kmsg.NewOffsetCommitValue()
	if err := checkValue(value); err != nil {
		return nil, err
	}
	if err := v.ReadFrom(value); err != nil {
		return nil, fmt.Errorf("read offset: %w", err)
	}
	o := &groups.Offset{Offset: v.Offset, LeaderEpoch: v.LeaderEpoch, Metadata: v.Metadata, CommitMillis: v.CommitTimestamp, ExpireMillis: -1}
	if v.Version == offsetValueExpires {
		o.ExpireMillis = v.ExpireTimestamp
	}
	if v.Version < offsetValueVersion {
		o.LeaderEpoch = -1
	}
	return o, nil
}

func decodeGroup(value []byte) (*groups.State, error) {
	v := kmsg.NewGroupMetadataValue()
	if err := checkValue(value); err != nil {
		return nil, err
	}
	if err := v.ReadFrom(value); err != nil {
		return nil, fmt.Errorf("read group: %w", err)
	}
	s := &groups.State{ProtocolType: v.ProtocolType, Generation: v.Generation, Protocol: text(v.Protocol), Leader: text(v.Leader), SinceMillis: v.CurrentStateTimestamp}
	if v.Version < 2 {
		s.SinceMillis = -1
	}
	for _, m := range v.Members {
		ms := groups.MemberState{
			Member: m.MemberID, Instance: text(m.InstanceID), ClientID: m.ClientID, ClientHost: m.ClientHost,
			RebalanceMillis: m.RebalanceTimeoutMillis, SessionMillis: m.SessionTimeoutMillis, Metadata: m.Subscription, Assignment: m.Assignment,
		}
		if v.Version < 1 {
			ms.RebalanceMillis = m.SessionTimeoutMillis
		}
		s.Members = append(s.Members, ms)
	}
	return s, nil
}

func checkValue(value []byte) error {
	if len(value) < 2 {
		return fmt.Errorf("group record: value of %d bytes: %w", len(value), ErrOtherGroupRecord)
	}
	if v := int16(binary.BigEndian.Uint16(value)); v < 0 || v > groupValueMax {
		return fmt.Errorf("group record: value version %d: %w", v, ErrOtherGroupRecord)
	}
	return nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
