// Package audit replays what a cluster has stored of one mirror into a readable
// history: each transition of each partition with its cause, and who asked for
// what.
//
// Its two main types are [Event], one line of that history, and [Options] of
// [Run]. The states come from the mirror's partition of __mirror_state, by the
// coordinator's own decoder and fold ([actors.DecodeStateRecord], [fsm.Shard]),
// so a replay is the live state. Requests come from the metadata log
// ([metadata.Image.Replay]). Both logs are read from the files of a data folder, or
// from a running cluster, which hides the values of secrets; the output is the same.
//
// It owns no state, writes nothing to a folder or a cluster, and never shows the
// value of a setting that is secret or that it doesn't know.
package audit
