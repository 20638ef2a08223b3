package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/test/kafka"
)

// txnCrashes is how often TestTxnCrashPoints has the node end.
func txnCrashes(t *testing.T) int {
	t.Helper()
	text := os.Getenv("KAGAMI_TXN_CRASHES")
	if text == "" {
		return 3
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, "KAGAMI_TXN_CRASHES")
	return n
}

// txnPoints are fault points that transactions and groups pass.
var txnPoints = []string{"transactions.", "groups.", "marker.", "file.internal.", "file.data.", "journal.internal.", "journal.data."}

// TestTxnCrashPoints: one node ends at one point after the other, between two effects of a
// transaction or of a group and in the middle of its files, under the clients of
// TestClusterTransactions. KAGAMI_TXN_CRASHES says how often, points and times are drawn.
func TestTxnCrashPoints(t *testing.T) {
	seed := killSeed(t)
	t.Logf("repeat with KAGAMI_TXN_CRASHES=%d KAGAMI_KILL_SEED=%d go test -run TestTxnCrashPoints ./test/e2e", txnCrashes(t), seed)
	rng := rand.New(rand.NewPCG(seed, 12))
	program, err := FaultServer()
	require.NoError(t, err)
	dir := t.TempDir()
	list := filepath.Join(dir, "points")
	props := map[string]string{"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "100"}
	cleaned := rng.IntN(2) == 1 // then the logs of the coordinators don't tell all that was
	if cleaned {
		maps.Copy(props, map[string]string{"offsets.topic.segment.bytes": "65536", "transaction.state.log.segment.bytes": "65536", "log.cleaner.backoff.ms": "500"})
	}
	node := StartNode(t, NodeOptions{Dir: dir, Program: program, Env: []string{"KAGAMI_FAULT_LIST=" + list}, Properties: props})
	ctx, cancel := context.WithTimeout(context.Background(), clusterTestTimeout)
	defer cancel()
	side, err := node.Side()
	require.NoError(t, err)
	defer side.Close()
	created, err := side.Admin.CreateTopics(ctx, 3, 1, nil, txnIn, txnOut, txnWide, groupIn)
	require.NoError(t, err)
	require.NoError(t, created.Error())
	history, err := StartTxnHistory(node.Bootstrap(), TxnHistoryOptions{Partitions: 3, Transformers: 2, Writers: 2, Timeout: 6 * time.Second, Cleaned: cleaned})
	require.NoError(t, err)
	defer history.Stop()
	groups, err := StartGroupHistory(node.Bootstrap(), 3, cleaned)
	require.NoError(t, err)
	defer groups.Stop()
	awaitTxns(ctx, t, history, 40)
	require.NoError(t, node.Kill9())
	points, times := readPoints(t, list)
	missed := 0
	for range txnCrashes(t) {
		point := points[rng.IntN(len(points))]
		node.SetEnv(fmt.Sprintf("KAGAMI_FAULT_POINT=%s:%d", point, 1+rng.IntN(min(times[point], 20))))
		if err := node.Start(ctx); err != nil && node.process.Running() {
			require.NoError(t, err)
		}
		reached, cancel := context.WithTimeout(ctx, 8*time.Second)
		err := kafka.Poll(reached, func() error {
			if node.process.Running() {
				return fmt.Errorf("%s isn't reached", point)
			}
			return nil
		})
		cancel()
		if err != nil {
			missed++
			require.NoError(t, node.Kill9())
		}
		t.Logf("%s, reached: %t, %s", point, err == nil, history.Counts())
	}
	node.SetEnv()
	require.NoError(t, node.Start(ctx))
	awaitTxns(ctx, t, history, 10)
	require.NoError(t, groups.Check(ctx, side))
	require.NoError(t, history.Check(ctx, side))
	t.Logf("%s; %d offsets of groups; %d points of %d weren't reached", history.Counts(), groups.Acked(), missed, txnCrashes(t))
}

// awaitTxns waits until so many more transactions are committed.
func awaitTxns(ctx context.Context, t *testing.T, h *TxnHistory, more int) {
	t.Helper()
	at := h.Committed()
	ctx, cancel := context.WithTimeout(ctx, txnPatience)
	defer cancel()
	require.NoError(t, kafka.Poll(ctx, func() error {
		if n := h.Committed(); n < at+more {
			return fmt.Errorf("%d transactions are committed, %d were: %s", n, at, h.Counts())
		}
		return nil
	}))
}

// readPoints are the names of the points in a list that transactions pass, and how often
// each was reached.
func readPoints(t *testing.T, list string) (points []string, times map[string]int) {
	t.Helper()
	b, err := os.ReadFile(list)
	require.NoError(t, err)
	times = map[string]int{}
	for line := range strings.Lines(string(b)) {
		name := line[:strings.LastIndex(line, ":")]
		if slices.ContainsFunc(txnPoints, func(p string) bool { return strings.HasPrefix(name, p) }) {
			times[name]++
		}
	}
	require.Greater(t, len(times), 20)
	return slices.Sorted(maps.Keys(times)), times
}
