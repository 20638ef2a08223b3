package cluster

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// node is a data folder with real segments, metadata store and replicas.
type node struct {
	tb          testing.TB
	folder      string
	manager     *persistence.Manager
	checkpoints *Checkpoints
	meta        *Replica
	store       *metadata.Store
	replicas    *Replicas
	cancel      func()
	claims      int32
	unsynced    *atomic.Pointer[string] // if set, files that can't be synced
}

func startNode(tb testing.TB, folder string) *node {
	tb.Helper()
	n := &node{tb: tb, folder: folder}
	n.start()
	return n
}

func (n *node) start() {
	n.tb.Helper()
	ctx, log := n.tb.Context(), zap.NewNop()
	var err error
	var fsys persistence.FS = persistence.OSFS{}
	if n.unsynced != nil {
		fsys = failingFS{unsynced: n.unsynced}
	}
	n.manager, err = persistence.Open(ctx, n.folder, persistence.Options{NodeID: 1, FS: fsys, Logger: log})
	require.NoError(n.tb, err)
	n.checkpoints, err = OpenCheckpoints(fsys, n.folder, log)
	require.NoError(n.tb, err)
	n.meta, err = OpenMetadataReplica(ctx, 1, n.manager, n.checkpoints, log)
	require.NoError(n.tb, err)
	n.claims = n.meta.State().LeaderEpoch + 1
	require.NoError(n.tb, n.meta.Claim(ctx, n.claims))
	n.store, err = metadata.Open(ctx, metadata.Options{Journal: n.meta, Source: n.meta, Dir: n.folder + "/" + messages.ClusterMetadataTopic + "-0", Now: func() int64 { return time.Now().UnixMilli() }, Logger: log})
	require.NoError(n.tb, err)
	n.replicas = NewReplicas(ctx, ReplicasOptions{Node: 1, Logs: n.manager, Checkpoints: n.checkpoints, Metadata: n.meta, Logger: log})
	n.cancel = n.store.Subscribe(n.replicas.Apply)
	require.NoError(n.tb, n.replicas.WaitApplied(ctx, n.store.Image().Offset()))
}

func (n *node) stop() {
	n.tb.Helper()
	n.cancel()
	require.NoError(n.tb, n.replicas.Close())
	require.NoError(n.tb, n.store.Close())
	require.NoError(n.tb, n.meta.Close())
	require.NoError(n.tb, n.checkpoints.Close())
	require.NoError(n.tb, n.manager.Close())
}

func (n *node) change(records ...metadata.Record) {
	n.tb.Helper()
	offset, err := n.store.Append(n.tb.Context(), records, messages.Requester{Principal: "User:test"})
	require.NoError(n.tb, err)
	require.NoError(n.tb, n.replicas.WaitApplied(n.tb.Context(), offset))
}

func (n *node) get(topic string, partition int32) *Replica {
	n.tb.Helper()
	r, err := n.replicas.Leading(messages.TopicPartition{Topic: topic, Partition: partition}, messages.TopicID{})
	require.NoError(n.tb, err)
	return r
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestC15OffsetsReusedAfterCuts on real segments, with restarts.
func TestC15OffsetsReusedAfterCuts(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.change(topicRecords("t", 1, 1, messages.MirrorNameConfig, "m")...)
	ctx := t.Context()
	r := n.get("t", 0)
	mode := func(m messages.Mode) {
		t.Helper()
		_, err := r.SetMode(ctx, m)
		require.NoError(t, err)
	}
	mirror := func(from, to int64, epoch int32) {
		t.Helper()
		for ; from < to; from++ {
			b := batch.Append(nil, batch.Plain(), batch.Record{Value: fmt.Appendf(nil, "e%d-%d", epoch, from)})
			batch.SetOffsetAndEpoch(b, from, epoch)
			_, err := r.AppendMirror(ctx, from, b)
			require.NoError(t, err)
		}
	}
	cut := func(to int64) {
		t.Helper()
		mode(messages.ModeSealed)
		c, err := r.Truncate(ctx, to, "test")
		require.NoError(t, err)
		require.Equal(t, to, c.From)
		mode(messages.ModeMirroring)
	}
	values := func() (out []string) {
		t.Helper()
		for at := r.Log().LogStart(); at < r.State().End; {
			c, err := r.Log().Read(at, 1, r.State().HighWatermark, true)
			require.NoError(t, err)
			b, err := c.ReadAll()
			require.NoError(t, err)
			for rec, err := range batch.Records(b) {
				require.NoError(t, err)
				out = append(out, string(rec.Value))
			}
			at = c.NextOffset
			c.Release()
		}
		return out
	}
	bump := wire.NewPtrPartitionChangeRecord()
	bump.TopicID, bump.PartitionID, bump.MinLeaderEpoch = r.Key().TopicID, 0, 8
	n.change(bump)
	mode(messages.ModeSealed)
	mode(messages.ModeMirroring)
	mirror(0, 25, 1)
	cut(18)
	mirror(18, 30, 2)
	n.stop()
	n.start()
	r = n.get("t", 0)
	got := values()
	require.Len(t, got, 30)
	require.Equal(t, "e1-17", got[17])
	require.Equal(t, "e2-18", got[18])
	require.Equal(t, messages.ModeMirroring, r.State().Mode)
	cut(5)
	mirror(5, 12, 3)
	n.stop()
	n.start()
	r = n.get("t", 0)
	got = values()
	require.Len(t, got, 12)
	require.Equal(t, []string{"e1-4", "e3-5"}, got[4:6])
	require.Equal(t, []persistence.EpochEntry{{Epoch: 1, StartOffset: 0}, {Epoch: 3, StartOffset: 5}}, r.Log().Epochs())
	n.stop()
}

// TestC01ResetForgetsForeignProducers: after a stop, a producer with an id that
// the source used too starts afresh.
func TestC01ResetForgetsForeignProducers(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.change(topicRecords("t", 1, 1)...)
	ctx := t.Context()
	r := n.get("t", 0)
	require.NoError(t, r.Claim(ctx, 3))
	_, err := r.SetMode(ctx, messages.ModeMirroring)
	require.NoError(t, err)
	produce := func(seq int32, value string) []byte {
		return batch.Append(nil, batch.Props{ProducerID: 0, ProducerEpoch: 0, BaseSequence: seq}, batch.Record{Value: []byte(value)})
	}
	for i := range int64(4) {
		b := produce(int32(i), "mirrored")
		batch.SetOffsetAndEpoch(b, i, 2)
		_, err := r.AppendMirror(ctx, i, b)
		require.NoError(t, err)
	}
	sealed, err := r.SetMode(ctx, messages.ModeSealed)
	require.NoError(t, err)
	require.Equal(t, int64(4), sealed)
	require.Equal(t, int32(2), r.Log().EpochForOffset(sealed-1), "LME")
	require.NoError(t, r.Claim(ctx, 4))
	_, err = r.AppendInternal(ctx, batch.MirrorPIDReset(4, 1, "src"))
	require.NoError(t, err)
	_, err = r.SetMode(ctx, messages.ModeWritable)
	require.NoError(t, err)
	info, err := r.AppendClient(ctx, produce(0, "new"), anyEpoch)
	require.NoError(t, err)
	require.Equal(t, int64(5), info.FirstOffset)
	_, err = r.AppendClient(ctx, produce(0, "new"), anyEpoch)
	var dup *persistence.DuplicateError
	require.ErrorAs(t, err, &dup)
	require.Equal(t, int64(5), dup.FirstOffset)
	require.Equal(t, int64(6), r.State().End)
	n.stop()
}

// BenchmarkNodeStart: a node with many idle partitions starts in well under a
// second, and an idle replica is small.
func BenchmarkNodeStart(b *testing.B) {
	for _, partitions := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			n := startNode(b, b.TempDir())
			for i := range partitions / 100 {
				n.change(topicRecords(fmt.Sprintf("t%d", i), byte(i), 100)...)
			}
			n.stop()
			n.manager, n.checkpoints, n.meta, n.store, n.replicas, n.cancel = nil, nil, nil, nil, nil, nil
			before := heapBytes()
			n.start()
			per := float64(heapBytes()-before) / float64(partitions)
			for b.Loop() {
				b.StopTimer()
				n.stop()
				b.StartTimer()
				n.start()
			}
			b.ReportMetric(per, "heap-B/partition") // log and image included
			n.stop()
		})
	}
}

func BenchmarkSegmentsAppend(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		raw := batch.Append(nil, batch.Plain(), batch.Record{Value: make([]byte, size-100)})
		n := startNode(b, b.TempDir())
		n.change(topicRecords("t", 1, 2)...)
		client, mirror := n.get("t", 0), n.get("t", 1)
		if _, err := mirror.SetMode(b.Context(), messages.ModeMirroring); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("client/batch=%dKiB", size>>10), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				if _, err := client.AppendClient(b.Context(), raw, anyEpoch); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("mirror/batch=%dKiB", size>>10), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				end := mirror.State().End
				batch.SetOffsetAndEpoch(raw, end, 0)
				if _, err := mirror.AppendMirror(b.Context(), end, raw); err != nil {
					b.Fatal(err)
				}
			}
		})
		n.stop()
	}
}
