package wire

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/groups"
)

// TestGroupRecords: golden bytes, as Kafka writes them, and back.
func TestGroupRecords(t *testing.T) {
	for _, row := range []struct {
		name       string
		record     groups.Record
		key, value string
	}{
		{
			"offset", groups.Record{Group: "g", Kind: groups.KindOffset, Topic: "t", Partition: 2, Offset: &groups.Offset{Offset: 5, LeaderEpoch: 3, Metadata: "m", CommitMillis: 7, ExpireMillis: -1}},
			"0001000167000174" + "00000002", "0003" + "0000000000000005" + "00000003" + "00016d" + "0000000000000007",
		},
		{
			"offset with an expiry", groups.Record{Group: "g", Kind: groups.KindOffset, Topic: "t", Offset: &groups.Offset{Offset: 5, LeaderEpoch: -1, CommitMillis: 7, ExpireMillis: 9}},
			"0001000167000174" + "00000000", "0001" + "0000000000000005" + "0000" + "0000000000000007" + "0000000000000009",
		},
		{"offset tombstone", groups.Record{Group: "g", Kind: groups.KindOffset, Topic: "t", Gone: true}, "000100016700017400000000", ""},
		{
			"empty group", groups.Record{Group: "g", Kind: groups.KindGroup, State: &groups.State{ProtocolType: "c", Generation: 4, SinceMillis: 6}},
			"0002000167", "0003" + "000163" + "00000004" + "ffff" + "ffff" + "0000000000000006" + "00000000",
		},
		{
			"group", groups.Record{Group: "g", Kind: groups.KindGroup, State: &groups.State{ProtocolType: "c", Generation: 4, Protocol: "p", Leader: "l", SinceMillis: 6, Members: []groups.MemberState{
				{Member: "l", Instance: "i", ClientID: "d", ClientHost: "/h", RebalanceMillis: 1, SessionMillis: 2, Metadata: []byte{8}, Assignment: []byte{9}},
			}}},
			"0002000167", "0003" + "000163" + "00000004" + "000170" + "00016c" + "0000000000000006" + "00000001" +
				"00016c" + "000169" + "000164" + "00022f68" + "00000001" + "00000002" + "0000000108" + "0000000109",
		},
		{
			"consumer group", groups.Record{Group: "g", Kind: groups.KindConsumer, Consumer: &groups.ConsumerGroup{Epoch: 4, Hash: 7}},
			"0003000167", "0000" + "00000004" + "01" + "00" + "08" + "0000000000000007",
		},
		{"consumer group tombstone", groups.Record{Group: "g", Kind: groups.KindConsumer, Gone: true}, "0003000167", ""},
		{"partition metadata tombstone", groups.Record{Group: "g", Kind: groups.KindConsumerPartitions, Gone: true}, "0004000167", ""},
		{
			"member", groups.Record{Group: "g", Member: "m", Kind: groups.KindConsumerMember, ConsumerMember: &groups.ConsumerMember{
				Instance: "i", ClientID: "c", ClientHost: "/h", Topics: []string{"t"}, RebalanceMillis: 5, Assignor: "range",
			}},
			"000500016700016d", "0000" + "0269" + "00" + "0263" + "032f68" + "020274" + "00" + "00000005" + "0672616e6765" + "00",
		},
		{
			"member of the classic protocol", groups.Record{Group: "g", Member: "m", Kind: groups.KindConsumerMember, ConsumerMember: &groups.ConsumerMember{
				Rack: "r", Topics: []string{}, Regex: "x", RebalanceMillis: 5, Classic: &groups.ClassicMember{SessionMillis: 6, Protocols: []groups.Protocol{{Name: "p", Metadata: []byte{8}}}},
			}},
			"000500016700016d", "0000" + "00" + "0272" + "01" + "01" + "01" + "0278" + "00000005" + "00" + "01" + "00" + "0c" + "01" + "00000006" + "02" + "0270" + "0208" + "00" + "00",
		},
		{
			"target epoch", groups.Record{Group: "g", Kind: groups.KindTargetEpoch, TargetEpoch: &groups.TargetEpoch{Epoch: 3, Millis: 9}},
			"0006000167", "0000" + "00000003" + "01" + "00" + "08" + "0000000000000009",
		},
		{
			"target", groups.Record{Group: "g", Member: "m", Kind: groups.KindTarget, Target: &groups.Target{Partitions: []groups.TopicPartitions{{Topic: messages.TopicID{1}, Partitions: []int32{2}}}}},
			"000700016700016d", "0000" + "02" + "01000000000000000000000000000000" + "02" + "00000002" + "00" + "00",
		},
		{
			"current", groups.Record{Group: "g", Member: "m", Kind: groups.KindCurrent, Current: &groups.Current{
				Epoch: 3, Previous: 2, State: groups.StageUnrevoked,
				Assigned: []groups.TopicPartitions{{Topic: messages.TopicID{1}, Partitions: []int32{2}, Epochs: []int32{3}}},
				Revoking: []groups.TopicPartitions{{Topic: messages.TopicID{2}, Partitions: []int32{1}}},
			}},
			"000800016700016d", "0000" + "00000003" + "00000002" + "01" +
				"02" + "01000000000000000000000000000000" + "02" + "00000002" + "01" + "00" + "05" + "02" + "00000003" +
				"02" + "02000000000000000000000000000000" + "02" + "00000001" + "00" + "00",
		},
		{
			"regular expression", groups.Record{Group: "g", Pattern: "x", Kind: groups.KindRegex, Regex: &groups.Regex{Topics: []string{"t"}, Version: 2, Millis: 3}},
			"0010000167000178", "0000" + "02" + "0274" + "0000000000000002" + "0000000000000003" + "00",
		},
		{"group tombstone", groups.Record{Group: "g", Kind: groups.KindGroup, Gone: true}, "0002000167", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			key, value := EncodeGroupRecord(row.record)
			if hex.EncodeToString(key) != row.key || hex.EncodeToString(value) != row.value {
				t.Errorf("encoded %x %x, want %s %s", key, value, row.key, row.value)
			}
			if row.record.Gone != (value == nil) {
				t.Error("a tombstone has a null value, nothing else has")
			}
			back, err := DecodeGroupRecord(key, value)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(row.record, back); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestGroupRecordsUnknown: what comes in later versions is refused cleanly.
func TestGroupRecordsUnknown(t *testing.T) {
	for _, row := range []struct{ key, value string }{
		{"", ""}, {"0009000167", ""}, {"0003000167", "0001"}, {"0003000167", "00"}, {"0001000167000174" + "00000002", "0005"}, {"0002000167", "00"}, {"0002000167", "0005"},
	} {
		key, _ := hex.DecodeString(row.key)
		value, _ := hex.DecodeString(row.value)
		if _, err := DecodeGroupRecord(key, value); !errors.Is(err, ErrOtherGroupRecord) {
			t.Errorf("%s %s: %v", row.key, row.value, err)
		}
	}
	key, _ := hex.DecodeString("00020001")
	if _, err := DecodeGroupRecord(key, nil); err == nil {
		t.Error("a key that is cut off was read")
	}
}

func TestSubscribedTopics(t *testing.T) {
	b, _ := hex.DecodeString("0003" + "00000002" + "000161" + "000162" + "ffffffff")
	if got, ok := SubscribedTopics(b); !ok || !cmp.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v %v", got, ok)
	}
	if _, ok := SubscribedTopics([]byte{0}); ok {
		t.Error("that is no subscription")
	}
}

// TestSubscriptions: what members of the classic protocol say, in all versions.
func TestSubscriptions(t *testing.T) {
	rack := "r"
	for version := int16(0); version <= subscriptionMax; version++ {
		m := kmsg.NewConsumerMemberMetadata()
		m.Version, m.Topics, m.Rack = version, []string{"a"}, &rack
		m.OwnedPartitions = []kmsg.ConsumerMemberMetadataOwnedPartition{{Topic: "a", Partitions: []int32{1}}}
		want := Subscription{Version: version, Topics: []string{"a"}}
		if version >= 1 {
			want.Owned = []groups.Partitions{{Topic: "a", Partitions: []int32{1}}}
		}
		if version >= 3 {
			want.Rack = rack
		}
		if got, ok := DecodeSubscription(m.AppendTo(nil)); !ok || !cmp.Equal(got, want) {
			t.Errorf("version %d: %v %v", version, got, ok)
		}
		topics := []groups.Partitions{{Topic: "a", Partitions: []int32{1, 2}}}
		if got, ok := DecodeAssignment(EncodeAssignment(version, topics)); !ok || !cmp.Equal(got, topics) {
			t.Errorf("version %d: %v %v", version, got, ok)
		}
	}
	cut, _ := hex.DecodeString("0003" + "00000001" + "000161" + "ffffffff" + "0000")
	if got, ok := DecodeSubscription(cut); !ok || !cmp.Equal(got, Subscription{Topics: []string{"a"}}) {
		t.Errorf("%v %v: the topics are right", got, ok)
	}
	if _, ok := DecodeSubscription([]byte{0}); ok {
		t.Error("that is no subscription")
	}
	if _, ok := DecodeAssignment([]byte{0}); ok {
		t.Error("that is no assignment")
	}
	if got, ok := DecodeAssignment(nil); !ok || got != nil {
		t.Error("nothing is assigned")
	}
}

// TestShareRecords: golden bytes, as Kafka writes them, and back.
func TestShareRecords(t *testing.T) {
	id := messages.TopicID{1, 2}
	for _, row := range []struct {
		name       string
		record     groups.Record
		key, value string
	}{
		{"share group", groups.Record{Group: "g", Kind: groups.KindShare, Share: &groups.ShareGroup{Epoch: 4, Hash: 7}}, "000b000167", "0000" + "00000004" + "0000000000000007" + "00"},
		{"share group tombstone", groups.Record{Group: "g", Kind: groups.KindShare, Gone: true}, "000b000167", ""},
		{
			"partitions", groups.Record{Group: "g", Kind: groups.KindSharePartitions, SharePartitions: &groups.SharePartitions{Topics: []groups.ShareTopic{{ID: id, Name: "t", Partitions: []int32{0, 2}}}}},
			"000f000167", "0000" + "01" + "02" + "01020000000000000000000000000000" + "0274" + "03" + "00000000" + "00000002" + "00" + "01" + "00",
		},
		{"partitions tombstone", groups.Record{Group: "g", Kind: groups.KindSharePartitions, Gone: true}, "000f000167", ""},
	} {
		key, value := EncodeGroupRecord(row.record)
		if hex.EncodeToString(key) != row.key || hex.EncodeToString(value) != row.value {
			t.Errorf("%s: %x %x", row.name, key, value)
		}
		back, err := DecodeGroupRecord(key, value)
		if d := cmp.Diff(row.record, back); d != "" || err != nil {
			t.Errorf("%s: %v %s", row.name, err, d)
		}
	}
	state := groups.ShareRecord{Key: groups.ShareKey{Group: "g", Topic: id, Partition: 2}, State: &groups.ShareState{
		SnapshotEpoch: 1, StateEpoch: 2, LeaderEpoch: 3, Start: 4, Complete: 5, CreatedMillis: 6, WrittenMillis: 7,
	}}
	key, value := EncodeShareRecord(state)
	if got := hex.EncodeToString(key); got != "0000000167"+"01020000000000000000000000000000"+"00000002" {
		t.Errorf("key %s", got)
	}
	if got := hex.EncodeToString(value); got != "0000"+"00000001"+"00000002"+"00000003"+"0000000000000004"+"0000000000000006"+"0000000000000007"+"01"+"01"+"00"+"04"+"00000005" {
		t.Errorf("value %s", got)
	}
	for _, want := range []groups.ShareRecord{state, {Key: state.Key}} {
		key, value := EncodeShareRecord(want)
		back, err := DecodeShareRecord(key, value)
		if d := cmp.Diff(want, back); d != "" || err != nil {
			t.Errorf("%v %s", err, d)
		}
	}
	if _, err := DecodeShareRecord([]byte{0, 1, 0, 0}, nil); !errors.Is(err, ErrOtherGroupRecord) {
		t.Errorf("an update: %v", err)
	}
	if got := state.Key.String(); got != "g:AQIAAAAAAAAAAAAAAAAAAA:2" {
		t.Errorf("Kafka's name of the state: %s", got)
	}
}
