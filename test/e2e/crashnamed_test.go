package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/client"
	"kagami/messages"
	"kagami/test/kafka/stub"
)

// chosen is TestCrashPoints' choice of points that a test has already narrowed
// down: all of them, or a sample.
func chosen(points []string, sample int) (cases []crashCase) {
	if os.Getenv("KAGAMI_CRASHPOINTS") == "" {
		points = spread(points, sample)
	}
	for _, p := range points {
		cases = append(cases, crashCase{point: p})
	}
	return cases
}

// TestD16StopKilledAfterEachStep: the sequence completes and the LME is that of
// before the kill, written once.
func TestD16StopKilledAfterEachStep(t *testing.T) {
	base, points := undisturbed(t, &scenarioLife)
	after := slices.DeleteFunc(stopPoints(points), func(p string) bool {
		step := strings.HasPrefix(p, "partition.RunStep(") || strings.HasPrefix(p, "partition.PersistWrite(")
		return !step || !strings.HasSuffix(nameOf(p), ".after")
	})
	require.GreaterOrEqual(t, len(after), 3*5, "three stops of detach, bump, abort, reset, STOPPED")
	tryAll(t, &scenarioLife, base, chosen(after, 6))
}

// TestD56StopOutOfTruncationKilled: STOPPED, no LME is computed, the older one
// stays.
func TestD56StopOutOfTruncationKilled(t *testing.T) {
	for _, s := range []crashScenario{scenarioAligning, scenarioCutting} {
		t.Run(s.name, func(t *testing.T) {
			base, points := undisturbed(t, &s)
			require.Equal(t, base.Looks[0].LastMirrorEpoch, base.Looks[1].LastMirrorEpoch)
			stop := stopPoints(points)
			second := slices.IndexFunc(stop, func(p string) bool { return strings.HasPrefix(p, "partition.PersistWrite(STOPPING).before:2") })
			require.Positive(t, second)
			tryAll(t, &s, base, chosen(stop[second:], 6))
		})
	}
}

// TestD55LMEsOfOneStopKilled: two partitions with LMEs of an earlier stop are
// stopped, and the node is killed when the LME of one is stored. Both LMEs are
// then this stop's.
func TestD55LMEsOfOneStopKilled(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), crashRunTimeout, errors.New("the run takes too long"))
	defer cancel()
	source, err := stub.Start(stub.Options{ClusterID: "the-source"})
	require.NoError(t, err)
	id := messages.NewTopicID()
	fill := func(epoch int32) {
		source.Update(func(s *stub.State) {
			for _, p := range s.Topics[crashTopic].Partitions {
				p.Epoch = epoch
				p.Fill(3)
			}
		})
	}
	source.Update(func(s *stub.State) {
		s.NewTopic(crashTopic, id, 2)
		s.Versions = stub.VersionsWithMirrors()
		s.Mirrors[0] = append(s.Mirrors[0], stub.Mirror(crashMirror, messages.StateStopped,
			map[messages.TopicPartition]int32{{Topic: crashTopic}: 1, {Topic: crashTopic, Partition: 1}: 1}))
	})
	fill(1)
	// The second stop's second LME: the first stop has written two.
	n, err := newCrashNode(ctx, crashNodeOptions{dir: t.TempDir(), hold: "partition.PersistWrite(LME).before:4"})
	require.NoError(t, err)
	both := func(what string, ok func(p client.DescribedPartition) bool) {
		t.Helper()
		require.NoError(t, n.try(what, func(ctx context.Context) error {
			ps, err := Partitions(ctx, n.adm, crashMirror)
			if err == nil && (len(ps) != 2 || !ok(ps[0]) || !ok(ps[1])) {
				err = fmt.Errorf("partitions are %+v", ps)
			}
			return err
		}), what)
	}
	copied := func(end int64) func(p client.DescribedPartition) bool {
		return func(p client.DescribedPartition) bool { return p.State == "MIRRORING" && p.DestinationOffset == end }
	}
	stopped := func(lme int32) func(p client.DescribedPartition) bool {
		return func(p client.DescribedPartition) bool { return p.State == "STOPPED" && p.LastMirrorEpoch == lme }
	}

	require.NoError(t, n.createMirror(source.Address()))
	require.NoError(t, n.startTopic(id, 2))
	both("first copy", copied(3))
	require.NoError(t, n.askStop())
	both("first stop", stopped(1))
	require.NoError(t, n.startTopic(id, 2))
	fill(7)
	both("second copy", copied(6))

	lmes := func() (found []string) {
		states, _, err := mirrorStates(n.node.DataDir())
		require.NoError(t, err)
		return slices.DeleteFunc(states, func(s string) bool { return !strings.HasPrefix(s, "LME") })
	}
	before := len(lmes())
	require.NoError(t, n.hold(n.askStop, func() error {
		err := n.try("the first LME of the second stop", func(context.Context) error {
			if got := lmes(); len(got) == before {
				return fmt.Errorf("LMEs are %v", got)
			}
			return nil
		})
		return errors.Join(err, os.Remove(n.fifo), n.node.Kill9(), os.WriteFile(n.fifo, nil, 0o600))
	}))
	both("second stop", stopped(7))
	got := lmes()[before:]
	require.Len(t, got, 2, "each LME of the second stop is written once: %v", got)
	require.NotContains(t, got[0], " 1", "the second partition's older LME must not stand beside the new one")
	require.Equal(t, "LME 7 7", got[1])
	require.NoError(t, n.auditAgrees())
	require.NoError(t, n.close())
	require.Equal(t, 1, n.crashes)
	require.NoError(t, source.Close())
}

// TestCrashInRecovery: the process that follows a crash is killed as well, at the
// points that it reaches first: while it repairs, repeats cuts, opens and claims.
func TestCrashInRecovery(t *testing.T) {
	const reached = 40 // points of the second process
	s := &scenarioFiles
	base, points := undisturbed(t, s)
	firsts, seconds := 2, 5
	which := os.Getenv("KAGAMI_CRASHPOINTS")
	if which != "" {
		firsts, seconds = 16, reached
	}
	points = slices.DeleteFunc(points, func(p string) bool { return !strings.HasPrefix(p, "file.") && !strings.HasPrefix(p, "journal.") })
	var cases []crashCase
	for _, first := range spread(points, firsts) {
		list := filepath.Join(t.TempDir(), "points")
		w, err := runCrash(t, s, []string{"KAGAMI_FAULT_POINT=" + first}, []string{"KAGAMI_FAULT_LIST=" + list})
		require.NoError(t, err)
		require.NoError(t, w.judge(s, base))
		b, err := os.ReadFile(list)
		if errors.Is(err, os.ErrNotExist) {
			continue // it wasn't reached this time
		}
		require.NoError(t, err)
		then := strings.Fields(string(b))
		for _, p := range spread(then[:min(reached, len(then))], seconds) {
			if wanted(first, which) {
				cases = append(cases, crashCase{point: first, then: p})
			}
		}
	}
	tryAll(t, s, base, cases)
}
