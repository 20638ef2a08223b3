package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kagami/messages"
)

const (
	crashSample   = 24 // points tried without KAGAMI_CRASHPOINTS
	crashParallel = 4  // runs at a time: they wait more than they work
)

// crashCase is one disturbed run: kill -9 at a fault point, and perhaps again
// where the process that follows reaches it.
type crashCase struct {
	point string // name:n
	twice bool
}

func (c crashCase) String() string {
	if c.twice {
		return c.point + " twice"
	}
	return c.point
}

func (c crashCase) envs() [][]string {
	envs := [][]string{{"KAGAMI_FAULT_POINT=" + c.point}}
	if c.twice {
		name, _, _ := strings.Cut(c.point, ":")
		envs = append(envs, []string{"KAGAMI_FAULT_POINT=" + name})
	}
	return envs
}

// TestCrashPoints: kill -9 between any two effects, and the end is that of a run
// without it. KAGAMI_CRASHPOINTS=all tries every point that the undisturbed run
// reaches, and those of the stop twice in a row as well; another value tries the
// points whose name contains it; without it a sample over all kinds is tried.
func TestCrashPoints(t *testing.T) {
	list := filepath.Join(t.TempDir(), "points")
	base, w, err := runCrash(t, []string{"KAGAMI_FAULT_LIST=" + list})
	require.NoError(t, err)
	require.Zero(t, w.crashes)
	require.Equal(t, []string{"ABORT of 5", "ABORT of 6", "MIRROR_PID_RESET", "kept 1", "kept 2", "MIRROR_PID_RESET", "kept 3"}, base.Tail)
	require.NoError(t, w.judge(base, base))
	b, err := os.ReadFile(list)
	require.NoError(t, err)
	cases := chooseCases(strings.Fields(string(b)), os.Getenv("KAGAMI_CRASHPOINTS"))

	var work sync.WaitGroup
	var mu sync.Mutex
	var missed []string
	slots := make(chan struct{}, crashParallel)
	for _, c := range cases {
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			begun := time.Now()
			end, w, err := runCrash(t, c.envs()...)
			if err == nil {
				err = w.judge(base, end)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Errorf("crash at %s: %v\nrepeat it with KAGAMI_CRASHPOINTS=%q", c, err, c.point)
			case w.crashes == 0:
				missed = append(missed, c.String())
			case testing.Verbose():
				t.Logf("%s: %d crashes, %s", c, w.crashes, time.Since(begun).Round(time.Millisecond))
			}
		})
	}
	work.Wait()
	t.Logf("%d runs, %d of them didn't reach their point: %v", len(cases), len(missed), missed)
	if len(cases) >= crashSample {
		// How requests are gathered into appends differs from run to run.
		require.Less(t, len(missed), len(cases)/4, "points that were reached before aren't now")
	}
}

// chooseCases picks what to try of the points of the undisturbed run, which come
// in its order, see TestCrashPoints.
func chooseCases(points []string, which string) []crashCase {
	var stop []string // of the second stop and the third
	var first, last = slices.Index(points, "partition.PersistWrite(STOPPING).before:2"), slices.Index(points, "partition.PersistWrite(STOPPED).after:3")
	if first >= 0 && last > first {
		for _, p := range points[first : last+1] {
			if strings.HasPrefix(p, "partition.") || strings.HasPrefix(p, "journal.data.") || strings.HasPrefix(p, "coordinator.") {
				stop = append(stop, p)
			}
		}
	}
	var cases []crashCase
	switch which {
	case "":
		for i := range crashSample * 2 / 3 {
			cases = append(cases, crashCase{point: points[(2*i+1)*len(points)/(2*(crashSample*2/3))]})
		}
		for i := range crashSample / 3 {
			cases = append(cases, crashCase{point: stop[(2*i+1)*len(stop)/(2*(crashSample/3))], twice: true})
		}
		return cases
	case "all":
		which = ""
	}
	for _, p := range points {
		if strings.Contains(p, which) {
			cases = append(cases, crashCase{point: p})
		}
	}
	for _, p := range stop {
		if strings.Contains(p, which) {
			cases = append(cases, crashCase{point: p, twice: true})
		}
	}
	return cases
}

// judge compares a run with the undisturbed one. A crash may cost an epoch more
// and a second reset record, or spare an epoch (where a batch was refused and the
// refresh had asked already); nothing else may be different.
func (w *crashWorld) judge(base, got crashEnd) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, s := range []struct {
		name      string
		base, got any
	}{
		{"state after the first stop", base.First.State, got.First.State},
		{"last mirror epoch after the first stop", base.First.LastMirrorEpoch, got.First.LastMirrorEpoch},
		{"state after the second stop", base.Last.State, got.Last.State},
		{"last mirror epoch after the second stop", base.Last.LastMirrorEpoch, got.Last.LastMirrorEpoch},
		{"state after the third stop", base.Third.State, got.Third.State},
		{"last mirror epoch after the third stop", base.Third.LastMirrorEpoch, got.Third.LastMirrorEpoch},
		{"failures", base.Last.RetryAttempt, got.Last.RetryAttempt},
		{"open transactions", base.Last.OpenTransactions, got.Last.OpenTransactions},
		{"states", withoutRetries(base.States), withoutRetries(got.States)},
		{"tail", base.Tail, withoutSecondReset(got.Tail)},
	} {
		check(cmp.Equal(s.base, s.got), "%s (-undisturbed +crashed):\n%s", s.name, cmp.Diff(s.base, s.got))
	}
	extra := int64(len(got.Tail) - len(base.Tail))
	check(extra <= 1, "%d more reset records", extra)
	want, err := w.sourceBatches()
	check(err == nil && cmp.Equal(want, got.Copied), "copied batches differ (-source +node): %v\n%s", err, cmp.Diff(want, got.Copied))
	check(slices.IsSorted(got.TailEpochs), "epochs go back: %v", got.TailEpochs)
	for _, e := range got.TailEpochs {
		check(e > got.Last.LastMirrorEpoch && e <= got.DLE, "epoch %d of ours, LME %d, DLE %d", e, got.Last.LastMirrorEpoch, got.DLE)
	}
	check(got.DLE >= base.DLE-1 && got.DLE <= base.DLE+int32(w.crashes), "DLE %d after %d crashes, undisturbed %d", got.DLE, w.crashes, base.DLE)
	check(len(got.Acked) == len(base.Acked), "%d acknowledged, want %d", len(got.Acked), len(base.Acked))
	for _, a := range got.Acked {
		if strings.HasPrefix(a.value, "kept") {
			check(slices.Equal(got.Stored[a.value], []int64{a.offset}), "%q is at %v, acknowledged at %d", a.value, got.Stored[a.value], a.offset)
		}
	}
	// What the failback cut: two records, and the stop's reset, or two of them.
	cut := got.Cut.CutRecords - base.Cut.CutRecords
	check(cut >= 0 && cut <= 1, "%d records cut, undisturbed %d", got.Cut.CutRecords, base.Cut.CutRecords)
	check(got.Cut.CutFrom == base.Cut.CutFrom, "cut from %d, undisturbed %d", got.Cut.CutFrom, base.Cut.CutFrom)
	if len(errs) > 0 {
		errs = append(errs, fmt.Errorf("%d crashes, states %v", w.crashes, got.States), errors.New(w.node.process.Tail(80)))
	}
	return errors.Join(errs...)
}

// withoutRetries leaves out what a crash may add, a state that is written again
// or a failure that is retried, and what it may spare: the metadata refresh of the new process may raise the
// epoch before a batch needs it.
func withoutRetries(states []string) []string {
	return slices.Compact(slices.DeleteFunc(slices.Clone(states), func(s string) bool {
		return s == messages.StateEpochFencing.String() || strings.HasPrefix(s, messages.StateFailed.String())
	}))
}

func withoutSecondReset(tail []string) []string {
	return slices.CompactFunc(slices.Clone(tail), func(a, b string) bool { return a == b && a == "MIRROR_PID_RESET" })
}
