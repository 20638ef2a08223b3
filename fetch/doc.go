// Package fetch is the source side of a mirror: everything that talks to the
// cluster that is copied from.
//
// Its two main types are [Source], the metadata connection of one mirror, and
// [Worker], which copies the partitions that one source broker leads: it sends
// raw Fetch requests on a connection of its own, checks the batches it gets,
// and hands the very bytes to a [Sink] per partition. Whatever changes what a
// partition is doing (an epoch above ours, a leader that moved, a failure) goes
// to the partition's owner as an [Event]; progress never does, it is read from
// a [Lag].
//
// A worker owns its fetch session, offsets and queues; logs belong to the
// sinks, and nothing here outlives them. The package acts as a consumer towards
// the source: it never joins groups, never writes, never asks
// OffsetForLeaderEpoch, never opens a compressed batch and never changes a byte
// of one. Decisions about one response are pure functions ([Decide], [Scan]).
package fetch
