package actors

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kagami/fsm"
	"kagami/internal/clock"
	"kagami/messages"
)

// reports are what nodes 1, 2, 3 say.
func reports(of ...ReplicaReport) func(messages.NodeID) ReplicaReport {
	return func(n messages.NodeID) ReplicaReport { return of[n-1] }
}

var (
	cutReplica     = ReplicaReport{Live: true, There: true}
	laggingReplica = ReplicaReport{Live: true}
	copiedReplica  = ReplicaReport{Live: true, Behind: true, There: true} // its shard is there, it isn't
	deadReplica    = ReplicaReport{There: true}                           // its last beat said so
)

func TestConvergenceCounts(t *testing.T) {
	for name, row := range map[string]struct {
		report  []ReplicaReport
		min     int
		unclean bool
		waited  time.Duration
		want    fsm.Convergence
		done    bool
	}{
		"all have cut": {[]ReplicaReport{cutReplica, cutReplica, cutReplica}, 2, false, 0,
			fsm.Convergence{Assigned: 3, InSync: 3, InSyncCut: 3, AssignedCut: 3, MinInSync: 2}, true},
		"D20 one lags": {[]ReplicaReport{cutReplica, laggingReplica, cutReplica}, 1, false, time.Second,
			fsm.Convergence{Assigned: 3, InSync: 3, InSyncCut: 2, AssignedCut: 2, MinInSync: 1}, false},
		"one lags for too long: in sync no more": {[]ReplicaReport{cutReplica, laggingReplica, cutReplica}, 2, false, 30 * time.Second,
			fsm.Convergence{Assigned: 3, InSync: 2, InSyncCut: 2, AssignedCut: 2, MinInSync: 2}, true},
		"D21 too few in sync": {[]ReplicaReport{cutReplica, deadReplica, copiedReplica}, 2, false, time.Hour,
			fsm.Convergence{Assigned: 3, InSync: 1, InSyncCut: 1, AssignedCut: 1, MinInSync: 2}, false},
		"dead and copied ones aren't waited for": {[]ReplicaReport{cutReplica, deadReplica, copiedReplica}, 1, false, 0,
			fsm.Convergence{Assigned: 3, InSync: 1, InSyncCut: 1, AssignedCut: 1, MinInSync: 1}, true},
		"U5 one is down": {[]ReplicaReport{cutReplica, deadReplica, cutReplica}, 1, true, time.Hour,
			fsm.Convergence{Assigned: 3, InSync: 2, InSyncCut: 2, AssignedCut: 2, MinInSync: 1, Unclean: true}, false},
		"U5 one is being copied": {[]ReplicaReport{cutReplica, copiedReplica, cutReplica}, 1, true, time.Hour,
			fsm.Convergence{Assigned: 3, InSync: 2, InSyncCut: 2, AssignedCut: 2, MinInSync: 1, Unclean: true}, false},
		"U5 all are back": {[]ReplicaReport{cutReplica, cutReplica, cutReplica}, 1, true, time.Hour,
			fsm.Convergence{Assigned: 3, InSync: 3, InSyncCut: 3, AssignedCut: 3, MinInSync: 1, Unclean: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := ConvergenceView{Replicas: []messages.NodeID{1, 2, 3}, MinInSync: row.min, Unclean: row.unclean, Waited: row.waited, LagMax: 30 * time.Second, Report: reports(row.report...)}.Convergence()
			if d := cmp.Diff(row.want, got); d != "" || got.Done() != row.done {
				t.Fatalf("done %v %s", got.Done(), d)
			}
		})
	}
}

// TestLogTruncationAwaitsReplicas: D20, D21, U5 on the actor: no fetcher before the
// replicas have cut, then MIRRORING; a stop isn't held up by them.
func TestLogTruncationAwaitsReplicas(t *testing.T) {
	for name, row := range map[string]struct {
		before, after []ReplicaReport
		min           int
		unclean       bool
	}{
		"D20": {[]ReplicaReport{cutReplica, laggingReplica, cutReplica}, []ReplicaReport{cutReplica, cutReplica, cutReplica}, 1, false},
		"D21": {[]ReplicaReport{cutReplica, deadReplica, deadReplica}, []ReplicaReport{cutReplica, cutReplica, deadReplica}, 2, false},
		"U5":  {[]ReplicaReport{cutReplica, cutReplica, deadReplica}, []ReplicaReport{cutReplica, cutReplica, cutReplica}, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, t.TempDir(), stateImage(t, "m", messages.DesiredNone, 5, 1))
			view := ConvergenceView{Replicas: []messages.NodeID{1, 2, 3}, MinInSync: row.min, Unclean: row.unclean, LagMax: 30 * time.Second, Report: reports(row.before...)}
			n.converge.Store(&view)
			n.want(messages.DesiredActive)
			n.untilState(messages.StateLogTruncation)
			require.NoError(t, (clock.Wall{}).Sleep(t.Context(), 2*convergeDelay))
			require.Equal(t, messages.StateLogTruncation, n.status().State)
			_, fetching := n.fetchers.get(tp0)
			require.False(t, fetching)
			converged := view
			converged.Report = reports(row.after...)
			n.converge.Store(&converged)
			n.untilState(messages.StateMirroring)
			n.untilFetching()
		})
	}
	t.Run("stop", func(t *testing.T) {
		n := newNode(t, t.TempDir(), stateImage(t, "m", messages.DesiredActive, 5, 1))
		n.untilState(messages.StateMirroring)
		n.want(messages.DesiredStopped)
		n.untilState(messages.StateStopped)
		n.converge.Store(&ConvergenceView{Replicas: []messages.NodeID{1, 2}, MinInSync: 2, Report: reports(cutReplica, deadReplica)})
		n.want(messages.DesiredActive)
		n.untilState(messages.StateLogTruncation)
		n.want(messages.DesiredStopped)
		n.untilState(messages.StateStopped)
	})
}
