package sim

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kagami/messages"
)

var (
	simSeed  = flag.String("seed", os.Getenv("KAGAMI_SIM_SEED"), "run this seed, or as many as -seeds says from it on")
	simSeeds = flag.String("seeds", os.Getenv("KAGAMI_SIM_SEEDS"), "number of seeds; default 1000")
	simSteps = flag.Int("steps", 1000, "commands before the world heals")
	simTries = flag.Int("shrink", 4000, "runs to shorten a failing seed; 0 = leave it")
)

// runSeed plays one seed. It returns its commands and the world they led to.
func runSeed(seed uint64, steps int) (*world, []string) {
	w := newWorld()
	g := newGenerator(w, seed)
	commands := make([]string, 0, steps+1)
	for range steps {
		c := g.next()
		commands = append(commands, c)
		if w.exec(c); w.broken != "" {
			return w, commands
		}
	}
	w.heal()
	return w, append(commands, healCommand)
}

// report says how to repeat a seed that broke something, what broke, and the
// shortest way there that was found: a script for testdata.
func report(seed uint64, w *world, commands []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "repeat: make sim SEED=%d\n%s\n%s", seed, w.broken, w.show())
	if *simTries > 0 {
		invariant, _, _ := strings.Cut(w.broken, ": ")
		short := shrink(commands, *simTries, breaks(invariant))
		again, _ := play(short, true)
		fmt.Fprintf(&b, "shortened from %d to %d commands, %s\n%s\n%strace:\n%s", len(commands), len(short), again.broken,
			strings.Join(short, "\n"), again.show(), strings.Join(again.trace[max(0, len(again.trace)-150):], "\n"))
	}
	return b.String()
}

// seedRange is one seed, the first N, or N from a seed on.
func seedRange(t *testing.T) (from, to uint64) {
	t.Helper()
	count := uint64(1000)
	var err error
	if *simSeed != "" {
		count = 1
		if from, err = strconv.ParseUint(*simSeed, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	if *simSeeds != "" {
		if count, err = strconv.ParseUint(*simSeeds, 10, 32); err != nil {
			t.Fatal(err)
		}
	}
	return from, from + count
}

// TestSim: seeds of crashes, losses, races, failovers and failbacks keep every
// invariant. A failing seed is repeated by make sim SEED=N, and says so.
func TestSim(t *testing.T) {
	from, to := seedRange(t)
	seen := newCoverage()
	for seed := from; seed < to; seed++ {
		w, commands := runSeed(seed, *simSteps)
		if w.broken != "" {
			t.Fatal(report(seed, w, commands))
		}
		seen.add(w)
	}
	t.Log(seen)
	seen.require(t, int(to-from))
}

// TestSimIsRepeatable: a seed is its commands and nothing else.
func TestSimIsRepeatable(t *testing.T) {
	for seed := range uint64(5) {
		w, commands := runSeed(seed, 300)
		again, _ := play(commands, false)
		if w.show() != again.show() || len(w.clusters[1].log) != len(again.clusters[1].log) {
			t.Fatalf("seed %d: its commands lead to\n%snot to\n%s", seed, again.show(), w.show())
		}
	}
}

// TestShrink: what a failure needs is left, in its order, and nothing else.
func TestShrink(t *testing.T) {
	_, commands := runSeed(1, 200)
	commands[40], commands[150] = "first", "second"
	fails := func(list []string) ([]string, bool) {
		a, b := slices.Index(list, "first"), slices.Index(list, "second")
		return list, a >= 0 && b > a
	}
	if short := shrink(commands, 4000, fails); !slices.Equal(short, []string{"first", "second"}) {
		t.Fatal(short)
	}
	if _, broke := breaks(invHeal)(commands); broke {
		t.Fatal("a good run breaks nothing")
	}
}

// show is the world in a few lines.
func (w *world) show() string {
	var b strings.Builder
	for p := range simPartitions {
		for _, c := range w.clusters {
			if c.replicas[p].end() > 0 || c.image[p].desired != messages.DesiredNone {
				b.WriteString(c.show(p) + "\n")
			}
		}
	}
	return b.String()
}

func (c *cluster) show(p int) string {
	t, s, rep := c.image[p], c.stored(p), c.replicas[p]
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: leader %s epoch %d", c.name, topics[p], c.nodes[t.leader].name, t.epoch)
	if t.desired != messages.DesiredNone {
		fmt.Fprintf(&b, ", %s, desired %s", s.State, t.desired)
	}
	fmt.Fprintf(&b, ", %s, log %s", rep.mode, rep)
	if s.LME != messages.NoEpoch {
		fmt.Fprintf(&b, ", LME %d", s.LME)
	}
	if s.CutRecords > 0 {
		fmt.Fprintf(&b, ", cut %d", s.CutRecords)
	}
	if s.GapTo > 0 {
		fmt.Fprintf(&b, ", gap %d-%d", s.GapFrom, s.GapTo-1)
	}
	return b.String()
}
