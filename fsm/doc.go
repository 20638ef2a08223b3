// Package fsm decides what happens to a mirror partition: pure cores without
// clock, network, goroutine or logger (spec: states.md).
//
// The truth is one table of data, [Rows]: sources, event, guard, target,
// effects and a sentence that says why. A transition that isn't in the table
// doesn't exist. Three cores stand on it:
//
//   - [Machine] asks looplab/fsm where an event leads and moves only when told;
//   - [Partition] is the life of one partition on its leader: inputs go in,
//     writes to persist and effects come out, in that order (persist, act, answer);
//   - [Shard] is what one coordinator shard knows: a fold over the records of its
//     __mirror_state partition. A plan of writes becomes records; committing the
//     plan applies these records, so live state and replay can't differ.
//
// The owner of a core (an actor, the simulation) calls it from one goroutine.
// Time and chance are arguments. Nothing here blocks, and nothing here is stored:
// the caller persists what it is told to and reports back.
package fsm
