package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/test/e2e"
)

func setting(t *testing.T, name string, normal int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return normal
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

// TestChaos runs seeded rounds of requests and faults on two nodes that mirror each
// other in turn, under one mirror name, and judges after each.
//
// KAGAMI_CHAOS_SEEDS is how many seeds, from KAGAMI_CHAOS_SEED on; each goes
// KAGAMI_CHAOS_ROUNDS rounds of KAGAMI_CHAOS_OPS things that happen.
func TestChaos(t *testing.T) {
	seeds, first := setting(t, "KAGAMI_CHAOS_SEEDS", 1), setting(t, "KAGAMI_CHAOS_SEED", 1)
	rounds, steps := setting(t, "KAGAMI_CHAOS_ROUNDS", 2), setting(t, "KAGAMI_CHAOS_OPS", 5)
	for seed := first; seed < first+seeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Logf("repeat with KAGAMI_CHAOS_SEED=%d KAGAMI_CHAOS_ROUNDS=%d KAGAMI_CHAOS_OPS=%d go test -count=1 -run TestChaos ./test/chaos", seed, rounds, steps)
			w := newWorld(t, uint64(seed))
			for range 2 {
				require.NoError(t, w.newTopic("t", 1+w.rng.Int32N(2)))
			}
			for round := range rounds {
				w.note("=== round %d: %s to %s", round+1, w.source().name, w.dest().name)
				w.round(steps)
				w.restartKeepsStates()
				w.failover()
			}
			w.end()
			if testing.Verbose() {
				t.Logf("%d rounds in %s", rounds, time.Since(w.begun).Round(time.Second))
			}
		})
	}
}

func (w *world) round(steps int) {
	w.t.Helper()
	w.poll(settleWithin, "mirror made and started", func(ctx context.Context) error {
		if err := w.create(ctx); err != nil {
			return err
		}
		return w.alterBootstrap(ctx, false)
	})
	w.normalise()
	for _, name := range w.names("t") {
		w.writer(name)
	}
	all := ops()
	for range steps {
		w.pause(20, 700)
		o := pick(w, all)
		o.run(w)
	}
	w.settle()
}

// restartKeepsStates restarts the destination, softly or not, with topics of
// several wishes: every partition is in the state that it was in.
func (w *world) restartKeepsStates() {
	w.t.Helper()
	names := w.names("t")
	paused, stopped := names[w.rng.IntN(len(names))], ""
	want := map[string]string{}
	for _, name := range names {
		want[name] = "MIRRORING"
	}
	ctx, cancel := w.short()
	defer cancel()
	require.NoError(w.t, w.request(ctx, "pause", paused))
	want[paused] = "PAUSED"
	if len(names) > 2 {
		stopped = names[w.rng.IntN(len(names))]
		require.NoError(w.t, w.request(ctx, "stop", stopped))
		want[stopped] = "STOPPED"
	}
	check := func(ctx context.Context) error {
		var errs []error
		ps, err := w.partitions(ctx)
		for _, name := range names {
			for _, p := range ps[name] {
				if p.State != want[name] || p.RetryAttempt != 0 {
					errs = append(errs, fmt.Errorf("%s-%d is %s (attempt %d %s), want %s", name, p.Partition, p.State, p.RetryAttempt, p.ErrorText, want[name]))
				}
			}
			if len(ps[name]) == 0 {
				errs = append(errs, fmt.Errorf("%s isn't there", name))
			}
		}
		return errors.Join(append(errs, err)...)
	}
	w.poll(20*time.Second, "states before a restart", check)
	before, err := w.partitions(ctx)
	require.NoError(w.t, err)
	if w.rng.IntN(2) == 0 {
		w.kill(w.dest())
	} else {
		w.terminate(w.dest())
	}
	w.revive(w.dest())
	w.poll(20*time.Second, "states after a restart", check)
	w.poll(20*time.Second, "the same epochs and ends after a restart", func(ctx context.Context) error {
		after, err := w.partitions(ctx)
		if err != nil {
			return err
		}
		for _, name := range names {
			for n, p := range before[name] {
				q := after[name][n]
				if q.LastMirrorEpoch != p.LastMirrorEpoch || q.LeaderEpoch < p.LeaderEpoch {
					return fmt.Errorf("%s-%d: %+v before, %+v after", name, n, p, q)
				}
			}
		}
		return nil
	})
	w.normalise()
	w.poll(settleWithin, "every partition MIRRORING again", w.mirroring)
}

// failover stops everything on the destination while the source is dead, cut off
// or well; then both swap their parts.
func (w *world) failover() {
	w.t.Helper()
	names := w.names("t")
	for _, name := range names {
		w.poll(settleWithin, name+" equal before the failover", func(ctx context.Context) error {
			return e2e.Different(ctx, w.source().side, w.dest().side, name, true)
		})
	}
	loss := w.rng.IntN(3)
	if loss > 0 { // records that only the source has
		w.fault(BlackHole)
		for _, name := range names {
			w.writer(name)
		}
		w.pause(100, 400)
		for _, name := range names {
			if err := w.topics[name].end(); err != nil {
				w.t.Fatalf("the producer of %s: %v", name, err)
			}
		}
	}
	switch w.rng.IntN(4) {
	case 0:
		w.kill(w.source())
	case 1:
		w.freeze(w.source())
	case 2:
		w.fault(BlackHole)
	default:
	}
	w.stopAll(names)
	lme := w.judgeStopped(names)
	w.heal()
	w.note("LMEs %v", lme)
	cut := w.judgePrefix(names)
	for _, name := range names {
		n := w.topics[name].forget(func(p place) bool { return p.offset < cut[name][p.partition] })
		if n > 0 {
			w.note("%d records of %s were on %s only", n, name, w.source().name)
		}
	}
	w.judgeStored(w.dest(), "t")
	if w.rng.IntN(5) == 0 {
		w.deleteMirror()
	}
	w.src = 1 - w.src
}

// stopAll stops by pattern, now and then with a crash in the middle, and waits.
func (w *world) stopAll(names []string) {
	w.t.Helper()
	crash := w.rng.IntN(3) == 0
	stop := func(ctx context.Context) error {
		res, err := w.dest().adm.StopMirrorTopics(ctx, mirror, names, pattern)
		return errors.Join(err, res.Err())
	}
	ctx, cancel := w.short()
	defer cancel()
	begun := time.Now()
	if crash {
		go func() { _ = stop(ctx) }()
		for range 1 + w.rng.IntN(4) { // also while the restarted one goes on with it
			w.pause(0, 60)
			w.kill(w.dest())
			w.revive(w.dest())
		}
		begun = time.Now()
		w.poll(stopWithin, "stop again", stop)
	} else {
		require.NoError(w.t, stop(ctx))
	}
	w.poll(stopWithin, "STOPPED", func(ctx context.Context) error {
		return e2e.AwaitStates(ctx, w.dest().adm, mirror, names, 0, "STOPPED")
	})
	w.note("stopped in %s", time.Since(begun).Round(time.Millisecond))
}

// judgeStopped: the last batch is the reset, above the LME, which is the epoch of
// what stands before it.
func (w *world) judgeStopped(names []string) map[string]map[int32]int32 {
	w.t.Helper()
	const controlBit = 1 << 5
	ctx, cancel := w.short()
	defer cancel()
	ps, err := w.partitions(ctx)
	require.NoError(w.t, err)
	out := map[string]map[int32]int32{}
	for _, name := range names {
		out[name] = map[int32]int32{}
		for n, batches := range w.batches(w.dest(), name) {
			p := ps[name][n]
			out[name][n] = p.LastMirrorEpoch
			if len(batches) == 0 || batches[len(batches)-1].Attributes&controlBit == 0 {
				w.t.Fatalf("%s-%d: the log doesn't end with a control batch: %v", name, n, batches)
			}
			reset := batches[len(batches)-1]
			if reset.Epoch <= p.LastMirrorEpoch || p.LeaderEpoch < reset.Epoch {
				w.t.Fatalf("%s-%d: reset of epoch %d, LME %d, leader epoch %d", name, n, reset.Epoch, p.LastMirrorEpoch, p.LeaderEpoch)
			}
			if len(batches) > 1 {
				if last := batches[len(batches)-2]; last.Epoch != p.LastMirrorEpoch {
					w.t.Fatalf("%s-%d: LME %d, last mirrored batch %v", name, n, p.LastMirrorEpoch, last)
				}
			}
		}
	}
	return out
}

// judgePrefix: what the destination mirrored is a piece of the source's log, byte
// for byte. It returns where each partition's own records begin.
func (w *world) judgePrefix(names []string) map[string]map[int32]int64 {
	w.t.Helper()
	out := map[string]map[int32]int64{}
	for _, name := range names {
		out[name] = map[int32]int64{}
		from, to := w.batches(w.source(), name), w.batches(w.dest(), name)
		for n, batches := range to {
			reset := batches[len(batches)-1]
			out[name][n] = reset.Base
			theirs := map[int64]e2e.Batch{}
			for _, b := range from[n] {
				theirs[b.Base] = b
			}
			for _, b := range batches[:len(batches)-1] {
				if gone := len(from[n]) == 0 || b.Base < from[n][0].Base; !gone && theirs[b.Base] != b { // retention goes on
					w.t.Fatalf("%s-%d: %v on %s, %v on %s", name, n, b, w.dest().name, theirs[b.Base], w.source().name)
				}
			}
		}
	}
	return out
}

// deleteMirror forgets the LMEs: the way back is a whole copy.
func (w *world) deleteMirror() {
	w.t.Helper()
	ctx, cancel := w.short()
	defer cancel()
	require.NoError(w.t, w.dest().adm.DeleteClusterMirror(ctx, mirror))
	w.note("deleted the mirror on %s", w.dest().name)
	if w.rng.IntN(2) == 0 {
		w.kill(w.dest())
		w.revive(w.dest())
		have, err := w.dest().adm.ListClusterMirrors(ctx)
		require.NoError(w.t, err)
		require.Empty(w.t, have, "mirrors after a restart")
	}
}

// end stops both nodes cleanly, which also tells of races.
func (w *world) end() {
	w.t.Helper()
	w.heal()
	for _, c := range w.nodes {
		w.terminate(c)
	}
}
