package fetch

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"kagami/messages"
)

// rangeTriesMax is how often the source may refuse an offset that its own log
// contains before the partition fails.
const rangeTriesMax = 3

// Timestamps of ListOffsets that stand for the ends of a log.
const (
	timestampLatest   int64 = -1
	timestampEarliest int64 = -2
)

// outOfRange is workflows.md "Retention on the source". Nothing is cut before
// the topic is known to be the same one: a topic that was made again under its
// name ends below our log end as well (C11).
func (w *Worker) outOfRange(ctx context.Context, p *partition, v View) {
	start, end, err := w.sourceRange(ctx, p)
	if err != nil {
		w.later(ctx, p, err)
		return
	}
	if !w.confirmTopic(ctx, p) {
		return
	}
	switch offset := v.FetchOffset; {
	case offset < start:
		w.restart(ctx, p, v, start)
	case offset > end && p.id.IsZero():
		w.fail(p, fmt.Errorf("%w: %s ends at %d on the source, at %d here, and the source has no topic ids to tell a new topic from lost data",
			ErrSourceBehind, p.tp, end, offset))
	case offset > end:
		w.truncate(ctx, p, end, fmt.Sprintf("source log ends at %d, below our %d: the source lost data", end, offset))
	default:
		p.rangeTries++
		if p.rangeTries >= rangeTriesMax {
			w.fail(p, fmt.Errorf("%w: %s at %d, source has %d to %d", ErrSourceRange, p.tp, offset, start, end))
			return
		}
		w.later(ctx, p, fmt.Errorf("%w: %s at %d, source has %d to %d", ErrSourceRange, p.tp, offset, start, end))
	}
}

// restart: retention on the source overtook the copy (C12).
func (w *Worker) restart(ctx context.Context, p *partition, v View, start int64) {
	reason := fmt.Sprintf("source log starts at %d, above our end %d", start, v.FetchOffset)
	cut, err := p.sink.RestartAt(ctx, start, reason)
	if err != nil {
		w.sinkFailed(ctx, p, fmt.Errorf("restart %s at %d: %w", p.tp, start, err))
		return
	}
	fresh := v.Local.End == 0 && v.Local.LogStart == 0
	if fresh {
		w.log.Info("copy begins at the source's log start", p.field(), zap.Int64(messages.FieldOffset, start))
	} else {
		w.log.Warn("offsets were never copied: the source removed them first", p.field(), zap.Int64("from", v.FetchOffset), zap.Int64("to", start))
	}
	p.notify(GapSkipped{From: v.FetchOffset, To: start, Fresh: fresh, Cut: cut})
	p.rewind()
}

// later backs off after a step that couldn't be taken now.
func (w *Worker) later(ctx context.Context, p *partition, err error) {
	if ctx.Err() != nil {
		return
	}
	now := w.clock.Now()
	p.lag.fault(now, err)
	p.backoff(now.Add(w.cfg.Backoff))
	p.rewind()
}

// sourceRange asks the source for the ends of the partition's log.
func (w *Worker) sourceRange(ctx context.Context, p *partition) (start, end int64, err error) {
	ctx, cancel := p.abortable(ctx)
	defer cancel()
	if start, err = w.listOffset(ctx, p, timestampEarliest); err != nil {
		return 0, 0, err
	}
	end, err = w.listOffset(ctx, p, timestampLatest)
	return start, end, err
}

func (w *Worker) listOffset(ctx context.Context, p *partition, timestamp int64) (int64, error) {
	kresp, err := w.client.SeedBrokers()[0].Request(ctx, listOffsetsRequest(p.tp, timestamp, p.sourceEpoch()))
	if err != nil {
		return 0, &ConnectionError{Address: w.cfg.Address, Request: "ListOffsets", Err: err}
	}
	return listedOffset(kresp, p.tp)
}

func listOffsetsRequest(tp messages.TopicPartition, timestamp int64, epoch int32) *kmsg.ListOffsetsRequest {
	kp := kmsg.NewListOffsetsRequestTopicPartition()
	kp.Partition, kp.Timestamp, kp.CurrentLeaderEpoch, kp.MaxNumOffsets = tp.Partition, timestamp, epoch, 1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = tp.Topic
	t.Partitions = append(t.Partitions, kp)
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.Topics = append(req.Topics, t)
	return req
}

func listedOffset(kresp kmsg.Response, tp messages.TopicPartition) (int64, error) {
	resp, ok := kresp.(*kmsg.ListOffsetsResponse)
	if !ok {
		return 0, fmt.Errorf("list offsets of %s: answer of another kind", tp)
	}
	for _, t := range resp.Topics {
		for _, kp := range t.Partitions {
			if t.Topic != tp.Topic || kp.Partition != tp.Partition {
				continue
			}
			if kp.ErrorCode != 0 {
				return 0, codeError("ListOffsets of "+tp.String(), kp.ErrorCode, nil)
			}
			if kp.Offset < 0 && len(kp.OldStyleOffsets) > 0 {
				return kp.OldStyleOffsets[0], nil
			}
			return kp.Offset, nil
		}
	}
	return 0, fmt.Errorf("list offsets of %s: partition is missing in the answer", tp)
}

// sameTopic finds out whether the topic on the source became another one. It
// answers true as well when the source has no ids or doesn't know the topic
// now: the refresh decides whether it is gone. On false the partition has
// failed or backs off.
func (w *Worker) sameTopic(ctx context.Context, p *partition) bool {
	return w.checkTopic(ctx, p, false)
}

// confirmTopic is sameTopic before something is cut or taken on the strength of
// a topic's name: a topic that the source doesn't know now isn't good enough.
// (A topic that is being made again answers with a diverging epoch that ends at
// 0 before its metadata is there; seen with 3.0.)
func (w *Worker) confirmTopic(ctx context.Context, p *partition) bool {
	return w.checkTopic(ctx, p, true)
}

func (w *Worker) checkTopic(ctx context.Context, p *partition, strict bool) bool {
	if p.id.IsZero() && w.cfg.ClusterID == "" {
		return true
	}
	id, err := w.topicID(ctx, p)
	switch {
	case err == nil && p.id.IsZero():
		return true
	case err == nil && id.IsZero() && strict:
		w.later(ctx, p, codeError("Metadata of "+p.tp.Topic, codeUnknownTopic, nil))
		return false
	case err != nil:
		w.later(ctx, p, err)
		return false
	case id.IsZero() || id == p.id:
		return true
	}
	w.fail(p, fmt.Errorf("%w: topic %s has id %s there, the copy has %s; delete the topic here to copy the new one", ErrTopicRecreated, p.tp.Topic, id, p.id))
	return false
}

// topicID asks for the topic's id now; zero: none, or no such topic.
func (w *Worker) topicID(ctx context.Context, p *partition) (messages.TopicID, error) {
	ctx, cancel := p.abortable(ctx)
	defer cancel()
	resp, err := w.metadata(ctx, w.client, p.tp.Topic)
	if err != nil {
		return messages.TopicID{}, &ConnectionError{Address: w.cfg.Address, Request: "Metadata", Err: err}
	}
	for _, t := range resp.Topics {
		if t.Topic != nil && *t.Topic == p.tp.Topic && t.ErrorCode == 0 {
			return t.TopicID, nil
		}
	}
	return messages.TopicID{}, nil
}

// markUnsure: the connection was lost, and with it the certainty that a topic
// which is fetched by name is still the same.
func (p *partition) markUnsure() {
	p.mu.Lock()
	p.unsure = true
	p.mu.Unlock()
}

func (p *partition) takeUnsure() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.unsure
	p.unsure = false
	return was
}
