package bench

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Who a Run is of.
const (
	fetchOnly     = "fetch only"
	fetchAndWrite = "fetch and write"
	kagami        = "Kagami"
	mirrorMaker   = "MirrorMaker 2"
)

// Run is one copy of one topic.
type Run struct {
	Who        string // fetch only, Kagami, MirrorMaker 2
	Partitions int
	Bytes      int64         // of record batches, as on the source's disk
	Time       time.Duration // from the first byte wanted to the last one there
	CPU        time.Duration // of every process of this side, the source excepted
	Note       string
}

// MBps is the throughput in 10^6 bytes a second.
func (r Run) MBps() float64 { return float64(r.Bytes) / 1e6 / r.Time.Seconds() }

// CPUPerGB is the processor time in seconds per 10^9 bytes.
func (r Run) CPUPerGB() float64 { return r.CPU.Seconds() / (float64(r.Bytes) / 1e9) }

// Idle is the memory of idle mirrored partitions.
type Idle struct {
	Partitions    int
	Before, After int64         // resident bytes without and with them
	Ready         time.Duration // from the start request until all are MIRRORING
}

// Report collects what was measured.
type Report struct {
	Runs []Run
	Idle []Idle
}

// Write prints the tables in Markdown.
func (r *Report) Write(w io.Writer) {
	fmt.Fprintf(w, "\nMachine: %d cores, %s memory, %s %s/%s, Java %s. 1 KiB records, no compression, one broker as the source, everything on the same machine.\n\n",
		runtime.NumCPU(), memory(), runtime.Version(), runtime.GOOS, runtime.GOARCH, javaVersion())
	fmt.Fprintln(w, "| partitions | who | MB/s | to fetch only | to fetch and write | to MirrorMaker 2 | CPU s/GB | note |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, run := range r.Runs {
		fmt.Fprintf(w, "| %d | %s | %.0f | %s | %s | %s | %.1f | %s |\n", run.Partitions, run.Who, run.MBps(),
			r.ratio(run, fetchOnly), r.ratio(run, fetchAndWrite), r.ratio(run, mirrorMaker), run.CPUPerGB(), run.Note)
	}
	if len(r.Idle) == 0 {
		return
	}
	fmt.Fprintln(w, "\n| idle mirrored partitions | KiB a partition | resident MiB without | with | all MIRRORING after |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- |")
	for _, i := range r.Idle {
		fmt.Fprintf(w, "| %d | %.1f | %.0f | %.0f | %.1f s |\n", i.Partitions,
			float64(i.After-i.Before)/1024/float64(i.Partitions), float64(i.Before)/(1<<20), float64(i.After)/(1<<20), i.Ready.Seconds())
	}
	fmt.Fprintln(w)
}

func (r *Report) ratio(run Run, to string) string {
	for _, other := range r.Runs {
		if other.Partitions == run.Partitions && other.Who == to && run.Who != to {
			return fmt.Sprintf("%.2f", run.MBps()/other.MBps())
		}
	}
	return "-"
}

func memory() string {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return "unknown"
	}
	var kb int64
	if _, err := fmt.Sscanf(string(b), "MemTotal: %d kB", &kb); err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%d GiB", (kb+1<<19)>>20)
}

// javaOptions are stronger than a command line's. The fixture starts Java for
// tests, without its optimizing compiler: that is no measure of Kafka.
const javaOptions = "_JAVA_OPTIONS"

func javaVersion() string {
	cmd := exec.Command("java", "-version")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, javaOptions+"=") })
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(out), "\n")
	if _, quoted, ok := strings.Cut(first, "\""); ok {
		first, _, _ = strings.Cut(quoted, "\"")
	}
	return first
}
