package simjournal

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

const (
	simSeeds = 800
	simSteps = 5000
	// faultSeeds is how many may be needed to find a fault.
	faultSeeds = 1000
)

// run plays one seed and returns what broke.
func run(seed uint64, f faults, steps int, tracing bool) *world {
	w := newWorld(seed, f, tracing)
	for range steps {
		if w.step(); w.broken != "" {
			return w
		}
	}
	w.heal()
	return w
}

// seeds to play: KAGAMI_SIM_SEEDS=N digs longer.
func seeds(t *testing.T) uint64 {
	t.Helper()
	s := os.Getenv("KAGAMI_SIM_SEEDS")
	if s == "" {
		return simSeeds
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func report(w *world) string {
	return w.broken + "\n" + strings.Join(w.trace, "\n")
}

// TestJournalSim: seeds of crashes, losses, races and changes keep every invariant. A
// failing seed prints the command that repeats it.
func TestJournalSim(t *testing.T) {
	if s := os.Getenv("KAGAMI_SIM_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if w := run(seed, faults{}, simSteps, true); w.broken != "" {
			t.Fatal(report(w))
		}
		return
	}
	var sum counters
	for seed := range seeds(t) {
		w := run(seed, faults{}, simSteps, false)
		if w.broken != "" {
			t.Fatalf("KAGAMI_SIM_SEED=%d go test -run TestJournalSim$ ./test/sim/journal\n%s", seed, w.broken)
		}
		sum.add(w.count)
	}
	t.Logf("%+v", sum)
}

// TestJournalSimRepeats: a seed is one history, or the command that repeats a failure
// wouldn't.
func TestJournalSimRepeats(t *testing.T) {
	for seed := range uint64(20) {
		a, b := run(seed, faults{}, simSteps, true).trace, run(seed, faults{}, simSteps, true).trace
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("seed %d, line %d:\n%s\n%s", seed, i, a[i], b[i])
			}
		}
		if len(a) != len(b) {
			t.Fatalf("seed %d: %d lines and %d", seed, len(a), len(b))
		}
	}
}

// TestJournalSimFindsFaults: what the rules are for. A model without one of them must
// break in some seed, or the simulation proves nothing.
func TestJournalSimFindsFaults(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault faults
		shows string // in what breaks
		from  uint64 // the first seed to try, of what is rare: look again when the model changes
	}{
		{"no generation", faults{noGeneration: true}, "took effect after its author was told", 0},
		{"no base", faults{noBase: true}, "built on a log that", 0},
		{"no base of a cut", faults{noCutBase: true}, "given up, removed an append", 0},
		{"no checkpoint before a cut", faults{noCheckpoint: true}, "\n not ", 0},
		{"trim one too far", faults{trimTooFar: true}, "finds a hole", 0},
		{"copy at the wrong position", faults{wrongCopy: true}, "\n not ", 0},
		{"every fresh replica is new", faults{blindBirth: true}, "\n not ", 0},
		{"round over newer checkpoints", faults{staleRound: true}, "\n not ", 0},
		{"shards before the metadata", faults{oldMetadata: true}, "passes over", 0},
		{"kept above the own state only", faults{keptBelow: true}, "\n not ", 0},
		{"whole before all that was kept is in", faults{replayWhole: true}, "\n not ", 5500},
		{"baseline durable too late", faults{lateBaseline: true}, "to a log that ends at", 0},
		{"the only replica is given up", faults{soleGivenUp: true}, "doesn't settle", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			broken := 0
			for seed := tc.from; seed < tc.from+faultSeeds; seed++ {
				w := run(seed, tc.fault, simSteps, false)
				if w.broken == "" {
					continue
				}
				broken++
				if strings.Contains(w.broken, tc.shows) {
					t.Logf("seed %d (%d before it broke otherwise): %s", seed, broken-1, w.broken)
					return
				}
			}
			t.Fatalf("not found in %d seeds from %d on, %d of which broke otherwise", faultSeeds, tc.from, broken)
		})
	}
}

func (c *counters) add(o counters) {
	c.landed += o.landed
	c.accepted += o.accepted
	c.acked += o.acked
	c.crashes += o.crashes
	c.holes += o.holes
	c.copies += o.copies
	c.rewinds += o.rewinds
	c.givenUp += o.givenUp
	c.cuts += o.cuts
	c.claims += o.claims
	c.behind += o.behind
	c.unknown += o.unknown
}

// heal ends all trouble; then everybody must agree, every wish have its answer, and
// every partition take appends.
func (w *world) heal() {
	w.note("the world heals")
	w.calm = true
	for _, s := range w.streams {
		s.up = true
	}
	for _, n := range w.nodes {
		n.paused = false
		if !n.up {
			n.start()
		}
	}
	why := ""
	for round := range 60_000 {
		if w.step(); w.broken != "" {
			return
		}
		if round%200 == 199 {
			if why = w.unsettled(); why == "" {
				break
			}
		}
	}
	if why != "" {
		w.fail("the world doesn't settle: %s", why)
		return
	}
	for _, x := range w.wishes {
		if !x.settled() {
			w.fail("wish %d has no answer", x.id)
		}
	}
}

// unsettled says what isn't as it should be.
func (w *world) unsettled() string {
	img := w.imageOf(&w.truthOf(metaKey).log)
	for _, n := range w.nodes {
		for shard, sh := range n.shards {
			entries, _ := sh.proposer.Len()
			if at, last := sh.applied.Sequence, w.streams[shard].last(); at != last || entries > 0 || sh.stopped {
				return fmt.Sprintf("node %d is at %d of %d in shard %d (image %d of %d), %d entries wait, stopped %v", n.id, at, last, shard, n.image.end, img.end, entries, sh.stopped)
			}
		}
		if n.image.end != img.end {
			return fmt.Sprintf("node %d has image %d of %d", n.id, n.image.end, img.end)
		}
		for _, r := range n.list {
			if r.behind || r.baseline || r.own != nil {
				return fmt.Sprintf("node %d: %s is behind (%v), not in the journal (%v), or waits for %+v", n.id, r.key, r.behind, r.baseline, r.own)
			}
		}
	}
	for _, p := range img.parts {
		for _, id := range p.replicas {
			r := w.nodes[id].replicas[p.key]
			if r == nil {
				return fmt.Sprintf("node %d has no replica of %s", id, p.key)
			}
			if id == p.leader && (!r.leads() || r.state.Epoch != p.epoch) {
				return fmt.Sprintf("node %d doesn't lead %s", id, p.key)
			}
		}
	}
	return ""
}
