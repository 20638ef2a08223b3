// Package sasl is the server side of Kafka's SASL mechanisms: PLAIN, SCRAM-SHA-256,
// SCRAM-SHA-512 and OAUTHBEARER. A [Mechanism] starts an [Exchange] for each connection,
// which takes the client's tokens one by one; where users come from is the mechanism's
// owner's business. Errors that wrap ErrRefused may be told to the client: they don't say
// whether a user exists, and never hold a secret.
package sasl
