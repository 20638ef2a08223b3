package bench

import (
	"fmt"
	"io"
)

// Who a Run of several nodes is of.
const (
	oneNode    = "one node"
	threeNodes = "three nodes"
	oneReplica = "one replica" // of each partition, on three nodes
	rawJournal = "raw journal"
)

// ClusterRuns are copies by one node and by three; Write prints them.
type ClusterRuns []Run

// Write prints the table in Markdown.
func (all ClusterRuns) Write(w io.Writer) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w, "\n| partitions | who | MB/s | to one node | to raw journal | CPU s/GB | note |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- |")
	for _, run := range all {
		fmt.Fprintf(w, "| %d | %s | %.0f | %s | %s | %.1f | %s |\n", run.Partitions, run.Who, run.MBps(), all.ratio(run, oneNode), all.ratio(run, rawJournal), run.CPUPerGB(), run.Note)
	}
	fmt.Fprintln(w)
}

func (all ClusterRuns) ratio(run Run, to string) string {
	r := Report{Runs: all}
	return r.ratio(run, to)
}
