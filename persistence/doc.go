// Package persistence keeps partition logs on local disk in Kafka's own
// formats: segments, offset, time and transaction indexes, producer snapshots,
// the leader epoch checkpoint and partition.metadata.
//
// Its two main types are [Log], the contract of one replica's log, and
// [Manager], which owns a data folder: it opens, creates, lists and deletes
// logs, holds the folder's lock, flushes, ages out, and bounds open files. The
// bytes on disk are the truth; whatever a Log holds in memory is rebuilt from
// them at open; a clean shutdown leaves a manifest that saves the look, and a
// crash costs a walk from the last point at which side files were synced (see
// recover.go for the order). [Memory] is the twin of the Manager without a disk;
// package faultfs is a disk that fails, package logtest the suite for all of
// them. Logs are changed only by the journal (package cluster), which
// decides what is valid; this package never assigns offsets and opens a compressed
// batch only to look up a time or to compact. Batches stay byte for byte what they
// were until a log is compacted (package compact, compaction.go): then whole segments
// are replaced by ones with fewer records at the same offsets.
package persistence
