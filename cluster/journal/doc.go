// Package journal is the rules by which every replica of a partition orders and
// decides the changes that are proposed for it: the pure core of the journal of
// design.md. The same operations in the same order give the same answers on every
// node; no clock, no network, no disk and no goroutine is inside.
//
// Its two main types are [Operation], a proposed change, and [State], what the
// rules know of one partition. [Message] is how operations travel through a
// stream, and [Proposer] what one node wants to put into it. trim.go and restore.go
// say what a stream must keep and how a node goes on after a crash, a hole, or as a
// new replica. It owns nothing: package cluster keeps the states, carries messages
// and applies what is decided to logs.
//
// What whoever applies them has to keep; test/sim/journal has a fault for most:
//
//   - A checkpoint is durable before a cut takes bytes away, a round never writes over
//     a newer one, and a shard's record comes after the checkpoints it speaks of.
//   - An operation that is passed without a replica is remembered, durably with the
//     record. A replica without a checkpoint begins with NewState only if none was
//     (Newborn); one with a checkpoint follows only if none was since.
//   - A replica that is behind keeps every operation, whatever its own state says. It is
//     whole again, for whoever reads its checkpoint, when what was kept is applied and
//     flushed too.
//   - A baseline has no bytes: only its author's replica is whole behind it, and its
//     checkpoint is durable before the next operation.
//   - After a start, shards are followed, and replicas removed, when the metadata is as
//     new as it was: a beat through its shard has come back.
//   - Behind a hole nobody learns the verdict of what was proposed before it.
//   - An operation that its author gave up may still land. Nothing may depend on that it
//     doesn't but its generation and its base.
//   - A sole replica holds the trim.
package journal
