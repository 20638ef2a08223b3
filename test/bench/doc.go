// Package bench measures whole processes against real Kafka: throughput and
// processor time of a mirror, as ratios to a loop that only fetches and to
// MirrorMaker 2, and the memory of idle mirrored partitions. Its main types are
// [Run], one measured copy, and [Report], the tables.
//
// Everything is in one test that runs only with KAGAMI_BENCH=1 (make bench): it
// takes minutes and its figures mean nothing on a busy machine. The tables are
// Markdown on standard output, ready for docs/performance.md. The package never
// judges: it prints.
package bench
