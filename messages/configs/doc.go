// Package configs defines every configuration key that this cluster knows: of
// topics, of nodes (Kafka's "broker configs") and of cluster mirrors.
//
// Its two main types are [Def], one key with its type, default, check and
// documentation, and [Set], all keys of one kind of resource. A Set validates
// values and whole maps, reporting every fault, and works out the effective
// value of a key and where it comes from. The reference docs/configuration.md is
// generated from the definitions.
//
// The package owns no state: what is set on which resource stands in the
// metadata log, what a node's file says in that node's memory. It opens no
// files and never prints the value of a password.
package configs

//go:generate go test . -run TestReferenceIsUpToDate -update
