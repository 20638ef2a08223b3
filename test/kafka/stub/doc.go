// Package stub is a scripted source cluster for tests: real listeners on
// 127.0.0.1 that speak the Kafka protocol and answer from tables which a test
// changes while it runs.
//
// Its two main types are [Cluster], one or several brokers with their topics,
// and [Broker], one listener. The tables live in [State]; [Cluster.Update]
// changes them and wakes waiting fetches. What a table can't express is
// scripted: [Cluster.Intercept] answers a request instead of the stub,
// [Cluster.Edit] changes the stub's answer. Every request is remembered
// ([Cluster.Seen]), so that a test can say what was never asked. It never
// writes to disk and never imports the code under test but messages.
package stub
