// Package e2e runs Kagami as users do: real processes on 127.0.0.1, real Kafka as
// the source, real clients. Its main types are [Node], one `kagami server`
// process, and [Side], a cluster of either kind as the comparison sees it. The
// files that aren't tests are the harness, which test/bench uses too.
//
// A Node owns its process and folder. The harness shares no code with the
// product's own comparison (kagami verify): it is the judge. It proves wiring,
// not logic: what a table test can show belongs there.
package e2e
