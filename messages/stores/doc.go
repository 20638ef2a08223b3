// Package stores opens key and trust stores as Kafka's ssl.* settings name them: PEM, JKS
// and PKCS12. A [Store] says which; it is read each time it is asked and keeps nothing
// open. No password, key or text of a parser shows in an error.
package stores
