// Package bench measures whole processes against real Kafka: throughput and
// processor time of a mirror, as ratios to a loop that only fetches and to
// MirrorMaker 2, and the memory of idle mirrored partitions. A second test
// measures failover, with another Kagami as the source: how long after a stop
// every partition takes a record. The main types are [Run], one measured copy,
// with its tables in [Report], and [Failover], one measured stop.
//
// Three nodes are measured too, always as a ratio to one node or to the journal
// alone: [Loss] is a kill -9 of one of them, [Produced] a producer of small records,
// [ClusterIdle] what they cost while nothing happens.
//
// The tests run only with KAGAMI_BENCH=1 (make bench): they take minutes and
// their figures mean nothing on a busy machine. The tables are
// Markdown on standard output, ready for docs/performance.md. The package never
// judges: it prints.
package bench
