// Package logtest is the conformance suite of [persistence.Log]: one set of
// tests that every implementation passes, on every file system.
//
// Its main entry points are [Run], the whole suite, and [Compare], which holds
// two logs against each other by every question that the contract has. The
// package owns no state; logs come from the [Harness] that a test hands in.
package logtest
