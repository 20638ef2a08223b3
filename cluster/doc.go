// Package cluster makes nodes one cluster: it decides and orders every change
// to a partition, keeps this node's copy of each partition in step with the
// metadata image, and carries messages between nodes.
//
// Its two main types are [Replica], this node's copy of one partition and the
// only way to change it, and [Bus], request and reply over an embedded NATS
// server. [Replicas] owns all replicas of a node; a Replica owns its log and
// its journal state, which the checkpoint file ([Checkpoints]) survives a crash
// with. The rules of the journal are a pure function in rules.go.
//
// The package never opens a record batch, never decides who leads (the metadata
// image says so) and never talks to a source cluster.
package cluster
