package fetch

import (
	"fmt"

	"kagami/messages"
)

// epochNear is the distance to the local leader epoch at which a bump is
// prepared (workflows.md "Bumping leader epochs").
const epochNear = 3

// Reply is one partition of a Fetch response.
type Reply struct {
	Code          int16
	HighWatermark int64
	LogStart      int64 // NoOffset if the source gave none (below v5)
	Batches       []byte
	// DivergingEpoch >= 0: the source's log differs; that epoch ends at DivergingEnd.
	DivergingEpoch int32
	DivergingEnd   int64
	// Leader as the answer names it (v16+); ID is NoNode where it doesn't.
	Leader Leader
}

// View is what the worker knows of the partition when it looks at a Reply.
type View struct {
	TopicPartition messages.TopicPartition
	FetchOffset    int64 // that the request asked for
	SourceEpoch    int32 // SLE
	SourceBroker   messages.NodeID
	Local          LocalState
	BatchBytesMax  int
	// Unidentified: the request named the topic by name only, so another topic of
	// that name could answer; then an epoch that goes back is refused.
	Unidentified bool
}

// EpochEnds is [SinkState.EpochEndOffset].
type EpochEnds func(epoch int32) (e int32, end int64, found bool)

// Verdict is the kind of a Decision.
type Verdict int8

// The verdicts, in the order of fetcher.md "Processing a partition response".
const (
	// VerdictDrop: the answer is for another offset than our log end (step 1).
	VerdictDrop Verdict = iota + 1
	// VerdictCode: an error code; look it up in the table (step 2).
	VerdictCode
	// VerdictNewEpoch: fenced, the leader is the same: take its epoch and go on.
	VerdictNewEpoch
	// VerdictMoved: another broker leads the partition.
	VerdictMoved
	// VerdictLeaderUnknown: this broker doesn't lead it and names no other.
	VerdictLeaderUnknown
	// VerdictTruncate: cut the log to Offset and fetch again (step 3).
	VerdictTruncate
	// VerdictAboveDLE: refuse all (step 5a).
	VerdictAboveDLE
	// VerdictAboveSLE: refuse all (step 5b).
	VerdictAboveSLE
	// VerdictAppend: append Scan.Good, may be empty; then fail if Fail is set.
	VerdictAppend
)

// Decision says what to do with a Reply. It is a value; nothing has happened.
type Decision struct {
	Verdict  Verdict
	Offset   int64 // of VerdictTruncate
	Reason   string
	Scan     Scanned
	Near     bool  // step 5c
	Fail     error // after the append: the partition fails
	LogStart int64 // step 8: raise the local log start to this after the append; NoOffset = leave
	// Restart: before the append, begin the empty local log again at this lower
	// offset; NoOffset = don't.
	Restart int64
}

// Decide is steps 1 to 8 of fetcher.md "Processing a partition response" as a
// pure function: the strict order is that of the code below.
func Decide(v View, r Reply, ends EpochEnds) Decision {
	if v.FetchOffset != v.Local.End { // 1
		return Decision{Verdict: VerdictDrop, Reason: fmt.Sprintf("fetched at %d, log end is %d", v.FetchOffset, v.Local.End)}
	}
	if r.Code != 0 { // 2
		return decideCode(v, r)
	}
	if r.DivergingEpoch >= 0 || r.DivergingEnd >= 0 { // 3
		return decideDiverging(v, r, ends)
	}
	s := Scan(v.TopicPartition, r.Batches, v.FetchOffset, v.BatchBytesMax) // 4
	d := Decision{Verdict: VerdictAppend, Scan: s, LogStart: messages.NoOffset, Restart: messages.NoOffset}
	switch { // 5
	case s.MaxEpoch > v.Local.LeaderEpoch:
		d.Verdict = VerdictAboveDLE
		return d
	case v.SourceEpoch >= 0 && s.MaxEpoch > v.SourceEpoch:
		d.Verdict = VerdictAboveSLE
		return d
	case v.Unidentified && s.Batches > 0 && s.MinEpoch >= 0 && s.MinEpoch < v.Local.LatestEpoch:
		// A log's epochs never go down. Without topic ids this is how a topic that
		// was made again under the same name shows (C11, C41).
		d.Scan = nothing(v.FetchOffset)
		d.Fail = fmt.Errorf("%w: %s: batch epoch went back from %d to %d at offset %d",
			ErrTopicRecreated, v.TopicPartition, v.Local.LatestEpoch, s.MinEpoch, v.FetchOffset)
		return d
	}
	d.Near = s.Batches > 0 && s.MaxEpoch > v.Local.LeaderEpoch-epochNear
	if s.Err != nil {
		d.Fail = s.Err
	}
	if s.Below >= 0 {
		// The log start lies within the first batch. A follower of Kafka's begins its
		// empty log again at the batch's base and keeps the log start
		// (Partition.appendRecordsToFollowerOrFutureReplica); so do we.
		if v.Local.LogStart != v.Local.End {
			d.Scan = nothing(v.FetchOffset)
			d.Fail = &CorruptError{TopicPartition: v.TopicPartition, Offset: s.Below, Reason: fmt.Sprintf("first batch begins below log end %d", v.Local.End)}
			return d
		}
		d.Restart, d.LogStart = s.Below, v.Local.LogStart
	}
	if r.LogStart > v.Local.LogStart { // 8; the cap at the high watermark follows the append
		d.LogStart = r.LogStart
	}
	return d
}

func decideCode(v View, r Reply) Decision {
	d := Decision{Verdict: VerdictCode, Offset: v.FetchOffset}
	if rowFor(r.Code).Action != ActionLeader {
		return d
	}
	switch {
	case r.Leader.ID < 0:
		d.Verdict = VerdictLeaderUnknown
	case r.Leader.ID == v.SourceBroker && r.Leader.Epoch > v.SourceEpoch:
		d.Verdict = VerdictNewEpoch
	case r.Leader.ID == v.SourceBroker:
		// It sends us to itself with nothing new: its own view is settling.
		d.Verdict = VerdictCode
	default:
		d.Verdict = VerdictMoved
	}
	return d
}

// decideDiverging cuts to the smaller of the two ends of the epoch that the
// source named: its own, and ours of the largest epoch that is not newer. Using
// only the source's end leaves records behind after two fast elections (KIP-279).
// No epoch of ours is that old: nothing we have can be right.
func decideDiverging(v View, r Reply, ends EpochEnds) Decision {
	d := Decision{Verdict: VerdictTruncate, Offset: v.Local.LogStart}
	e, end, found := ends(r.DivergingEpoch)
	if found {
		d.Offset = min(end, r.DivergingEnd)
		d.Reason = fmt.Sprintf("source log diverges: its epoch %d ends at %d, ours of epoch %d at %d", r.DivergingEpoch, r.DivergingEnd, e, end)
	} else {
		d.Reason = fmt.Sprintf("source log diverges: its epoch %d ends at %d, we have no epoch that old", r.DivergingEpoch, r.DivergingEnd)
	}
	d.Offset = max(0, min(d.Offset, v.Local.End))
	return d
}
