package wire

import (
	"encoding/binary"
	"fmt"

	"kagami/messages/groups"
)

// Key versions of the records that the consumer protocol (KIP-848) keeps in
// __consumer_offsets: the api keys of their schemas.
const (
	consumerKeyVersion           = 3
	consumerPartitionsKeyVersion = 4
	consumerMemberKeyVersion     = 5
	targetEpochKeyVersion        = 6
	targetKeyVersion             = 7
	currentKeyVersion            = 8
	regexKeyVersion              = 16
)

func encodeConsumerKey(r groups.Record) []byte {
	switch r.Kind {
	case groups.KindConsumer:
		k := ConsumerGroupMetadataKey{GroupID: r.Group}
		return k.AppendTo(nil)
	case groups.KindConsumerPartitions:
		k := ConsumerGroupPartitionMetadataKey{GroupID: r.Group}
		return k.AppendTo(nil)
	case groups.KindConsumerMember:
		k := ConsumerGroupMemberMetadataKey{GroupID: r.Group, MemberID: r.Member}
		return k.AppendTo(nil)
	case groups.KindTargetEpoch:
		k := ConsumerGroupTargetAssignmentMetadataKey{GroupID: r.Group}
		return k.AppendTo(nil)
	case groups.KindTarget:
		k := ConsumerGroupTargetAssignmentMemberKey{GroupID: r.Group, MemberID: r.Member}
		return k.AppendTo(nil)
	case groups.KindCurrent:
		k := ConsumerGroupCurrentMemberAssignmentKey{GroupID: r.Group, MemberID: r.Member}
		return k.AppendTo(nil)
	case groups.KindRegex:
		k := ConsumerGroupRegularExpressionKey{GroupID: r.Group, RegularExpression: r.Pattern}
		return k.AppendTo(nil)
	case groups.KindOffset, groups.KindGroup, groups.KindShare, groups.KindSharePartitions:
	}
	return nil
}

func encodeConsumerValue(r groups.Record) []byte {
	switch {
	case r.Consumer != nil:
		v := NewConsumerGroupMetadataValue()
		v.Epoch, v.MetadataHash = r.Consumer.Epoch, r.Consumer.Hash
		return v.AppendTo(nil)
	case r.ConsumerMember != nil:
		return encodeConsumerMember(r.ConsumerMember)
	case r.TargetEpoch != nil:
		v := NewConsumerGroupTargetAssignmentMetadataValue()
		v.AssignmentEpoch, v.AssignmentTimestamp = r.TargetEpoch.Epoch, r.TargetEpoch.Millis
		return v.AppendTo(nil)
	case r.Target != nil:
		v := NewConsumerGroupTargetAssignmentMemberValue()
		for _, t := range r.Target.Partitions {
			vt := NewConsumerGroupTargetAssignmentMemberValueTopicPartition()
			vt.TopicID, vt.Partitions = t.Topic, t.Partitions
			v.TopicPartitions = append(v.TopicPartitions, vt)
		}
		return v.AppendTo(nil)
	case r.Current != nil:
		v := NewConsumerGroupCurrentMemberAssignmentValue()
		v.MemberEpoch, v.PreviousMemberEpoch, v.State = r.Current.Epoch, r.Current.Previous, int8(r.Current.State)
		v.AssignedPartitions, v.PartitionsPendingRevocation = encodeCurrent(r.Current.Assigned), encodeCurrent(r.Current.Revoking)
		return v.AppendTo(nil)
	case r.Regex != nil:
		v := NewConsumerGroupRegularExpressionValue()
		v.Topics, v.MetadataVersion, v.Timestamp = r.Regex.Topics, r.Regex.Version, r.Regex.Millis
		return v.AppendTo(nil)
	default:
		return nil
	}
}

func encodeConsumerMember(m *groups.ConsumerMember) []byte {
	v := NewConsumerGroupMemberMetadataValue()
	v.InstanceID, v.RackID, v.ClientID, v.ClientHost = orNull(m.Instance), orNull(m.Rack), m.ClientID, m.ClientHost
	v.SubscribedTopicNames, v.SubscribedTopicRegex = m.Topics, orNull(m.Regex)
	v.RebalanceTimeoutMs, v.ServerAssignor = m.RebalanceMillis, orNull(m.Assignor)
	if m.Classic != nil {
		c := NewConsumerGroupMemberMetadataValueClassicMemberMetadata()
		c.SessionTimeoutMs = m.Classic.SessionMillis
		for _, p := range m.Classic.Protocols {
			cp := NewConsumerGroupMemberMetadataValueClassicProtocol()
			cp.Name, cp.Metadata = p.Name, p.Metadata
			c.SupportedProtocols = append(c.SupportedProtocols, cp)
		}
		v.ClassicMemberMetadata = &c
	}
	return v.AppendTo(nil)
}

func encodeCurrent(partitions []groups.TopicPartitions) []ConsumerGroupCurrentMemberAssignmentValueTopicPartitions {
	var out []ConsumerGroupCurrentMemberAssignmentValueTopicPartitions
	for _, t := range partitions {
		vt := NewConsumerGroupCurrentMemberAssignmentValueTopicPartitions()
		vt.TopicID, vt.Partitions, vt.AssignmentEpochs = t.Topic, t.Partitions, t.Epochs
		out = append(out, vt)
	}
	return out
}

// decodeConsumer reads a record of the consumer protocol; ok is false if the key
// is of another kind.
func decodeConsumer(version int16, key, value []byte) (out groups.Record, ok bool, err error) {
	out.Gone = value == nil
	switch version {
	case consumerKeyVersion:
		k := NewConsumerGroupMetadataKey()
		err = k.ReadFrom(key)
		out.Kind, out.Group = groups.KindConsumer, k.GroupID
	case consumerPartitionsKeyVersion:
		k := NewConsumerGroupPartitionMetadataKey()
		err = k.ReadFrom(key)
		out.Kind, out.Group = groups.KindConsumerPartitions, k.GroupID
	case consumerMemberKeyVersion:
		k := NewConsumerGroupMemberMetadataKey()
		err = k.ReadFrom(key)
		out.Kind, out.Group, out.Member = groups.KindConsumerMember, k.GroupID, k.MemberID
	case targetEpochKeyVersion:
		k := NewConsumerGroupTargetAssignmentMetadataKey()
		err = k.ReadFrom(key)
		out.Kind, out.Group = groups.KindTargetEpoch, k.GroupID
	case targetKeyVersion:
		k := NewConsumerGroupTargetAssignmentMemberKey()
		err = k.ReadFrom(key)
		out.Kind, out.Group, out.Member = groups.KindTarget, k.GroupID, k.MemberID
	case currentKeyVersion:
		k := NewConsumerGroupCurrentMemberAssignmentKey()
		err = k.ReadFrom(key)
		out.Kind, out.Group, out.Member = groups.KindCurrent, k.GroupID, k.MemberID
	case regexKeyVersion:
		k := NewConsumerGroupRegularExpressionKey()
		err = k.ReadFrom(key)
		out.Kind, out.Group, out.Pattern = groups.KindRegex, k.GroupID, k.RegularExpression
	default:
		return out, false, nil
	}
	if err == nil && value != nil {
		err = decodeConsumerValue(&out, value)
	}
	return out, true, err
}

func decodeConsumerValue(out *groups.Record, value []byte) error {
	if len(value) < 2 || binary.BigEndian.Uint16(value) > 0 {
		return fmt.Errorf("%s record: value of %d bytes or of a newer version: %w", out.Kind, len(value), ErrOtherGroupRecord)
	}
	var err error
	switch out.Kind {
	case groups.KindConsumer:
		v := NewConsumerGroupMetadataValue()
		err = v.ReadFrom(value)
		out.Consumer = &groups.ConsumerGroup{Epoch: v.Epoch, Hash: v.MetadataHash}
	case groups.KindConsumerMember:
		v := NewConsumerGroupMemberMetadataValue()
		err = v.ReadFrom(value)
		out.ConsumerMember = decodeConsumerMember(&v)
	case groups.KindTargetEpoch:
		v := NewConsumerGroupTargetAssignmentMetadataValue()
		err = v.ReadFrom(value)
		out.TargetEpoch = &groups.TargetEpoch{Epoch: v.AssignmentEpoch, Millis: v.AssignmentTimestamp}
	case groups.KindTarget:
		v := NewConsumerGroupTargetAssignmentMemberValue()
		err = v.ReadFrom(value)
		out.Target = &groups.Target{}
		for _, t := range v.TopicPartitions {
			out.Target.Partitions = append(out.Target.Partitions, groups.TopicPartitions{Topic: t.TopicID, Partitions: t.Partitions})
		}
	case groups.KindCurrent:
		v := NewConsumerGroupCurrentMemberAssignmentValue()
		err = v.ReadFrom(value)
		out.Current = &groups.Current{
			Epoch: v.MemberEpoch, Previous: v.PreviousMemberEpoch, State: groups.MemberStage(v.State),
			Assigned: decodeCurrent(v.AssignedPartitions), Revoking: decodeCurrent(v.PartitionsPendingRevocation),
		}
	case groups.KindRegex:
		v := NewConsumerGroupRegularExpressionValue()
		err = v.ReadFrom(value)
		out.Regex = &groups.Regex{Topics: v.Topics, Version: v.MetadataVersion, Millis: v.Timestamp}
	case groups.KindConsumerPartitions, groups.KindOffset, groups.KindGroup, groups.KindShare, groups.KindSharePartitions:
	}
	return err
}

func decodeConsumerMember(v *ConsumerGroupMemberMetadataValue) *groups.ConsumerMember {
	m := &groups.ConsumerMember{
		Instance: text(v.InstanceID), Rack: text(v.RackID), ClientID: v.ClientID, ClientHost: v.ClientHost, Topics: v.SubscribedTopicNames,
		Regex: text(v.SubscribedTopicRegex), RebalanceMillis: v.RebalanceTimeoutMs, Assignor: text(v.ServerAssignor),
	}
	if c := v.ClassicMemberMetadata; c != nil {
		m.Classic = &groups.ClassicMember{SessionMillis: c.SessionTimeoutMs}
		for _, p := range c.SupportedProtocols {
			m.Classic.Protocols = append(m.Classic.Protocols, groups.Protocol{Name: p.Name, Metadata: p.Metadata})
		}
	}
	return m
}

func decodeCurrent(partitions []ConsumerGroupCurrentMemberAssignmentValueTopicPartitions) []groups.TopicPartitions {
	var out []groups.TopicPartitions
	for _, t := range partitions {
		p := groups.TopicPartitions{Topic: t.TopicID, Partitions: t.Partitions}
		if len(t.AssignmentEpochs) == len(t.Partitions) {
			p.Epochs = t.AssignmentEpochs
		}
		out = append(out, p)
	}
	return out
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
