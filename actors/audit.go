package actors

import (
	"kagami/fsm"
	"kagami/messages/batch"
)

// DecodeStateRecord reads one record of __mirror_state with its headers, as a
// coordinator's replay does: for replays outside of one, such as an audit. Fold
// what it returns with [fsm.Shard.Apply]. An error is for a damaged record, and
// for one of a type or version that this build doesn't know.
func DecodeStateRecord(rec batch.Record) (fsm.Record, error) { return decodeStateRecord(rec) }
