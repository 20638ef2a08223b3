// Package compare reads two clusters through the Kafka protocol and says where
// a mirrored topic differs: batch by batch, or record by record where a topic is
// compacted (OP-40).
//
// Its main types are [Side], a connection to one cluster, and [Row], the verdict
// on one partition. It owns no state, changes nothing on either cluster, and
// holds at most one fetch answer of each side in memory (for compacted topics
// also a hash of every key).
package compare
