// Package sim runs the pure cores of package fsm, partition and coordinator
// alike, and the decision core of package fetch, in a model world: two clusters
// that can mirror each other, each of two nodes, a controller, a coordinator with
// a log and two partitions, and a network that loses, repeats and reorders.
// Anything may crash between any two effects; leaders change, cleanly and not;
// retention runs; operators fail over and back.
//
// A run is a list of commands ("crash b0", "fail b0:align:t0"): text that
// decides everything, so a run can be repeated, shortened and kept as a script in
// testdata. A seed is the list that the generator makes of it. After every
// command all invariants are checked, and in the end the world is healed: every
// wish must come true and every copy must equal its source.
//
// Its main types are world, which owns everything, and replica, the journal rules
// of design.md. It never touches a clock, a disk or an actor. See:
//
//	world.go      what may happen next, and commands that make it happen
//	outside.go    commands of the outside world: operators, crashes, clients
//	cluster.go    one cluster: image, controller, what its log says
//	coordinator.go, node.go, jobs.go, fetcher.go    the shells around the cores
//	replica.go    a partition's log and journal
//	invariants.go what must never happen, by name
//	generate.go, heal.go, shrink.go    seeds, the good end, shorter seeds
package sim
