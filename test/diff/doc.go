// Package diff sends the same requests to real Apache Kafka and to a Kagami node and
// compares the answers field by field: over plain connections, in every version that
// both serve, bad requests included. Names, addresses, ids and times are left out of
// the comparison, texts count as there or not there.
//
// A script (scripts*.go) is a list of steps, one request each. What differs stands in
// one table (known.go) with its reason; docs/compatibility.md is made of it. A
// difference that isn't there fails the test, and so does one that isn't seen any more.
//
// Its main types are step and side. A side owns its connection; the brokers belong to
// the test. It never changes what it is sent.
package diff
