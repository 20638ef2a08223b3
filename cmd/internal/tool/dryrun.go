package tool

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"kagami/client"
	"kagami/messages"
)

const dryRunEnd = "Dry run: nothing was changed."

// dryRunStop prints what a failover would lose: lag, and transactions that would
// be aborted. It needs no source: the lag is by what the source said last, and AGE
// how long ago that was.
func (t *mirrorsTool) dryRunStop(ctx context.Context, topics []string, m *client.DescribedMirror) error {
	if len(topics) == 0 {
		t.outf("No matching topics found in mirror %s\n%s\n", *t.mirror, dryRunEnd)
		return nil
	}
	columns := []column{
		{title: "TOPIC", width: 40},
		{title: "PARTITION", width: 10},
		{title: "STATE", width: 14, whole: true},
		{title: "LAG", width: 16},
		{title: "AGE", width: 10},
		{title: "OPEN-TRANSACTIONS", width: 18},
	}
	open := t.unstable(ctx, topics)
	printHeader(t.Out, columns)
	var lost int64
	var oldest time.Duration
	unknown := 0
	for _, p := range m.Partitions {
		txns := number(p.OpenTransactions)
		if p.OpenTransactions < 0 {
			txns = open[messages.TopicPartition{Topic: p.Topic, Partition: p.Partition}]
		}
		if !contains(topics, p.Topic) {
			continue
		}
		lag, age := seenLag(p)
		switch {
		case lag >= 0:
			lost, oldest = lost+lag, max(oldest, age)
		case p.State != messages.StateStopped.String():
			unknown++
		}
		printRow(t.Out, columns, p.Topic, number(p.Partition), p.State, number(lag), ageText(age), txns)
	}
	t.outf("Would lose %d records by the source's last answers, the oldest %s ago.\n", lost, ageText(oldest))
	if unknown > 0 {
		t.outf("Not known of %d partition(s): the source hasn't answered since their leader started.\n", unknown)
	}
	t.outln(dryRunEnd)
	return nil
}

// seenLag is the lag by the source's last answer, and the age of that; -1 where
// it never answered, or where nothing can be lost any more.
func seenLag(p client.DescribedPartition) (lag int64, age time.Duration) {
	switch {
	case p.State == messages.StateStopped.String():
		return -1, -1
	case p.SeenSourceAge >= 0 && p.SeenSourceOffset >= 0 && p.LogEnd >= 0:
		return max(0, p.SeenSourceOffset-p.LogEnd), p.SeenSourceAge
	}
	return p.Lag, -1
}

// ageText is in whole seconds; "-" is unknown.
func ageText(d time.Duration) string {
	if d < 0 {
		return "-"
	}
	return d.Round(time.Second).String()
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
// "LOG_TRUNCATION in detail"), and what the first fetches would find diverging.
// The cluster asks the source: the tool doesn't have the credentials.
func (t *mirrorsTool) dryRunStart(ctx context.Context, include, exclude []string) error {
	plan, err := t.client.PlanMirrorStart(ctx, *t.mirror, include, exclude)
	if err != nil {
		return t.named(err)
	}
	for _, n := range plan.Unanswered {
		t.errf("Warning: node %d (%s) did not answer: %v. Its partitions are missing.\n", n.Node, n.Addr, n.Err)
	}
	if len(plan.Partitions) == 0 && len(plan.Unanswered) == 0 {
		t.outf("No matching topics found yet.\n%s\n", dryRunEnd)
		return nil
	}
	columns := []column{
		{title: "TOPIC", width: 40},
		{title: "PARTITION", width: 10},
		{title: "LOG-END", width: 16},
		{title: "CUT-TO", width: 16},
		{title: "RECORDS", width: 12},
		{title: "BYTES", width: 14},
		{title: "REASON", whole: true},
	}
	printHeader(t.Out, columns)
	var sum plannedSum
	for _, p := range plan.Partitions {
		sum.add(p)
		reason := p.Reason
		switch {
		case p.Unknown:
			reason = "unknown: " + reason
		case p.Refused:
			reason = "refused: " + reason
		}
		printRow(t.Out, columns, p.Topic, number(p.Partition), number(p.LogEnd), number(p.CutTo), number(p.Records), number(p.Bytes), oneLine(reason))
	}
	t.outf("Would cut %d records, %d bytes in %d partition(s).\n%s\n", sum.records, sum.bytes, sum.cut, dryRunEnd)
	return sum.failure(len(plan.Unanswered))
}

// plannedSum adds up a plan.
type plannedSum struct {
	records, bytes        int64
	cut, unknown, refused int
}

func (s *plannedSum) add(p messages.PlannedStart) {
	s.records += max(0, p.Records)
	s.bytes += max(0, p.Bytes)
	switch {
	case p.Unknown:
		s.unknown++
	case p.Refused:
		s.refused++
	case p.Records > 0:
		s.cut++
	}
}

// failure is nil when the whole plan is known and nothing is refused.
func (s *plannedSum) failure(nodes int) error {
	switch {
	case s.unknown > 0 || nodes > 0:
		return fmt.Errorf("what the start would cut isn't known of %d partition(s) and %d node(s)", s.unknown, nodes)
	case s.refused > 0:
		return fmt.Errorf("the start would be refused for %d partition(s)", s.refused)
	}
	return nil
}
