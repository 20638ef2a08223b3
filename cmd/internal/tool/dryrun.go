package tool

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"

	"kagami/client"
	"kagami/messages"
)

const dryRunEnd = "Dry run: nothing was changed."

// dryRunStop prints what a failover would lose: lag, and transactions that would
// be aborted.
func (t *mirrorsTool) dryRunStop(ctx context.Context, topics []string, m *client.DescribedMirror) error {
	if len(topics) == 0 {
		t.outf("No matching topics found in mirror %s\n%s\n", *t.mirror, dryRunEnd)
		return nil
	}
	columns := []column{
		{title: "TOPIC", width: 40},
		{title: "PARTITION", width: 10},
		{title: "STATE", width: 14, whole: true},
		{title: "LAG", width: 20},
		{title: "OPEN-TRANSACTIONS", width: 18},
	}
	open := t.unstable(ctx, topics)
	printHeader(t.Out, columns)
	for _, p := range m.Partitions {
		txns := number(p.OpenTransactions)
		if p.OpenTransactions < 0 {
			txns = open[messages.TopicPartition{Topic: p.Topic, Partition: p.Partition}]
		}
		if contains(topics, p.Topic) {
			printRow(t.Out, columns, p.Topic, number(p.Partition), p.State, number(p.Lag), txns)
		}
	}
	t.outln(dryRunEnd)
	return nil
}

func contains(list []string, s string) bool {
	return slices.Contains(list, s)
}

// unstable says per partition whether a transaction is open in the destination
// log: its last stable offset is below its high watermark then. Partitions that
// can't be asked are missing.
func (t *mirrorsTool) unstable(ctx context.Context, topics []string) map[messages.TopicPartition]string {
	adm := kadm.NewClient(t.client.Kgo())
	stable, err1 := adm.ListCommittedOffsets(ctx, topics...)
	ends, err2 := adm.ListEndOffsets(ctx, topics...)
	out := map[messages.TopicPartition]string{}
	if err1 != nil || err2 != nil {
		return out // shown as "-"
	}
	ends.Each(func(end kadm.ListedOffset) {
		lso, ok := stable.Lookup(end.Topic, end.Partition)
		if !ok || lso.Err != nil || end.Err != nil {
			return
		}
		text := "none"
		if lso.Offset < end.Offset {
			text = fmt.Sprintf("from offset %d", lso.Offset)
		}
		out[messages.TopicPartition{Topic: end.Topic, Partition: end.Partition}] = text
	})
	return out
}

// dryRunStart prints what the start would cut from the destination's logs: down
// to the last mirror epoch that the source knows, or to nothing (workflows.md,
// "LOG_TRUNCATION in detail").
func (t *mirrorsTool) dryRunStart(ctx context.Context, src mirrorSource, topics []string, meta map[string]client.TopicMetadata) error {
	if len(topics) == 0 {
		t.outf("No matching topics found yet.\n%s\n", dryRunEnd)
		return nil
	}
	mirrors, err := src.LastMirrorEpochs(ctx, *t.mirror)
	if err != nil {
		return fmt.Errorf("ask the source for last mirror epochs: %w", err)
	}
	cuts, err := t.cuts(ctx, mirrors.LME, topics, meta)
	if err != nil {
		return err
	}
	columns := []column{
		{title: "TOPIC", width: 40},
		{title: "PARTITION", width: 10},
		{title: "LAST-MIRROR-EPOCH", width: 18},
		{title: "LOG-END", width: 20},
		{title: "CUT-TO", width: 20},
		{title: "OFFSETS-CUT", width: 20},
	}
	printHeader(t.Out, columns)
	for _, c := range cuts {
		printRow(t.Out, columns, c.tp.Topic, number(c.tp.Partition), number(c.lme), number(c.end), number(c.to), c.lost())
	}
	t.outln(dryRunEnd)
	return nil
}

type plannedCut struct {
	tp         messages.TopicPartition
	lme        int32
	start, end int64 // of the destination's log; -1 where it has none
	to         int64
}

// lost is the number of offsets that would go; records may be fewer.
func (c plannedCut) lost() string {
	if c.end < 0 {
		return "0"
	}
	return number(max(0, c.end-max(c.to, c.start)))
}

func (t *mirrorsTool) cuts(ctx context.Context, lme func(string, messages.TopicPartition) int32, topics []string, meta map[string]client.TopicMetadata) ([]plannedCut, error) {
	adm := kadm.NewClient(t.client.Kgo())
	here, err := adm.Metadata(ctx)
	if err != nil {
		return nil, fmt.Errorf("list topics of the destination: %w", err)
	}
	var exist []string
	var ask kadm.OffsetForLeaderEpochRequest
	for _, topic := range topics {
		if here.Topics.Has(topic) {
			exist = append(exist, topic)
		}
		for i := range meta[topic].Partitions {
			tp := messages.TopicPartition{Topic: topic, Partition: i}
			if e := lme(*t.mirror, tp); e >= 0 && here.Topics.Has(topic) {
				ask.Add(topic, i, e)
			}
		}
	}
	var starts, ends kadm.ListedOffsets
	var epochEnds kadm.OffsetsForLeaderEpochs
	if len(exist) > 0 {
		if starts, err = adm.ListStartOffsets(ctx, exist...); err == nil {
			if ends, err = adm.ListEndOffsets(ctx, exist...); err == nil && len(ask) > 0 {
				epochEnds, err = adm.OffsetForLeaderEpoch(ctx, ask)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("list offsets of the destination: %w", err)
		}
	}
	var out []plannedCut
	for _, topic := range topics {
		for i := range meta[topic].Partitions {
			tp := messages.TopicPartition{Topic: topic, Partition: i}
			out = append(out, planCut(tp, lme(*t.mirror, tp), starts, ends, epochEnds))
		}
	}
	return out, nil
}

func planCut(tp messages.TopicPartition, lme int32, starts, ends kadm.ListedOffsets, epochEnds kadm.OffsetsForLeaderEpochs) plannedCut {
	c := plannedCut{tp: tp, lme: lme, start: -1, end: -1}
	if o, ok := starts.Lookup(tp.Topic, tp.Partition); ok && o.Err == nil {
		c.start = o.Offset
	}
	if o, ok := ends.Lookup(tp.Topic, tp.Partition); ok && o.Err == nil {
		c.end = o.Offset
	}
	if e, ok := epochEnds[tp.Topic][tp.Partition]; ok && e.Err == nil && lme >= 0 {
		c.to = max(0, e.EndOffset) // -1: no epoch at or below it, so all is cut
	}
	return c
}
