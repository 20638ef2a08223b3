// Package broker is Kagami's Kafka server: listeners, framing, limits, and one
// file per API key (NN_name.go).
//
// Its two main types are [Server], which owns listeners, connections and fetch
// sessions, and [Deps], the small interfaces through which it reaches
// everything else. The table of all keys and versions is in apis.go: what isn't
// in it is not served and not advertised.
//
// A connection has two goroutines: one reads frames, one answers them in the
// order they came in. Both end with the connection, and Close waits for them. A
// frame that is too big, cut off, or of an unknown key or version costs its own
// connection and a log line, never the process.
//
// The package owns no data: partitions, metadata and mirror states belong to
// others. Kafka error codes are made in one place, errorCode.
package broker
