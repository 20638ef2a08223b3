// Package journal is the rules by which every replica of a partition orders and
// decides the changes that are proposed for it: the pure core of the journal of
// design.md. The same operations in the same order give the same answers on every
// node; no clock, no network, no disk and no goroutine is inside.
//
// Its two main types are [Operation], a proposed change, and [State], what the
// rules know of one partition. [Message] is how operations travel through a
// stream, [Proposer] what one node wants to put into it, and [Follower] what it
// gets out of it, in order. trim.go and restore.go say what a stream must keep and
// how a node goes on after a crash, a hole, or as a new replica. It owns nothing:
// package cluster keeps the states, carries messages and applies what is decided
// to logs.
package journal
