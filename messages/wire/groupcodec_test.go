package wire

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		{"", ""}, {"0003000167", ""}, {"0001000167000174" + "00000002", "0005"}, {"0002000167", "00"}, {"0002000167", "0005"},
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
