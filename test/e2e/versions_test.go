package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/kafka"
)

// TestU9OldSources mirrors from every older release of the fixture, and fails over (K12):
// without topic ids (2.1), without Fetch by id (up to 3.0), without share groups (all).
// Configs and offsets of groups follow from all of them.
func TestU9OldSources(t *testing.T) {
	rows := []struct {
		version kafka.Version
		ids     bool
	}{{kafka.V39, true}, {kafka.V30, true}, {kafka.V28, true}, {kafka.V21, false}}
	for _, row := range rows {
		t.Run(string(row.version), func(t *testing.T) {
			w := newWorldOf(t, kafka.Start(t, kafka.Options{Version: row.version}), NodeOptions{})
			w.topic("old", 3, 1, "retention.ms=3600000000")
			opts := []kgo.Opt{kgo.ProducerBatchCompression(kgo.Lz4Compression())}
			require.NoError(t, Produce(w.ctx, w.source.Bootstrap(), "old", Records{Count: 200, Headers: 1}, opts...))
			_, err := Transactions(w.ctx, w.source.Bootstrap(), "old", 3, false)
			require.NoError(t, err)
			w.create("m")
			w.start("m", "old")
			w.load("old", Records{Count: 100, From: 200})
			require.NoError(t, AwaitEnds(w.ctx, w.a, w.b, "old"))
			require.NoError(t, Different(w.ctx, w.a, w.b, "old", row.ids))
			var offsets kadm.Offsets
			offsets.AddOffset("old", 0, 5, -1)
			offsets.AddOffset("old", 1, 0, -1)
			require.NoError(t, w.a.Admin.CommitAllOffsets(w.ctx, "u9", offsets))
			w.awaitGroup("u9")
			w.awaitOverrides("old", map[string]string{"retention.ms": "3600000000"})
			require.NoError(t, w.node.Restart(w.ctx))
			w.load("old", Records{Count: 10, From: 300})
			require.NoError(t, AwaitEnds(w.ctx, w.a, w.b, "old"))
			w.run("--stop", "--mirror", "m", "--topics", "old")
			w.await("m", "STOPPED", "old")
			require.NoError(t, Produce(w.ctx, w.node.Bootstrap(), "old", Records{Count: 10}))
		})
	}
}
