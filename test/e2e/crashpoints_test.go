package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/messages"
)

// crashParallel is the number of runs at a time: they wait more than they work.
const crashParallel = 6

// crashCase is one disturbed run: kill -9 at a fault point, and perhaps again
// where the process that follows reaches the same or another one.
type crashCase struct {
	point string // name:n
	then  string // name:n of the second process, "" = none
}

func (c crashCase) String() string {
	if c.then != "" {
		return c.point + " then " + c.then
	}
	return c.point
}

func (c crashCase) envs() [][]string {
	envs := [][]string{{"KAGAMI_FAULT_POINT=" + c.point}}
	if c.then != "" {
		envs = append(envs, []string{"KAGAMI_FAULT_POINT=" + c.then})
	}
	return envs
}

// TestCrashPoints: kill -9 between any two effects, and the end is that of a run
// without it. KAGAMI_CRASHPOINTS=all tries every point that the undisturbed run
// reaches, and those of stops twice in a row as well; a list with commas tries the
// points whose name contains one of them; without it a sample of all is tried.
func TestCrashPoints(t *testing.T) {
	for _, row := range []struct {
		crashScenario
		sample int // points tried without KAGAMI_CRASHPOINTS; two thirds of them once, the others twice
	}{
		{scenarioLife, 18},
		{scenarioFencing, 6},
		{scenarioPausing, 6},
		{scenarioAligning, 6},
		{scenarioCutting, 6},
		{scenarioCuts, 9},
		{scenarioOtherCluster, 5},
		{scenarioFiles, 12},
		{scenarioAudit, 5},
	} {
		t.Run(row.name, func(t *testing.T) {
			base, points := undisturbed(t, &row.crashScenario)
			tryAll(t, &row.crashScenario, base, chooseCases(points, row.sample, os.Getenv("KAGAMI_CRASHPOINTS")))
		})
	}
}

// undisturbedRuns are kept by the name of their scenario: several tests begin
// with the same.
var undisturbedRuns = map[string]undisturbedRun{}

type undisturbedRun struct {
	end    crashEnd
	points []string
}

// undisturbed is a run without a crash, and the points that it reaches in order.
func undisturbed(t *testing.T, s *crashScenario) (end crashEnd, points []string) {
	t.Helper()
	if r, ok := undisturbedRuns[s.name]; ok {
		return r.end, slices.Clone(r.points)
	}
	list := filepath.Join(t.TempDir(), "points")
	w, err := runCrash(t, s, []string{"KAGAMI_FAULT_LIST=" + list})
	require.NoError(t, err)
	require.Zero(t, w.crashes)
	require.NoError(t, w.judge(s, w.end))
	require.Contains(t, strings.Join(slices.Compact(slices.Clone(w.end.States)), " "), strings.Join(s.through, " "))
	b, err := os.ReadFile(list)
	require.NoError(t, err)
	points = strings.Split(strings.TrimSpace(string(b)), "\n")
	undisturbedRuns[s.name] = undisturbedRun{w.end, points}
	return w.end, slices.Clone(points)
}

// tryAll runs the cases, some at a time.
func tryAll(t *testing.T, s *crashScenario, base crashEnd, cases []crashCase) {
	t.Helper()
	missed := runCases(t, cases, func(c crashCase) (int, error) {
		w, err := runCrash(t, s, c.envs()...)
		if err == nil {
			err = w.judge(s, base)
		}
		if w == nil {
			return 0, err
		}
		return w.crashes, err
	})
	if len(cases) >= 8 {
		// How requests are gathered into appends differs from run to run.
		require.LessOrEqual(t, len(missed), len(cases)/3, "points that were reached before aren't now")
	}
}

// runCases runs the cases, some at a time, and returns those that didn't crash.
func runCases(t *testing.T, cases []crashCase, run func(c crashCase) (crashes int, err error)) (missed []string) {
	t.Helper()
	var work sync.WaitGroup
	var mu sync.Mutex
	failed := 0
	slots := make(chan struct{}, crashParallel)
	for _, c := range cases {
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			begun := time.Now()
			crashes, err := run(c)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failed++
				t.Errorf("crash at %s: %v\nrepeat it with KAGAMI_CRASHPOINTS=%q", c, err, c.point)
			case crashes == 0:
				missed = append(missed, c.String())
			case testing.Verbose():
				t.Logf("%s: %d crashes, %s", c, crashes, time.Since(begun).Round(time.Millisecond))
			}
		})
	}
	work.Wait()
	t.Logf("%d runs, %d failed, %d didn't reach their point: %v", len(cases), failed, len(missed), missed)
	return missed
}

// chooseCases picks what to try of the points of the undisturbed run, which come
// in its order, see TestCrashPoints.
func chooseCases(points []string, sample int, which string) []crashCase {
	stops := stopPoints(points)
	var cases []crashCase
	if which == "" {
		for _, p := range spread(points, sample-sample/3) {
			cases = append(cases, crashCase{point: p})
		}
		for _, p := range spread(stops, sample/3) {
			cases = append(cases, crashCase{point: p, then: nameOf(p)})
		}
		return cases
	}
	for _, p := range points {
		if wanted(p, which) {
			cases = append(cases, crashCase{point: p})
		}
	}
	for _, p := range stops {
		if wanted(p, which) {
			cases = append(cases, crashCase{point: p, then: nameOf(p)})
		}
	}
	return cases
}

// wanted reports whether KAGAMI_CRASHPOINTS asks for a point.
func wanted(point, which string) bool {
	return which == "all" || slices.ContainsFunc(strings.Split(which, ","), func(part string) bool { return strings.Contains(point, part) })
}

func nameOf(point string) string {
	name, _, _ := strings.Cut(point, ":")
	return name
}

// spread picks n of the points, evenly.
func spread(points []string, n int) (some []string) {
	n = min(n, len(points))
	for i := range n {
		some = append(some, points[(2*i+1)*len(points)/(2*n)])
	}
	return some
}

// stopPoints are the points of the partition, its journal and the coordinator
// between each STOPPING and the STOPPED that follows, without those of files.
func stopPoints(points []string) (out []string) {
	begin := "partition.PersistWrite(" + messages.StateStopping.String() + ").before"
	end := "partition.PersistWrite(" + messages.StateStopped.String() + ").after"
	stopping := false
	for _, p := range points {
		name := nameOf(p)
		stopping = stopping || name == begin
		if stopping && slices.ContainsFunc([]string{"partition.", "journal.data.", "coordinator."}, func(prefix string) bool { return strings.HasPrefix(p, prefix) }) {
			out = append(out, p)
		}
		stopping = stopping && name != end
	}
	return out
}
