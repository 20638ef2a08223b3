package chaos

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/test/e2e"
)

// TestPowerCutOfSource: a power cut takes the last, unsynced second of the source,
// which the destination has copied already; then the source gives the same offsets
// to other records. The destination must find out and end with the source's bytes.
func TestPowerCutOfSource(t *testing.T) {
	for name, more := range map[string]int{"fewer records than before": 5, "more records than before": 60} {
		t.Run(name, func(t *testing.T) {
			a, b := startCluster(t, "A", nil), startCluster(t, "B", nil)
			w := single(t, b, a)
			require.NoError(t, w.newTopic("t", 1))
			put := func(from, count int) {
				t.Helper()
				require.NoError(t, e2e.Produce(t.Context(), a.node.Bootstrap(), "t-0", e2e.Records{Count: count, From: from, PerFlush: 1}, wholeInSegment))
			}
			put(0, 20)
			w.poll(settleWithin, "mirror", w.create)
			w.normalise()
			w.settle()

			old := filepath.Join(t.TempDir(), "old")
			copyDir(t, a.node.DataDir(), old)
			put(1000, 30)
			w.settle()
			w.fault(BlackHole)
			w.kill(a)
			require.NoError(t, os.RemoveAll(a.node.DataDir()))
			copyDir(t, old, a.node.DataDir())
			w.revive(a)
			put(2000, more)
			w.fault(Open)
			w.poll(settleWithin, "the source's bytes", func(ctx context.Context) error {
				return e2e.Different(ctx, a.side, b.side, "t-0", true)
			})
			w.end()
		})
	}
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput()
	require.NoError(t, err, string(out))
}
