package txns

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
)

// TestCodec: golden bytes of Kafka's format (TransactionLogKey 0, TransactionLogValue 1);
// kafka-dump-log reads the same ones in test/e2e.
func TestCodec(t *testing.T) {
	rows := []struct {
		name, key, value string
		r                Record
	}{
		{
			"empty", "0000000178", "000100000000000000050003000003e8000000000000000000" + "64ffffffffffffffff" + "00",
			Record{ID: "x", State: &State{Producer: Producer{5, 3}, PreviousID: -1, NextID: -1, TimeoutMillis: 1000, Status: Empty, UpdatedMillis: 100, StartedMillis: -1}},
		},
		{
			"committing", "0000000178",
			"000100000000000000050003000003e80203" + "0261" + "03" + "0000000000000002" + "00" + "0262" + "02" + "00000001" + "00" +
				"0000000000000064" + "0000000000000032" + "03" + "0008" + "0000000000000004" + "0108" + "0000000000000006" + "0202" + "0002",
			Record{ID: "x", State: &State{
				Producer: Producer{5, 3}, PreviousID: 4, NextID: 6, TimeoutMillis: 1000, Status: PrepareCommit, UpdatedMillis: 100, StartedMillis: 50, Version: V2,
				Partitions: []messages.TopicPartition{{Topic: "a", Partition: 0}, {Topic: "a", Partition: 2}, {Topic: "b", Partition: 1}},
			}},
		},
		{"gone", "0000000178", "", Record{ID: "x"}},
	}
	for _, row := range rows {
		key, value := Encode(row.r)
		require.Equal(t, row.key, hex.EncodeToString(key), row.name)
		require.Equal(t, row.value, hex.EncodeToString(value), row.name)
		back, err := Decode(key, value)
		require.NoError(t, err, row.name)
		require.Equal(t, row.r, back, row.name)
	}
	old, err := hex.DecodeString("0000000000000000000500030000" + "03e8" + "01" + "00000001" + "0001" + "61" + "00000001" + "00000002" + "0000000000000064" + "0000000000000032")
	require.NoError(t, err)
	back, err := Decode([]byte{0, 0, 0, 1, 'x'}, old)
	require.NoError(t, err, "version 0")
	require.Equal(t, []messages.TopicPartition{{Topic: "a", Partition: 2}}, back.State.Partitions)
	require.Equal(t, []int64{NoProducer, NoProducer}, []int64{back.State.PreviousID, back.State.NextID})
}

// TestDecodeRefuses: what a newer build wrote, and damage.
func TestDecodeRefuses(t *testing.T) {
	key, value := Encode(Record{ID: "x", State: &State{Producer: Producer{5, 3}, PreviousID: -1, NextID: -1, Status: Ongoing}})
	for _, row := range []struct {
		name       string
		key, value []byte
	}{
		{"no key", nil, value},
		{"next key", append([]byte{0, 1}, key[2:]...), value},
		{"cut key", key[:4], value},
		{"next value", key, append([]byte{0, 2}, value[2:]...)},
		{"cut value", key, value[:20]},
		{"no value", key, []byte{}},
		{"status", key, append(append([]byte{}, value[:16]...), append([]byte{9}, value[17:]...)...)},
	} {
		_, err := Decode(row.key, row.value)
		require.Error(t, err, row.name)
	}
}
