package wire

import (
	"encoding/binary"
	"fmt"

	"kagami/messages/groups"
)

// Key versions of the records that share groups (KIP-932) keep in __consumer_offsets,
// and of those in __share_group_state: the api keys of their schemas.
const (
	shareKeyVersion           = 11
	sharePartitionsKeyVersion = 15
	shareSnapshotKeyVersion   = 0
)

func encodeShare(r groups.Record) (key, value []byte) {
	if r.Kind == groups.KindShare {
		k := ShareGroupMetadataKey{GroupID: r.Group}
		if r.Gone {
			return k.AppendTo(nil), nil
		}
		v := NewShareGroupMetadataValue()
		v.Epoch, v.MetadataHash = r.Share.Epoch, r.Share.Hash
		return k.AppendTo(nil), v.AppendTo(nil)
	}
	k := ShareGroupStatePartitionMetadataKey{GroupID: r.Group}
	if r.Gone {
		return k.AppendTo(nil), nil
	}
	v := NewShareGroupStatePartitionMetadataValue()
	for _, t := range r.SharePartitions.Topics {
		vt := NewShareGroupStatePartitionMetadataValueTopicPartitionsInfo()
		vt.TopicID, vt.TopicName, vt.Partitions = t.ID, t.Name, t.Partitions
		v.InitializedTopics = append(v.InitializedTopics, vt)
	}
	return k.AppendTo(nil), v.AppendTo(nil)
}

func decodeShare(version int16, key, value []byte) (groups.Record, error) {
	out := groups.Record{Gone: value == nil}
	if version == shareKeyVersion {
		k, v := NewShareGroupMetadataKey(), NewShareGroupMetadataValue()
		err := k.ReadFrom(key)
		if err == nil && value != nil {
			err = v.ReadFrom(value)
			out.Share = &groups.ShareGroup{Epoch: v.Epoch, Hash: v.MetadataHash}
		}
		out.Kind, out.Group = groups.KindShare, k.GroupID
		return out, shareError("share group", err)
	}
	k, v := NewShareGroupStatePartitionMetadataKey(), NewShareGroupStatePartitionMetadataValue()
	err := k.ReadFrom(key)
	if err == nil && value != nil {
		err = v.ReadFrom(value)
		out.SharePartitions = &groups.SharePartitions{}
		for _, t := range v.InitializedTopics {
			out.SharePartitions.Topics = append(out.SharePartitions.Topics, groups.ShareTopic{ID: t.TopicID, Name: t.TopicName, Partitions: t.Partitions})
		}
	}
	out.Kind, out.Group = groups.KindSharePartitions, k.GroupID
	return out, shareError("partitions of a share group", err)
}

func shareError(what string, err error) error {
	if err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	return nil
}

// EncodeShareRecord is the key and the value of a record of __share_group_state, nil
// for a tombstone.
func EncodeShareRecord(r groups.ShareRecord) (key, value []byte) {
	k := ShareSnapshotKey{GroupID: r.Key.Group, TopicID: r.Key.Topic, Partition: r.Key.Partition}
	if r.State == nil {
		return k.AppendTo(nil), nil
	}
	v := NewShareSnapshotValue()
	v.SnapshotEpoch, v.StateEpoch, v.LeaderEpoch = r.State.SnapshotEpoch, r.State.StateEpoch, r.State.LeaderEpoch
	v.StartOffset, v.DeliveryCompleteCount = r.State.Start, r.State.Complete
	v.CreateTimestamp, v.WriteTimestamp = r.State.CreatedMillis, r.State.WrittenMillis
	return k.AppendTo(nil), v.AppendTo(nil)
}

// DecodeShareRecord reads a snapshot of __share_group_state. What was delivered is left
// out: nobody consumes by share groups here.
func DecodeShareRecord(key, value []byte) (groups.ShareRecord, error) {
	if len(key) < 2 || binary.BigEndian.Uint16(key) != shareSnapshotKeyVersion {
		return groups.ShareRecord{}, fmt.Errorf("share state record: %w", ErrOtherGroupRecord)
	}
	k, v := NewShareSnapshotKey(), NewShareSnapshotValue()
	if err := k.ReadFrom(key); err != nil {
		return groups.ShareRecord{}, shareError("share state key", err)
	}
	out := groups.ShareRecord{Key: groups.ShareKey{Group: k.GroupID, Topic: k.TopicID, Partition: k.Partition}}
	if value == nil {
		return out, nil
	}
	if err := v.ReadFrom(value); err != nil {
		return out, shareError("share state", err)
	}
	out.State = &groups.ShareState{
		SnapshotEpoch: v.SnapshotEpoch, StateEpoch: v.StateEpoch, LeaderEpoch: v.LeaderEpoch, Start: v.StartOffset,
		Complete: v.DeliveryCompleteCount, CreatedMillis: v.CreateTimestamp, WrittenMillis: v.WriteTimestamp,
	}
	return out, nil
}
