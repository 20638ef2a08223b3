package broker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/goleak"

	"kagami/messages/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mirrorVersions lets kgo send the KIP's keys.
func mirrorVersions() *kversion.Versions {
	v := kversion.Stable()
	wire.RaiseMaxVersions(v)
	return v
}

func TestProduceAndConsumeWithClient(t *testing.T) {
	for _, c := range []struct {
		name  string
		codec kgo.CompressionCodec
		opts  []worldOption
	}{
		{"none", kgo.NoCompression(), nil},
		{"none from files", kgo.NoCompression(), []worldOption{onDisk}},
		{"files without sendfile", kgo.NoCompression(), []worldOption{onDisk, func(_ *world, c *Config) { c.NoSendfile = true }}},
		{"gzip", kgo.GzipCompression(), []worldOption{onDisk}},
		{"snappy", kgo.SnappyCompression(), []worldOption{onDisk}},
		{"lz4", kgo.Lz4Compression(), []worldOption{onDisk}},
		{"zstd", kgo.ZstdCompression(), []worldOption{onDisk}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.opts...)
			cl := w.client(kgo.ProducerBatchCompression(c.codec), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			_, err := kadm.NewClient(cl).CreateTopic(t.Context(), 3, 1, nil, "orders")
			require.NoError(t, err)
			const n = 300
			var records []*kgo.Record
			for i := range n {
				records = append(records, &kgo.Record{Topic: "orders", Partition: int32(i % 3), Key: []byte{byte(i)}, Value: make([]byte, 500)})
			}
			require.NoError(t, cl.ProduceSync(t.Context(), records...).FirstErr())

			reader := w.client(kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			got := 0
			for got < n {
				fs := reader.PollFetches(ctx)
				require.NoError(t, fs.Err0())
				fs.EachError(func(_ string, _ int32, err error) { require.NoError(t, err) })
				got += fs.NumRecords()
			}
			require.Equal(t, n, got)
			require.Equal(t, int64(100), w.part("orders", 2).log.End())
		})
	}
}
