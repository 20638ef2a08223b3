package cluster

import (
	"hash/fnv"
	"slices"
	"sync"

	"kagami/cluster/journal"
	"kagami/messages"
	"kagami/messages/batch"
)

// tortureOracle applies what the streams got.
type tortureOracle struct {
	mu       sync.Mutex
	messages int
	logs     map[messages.PartitionKey]*oracleLog
}

type oracleLog struct {
	states   []journal.State // after each operation
	ops      []oracleOp
	batches  []oracleBatch
	accepted map[uint64]bool // appends, by hash of base and bytes
}

type oracleBatch struct {
	base, last int64
	bytes      []byte
}

func newTortureOracle() *tortureOracle {
	return &tortureOracle{logs: map[messages.PartitionKey]*oracleLog{}}
}

func appendHash(b []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(b)
	return h.Sum64()
}

// apply takes one message of a stream.
func (o *tortureOracle) apply(x *torture, sequence uint64, payload []byte) {
	m, err := journal.Parse(payload)
	if err != nil {
		x.errorf("message %d: %v", sequence, err)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.messages++
	if _, ok := journal.MarkOf(m); ok {
		return
	}
	for i, e := range m.Entries {
		l := o.logs[e.Key]
		if l == nil {
			l = &oracleLog{states: []journal.State{journal.NewState()}, accepted: map[uint64]bool{}}
			o.logs[e.Key] = l
		}
		next, verdict := journal.Decide(l.states[len(l.states)-1], journal.At(sequence, i), e.Op)
		l.states = append(l.states, next)
		op := oracleOp{position: journal.At(sequence, i), author: m.Author.Node, op: e.Op, verdict: verdict}
		op.op.Batches = nil
		l.ops = append(l.ops, op)
		if verdict != journal.Accepted {
			continue
		}
		switch e.Op.Kind {
		case journal.OpAppend:
			l.accepted[appendHash(e.Op.Batches)] = true
			err := eachBatch(e.Op.Batches, func(h batch.Header, b []byte) error {
				l.batches = append(l.batches, oracleBatch{h.BaseOffset, h.LastOffset(), b})
				return batch.CheckCRC(b)
			})
			if err != nil {
				x.errorf("append to %s: %v", e.Key, err)
			}
		case journal.OpTruncate:
			l.batches = slices.DeleteFunc(l.batches, func(b oracleBatch) bool { return b.last >= next.LogEnd })
		case journal.OpRestartAt:
			l.batches = nil
		}
	}
}

func (o *tortureOracle) now(key messages.PartitionKey) journal.State {
	return o.at(key, 1<<62)
}

func (o *tortureOracle) at(key messages.PartitionKey, position int64) journal.State {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.logs[key]
	if l == nil {
		return journal.NewState()
	}
	i, found := slices.BinarySearchFunc(l.states, position, func(s journal.State, p int64) int { return int(s.Sequence - p) })
	if !found {
		i--
	}
	return l.states[i]
}

func (o *tortureOracle) bytes(key messages.PartitionKey, start, end int64) (out []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.logs[key]; l != nil {
		for _, b := range l.batches {
			if b.last >= start && b.base < end {
				out = append(out, b.bytes...)
			}
		}
	}
	return out
}

// acknowledged checks that an append which was answered is in the journal.
func (x *torture) acknowledged(key messages.PartitionKey, b []byte) {
	x.oracle.mu.Lock()
	l := x.oracle.logs[key]
	ok := l != nil && l.accepted[appendHash(b)]
	x.oracle.mu.Unlock()
	x.acked.Add(1)
	if !ok {
		x.errorf("append to %s was acknowledged and isn't in the journal", key)
	}
}
