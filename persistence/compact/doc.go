// Package compact decides what a compacted log keeps, as Kafka's cleaner does
// (cleanup.policy=compact, KIP-98 for transactions, KIP-534 for delete horizons).
//
// Its two main types are [Map], which remembers in bounded memory the last offset of
// every key, and [Filter], which says of one batch after the other what stays of it.
// It reads no file and no clock and owns nothing but what it is given; package
// persistence walks the segments and puts the result in their place.
package compact
