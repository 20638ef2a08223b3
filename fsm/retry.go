package fsm

import (
	"fmt"
	"math"
	"time"
)

// RetryPolicy of FAILED partitions; the zero value means the defaults but for
// MaxAttempts, whose 0 means unlimited (OP-6).
type RetryPolicy struct {
	Initial     time.Duration // mirror.failed.retry.initial.backoff.ms; 0 = 1 s
	Max         time.Duration // mirror.failed.retry.max.backoff.ms; 0 = 300 s
	MaxAttempts int32         // mirror.failed.retry.max.attempts; 0 = unlimited
}

// DefaultRetryPolicy is 1 s, 300 s and 10 attempts.
func DefaultRetryPolicy() RetryPolicy {
	return RetryPolicy{Initial: time.Second, Max: 300 * time.Second, MaxAttempts: 10}
}

// Delay before retry number attempt (the counter of failures, 1 after the
// first): min(max, initial * 2^attempt) times a factor in [0.8, 1.2]. random is
// in [0, 1) and comes from the caller.
func (p RetryPolicy) Delay(attempt int16, random float64) time.Duration {
	initial, limit := p.Initial, p.Max
	if initial <= 0 {
		initial = time.Second
	}
	if limit <= 0 {
		limit = 300 * time.Second
	}
	d := float64(limit)
	if n := max(attempt, 1); n < 62 {
		d = math.Min(d, float64(initial)*math.Pow(2, float64(n)))
	}
	return time.Duration(d * (0.8 + 0.4*random))
}

// Permanent reports whether the counter has used up the attempts.
func (p RetryPolicy) Permanent(attempt int16) bool {
	return p.MaxAttempts > 0 && int32(attempt) >= p.MaxAttempts
}

// Constants of the epoch bumps (workflows.md, "Bumping leader epochs").
const (
	BumpThreshold int32 = 3  // a batch epoch this close below DLE asks for a bump
	BumpIncrement int32 = 10 // a bump aims at the source epoch plus this
)

// BumpTarget is the minLeaderEpoch to ask for: the source epoch plus 10. An
// overflow of int32 is an error, and the partition's failure.
func BumpTarget(sourceEpoch int32) (int32, error) {
	if sourceEpoch > math.MaxInt32-BumpIncrement-1 {
		return 0, fmt.Errorf("source leader epoch %d is too high to stay above it", sourceEpoch)
	}
	return sourceEpoch + BumpIncrement, nil
}

// Convergence is what LOG_TRUNCATION waits for, in numbers of replicas. "Cut"
// replicas have applied the truncation (OP-24).
type Convergence struct {
	Assigned    int  // replicas assigned to the partition
	InSync      int  // of them in the ISR
	InSyncCut   int  // of the ISR, cut
	AssignedCut int  // of the assigned, cut
	MinInSync   int  // min.insync.replicas
	Unclean     bool // mirror.support.unclean.leader.election of the topic
}

// Done reports whether the partition may go to MIRRORING. One replica converges
// at once; otherwise the ISR must have its minimum and be cut as a whole, and
// with unclean elections supported every assigned replica must be.
func (c Convergence) Done() bool {
	switch {
	case c.Assigned <= 1:
		return true
	case c.Unclean:
		return c.AssignedCut >= c.Assigned && c.InSync >= c.Assigned
	default:
		return c.InSync >= c.MinInSync && c.InSyncCut >= c.InSync
	}
}

// Cause says what kind of failure led to FAILED. It is kept in memory only.
type Cause int8

// The causes. CauseUnknown: FAILED was read from the store.
const (
	CauseUnknown       Cause = iota + 1
	CauseInternal            // retried by the policy
	CauseConnection          // lost connection, or no known source leader: OP-21
	CauseSourceChanged       // another cluster id (OP-26): no timer
	CauseHeld                // a fault only people can end (loop, recreated topic, too many partitions): no timer
)

// String is the cause in words.
func (c Cause) String() string {
	switch c {
	case CauseUnknown:
		return "unknown"
	case CauseInternal:
		return "internal"
	case CauseConnection:
		return "connection"
	case CauseSourceChanged:
		return "source changed"
	case CauseHeld:
		return "held"
	default:
		return fmt.Sprintf("Cause(%d)", int8(c))
	}
}

// Held reports a failure that has no retry timer.
func (c Cause) Held() bool { return c == CauseSourceChanged || c == CauseHeld }
