package sim

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"kagami/fsm"
	"kagami/messages"
)

var (
	simSeed  = flag.String("seed", os.Getenv("KAGAMI_SIM_SEED"), "run this seed only")
	simSeeds = flag.Int("seeds", 200, "number of seeds")
	simTrace = flag.Int("trace", 120, "lines of trace to print")
	simSteps = flag.Int("steps", 600, "steps before the world heals")
)

// run plays one seed and returns what broke, with the trace that led to it.
func run(seed uint64, steps int) string {
	w := newWorld(seed, 2)
	for range steps {
		if w.step(); w.broken != "" {
			return report(w)
		}
	}
	w.calm, w.source.up = true, true
	for round := range 4000 {
		if w.step(); w.broken != "" {
			return report(w)
		}
		if w.settled() {
			return ""
		}
		if round%50 == 0 {
			w.tick()
		}
		if round%400 == 399 { // an operator looks at what has failed for good
			for _, n := range w.nodes {
				for p := range w.partitions {
					n.tell(p, fsm.SourceBack{})
					n.tell(p, fsm.Recover{})
				}
			}
		}
	}
	w.fail("wishes don't come true")
	return report(w)
}

func report(w *world) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", w.broken)
	for p, t := range w.image {
		fmt.Fprintf(&b, "partition %d: desired %s, leader %d, epoch %d, stored %s, journal %s\n", p, t.desired, t.leader, t.epoch, w.stored(p).State, w.replicas[p].mode)
		for _, n := range w.nodes {
			fmt.Fprintf(&b, "  node %d: %+v\n", n.id, n.parts[p].core.View())
		}
	}
	return b.String() + strings.Join(w.trace[max(0, len(w.trace)-*simTrace):], "\n")
}

// settled: every partition is where its wish leads, and nothing is on its way.
func (w *world) settled() bool {
	for p, t := range w.image {
		want := map[messages.Desired]messages.State{
			messages.DesiredActive: messages.StateMirroring, messages.DesiredPaused: messages.StatePaused, messages.DesiredStopped: messages.StateStopped,
		}[t.desired]
		core := w.nodes[t.leader].parts[p].core
		if w.stored(p).State != want || core.State() != want || core.View().Writing {
			return false
		}
	}
	return true
}

// TestSim: seeds of crashes, losses and races keep every invariant. A failing
// seed is repeated by: make sim SEED=N
func TestSim(t *testing.T) {
	if *simSeed != "" {
		seed, err := strconv.ParseUint(*simSeed, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if why := run(seed, *simSteps); why != "" {
			t.Fatal(why)
		}
		return
	}
	for seed := range *simSeeds {
		if why := run(uint64(seed), *simSteps); why != "" {
			t.Fatalf("make sim SEED=%d\n%s", seed, why)
		}
	}
}
