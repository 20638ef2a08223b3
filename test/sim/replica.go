package sim

import (
	"fmt"

	"kagami/messages"
)

type batchKind int8

const (
	kindMirror batchKind = iota + 1
	kindOpen             // mirrored, opens a transaction
	kindAbort
	kindReset
	kindClient
)

type modelBatch struct {
	epoch int32
	kind  batchKind
}

// modelReplica is a partition's log and journal. It is what every replica
// agrees on, so both nodes share it; who acts on it must hold the claim.
type modelReplica struct {
	batches []modelBatch
	claimed int32
	mode    messages.Mode
	seal    int // log end when the mode last changed
}

func newModelReplica() *modelReplica {
	return &modelReplica{mode: messages.ModeWritable, claimed: -1}
}

func (r *modelReplica) append(b modelBatch) { r.batches = append(r.batches, b) }

func (r *modelReplica) setMode(m messages.Mode) int {
	if m != r.mode {
		r.mode, r.seal = m, len(r.batches)
	}
	return r.seal
}

func (r *modelReplica) truncate(offset int) {
	if offset < len(r.batches) {
		r.batches = r.batches[:offset]
		r.seal = min(r.seal, offset)
	}
}

// epochEnd is the end of the largest epoch <= epoch, 0 if none.
func (r *modelReplica) epochEnd(epoch int32) int {
	end := 0
	for i, b := range r.batches {
		if b.epoch <= epoch {
			end = i + 1
		}
	}
	return end
}

func (r *modelReplica) openTransactions() (n int) {
	for _, b := range r.batches {
		switch b.kind {
		case kindOpen:
			n++
		case kindAbort:
			n--
		case kindReset, kindMirror, kindClient:
		}
	}
	return max(n, 0)
}

// lastBelow is the epoch of the last batch below the seal.
func (r *modelReplica) lastBelow(seal int) int32 {
	if seal == 0 || seal > len(r.batches) {
		return messages.NoEpoch
	}
	return r.batches[seal-1].epoch
}

// resetEpoch is that of a reset at or above the seal which ends the log.
func (r *modelReplica) resetEpoch(seal int) int32 {
	last := len(r.batches) - 1
	if last >= seal && r.batches[last].kind == kindReset {
		return r.batches[last].epoch
	}
	return messages.NoEpoch
}

// check: epochs never go down in a log, and none is above the leader's.
func (r *modelReplica) check() string {
	top := int32(-1)
	for i, b := range r.batches {
		if b.epoch < top {
			return fmt.Sprintf("epoch %d at %d after %d", b.epoch, i, top)
		}
		top = b.epoch
	}
	if top > r.claimed {
		return fmt.Sprintf("batch epoch %d above leader epoch %d", top, r.claimed)
	}
	return ""
}
