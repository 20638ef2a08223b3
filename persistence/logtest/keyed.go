package logtest

import (
	"fmt"
	"math/rand/v2"

	"kagami/messages/batch"
)

// Keyed makes the batches of a compacted topic: a few keys again and again,
// tombstones, transactions that end either way, idempotent producers, codecs.
type Keyed struct {
	Now int64 // time of the next record, ms

	rng   *rand.Rand
	epoch int32
	seq   map[int64]int32
	open  map[int64]bool
	count int
}

// NewKeyed starts a history.
func NewKeyed(rng *rand.Rand) *Keyed {
	return &Keyed{Now: 1000, rng: rng, seq: map[int64]int32{}, open: map[int64]bool{}}
}

// Batch makes one batch at end.
func (s *Keyed) Batch(end int64) []byte {
	if s.rng.IntN(15) == 0 {
		s.epoch++
	}
	if s.rng.IntN(12) == 0 {
		end += int64(s.rng.IntN(5))
	}
	s.Now += int64(s.rng.IntN(20))
	pid := int64(1 + s.rng.IntN(3))
	if kind := s.rng.IntN(12); kind < 4 && s.open[pid] {
		return s.end(pid, kind > 1, end)
	} else if kind == 4 && s.rng.IntN(8) == 0 {
		clear(s.seq)
		clear(s.open)
		return marker(batch.MirrorPIDReset(s.epoch, s.Now, "source"), end, s.epoch)
	}
	p := batch.Plain()
	p.BaseOffset, p.LeaderEpoch = end, s.epoch
	n := 1 + s.rng.IntN(4)
	switch s.rng.IntN(3) {
	case 0:
		p.Attributes |= batch.AttrTransactional
		s.open[pid] = true
		p.ProducerID, p.ProducerEpoch, p.BaseSequence = pid, 0, s.sequence(pid, n)
	case 1:
		pid += 10
		p.ProducerID, p.ProducerEpoch, p.BaseSequence = pid, 0, s.sequence(pid, n)
	}
	recs := make([]batch.Record, n)
	for i := range recs {
		s.count++
		recs[i] = batch.Record{Timestamp: s.Now - int64(s.rng.IntN(6)), Key: fmt.Appendf(nil, "key %d", s.rng.IntN(12)), Value: fmt.Appendf(nil, "value %d", s.count)}
		if s.rng.IntN(5) == 0 {
			recs[i].Value = nil
		}
		if s.rng.IntN(6) == 0 {
			recs[i].Headers = []batch.RecordHeader{{Key: "h", Value: []byte("x")}}
		}
	}
	return s.dress(batch.Append(nil, p, recs...))
}

// EndAll ends the transactions that are open.
func (s *Keyed) EndAll(end int64) (out []byte) {
	for pid := int64(1); pid < 4; pid++ {
		if s.open[pid] {
			out = append(out, s.end(pid, s.rng.IntN(2) == 0, end)...)
			end++
		}
	}
	return out
}

func (s *Keyed) end(pid int64, commit bool, end int64) []byte {
	s.open[pid] = false
	if commit {
		return marker(batch.CommitMarker(pid, 0, 1, s.Now), end, s.epoch)
	}
	return marker(batch.AbortMarker(pid, 0, 1, s.Now), end, s.epoch)
}

func (s *Keyed) sequence(pid int64, n int) int32 {
	at := s.seq[pid]
	s.seq[pid] += int32(n)
	return at
}

// dress compresses some batches and gives some the broker's time.
func (s *Keyed) dress(b []byte) []byte {
	if s.rng.IntN(6) == 0 {
		batch.SetLogAppendTime(b, s.Now)
	}
	codec := batch.Codec(max(s.rng.IntN(10)-5, 0))
	h, err := batch.ParseHeader(b)
	if err == nil && codec != batch.CodecNone {
		b, err = batch.Recompress(b, h, codec, batch.DefaultLevel(codec), 1<<20)
	}
	if err != nil {
		panic(err) // only what Append makes comes here
	}
	return b
}
