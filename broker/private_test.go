package broker

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

func TestReadMetadataLog(t *testing.T) {
	w := newWorld(t)
	c := w.dial()
	req := wire.NewPtrReadMetadataLogRequest()
	req.Offset, req.MaxBytes = 7, 1<<30
	w.page = metadata.Page{LogStart: 3, End: 9, Snapshot: metadata.SnapshotPlace{Offset: messages.NoOffset}, Batches: []byte{1, 2}}
	resp := c.call(req).(*wire.ReadMetadataLogResponse)
	require.Zero(t, resp.ErrorCode)
	require.Equal(t, []int64{3, 9, -1, -1}, []int64{resp.LogStart, resp.End, resp.SnapshotOffset, resp.SnapshotPosition})
	require.Equal(t, []byte{1, 2}, resp.Batches)
	require.Equal(t, metadata.PageRequest{Offset: 7, Snapshot: metadata.SnapshotPlace{Offset: -1, Epoch: -1}, BytesMax: metadataPageMax}, w.pageAsked)

	req.SnapshotOffset, req.SnapshotEpoch, req.SnapshotPosition, req.Offset, req.MaxBytes = 5, 2, 88, -4, -1
	w.page.Snapshot = metadata.SnapshotPlace{Offset: 5, Epoch: 2, Position: 99}
	resp = c.call(req).(*wire.ReadMetadataLogResponse)
	require.Equal(t, []int64{5, 2, 99}, []int64{resp.SnapshotOffset, int64(resp.SnapshotEpoch), resp.SnapshotPosition})
	require.Equal(t, metadata.PageRequest{Snapshot: metadata.SnapshotPlace{Offset: 5, Epoch: 2, Position: 88}, BytesMax: 1}, w.pageAsked)

	w.pageErr = persistence.ErrOffsetOutOfRange
	require.Equal(t, int16(1), c.call(req).(*wire.ReadMetadataLogResponse).ErrorCode)
	for _, denied := range []Operation{OpDescribe, OpDescribeConfigs} {
		w.deny = func(_ messages.Requester, op Operation, on Resource) bool {
			return op == denied && on.Kind == KindCluster
		}
		require.Equal(t, int16(31), c.call(req).(*wire.ReadMetadataLogResponse).ErrorCode)
	}
}

func TestPlanMirrorStart(t *testing.T) {
	w := newWorld(t)
	w.mirrorOf("m", nil)
	c := w.dial()
	req := wire.NewPtrPlanMirrorStartRequest()
	req.MirrorName = "m"
	w.planned = []messages.PlannedStart{
		{Topic: "a", Partition: 0, LogEnd: 10, CutTo: 8, Records: 2, Bytes: 200, LME: 3, Reason: "r"},
		{Topic: "a", Partition: 2, LogEnd: 5, CutTo: -1, Records: -1, Bytes: -1, LME: -1, Reason: "gone", Unknown: true},
		{Topic: "b", LogEnd: -1, Refused: true},
	}
	resp := c.call(req).(*wire.PlanMirrorStartResponse)
	require.Zero(t, resp.ErrorCode)
	require.Empty(t, cmp.Diff([]wire.PlanMirrorStartResponsePlannedTopic{
		{TopicName: "a", Partitions: []wire.PlanMirrorStartResponsePlannedPartition{
			{LogEnd: 10, CutTo: 8, Records: 2, Bytes: 200, LastMirrorEpoch: 3, Reason: "r"},
			{PartitionIndex: 2, LogEnd: 5, CutTo: -1, Records: -1, Bytes: -1, LastMirrorEpoch: -1, Reason: "gone", Unknown: true},
		}},
		{TopicName: "b", Partitions: []wire.PlanMirrorStartResponsePlannedPartition{{LogEnd: -1, Refused: true}}},
	}, resp.Topics, cmp.Transformer("tags", func(kmsg.Tags) int { return 0 })))
	w.deny = func(_ messages.Requester, _ Operation, on Resource) bool { return on.Name == "a" }
	require.Len(t, c.call(req).(*wire.PlanMirrorStartResponse).Topics, 1, "what may not be described is left out")
	w.deny = func(_ messages.Requester, _ Operation, on Resource) bool { return on.Kind == KindClusterMirror }
	require.Equal(t, wire.CodeClusterMirrorAuthorizationFailed, c.call(req).(*wire.PlanMirrorStartResponse).ErrorCode)
	w.deny = nil
	req.MirrorName = "x"
	require.Equal(t, wire.CodeUnknownClusterMirror, c.call(req).(*wire.PlanMirrorStartResponse).ErrorCode)
	req.MirrorName, w.planErr = "m", errors.New("no")
	require.Equal(t, int16(-1), c.call(req).(*wire.PlanMirrorStartResponse).ErrorCode)
}
