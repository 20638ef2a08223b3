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
// Several nodes find one another by [OpenServer] (routes between the servers
// inside the processes), [Form] (one cluster id, once), [OpenMembership] (who is
// alive) and [OpenStreams] (the journal's streams). They are closed in the opposite
// order, the server last: it hands the lead of its streams to others.
//
// Goroutines of these parts, each ended by its Close: the server has NATS's own;
// the bus one per served subject and one per running handler; the streams one
// that gives up publishes and one of nats.go that calls their ends; a follower
// ([Stream.Follow]) runs in its caller's; the membership one that beats and one of
// nats.go that hears; Form one that tells, which ends before it returns. Every
// connection inside the process has two more of nats.go. The watchers and
// callbacks of a part are called by its goroutines and must not block.
//
// The package never opens a record batch, never decides who leads (the metadata
// image says so) and never talks to a source cluster.
package cluster
