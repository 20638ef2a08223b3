package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"kagami/messages"
	"kagami/messages/wire"
)

// planNodeTimeout is how long one node may take to plan: it asks the source.
const planNodeTimeout = 40 * time.Second

// Plan is what a start would do.
type Plan struct {
	// Partitions by topic and number; those of Unanswered nodes are missing.
	Partitions []messages.PlannedStart
	Unanswered []NodeError
}

// PlanMirrorStart asks every node what a start of the topics that match would
// cut, of the partitions it leads, and merges the answers. Nothing is changed.
// The cluster asks the source itself, with the mirror's own credentials.
func (c *Client) PlanMirrorStart(ctx context.Context, mirror string, include, exclude []string) (*Plan, error) {
	meta, err := kadm.NewClient(c.kgo).BrokerMetadata(ctx)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	type planAnswer struct {
		resp *wire.PlanMirrorStartResponse
		err  error
	}
	answers := make([]planAnswer, len(meta.Brokers))
	var wg sync.WaitGroup
	for i, b := range meta.Brokers {
		wg.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, planNodeTimeout, fmt.Errorf("no answer in %s", planNodeTimeout))
			defer cancel()
			req := wire.NewPtrPlanMirrorStartRequest()
			req.MirrorName, req.IncludePatterns, req.ExcludePatterns = mirror, include, exclude
			answers[i].resp, answers[i].err = req.RequestWith(ctx, c.kgo.Broker(int(b.NodeID)))
			if answers[i].err != nil && ctx.Err() != nil {
				answers[i].err = context.Cause(ctx)
			}
		})
	}
	wg.Wait()
	plan, rows := &Plan{}, map[messages.TopicPartition]messages.PlannedStart{}
	var refused error // one node that knows something is enough
	for i, a := range answers {
		b := meta.Brokers[i]
		if a.err != nil {
			plan.Unanswered = append(plan.Unanswered, NodeError{b.NodeID, fmt.Sprintf("%s:%d", b.Host, b.Port), a.err})
			continue
		}
		if err := topError(a.resp.ErrorCode, a.resp.ErrorMessage); err != nil {
			refused = err
			continue
		}
		mergePlan(rows, a.resp)
	}
	if refused != nil && len(rows) == 0 {
		return nil, refused
	}
	if len(plan.Unanswered) == len(answers) && len(answers) > 0 {
		return nil, fmt.Errorf("plan a start: no node answered: %w", plan.Unanswered[0].Err)
	}
	for _, row := range rows {
		plan.Partitions = append(plan.Partitions, row)
	}
	slices.SortFunc(plan.Partitions, func(a, b messages.PlannedStart) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return plan, nil
}

// mergePlan adds a node's rows. Every node tells of partitions that don't exist
// yet; the row of one that has a log is worth more.
func mergePlan(rows map[messages.TopicPartition]messages.PlannedStart, resp *wire.PlanMirrorStartResponse) {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			tp := messages.TopicPartition{Topic: t.TopicName, Partition: p.PartitionIndex}
			if have, ok := rows[tp]; ok && have.LogEnd >= p.LogEnd {
				continue
			}
			rows[tp] = messages.PlannedStart{
				Topic: t.TopicName, Partition: p.PartitionIndex, LogEnd: p.LogEnd, CutTo: p.CutTo, Records: p.Records, Bytes: p.Bytes,
				LME: p.LastMirrorEpoch, Reason: p.Reason, Unknown: p.Unknown, Refused: p.Refused,
			}
		}
	}
}
