package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"kagami/client"
	"kagami/messages"
)

// partitionJSON is one object of --describe --json. The fields after
// LastMirrorEpoch appear only with --failed, or only when there is a fact to
// tell (OP-37).
type partitionJSON struct {
	Mirror            string  `json:"mirror"`
	Topic             string  `json:"topic"`
	Partition         int32   `json:"partition"`
	SourceOffset      int64   `json:"sourceOffset"`
	DestinationOffset int64   `json:"destinationOffset"`
	Lag               int64   `json:"lag"`
	State             string  `json:"state"`
	LastMirrorEpoch   int32   `json:"lastMirrorEpoch"`
	Retry             *int16  `json:"retry,omitempty"`
	Error             *string `json:"error,omitempty"`

	CutRecords *int64 `json:"cutRecords,omitempty"` // removed by truncation so far
	CutBytes   *int64 `json:"cutBytes,omitempty"`
	CutFrom    *int64 `json:"cutFrom,omitempty"` // last cut, [from, to)
	CutTo      *int64 `json:"cutTo,omitempty"`
	GapFrom    *int64 `json:"gapFrom,omitempty"` // never copied, [from, to)
	GapTo      *int64 `json:"gapTo,omitempty"`
	GapTime    string `json:"gapTime,omitempty"`
}

func (t *mirrorsTool) describe(ctx context.Context) error {
	var names []string
	if *t.mirror != "" {
		names = []string{*t.mirror}
	}
	d, err := t.client.DescribeClusterMirrors(ctx, names, client.DescribeOptions{})
	if err != nil {
		return err
	}
	for _, n := range d.Unanswered {
		t.errf("Warning: node %d (%s) did not answer: %v. Its partitions are shown with state %s.\n", n.Node, n.Addr, n.Err, client.StateNotAnswered)
	}
	if *t.mirror != "" && d.Mirrors[*t.mirror] != nil && d.Mirrors[*t.mirror].Err != nil {
		return t.named(d.Mirrors[*t.mirror].Err)
	}
	var rows []partitionRow
	for _, name := range d.Names() {
		for _, p := range d.Mirrors[name].Partitions {
			if !*t.failed || p.State == messages.StateFailed.String() {
				rows = append(rows, partitionRow{name, p})
			}
		}
	}
	if *t.asJSON {
		return t.describeJSON(rows)
	}
	t.describeTable(rows)
	return nil
}

type partitionRow struct {
	mirror string
	client.DescribedPartition
}

func (t *mirrorsTool) describeTable(rows []partitionRow) {
	if len(rows) == 0 {
		if *t.failed {
			t.outln("No failed mirror partitions found")
		} else {
			t.outln("No mirror partitions found")
		}
		return
	}
	columns := describeColumns()
	if *t.failed {
		columns = append(columns, column{title: "RETRY", width: 8}, column{title: "ERROR", whole: true})
	}
	printHeader(t.Out, columns)
	for _, r := range rows {
		values := []string{
			r.mirror, r.Topic, number(r.Partition), number(r.SourceOffset),
			number(r.DestinationOffset), number(r.Lag), r.State, number(r.RetryAttempt), oneLine(r.ErrorText),
		}
		printRow(t.Out, columns, values[:len(columns)]...)
	}
}

func describeColumns() []column {
	return []column{
		{title: "MIRROR", width: 30},
		{title: "TOPIC", width: 40},
		{title: "PARTITION", width: 10},
		{title: "SOURCE-OFFSET", width: 15},
		{title: "DESTINATION-OFFSET", width: 18},
		{title: "LAG", width: 8},
		{title: "STATE", width: 12, whole: true},
	}
}

// oneLine keeps an error text from breaking the table.
func oneLine(s string) string {
	out := []rune(s)
	for i, r := range out {
		if r < ' ' {
			out[i] = ' '
		}
	}
	return string(out)
}

func (t *mirrorsTool) describeJSON(rows []partitionRow) error {
	out := make([]partitionJSON, 0, len(rows))
	for _, r := range rows {
		p := partitionJSON{
			Mirror: r.mirror, Topic: r.Topic, Partition: r.Partition, SourceOffset: r.SourceOffset,
			DestinationOffset: r.DestinationOffset, Lag: r.Lag, State: r.State, LastMirrorEpoch: r.LastMirrorEpoch,
		}
		if *t.failed {
			p.Retry, p.Error = &r.RetryAttempt, &r.ErrorText
		}
		if r.CutRecords > 0 || r.CutBytes > 0 || r.CutFrom >= 0 {
			p.CutRecords, p.CutBytes, p.CutFrom, p.CutTo = &r.CutRecords, &r.CutBytes, &r.CutFrom, &r.CutTo
		}
		if r.GapFrom >= 0 {
			p.GapFrom, p.GapTo = &r.GapFrom, &r.GapTo
			if !r.GapAt.IsZero() {
				p.GapTime = r.GapAt.Format(time.RFC3339)
			}
		}
		out = append(out, p)
	}
	enc := json.NewEncoder(t.Out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}
