// Package simjournal runs the pure cores of package cluster/journal in a model
// world: three to five nodes, a metadata log and some partitions in ordered streams,
// disks, and a network that loses, repeats, delays and reorders. Nodes crash between
// any two effects, lose power, stop for long and go on as if nothing had happened;
// streams fail, are trimmed and put back to an older copy; leaders, controllers and
// replicas change. One seed, one goroutine. What the journal says is folded once more
// beside it, and after every step each replica is compared with that; in the end the
// world heals, and everybody must agree.
//
// Its main types are world, which owns everything, and node. It never touches a
// clock, a disk or a goroutine. What it leaves out: disks that fail without a crash,
// producers' sequence numbers, and the time that a beat may take.
package simjournal
