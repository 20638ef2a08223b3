package persistence

import (
	"kagami/messages"
	"kagami/messages/txns"
)

// ReplicaState is a snapshot of a replica as its leader sees it.
type ReplicaState struct {
	LeaderEpoch   int32 // claimed leader epoch (DLE)
	Generation    int64 // journal sequence of the last valid Claim, Truncate, RestartAt, Mode or Baseline
	Mode          messages.Mode
	LogStart      int64
	HighWatermark int64
	End           int64
	ReadOnly      bool // client writes are refused: a mirror topic that isn't STOPPED
}

// ClientAppend says how a producer's batches are to be stored.
type ClientAppend struct {
	// LeaderEpoch that the caller believes in; NoEpoch = don't check.
	LeaderEpoch int32
	// LogAppendTime stamps batches with NowMillis (message.timestamp.type).
	LogAppendTime bool
	NowMillis     int64
	// Txn is the guard under which the coordinator was asked about a transactional
	// batch; nil where the transaction is open in the partition.
	Txn *TxnGuard
}

// TxnGuard is held while the first batch of a transaction is on its way into a
// partition. It belongs to the replica.
type TxnGuard struct {
	Epoch          int16
	LowestSequence int32 // of the batches that wait
	Version        txns.Version
}
