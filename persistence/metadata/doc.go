// Package metadata keeps the cluster's metadata: topics, partitions, leaders
// and their epochs, configs, cluster mirrors, nodes, producer id blocks and who
// the controller is.
//
// The truth is the metadata log, Kafka-format batches of typed records
// (spec: records.md, Metadata log records); one batch is one change, whole or
// not at all. Its two main types are [Image], an immutable replay of that log up
// to an offset, and [Store], which appends to the log, replays it, tells
// subscribers what changed as a [Delta], and writes and loads snapshots.
//
// The controller is the only one that appends; everybody reads images. The
// package decides nothing: it never judges whether a change is allowed, and it
// never changes an image that somebody could have seen.
package metadata
