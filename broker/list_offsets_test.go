package broker

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/batch"
	"kagami/persistence"
)

func listRequest(version int16, topic string, ts int64, isolation int8) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.IsolationLevel = version, isolation
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = ts
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	return req
}

func listOne(tb testing.TB, c *rawConn, topic string, ts int64, isolation int8) kmsg.ListOffsetsResponseTopicPartition {
	tb.Helper()
	return c.call(listRequest(11, topic, ts, isolation)).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
}

func timed(base int64, attributes int16, maxTime int64, times ...int64) []byte {
	props := batch.Plain()
	props.BaseOffset, props.LeaderEpoch, props.Attributes = base, 7, attributes
	var records []batch.Record
	for _, ts := range times {
		records = append(records, batch.Record{Timestamp: ts})
	}
	b := batch.Append(nil, props, records...)
	if attributes&batch.AttrLogAppendTime != 0 {
		batch.SetLogAppendTime(b, maxTime)
	}
	return b
}

// TestC25Timestamps: broker time counts for every record, past the end is no
// error, -3 finds the largest.
func TestC25Timestamps(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, nil)
	w.topic("empty", 1, nil)
	p := w.part("t", 0)
	p.mirror(t,
		timed(0, batch.AttrLogAppendTime, 5000, 1000, 1001, 1002),
		timed(3, 0, 0, 1), timed(4, 0, 0, 4102444800000), timed(5, 0, 0, -1))
	p.change(func(s *persistence.ReplicaState) { s.LeaderEpoch = 9 })
	c := w.dial()
	for _, row := range []struct {
		topic             string
		ts, offset, found int64
		epoch             int32
	}{
		{"t", 1500, 0, 5000, 7},
		{"t", 5001, 4, 4102444800000, 7},
		{"t", 9999999999999, -1, -1, -1},
		{"t", offsetLatest, 6, -1, 7},
		{"t", offsetEarliest, 0, -1, 7},
		{"t", offsetMaxTimestamp, 4, 4102444800000, 7},
		{"t", offsetEarliestLocal, 0, -1, 7},
		{"t", offsetLatestTiered, -1, -1, -1},
		{"t", offsetPendingUpload, -1, -1, -1},
		{"empty", offsetLatest, 0, -1, -1},
		{"empty", offsetEarliest, 0, -1, -1},
		{"empty", offsetMaxTimestamp, -1, -1, -1},
		{"empty", 0, -1, -1, -1},
	} {
		t.Run(fmt.Sprintf("%s %d", row.topic, row.ts), func(t *testing.T) {
			got := listOne(t, c, row.topic, row.ts, 0)
			require.Zero(t, got.ErrorCode)
			require.Equal(t, []int64{row.offset, row.found, int64(row.epoch)}, []int64{got.Offset, got.Timestamp, int64(got.LeaderEpoch)})
		})
	}
	for _, row := range []struct {
		version int16
		ts      int64
		code    int16
	}{{6, -3, 35}, {7, -3, 0}, {7, -4, 35}, {8, -5, 35}, {10, -6, 35}, {11, -7, 35}} {
		t.Run(fmt.Sprintf("v%d %d", row.version, row.ts), func(t *testing.T) {
			require.Equal(t, row.code, c.call(listRequest(row.version, "t", row.ts, 0)).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode)
		})
	}
}

func epochEnd(c *rawConn, topic string, current, epoch int32) kmsg.OffsetForLeaderEpochResponseTopicPartition {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version = 4
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.CurrentLeaderEpoch, p.LeaderEpoch = current, epoch
	req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{p}}}
	return c.call(req).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
}

// TestC16EpochOfMirroredData: the source's epoch is answered with a valid end,
// and so is our own, higher leader epoch.
func TestC16EpochOfMirroredData(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, nil)
	w.topic("empty", 1, nil)
	p := w.part("t", 0)
	for i := range int64(50) {
		p.mirror(t, made(i, 12, "v"))
	}
	p.change(func(s *persistence.ReplicaState) { s.LeaderEpoch = 22 })
	c := w.dial()
	for _, row := range []struct {
		name           string
		topic          string
		current, epoch int32
		wantEpoch      int32
		wantEnd        int64
		code           int16
	}{
		{"source epoch", "t", 22, 12, 12, 50, 0},
		{"no check", "t", -1, 12, 12, 50, 0},
		{"our epoch", "t", 22, 22, 12, 50, 0},
		{"older than all", "t", 22, 3, 3, 0, 0},
		{"no history", "empty", 0, 3, -1, -1, 0},
		{"fenced", "t", 21, 12, -1, -1, 74},
		{"unknown", "t", 23, 12, -1, -1, 75},
		{"unknown topic", "nope", -1, 12, -1, -1, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := epochEnd(c, row.topic, row.current, row.epoch)
			require.Equal(t, []int64{int64(row.code), int64(row.wantEpoch), row.wantEnd}, []int64{int64(got.ErrorCode), int64(got.LeaderEpoch), got.EndOffset})
		})
	}
}
