package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/kafka"
)

const (
	uncommitted = "read_uncommitted"
	committed   = "read_committed"
)

// matrixRow is one topic of the mirror matrix.
type matrixRow struct {
	name       string // of the topic, behind mx-
	partitions int32
	configs    []string
	fill       func(w *world, topic string)
	java       bool // read it by Java's console consumer too
	txn        bool // read it with both isolation levels
}

func filled(records Records, opts ...kgo.Opt) func(*world, string) {
	return func(w *world, topic string) {
		require.NoError(w.t, Produce(w.ctx, w.source.Bootstrap(), topic, records, opts...))
	}
}

func codec(c kgo.CompressionCodec) func(*world, string) {
	return filled(Records{Count: 400, Headers: 2}, kgo.ProducerBatchCompression(c))
}

func matrix() []matrixRow {
	return []matrixRow{
		{name: "none", partitions: 1, fill: codec(kgo.NoCompression()), java: true},
		{name: "gzip", partitions: 1, fill: codec(kgo.GzipCompression()), java: true},
		{name: "snappy", partitions: 1, fill: codec(kgo.SnappyCompression()), java: true},
		{name: "lz4", partitions: 1, fill: codec(kgo.Lz4Compression()), java: true},
		{name: "zstd", partitions: 1, fill: codec(kgo.ZstdCompression()), java: true},
		{name: "nulls", partitions: 1, fill: filled(Records{Count: 300, Headers: 3, NullKeys: true, NullValues: true}), java: true},
		{name: "big", partitions: 1, configs: []string{"segment.bytes=2097152"}, fill: filled(Records{Count: 8, Size: 900_000})},
		{name: "txn", partitions: 1, fill: fillTransactions, java: true, txn: true},
		{name: "compacted", partitions: 1, configs: []string{"cleanup.policy=compact", "segment.ms=50", "min.cleanable.dirty.ratio=0.01", "min.compaction.lag.ms=0", "max.compaction.lag.ms=1000", "delete.retention.ms=0"}, fill: fillCompacted, java: true},
		{name: "cutfront", partitions: 1, configs: []string{"segment.ms=100"}, fill: fillCutFront, java: true},
		{name: "allcut", partitions: 1, fill: func(w *world, topic string) {
			w.load(topic, Records{Count: 50})
			w.deleteRecords(topic, 0, -1)
		}},
		{name: "appendtime", partitions: 1, configs: []string{"message.timestamp.type=LogAppendTime"}, fill: filled(Records{Count: 200}), java: true},
		{name: "twelve", partitions: 12, fill: filled(Records{Count: 1200, Headers: 1}, kgo.ProducerBatchCompression(kgo.Lz4Compression()))},
		{name: "empty", partitions: 2, fill: func(*world, string) {}},
		{name: "grows", partitions: 3, fill: filled(Records{Count: 100})},
	}
}

func fillTransactions(w *world, topic string) {
	end, err := Transactions(w.ctx, w.source.Bootstrap(), topic, 6, true)
	require.NoError(w.t, err)
	w.t.Cleanup(end) // still open while it is mirrored and compared
}

// fillCompacted writes few keys often and waits until the cleaner has made holes;
// then it ends compaction, so that both sides hold still.
func fillCompacted(w *world, topic string) {
	for round := range 3 {
		w.load(topic, Records{Count: 400, From: 400 * round, Keys: 30, NullValues: true})
	}
	detail, err := w.a.Topic(w.ctx, topic)
	require.NoError(w.t, err)
	require.NoError(w.t, kafka.Poll(w.ctx, func() error {
		batches, err := w.a.Batches(w.ctx, detail, 0, 0, 1200)
		if err != nil {
			return err
		}
		var records int32
		for _, b := range batches {
			records += b.Count
		}
		if records > 700 {
			return fmt.Errorf("%d of 1200 records left: not cleaned yet", records)
		}
		return nil
	}))
	policy := "delete"
	_, err = w.a.Admin.AlterTopicConfigs(w.ctx, []kadm.AlterConfig{{Name: "cleanup.policy", Value: &policy}}, topic)
	require.NoError(w.t, err)
	require.NoError(w.t, kafka.Poll(w.ctx, func() error {
		if got, _ := w.config(w.a, topic, "cleanup.policy"); got != policy {
			return fmt.Errorf("cleanup.policy is %s", got)
		}
		return nil
	}))
}

// fillCutFront raises the log start into the middle of a batch.
func fillCutFront(w *world, topic string) {
	w.load(topic, Records{Count: 400})
	detail, err := w.a.Topic(w.ctx, topic)
	require.NoError(w.t, err)
	batches, err := w.a.Batches(w.ctx, detail, 0, 0, 400)
	require.NoError(w.t, err)
	for _, b := range batches {
		if b.Base > 150 && b.Count > 2 {
			w.deleteRecords(topic, 0, b.Base+1)
			return
		}
	}
	w.t.Fatal("no batch of several records")
}

// TestK1MirrorMatrix mirrors topics of every kind from real Kafka by one pattern
// and compares every byte, what every reader sees, and what Kafka's own tools say
// of both clusters and of the files.
func TestK1MirrorMatrix(t *testing.T) {
	kafka.RequireProgram(t, "kcat")
	w := newWorld(t, NodeOptions{})
	rows := matrix()
	var topics []string
	for _, row := range rows {
		topic := "mx-" + row.name
		topics = append(topics, topic)
		w.topic(topic, row.partitions, 1, row.configs...)
		row.fill(w, topic)
	}
	w.create("m")
	w.run("--start", "--mirror", "m", "--topics", "mx-.*")
	w.await("m", "MIRRORING", topics...)

	// More while it is mirrored: one grows, one is new and matches the pattern.
	load, err := StartLoad(w.source.Bootstrap(), LoadOptions{Topics: []string{"mx-grows"}})
	require.NoError(t, err)
	w.topic("mx-late", 2, 1)
	w.load("mx-late", Records{Count: 100})
	rows, topics = append(rows, matrixRow{name: "late"}), append(topics, "mx-late")
	w.await("m", "MIRRORING", "mx-late")
	require.NoError(t, kafka.Poll(w.ctx, func() error {
		if n := load.Acked(); n < 2000 {
			return fmt.Errorf("%d records written", n)
		}
		return nil
	}))
	require.NoError(t, load.Stop())

	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			sub := *w
			sub.t = t
			sub.equal("mx-" + row.name)
			isolations := []string{committed}
			if row.txn {
				isolations = append(isolations, uncommitted)
			}
			sub.readersAgree("mx-"+row.name, row.java, isolations...)
		})
	}
	t.Run("get offsets", func(t *testing.T) {
		sub := *w
		sub.t = t
		sub.offsetsAgree("mx-.*")
	})
	require.NoError(t, w.node.Stop())
	for _, row := range rows {
		t.Run("dump "+row.name, func(t *testing.T) {
			if row.name == "allcut" || row.name == "empty" {
				t.Skip("no batches")
			}
			sub := *w
			sub.t = t
			sub.dumpAgrees("mx-"+row.name, 0)
		})
	}
	t.Run("after restart", func(t *testing.T) {
		sub := *w
		sub.t = t
		require.NoError(t, sub.node.Start(sub.ctx))
		sub.await("m", "MIRRORING", topics...)
		sub.load("mx-none", Records{Count: 10})
		sub.equal(topics...)
	})
}

// TestK2ReadOnly creates and starts by the admin API; clients can read the mirror
// topic and write to it by no door.
func TestK2ReadOnly(t *testing.T) {
	w := newWorld(t, NodeOptions{})
	w.topic("k2", 2, 1)
	w.load("k2", Records{Count: 100})
	boot := w.source.Bootstrap()
	require.NoError(t, w.adm.CreateClusterMirror(w.ctx, "m", map[string]*string{"bootstrap.servers": &boot}))
	startByAPI(w, "m", "k2")
	w.await("m", "MIRRORING", "k2")
	w.equal("k2")

	for name, opt := range map[string]kgo.Opt{"idempotent": kgo.ProducerLinger(0), "plain": kgo.DisableIdempotentWrite()} {
		err := Produce(w.ctx, w.node.Bootstrap(), "k2", Records{Count: 1}, opt, kgo.RecordRetries(2))
		require.ErrorContains(t, err, "POLICY_VIOLATION", name)
	}
	var offsets kadm.Offsets
	offsets.AddOffset("k2", 0, 1, -1)
	deleted, err := w.b.Admin.DeleteRecords(w.ctx, offsets)
	require.NoError(t, err)
	require.ErrorContains(t, deleted.Error(), "POLICY_VIOLATION")
	grown, err := w.b.Admin.CreatePartitions(w.ctx, 1, "k2")
	require.NoError(t, err)
	require.ErrorContains(t, grown.Error(), "POLICY_VIOLATION")
	w.equal("k2")
}
