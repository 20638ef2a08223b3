// Package proto holds the messages that cross nodes by actor RPC: the envelope
// [ActorRequest] and [ActorResponse], and the queries inside it ([Query],
// [QueryResult]). They are generated from kagami_actor.proto by the program in gen,
// which needs no protoc. The package owns no state and only tells: [FollowGroups] and
// [ShareStates] alone have something changed, offsets of groups.
package proto

//go:generate go run ./gen
