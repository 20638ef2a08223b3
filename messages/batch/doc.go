// Package batch knows the layout of Kafka's record batches (magic 2, KIP-98):
// it reads the fixed header, checks a batch's CRC, stamps offset and leader
// epoch in place, and builds the few control batches that Kagami writes itself.
//
// Its main types are [Header] and [Record]. It owns no state, never changes
// bytes unless a function's name says Set, and decompresses only in functions
// whose name says so.
package batch
