package sim

import (
	"fmt"
	"slices"
	"strings"

	"kagami/fsm"
	"kagami/messages"
)

type kind int8

const (
	kindData   kind = iota + 1
	kindTxn         // data of a transaction
	kindCommit      // ends one
	kindAbort       // ends one
	kindReset       // MIRROR_PID_RESET
)

// String is the kind as scripts show it.
func (k kind) String() string { return [...]string{"?", "data", "txn", "commit", "abort", "reset"}[k] }

// record is a batch of one record.
type record struct {
	epoch int32
	kind  kind
	id    uint32 // one of its own for each append by a client or a stop
	txn   uint32 // transaction that it belongs to or ends
}

// replica is a partition's log and journal (design.md, "Journal"). It is what
// every replica agrees on, so both nodes share it; who acts on it must hold the
// claim.
type replica struct {
	start int // log start: offset of log[0]
	log   []record

	claimed    int32
	node       int
	mode       messages.Mode
	modeOffset int // log end when the mode last changed
	modeEpoch  int32
	generation int64

	// cuts is what the journal counts, durable together with each cut.
	cuts  fsm.Cut
	acked map[uint32]int // client records acknowledged here and not lost since, by id
	tail  tail
	dirty bool // changed since the last check
}

// tail is what an unclean election lost: another replica may have it still.
type tail struct {
	offset int
	below  uint32 // record right below it
	log    []record
}

// lose removes the last n records, and remembers them.
func (r *replica) lose(n int) {
	t := tail{offset: r.end() - n, log: slices.Clone(r.log[len(r.log)-n:])}
	if t.offset > r.start {
		t.below = r.at(t.offset - 1).id
	}
	r.drop(t.offset)
	r.tail = t
}

// revive puts the tail back in place of what came since; false if there is none
// that fits.
func (r *replica) revive() bool {
	t := r.tail
	if len(t.log) == 0 || t.offset <= r.start || t.offset > r.end() || r.at(t.offset-1).id != t.below {
		return false
	}
	r.lose(r.end() - t.offset)
	r.log = append(r.log, t.log...)
	return true
}

func newReplica() *replica {
	return &replica{mode: messages.ModeWritable, claimed: messages.NoEpoch, node: -1, acked: map[uint32]int{}}
}

func (r *replica) end() int             { return r.start + len(r.log) }
func (r *replica) at(offset int) record { return r.log[offset-r.start] }

func (r *replica) claim(epoch int32, node int) bool {
	if epoch < r.claimed || epoch == r.claimed && node != r.node {
		return false
	}
	if epoch > r.claimed {
		r.generation++
	}
	r.claimed, r.node, r.dirty = epoch, node, true
	return true
}

// setMode returns the seal's offset. A repeated seal keeps the first one's.
func (r *replica) setMode(m messages.Mode) int {
	if m != r.mode {
		r.mode, r.modeOffset, r.modeEpoch = m, r.end(), r.claimed
	}
	r.generation++
	return r.modeOffset
}

func (r *replica) append(b record) int {
	r.log = append(r.log, b)
	r.dirty = true
	return r.end() - 1
}

// cut removes [offset, end) and counts it.
func (r *replica) cut(offset int) fsm.Cut {
	offset = max(offset, 0)
	c := fsm.Cut{From: int64(offset), To: int64(r.end())}
	if offset >= r.end() {
		return fsm.Cut{}
	}
	c.Records = int64(r.end() - max(offset, r.start))
	r.drop(offset)
	r.cuts = fsm.Cut{From: c.From, To: c.To, Records: r.cuts.Records + c.Records}
	r.generation++
	return c
}

// drop removes [offset, end) without a word.
func (r *replica) drop(offset int) {
	for i := max(offset, r.start); i < r.end(); i++ {
		delete(r.acked, r.at(i).id)
	}
	if offset < r.start {
		r.start, r.log = offset, nil
	} else {
		r.log = r.log[:offset-r.start]
	}
	r.modeOffset = min(r.modeOffset, offset)
	r.dirty = true
}

// restartAt begins anew at offset: retention on the source overtook the copy.
func (r *replica) restartAt(offset int) {
	r.drop(r.start)
	r.start, r.modeOffset = offset, offset
	r.generation++
}

func (r *replica) raiseStart(offset int) {
	offset = min(offset, r.end())
	if offset <= r.start {
		return
	}
	for i := r.start; i < offset; i++ {
		delete(r.acked, r.at(i).id)
	}
	r.log = slices.Clone(r.log[offset-r.start:])
	r.start, r.dirty = offset, true
}

// epochEnd is the largest epoch <= epoch in the log and where it ends.
func (r *replica) epochEnd(epoch int32) (e int32, end int64, found bool) {
	for i, b := range r.log {
		if b.epoch > epoch {
			break
		}
		e, end, found = b.epoch, int64(r.start+i+1), true
	}
	return e, end, found
}

func (r *replica) latestEpoch() int32 {
	if len(r.log) == 0 {
		return messages.NoEpoch
	}
	return r.log[len(r.log)-1].epoch
}

// openTransactions lists those without an end, oldest first. A reset doesn't end
// one: it may only come when none is open.
func (r *replica) openTransactions() (open []uint32) {
	for _, b := range r.log {
		switch b.kind {
		case kindTxn:
			if !slices.Contains(open, b.txn) {
				open = append(open, b.txn)
			}
		case kindCommit, kindAbort:
			open = slices.DeleteFunc(open, func(t uint32) bool { return t == b.txn })
		case kindData, kindReset:
		}
	}
	return open
}

// lastBelow is the epoch of the last record below the seal.
func (r *replica) lastBelow(seal int) int32 {
	if seal <= r.start || seal > r.end() {
		return messages.NoEpoch
	}
	return r.at(seal - 1).epoch
}

// resetEpoch is that of a reset at or above the seal which ends the log.
func (r *replica) resetEpoch(seal int) int32 {
	last := r.end() - 1
	if last >= max(seal, r.start) && len(r.log) > 0 && r.at(last).kind == kindReset {
		return r.at(last).epoch
	}
	return messages.NoEpoch
}

// String is the log as runs of equal epoch: "0-7@3 reset:8@14 9-10@14".
func (r *replica) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%d,%d)", r.start, r.end())
	for i := 0; i < len(r.log); {
		j := i + 1
		for j < len(r.log) && r.log[j].epoch == r.log[i].epoch && r.log[j].kind == r.log[i].kind {
			j++
		}
		b.WriteByte(' ')
		if k := r.log[i].kind; k != kindData {
			b.WriteString(k.String() + ":")
		}
		fmt.Fprintf(&b, "%d", r.start+i)
		if j > i+1 {
			fmt.Fprintf(&b, "-%d", r.start+j-1)
		}
		fmt.Fprintf(&b, "@%d", r.log[i].epoch)
		i = j
	}
	return b.String()
}
