package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/kafka"
)

// TestLifecycleCompactionAsKafka: of the same records real Kafka's cleaner and ours keep
// the same ones, markers included; Kafka's tool finds our segments and indexes in order,
// and Kafka's console consumer reads them from 0.
func TestLifecycleCompactionAsKafka(t *testing.T) {
	w := newWorld(t, NodeOptions{Properties: map[string]string{"log.cleaner.backoff.ms": "200"}})
	topic := "lifecycle-" + strconv.Itoa(int(time.Now().UnixNano()%1e9))
	for _, side := range []*Side{w.a, w.b} {
		_, err := side.Admin.CreateTopic(w.ctx, 1, 1, lifecycleConfigs(), topic)
		require.NoError(t, err)
		require.NoError(t, kafka.Poll(w.ctx, func() error { _, err := side.Topic(w.ctx, topic); return err }))
	}
	a, b := newLifecycleWriter(t, w.source.Bootstrap(), topic), newLifecycleWriter(t, w.node.Bootstrap(), topic)
	require.NoError(t, a.write(w.ctx, 400))
	require.NoError(t, b.write(w.ctx, 400))
	require.Equal(t, a.want, b.want)
	end := w.end(w.a, topic, 0)
	require.Equal(t, end, w.end(w.b, topic, 0))

	var ours []survivor
	ctx, cancel := context.WithTimeout(w.ctx, 40*time.Second)
	defer cancel()
	require.NoError(t, kafka.Poll(ctx, func() error {
		theirs, err := survivors(ctx, w.source.Bootstrap(), topic, end)
		if err == nil {
			ours, err = survivors(ctx, w.node.Bootstrap(), topic, end)
		}
		switch {
		case err != nil:
			return err
		case len(theirs) > int(end)*3/4 || len(ours) > int(end)*3/4:
			return fmt.Errorf("Kafka has %d of %d records left, we %d", len(theirs), end, len(ours))
		case !slices.Equal(unplaced(theirs), unplaced(ours)):
			return fmt.Errorf("Kafka has %d of %d records left, we %d: %s", len(theirs), end, len(ours), firstDifference(unplaced(theirs), unplaced(ours)))
		case data(theirs) != data(ours) || len(theirs) != len(ours):
			return fmt.Errorf("Kafka has %d markers left, we %d", len(theirs)-data(theirs), len(ours)-data(ours))
		}
		return nil
	}))
	t.Logf("%d of %d offsets are left on both", len(ours), end)
	committed, err := survivors(w.ctx, w.node.Bootstrap(), topic, end, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	require.NoError(t, err)
	require.Equal(t, b.want, lastValues(committed))
	dumpIsSound(t, w.ctx, w.node, topic+"-0", 2)

	out, err := kafka.Tool(w.ctx, kafka.ConsoleConsumer, "--bootstrap-server", w.node.Bootstrap(), "--topic", topic, "--partition", "0", "--offset", "0",
		"--max-messages", strconv.Itoa(data(committed)), "--isolation-level", "read_committed", "--formatter-property", "print.key=true", "--formatter-property", "print.value=false")
	require.NoError(t, err)
	var keys []string
	for _, s := range committed {
		if !s.control {
			keys = append(keys, s.key)
		}
	}
	require.Equal(t, keys, out.Lines())

	// The same holds after a crash.
	require.NoError(t, w.node.Kill9())
	require.NoError(t, w.node.Start(w.ctx))
	again, err := survivors(w.ctx, w.node.Bootstrap(), topic, end)
	require.NoError(t, err)
	require.Equal(t, ours, again)
}

// unplaced are the records without the markers and without their offsets: Kafka writes
// a marker some time after it has answered, between other records.
func unplaced(all []survivor) []survivor {
	var out []survivor
	for _, s := range all {
		if !s.control {
			out = append(out, survivor{key: s.key, value: s.value})
		}
	}
	return out
}

func data(all []survivor) (n int) {
	for _, s := range all {
		if !s.control {
			n++
		}
	}
	return n
}

func firstDifference(a, b []survivor) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("at %d %s %.20s, and %s %.20s", i, a[i].key, a[i].value, b[i].key, b[i].value)
		}
	}
	return "one goes on"
}

// dumpIsSound has Kafka's own tool read a partition's files record by record, and check
// the indexes of those segments that are at least so many.
func dumpIsSound(t *testing.T, ctx context.Context, node *Node, folder string, least int) {
	t.Helper()
	files, err := node.segmentFiles(folder)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), least)
	left, err := filepath.Glob(filepath.Join(node.DataDir(), folder, "*.cleaned"))
	require.NoError(t, err)
	require.Empty(t, left)
	out, err := kafka.Tool(ctx, kafka.DumpLog, "--deep-iteration", "--files", strings.Join(files, ","))
	require.NoError(t, err)
	require.Contains(t, out.Stdout, "isvalid: true")
	require.NotContains(t, out.Stdout, "isvalid: false")
	require.NotContains(t, out.Stdout+out.Stderr, "ound invalid")
	indexes, err := filepath.Glob(filepath.Join(node.DataDir(), folder, "*index"))
	require.NoError(t, err)
	indexes = slices.DeleteFunc(indexes, func(f string) bool {
		return !slices.Contains(files[:len(files)-1], strings.TrimSuffix(f, filepath.Ext(f))+".log") // the active one is being written
	})
	out, err = kafka.Tool(ctx, kafka.DumpLog, "--deep-iteration", "--index-sanity-check", "--files", strings.Join(indexes, ","))
	require.NoError(t, err)
	require.NotContains(t, strings.ToLower(out.Stdout+out.Stderr), "mismatch", out.Stdout+out.Stderr)
}
