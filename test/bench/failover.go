package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"
)

// Source is what the source does while a mirror of it is stopped.
type Source string

// Kinds of sources. A killed one refuses connections. A black hole keeps every
// connection, takes new ones, and never answers.
const (
	SourceLive      Source = "live"
	SourceKilled    Source = "killed (kill -9)"
	SourceBlackHole Source = "black hole (SIGSTOP)"
)

// Failover is one measured stop of a mirror, and what came before it.
type Failover struct {
	Partitions int
	Source     Source

	StartAnswered time.Duration // from the start request to its answer
	Mirroring     time.Duration // from the start request until all partitions are MIRRORING and have all records
	Query         time.Duration // one answer of /api/partitions, all MIRRORING

	StopAnswered time.Duration // from the stop request to its answer
	Accepted     Accepted      // from the stop request to the first and the last accepted produce
	CPU          time.Duration // processor time of the node meanwhile

	RSSBefore, RSSPeak    int64 // bytes; the peak is of the stop alone
	HeapBefore, HeapAfter int64 // bytes of objects, garbage included
	Closed                time.Duration
}

// Failovers are all runs; Write prints medians.
type Failovers []Failover

// Write prints the tables in Markdown.
func (all Failovers) Write(w io.Writer) {
	fmt.Fprintln(w, "\n| partitions | source | runs | stop answered | first produce | every partition | slowest run | CPU s | RSS MiB before | peak | heap MiB before | after |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, fs := range all.by(func(f Failover) string { return fmt.Sprint(f.Partitions, f.Source) }) {
		every := func(f Failover) time.Duration { return f.Accepted.All }
		fmt.Fprintf(w, "| %d | %s | %d | %s | %s | %s | %s | %.1f | %d | %d | %d | %d |\n", fs[0].Partitions, fs[0].Source, len(fs),
			seconds(median(fs, func(f Failover) time.Duration { return f.StopAnswered })),
			seconds(median(fs, func(f Failover) time.Duration { return f.Accepted.First })),
			seconds(median(fs, every)), seconds(every(slices.MaxFunc(fs, func(a, b Failover) int { return cmp.Compare(every(a), every(b)) }))),
			median(fs, func(f Failover) time.Duration { return f.CPU }).Seconds(),
			median(fs, func(f Failover) int64 { return f.RSSBefore })>>20, median(fs, func(f Failover) int64 { return f.RSSPeak })>>20,
			median(fs, func(f Failover) int64 { return f.HeapBefore })>>20, median(fs, func(f Failover) int64 { return f.HeapAfter })>>20)
	}
	fmt.Fprintln(w, "\n| partitions | runs | start answered | all MIRRORING and copied | query of all | clean stop of the node |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- |")
	for _, fs := range all.by(func(f Failover) string { return fmt.Sprint(f.Partitions) }) {
		fmt.Fprintf(w, "| %d | %d | %s | %s | %s | %s |\n", fs[0].Partitions, len(fs),
			seconds(median(fs, func(f Failover) time.Duration { return f.StartAnswered })),
			seconds(median(fs, func(f Failover) time.Duration { return f.Mirroring })),
			seconds(median(fs, func(f Failover) time.Duration { return f.Query })),
			seconds(median(fs, func(f Failover) time.Duration { return f.Closed })))
	}
	fmt.Fprintln(w)
}

// by groups the runs, in the order of the first of each group.
func (all Failovers) by(key func(Failover) string) []Failovers {
	var groups []Failovers
	at := map[string]int{}
	for _, f := range all {
		i, ok := at[key(f)]
		if !ok {
			i = len(groups)
			at[key(f)] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], f)
	}
	return groups
}

// median is the lower one of the two in the middle of an even number of runs.
func median[T cmp.Ordered](fs Failovers, of func(Failover) T) T {
	values := make([]T, 0, len(fs))
	for _, f := range fs {
		values = append(values, of(f))
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3g s", d.Seconds()) }
