package fetch

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"kagami/messages"
)

// cutOffsMax is how often in a row a source may send nothing but a cut-off batch
// although we ask for its full size, before its length is taken for damage.
const cutOffsMax = 3

// idCheckEvery is after how many answers of an unknown topic in a row its id is
// asked for again: it may be back as another one by then.
const idCheckEvery = 4

// step does what one answer asks for. It runs in an appender, one at a time for
// a partition.
func (w *Worker) step(ctx context.Context, p *partition, it item) {
	local := p.sink.State()
	view := View{
		TopicPartition: p.tp, FetchOffset: it.offset, SourceEpoch: p.sourceEpoch(), SourceBroker: w.cfg.SourceBroker,
		Local: local, BatchBytesMax: frameBytesMax, Unidentified: it.version <= fetchVersionByName,
	}
	d := Decide(view, it.reply, p.sink.EpochEndOffset)
	switch d.Verdict {
	case VerdictDrop:
		p.rewind()
	case VerdictCode:
		w.errorCode(ctx, p, view, it)
	case VerdictNewEpoch:
		w.log.Info("source leader epoch rose, leader unchanged", p.field(), zap.Int32("epoch", it.reply.Leader.Epoch))
		p.setSourceEpoch(it.reply.Leader.Epoch)
		p.rewind()
		if it.reply.Leader.Epoch > local.LeaderEpoch-epochNear {
			p.notify(NearEpoch{BatchEpoch: messages.NoEpoch, SourceEpoch: it.reply.Leader.Epoch, LeaderEpoch: local.LeaderEpoch})
		}
	case VerdictMoved:
		w.depart(p, SourceLeaderMoved{Leader: it.reply.Leader})
	case VerdictLeaderUnknown:
		w.depart(p, LeaderUnknown{Err: codeError("Fetch of "+p.tp.String(), it.reply.Code, nil)})
	case VerdictTruncate:
		w.diverged(ctx, p, local, d)
	case VerdictAboveDLE:
		w.depart(p, BatchEpochAboveDLE{BatchEpoch: d.Scan.MaxEpoch, LeaderEpoch: local.LeaderEpoch})
	case VerdictAboveSLE:
		w.depart(p, BatchEpochAboveSLE{BatchEpoch: d.Scan.MaxEpoch, SourceEpoch: view.SourceEpoch})
	case VerdictAppend:
		w.append(ctx, p, it, d)
	}
}

// append is steps 6 to 11.
func (w *Worker) append(ctx context.Context, p *partition, it item, d Decision) {
	p.checkID = p.takeUnsure() || p.checkID
	takes := d.Scan.Batches > 0 || d.Restart >= 0 || d.LogStart > p.sink.State().LogStart
	if takes && p.checkID && it.version <= fetchVersionByName {
		if !w.confirmTopic(ctx, p) {
			return
		}
		p.checkID = false
	}
	at := it.offset
	if d.Restart >= 0 {
		at = d.Restart
		if _, err := p.sink.RestartAt(ctx, at, fmt.Sprintf("log start %d lies within a batch", it.offset)); err != nil {
			w.sinkFailed(ctx, p, fmt.Errorf("restart %s at %d: %w", p.tp, at, err))
			return
		}
	}
	end := it.offset
	if d.Scan.Batches > 0 {
		got, err := p.sink.AppendMirror(ctx, at, d.Scan.Good)
		if err != nil {
			if end := p.sink.State().End; end != at {
				// Somebody else moved the log end meanwhile: step 1, only later.
				w.log.Debug("log end moved under an append, dropped", p.field(), zap.Int64(messages.FieldOffset, end), zap.Error(err))
				p.rewind()
				return
			}
			w.sinkFailed(ctx, p, fmt.Errorf("append %s at %d: %w", p.tp, at, err))
			return
		}
		end = got.End
		p.lag.appended(got.MaxTimestamp, len(d.Scan.Good))
		p.cutOffs, p.rangeTries = 0, 0
		p.setMaxSize(p.baseBytes)
	}
	if err := w.raiseLogStart(ctx, p, d.LogStart); err != nil {
		w.sinkFailed(ctx, p, fmt.Errorf("raise log start of %s to %d: %w", p.tp, d.LogStart, err))
		return
	}
	if d.Restart >= 0 {
		p.rewind() // nothing was fetched ahead on an answer like that
	}
	p.lag.good(w.clock.Now(), it.reply.HighWatermark, it.reply.LogStart, end)
	p.faults, p.refreshSent = 0, false
	if d.Near && d.Scan.MaxEpoch != p.nearEpoch {
		p.nearEpoch = d.Scan.MaxEpoch
		p.notify(NearEpoch{BatchEpoch: d.Scan.MaxEpoch, SourceEpoch: messages.NoEpoch, LeaderEpoch: p.sink.State().LeaderEpoch})
	}
	if d.Fail != nil {
		w.fail(p, d.Fail)
		return
	}
	if !p.succeeded {
		p.succeeded = true
		p.notify(FirstSuccess{})
	}
	if d.Scan.Batches == 0 && d.Scan.Partial != 0 {
		w.cutOff(p, it, d.Scan)
	}
}

// raiseLogStart is step 8: follow the source's log start, at most to the local
// high watermark. What the cap held back is made up for by a later answer.
func (w *Worker) raiseLogStart(ctx context.Context, p *partition, to int64) error {
	if to < 0 {
		return nil
	}
	local := p.sink.State()
	to = min(to, local.HighWatermark)
	if to <= local.LogStart {
		return nil
	}
	return p.sink.RaiseLogStart(ctx, to)
}

// cutOff handles an answer that holds nothing but a cut-off batch. That is no
// error; but a source sends the first batch whole, so either it wants to be
// asked for more bytes, or the length is damaged.
func (w *Worker) cutOff(p *partition, it item, s Scanned) {
	until := w.clock.Now().Add(w.cfg.Backoff)
	if it.reply.HighWatermark > it.offset {
		p.cutOffs++
		if s.Partial > 0 && p.raiseMaxSize(int32(s.Partial)) {
			until = w.clock.Now() // ask again at once, for more
		}
	}
	if p.cutOffs >= cutOffsMax {
		w.fail(p, &CorruptError{
			TopicPartition: p.tp, Offset: it.offset,
			Reason: fmt.Sprintf("batch says it has %d bytes, but the source sent %d in %d answers", s.Partial, len(it.reply.Batches), p.cutOffs),
		})
		return
	}
	p.backoff(until)
	p.rewind()
}

// sinkFailed sorts the local log's refusals: those that say that the partition
// changed hands drop the data; the owner is about to act on it anyway.
func (w *Worker) sinkFailed(ctx context.Context, p *partition, err error) {
	switch {
	case ctx.Err() != nil:
		return
	case errors.Is(err, messages.ErrNotLeader), errors.Is(err, messages.ErrFencedLeaderEpoch), errors.Is(err, messages.ErrReadOnlyTopic):
		w.log.Debug("local log refused a step, dropped", p.field(), zap.Error(err))
		p.lag.fault(w.clock.Now(), err)
		p.backoff(w.clock.Now().Add(w.cfg.Backoff))
		p.rewind()
	default:
		w.fail(p, err)
	}
}

// fail ends the partition here.
func (w *Worker) fail(p *partition, err error) {
	w.log.Error("partition failed", p.field(), zap.Error(err))
	w.depart(p, Failed{Err: err})
	p.lag.fault(w.clock.Now(), err)
}

// diverged is step 3. Nothing is cut before the topic is known to be the same; a
// source without topic ids can't tell, so there a cut of everything is refused.
func (w *Worker) diverged(ctx context.Context, p *partition, local LocalState, d Decision) {
	if !w.confirmTopic(ctx, p) {
		return
	}
	if p.id.IsZero() && d.Offset <= local.LogStart {
		w.fail(p, fmt.Errorf("%w: %s: %s, and the source has no topic ids to tell a new topic from lost data", ErrSourceBehind, p.tp, d.Reason))
		return
	}
	w.truncate(ctx, p, d.Offset, d.Reason)
}

// truncate is step 3, and the source's end below ours.
func (w *Worker) truncate(ctx context.Context, p *partition, offset int64, reason string) {
	cut, err := p.sink.Truncate(ctx, offset, reason)
	if err != nil {
		w.sinkFailed(ctx, p, fmt.Errorf("truncate %s to %d: %w", p.tp, offset, err))
		return
	}
	w.log.Warn("local log truncated", p.field(), zap.String("reason", reason), zap.Int64("from", cut.From), zap.Int64("to", cut.To), zap.Int64("records", cut.Records))
	if cut.To > cut.From {
		p.notify(Truncated{Cut: cut, Reason: reason})
	} else {
		// The source says that we differ, and there is nothing to cut: don't spin.
		p.backoff(w.clock.Now().Add(w.cfg.Backoff))
	}
	p.rewind()
}

// errorCode does what the error table says.
func (w *Worker) errorCode(ctx context.Context, p *partition, v View, it item) {
	row := rowFor(it.reply.Code)
	err := codeError("Fetch of "+p.tp.String(), it.reply.Code, nil)
	now := w.clock.Now()
	p.lag.fault(now, err)
	p.faults++
	level := row.Level
	if p.faults > 1 && level > zapcore.DebugLevel {
		level = zapcore.DebugLevel // said once; it goes on
	}
	w.log.Log(level, "source answered a partition with an error", p.field(), zap.String("name", row.Name), zap.Int16("code", it.reply.Code), zap.Int64(messages.FieldOffset, it.offset))
	p.checkID = p.checkID || row.Action == ActionRefresh
	if row.CheckID {
		if (p.faults-1)%idCheckEvery == 0 && !w.sameTopic(ctx, p) {
			return
		}
	}
	switch row.Action {
	case ActionOutOfRange:
		w.outOfRange(ctx, p, v)
		return
	case ActionRefresh:
		if !p.refreshSent {
			p.refreshSent = true
			p.notify(RefreshWanted{Err: err})
		}
	case ActionBackoff, ActionLeader, ActionNewSession:
	}
	p.backoff(w.clock.Now().Add(w.cfg.Backoff))
	p.rewind()
}

func (p *partition) field() zap.Field { return zap.Stringer("topic_partition", p.tp) }

func (p *partition) setSourceEpoch(epoch int32) {
	p.mu.Lock()
	p.sle = epoch
	p.mu.Unlock()
}

func (p *partition) setMaxSize(n int32) {
	p.mu.Lock()
	p.maxSize = n
	p.mu.Unlock()
}

// raiseMaxSize makes the next request ask for n bytes; false if it did already.
func (p *partition) raiseMaxSize(n int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n <= p.maxSize {
		return false
	}
	p.maxSize = n
	return true
}
