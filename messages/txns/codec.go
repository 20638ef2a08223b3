package txns

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

// Versions of the records of __transaction_state. Values are written in version 1,
// as Kafka does from transaction.version 1 on.
const (
	keyVersion   = 0
	valueVersion = 1
)

// ErrOtherRecord is about a record of a kind or version that this build doesn't
// know.
var ErrOtherRecord = errors.New("transaction record of an unknown kind")

// Encode is the key and the value of a record, nil for a tombstone.
func Encode(r Record) (key, value []byte) {
	k := kmsg.TxnMetadataKey{Version: keyVersion, TransactionalID: r.ID}
	key = k.AppendTo(nil)
	if r.State == nil {
		return key, nil
	}
	s := r.State
	v := kmsg.NewTxnMetadataValue()
	v.Version, v.ProducerID, v.ProducerEpoch, v.TimeoutMillis = valueVersion, s.Producer.ID, s.Epoch, s.TimeoutMillis
	v.State, v.LastUpdateTimestamp, v.StartTimestamp = kmsg.TransactionState(s.Status), s.UpdatedMillis, s.StartedMillis
	v.PreviousProducerID, v.NextProducerID, v.ClientTransactionVersion = s.PreviousID, s.NextID, int16(s.Version)
	if s.Status != Empty {
		v.Topics = topicsOf(s.Partitions)
	}
	return key, v.AppendTo(nil)
}

// topicsOf groups partitions that are in order.
func topicsOf(partitions []messages.TopicPartition) []kmsg.TxnMetadataValueTopic {
	out := []kmsg.TxnMetadataValueTopic{}
	for _, p := range partitions {
		if n := len(out); n == 0 || out[n-1].Topic != p.Topic {
			t := kmsg.NewTxnMetadataValueTopic()
			t.Topic = p.Topic
			out = append(out, t)
		}
		t := &out[len(out)-1]
		t.Partitions = append(t.Partitions, p.Partition)
	}
	return out
}

// Decode reads a record of __transaction_state. The result doesn't point into key
// and value.
func Decode(key, value []byte) (Record, error) {
	if len(key) < 2 || binary.BigEndian.Uint16(key) != keyVersion {
		return Record{}, fmt.Errorf("%w: key of %d bytes", ErrOtherRecord, len(key))
	}
	k := kmsg.NewTxnMetadataKey()
	if err := k.ReadFrom(key); err != nil {
		return Record{}, fmt.Errorf("read transaction key: %w", err)
	}
	out := Record{ID: k.TransactionalID}
	if value == nil {
		return out, nil
	}
	if len(value) < 2 || binary.BigEndian.Uint16(value) > valueVersion {
		return out, fmt.Errorf("%w: value of %d bytes", ErrOtherRecord, len(value))
	}
	v := kmsg.NewTxnMetadataValue()
	if err := v.ReadFrom(value); err != nil {
		return out, fmt.Errorf("read transaction %q: %w", out.ID, err)
	}
	s := &State{
		Producer: Producer{ID: v.ProducerID, Epoch: v.ProducerEpoch}, PreviousID: v.PreviousProducerID, NextID: v.NextProducerID,
		TimeoutMillis: v.TimeoutMillis, Status: Status(v.State), UpdatedMillis: v.LastUpdateTimestamp, StartedMillis: v.StartTimestamp,
		Version: Version(v.ClientTransactionVersion),
	}
	if s.Status < Empty || s.Status > Dead {
		return out, fmt.Errorf("%w: transaction %q has status %d", ErrOtherRecord, out.ID, v.State)
	}
	for _, t := range v.Topics {
		for _, p := range t.Partitions {
			s.Partitions = append(s.Partitions, messages.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
	Sort(s.Partitions)
	out.State = s
	return out, nil
}

// Sort puts partitions in order of topic and number.
func Sort(partitions []messages.TopicPartition) {
	slices.SortFunc(partitions, Compare)
}

// Compare is the order of [Sort].
func Compare(a, b messages.TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}
