package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"kagami/fsm"
	"kagami/messages"
)

// coverage counts what seeds went through: a simulation that never comes to the
// interesting places finds nothing there.
type coverage struct{ seeds map[string]int }

func newCoverage() *coverage { return &coverage{seeds: map[string]int{}} }

func (v *coverage) add(w *world) {
	met := map[string]bool{}
	for _, c := range w.clusters {
		for p := range simPartitions {
			v.history(c, p, met)
		}
	}
	for what := range met {
		v.seeds[what]++
	}
}

// history reads what happened off the records of __mirror_state.
func (v *coverage) history(c *cluster, p int, met map[string]bool) {
	was, stops := messages.StateUnknown, 0
	for _, r := range c.log {
		if r.Kind != fsm.RecordState || r.Partition != topicOf(p) {
			continue
		}
		to := r.State.State
		if to != was {
			met[was.String()+" -> "+to.String()] = true
		}
		if to == messages.StateStopped && was != to {
			stops++
			met[fmt.Sprintf("%s stopped %d times", c.name, min(stops, 3))] = true
		}
		if r.State.CutRecords > 0 {
			met["cut on "+c.name] = true
		}
		if r.State.GapTo > 0 {
			met["gap on "+c.name] = true
		}
		was = to
	}
	if c.image[p].desired == messages.DesiredActive && c.source.image[p].desired == messages.DesiredStopped {
		met["failback to "+c.name] = true
	}
}

// String lists what was met, and in how many seeds.
func (v *coverage) String() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(v.seeds)) {
		fmt.Fprintf(&b, "\n%6d  %s", v.seeds[what], what)
	}
	return b.String()
}

// require: every stored transition of the table, failbacks both ways, cuts and
// gaps must be met in a run of many seeds.
func (v *coverage) require(t *testing.T, seeds int) {
	t.Helper()
	if seeds < 1000 {
		return
	}
	for _, from := range messages.States() {
		for _, to := range messages.States() {
			if from != to && fsm.Leads(from, to) && v.seeds[from.String()+" -> "+to.String()] == 0 {
				t.Errorf("no seed went %s -> %s", from, to)
			}
		}
	}
	for _, what := range []string{"a stopped 2 times", "b stopped 3 times", "failback to a", "failback to b", "cut on a", "cut on b", "gap on b"} {
		if v.seeds[what] == 0 {
			t.Errorf("no seed: %s", what)
		}
	}
}
