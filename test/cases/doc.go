// Package cases runs whole Kagami nodes against a scripted source
// (test/kafka/stub) and shows the right values of the field cases (C..) and of
// the scenarios (D.., U..) that a real broker can't produce on demand. All of it
// is tests; its main type is world: one node, one scripted source, one mirror.
//
// Tests share one node process unless they restart it or need settings of their
// own; each has its own source, mirror and topic names, so they run in parallel.
// It waits by asking again until a condition holds, never for a fixed time.
package cases
