// Package actors holds the actors of a node: controller, coordinator shards,
// mirrors, partitions and fetchers, each a thin shell around a pure core, and
// their supervision.
//
// Its main types are [Node], which starts, supervises and stops the actors of a
// node, and the pure cores beside each shell. An actor's state is touched in
// Receive only; everything that waits (disk, journal, network) runs in workers
// that the actor starts, stops and waits for, and whose answers come back as
// messages. Nothing here is the truth: every actor can be rebuilt from the logs.
// Batches never pass through a mailbox.
package actors
