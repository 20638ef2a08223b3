// Package acl is the authorizer by ACLs, with the meaning that Kafka's StandardAuthorizer
// gives them. An [Authorizer] reads the entries of the metadata image and keeps an index
// of them until they change; it never changes an entry, and asks nobody.
package acl
