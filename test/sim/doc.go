// Package sim runs the pure cores of package fsm, partition and coordinator
// alike, in a model world: two nodes, a controller, a coordinator with a log, a
// source, and a network that loses, repeats and reorders. Anything may crash
// between any two effects. One seed, one goroutine; all invariants are checked
// after every step, and in the end the world is healed and every wish must come
// true.
//
// Its main types are world, which owns everything, and modelReplica, the journal
// rules of design.md in forty lines. It never touches a clock, a disk or an actor.
package sim
