package tool

import (
	"context"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/messages/wire"
	"kagami/test/kafka"
)

var batchOrRecord = regexp.MustCompile(`(?m)^(baseOffset|\|).*$`)

// A running cluster's __mirror_state prints like its files. Real Kafka plays the
// cluster: to read the topic nothing of ours is needed on the other side.
func TestDumpRunningCluster(t *testing.T) {
	c := kafka.Start(t, kafka.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	code, out, errs := dump(t, "--bootstrap-server", c.Bootstrap())
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Contains(t, errs, "__mirror_state")

	_, err := c.Tool(ctx, kafka.Topics, "--create", "--topic", "__mirror_state", "--partitions", "3")
	require.NoError(t, err)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Seeds()...), kgo.DefaultProduceTopic("__mirror_state"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer cl.Close()
	for i := range 50 {
		key := (&wire.MirrorPartitionStateKey{MirrorName: "m" + strconv.Itoa(i%2)}).AppendTo(nil)
		r := &kgo.Record{Partition: int32(i % 2 * 2), Key: key, Value: stateRecord(int8(i%8), 16, 0), Headers: []kgo.RecordHeader{{Key: "cause", Value: []byte("test")}}}
		require.NoError(t, cl.ProduceSync(ctx, r).FirstErr())
	}

	code, live, errs := dump(t, "--mirror-state-decoder", "--bootstrap-server", c.Bootstrap())
	require.Zero(t, code, errs)
	require.Contains(t, live, "Dumping __mirror_state-0\nLog starting offset: 0\nbaseOffset: 0 ")
	require.NotContains(t, live, "__mirror_state-1\n", "an empty partition")
	require.Equal(t, 50, strings.Count(live, "\n| offset: "))

	code, lines, errs := dump(t, "--format", "json-lines", "--bootstrap-server", c.Bootstrap())
	require.Zero(t, code, errs)
	require.Equal(t, 50, strings.Count(lines, "\n"))

	require.NoError(t, c.Stop(c.IDs()[0]))
	code, files, errs := dump(t, "--mirror-state-decoder", "--files", c.LogDir(c.IDs()[0]))
	require.Zero(t, code, errs)
	require.Contains(t, files, filepath.Join("__mirror_state-2", segmentName))
	require.Empty(t, cmp.Diff(batchOrRecord.FindAllString(files, -1), batchOrRecord.FindAllString(live, -1)))
}
