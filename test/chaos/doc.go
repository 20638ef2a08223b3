// Package chaos tries to break Kagami: seeded sequences of admin requests, crashes
// and network faults on two nodes that mirror each other in turn, and what machines
// do to a node (full disks, copied folders, garbage on the wire).
//
// Its main types are [Proxy], a network that misbehaves on demand, and the world of
// the tests. A world owns its nodes, proxies and writers. What was acknowledged is
// remembered by the writers alone: the package never asks the product whether the
// product is right.
package chaos
