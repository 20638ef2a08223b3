// Package certs makes the TLS side of listeners from what Kafka's ssl.* settings name. A
// [Server] gives the settings of each handshake and reads files again when they have
// changed; [Rules] turn the subject of a client's certificate into a principal
// (ssl.principal.mapping.rules). No password or key shows in an error.
package certs
