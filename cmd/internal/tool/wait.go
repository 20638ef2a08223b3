package tool

import (
	"context"
	"fmt"
	"time"

	"kagami/client"
	"kagami/messages"
)

// waitPause is between two looks of --wait, and so between two lines of progress.
// After waitStill looks at which all that is missing is FAILED and nothing moved,
// it is taken for failed for good.
const (
	waitPause = time.Second
	waitStill = 10
)

// wait looks once a second until every partition of the topics is in the state,
// and prints on the error stream how many are whenever that changed. It ends with
// an error when all that is missing has failed for good.
func (t *mirrorsTool) wait(ctx context.Context, topics []string, state messages.State) error {
	want := make(map[string]struct{}, len(topics))
	for _, topic := range topics {
		want[topic] = struct{}{}
	}
	var last waitCount
	still := 0
	for looks := 0; ; looks++ {
		now, err := t.look(ctx, want, state)
		if err != nil {
			return err
		}
		if looks == 0 || now.done != last.done || now.total != last.total {
			t.errf("%s %d / %d\n", state, now.done, now.total)
		}
		if still++; now != last || now.failed == 0 || now.failed < now.total-now.done {
			still = 0
		}
		switch {
		case now.done == now.total && now.total > 0:
			return nil
		case still == waitStill:
			return fmt.Errorf("%d partition(s) are FAILED, such as %s; --describe --failed shows why, --recover tries again", now.failed, now.example)
		}
		last = now
		timer := time.NewTimer(t.every)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("wait for %s: %w; what was asked for goes on", state, context.Cause(ctx))
		}
	}
}

// waitCount is what one look found. It holds no partitions, however many there
// are.
type waitCount struct {
	done, failed, total int
	example             string // of those that failed
}

func (t *mirrorsTool) look(ctx context.Context, topics map[string]struct{}, state messages.State) (waitCount, error) {
	var n waitCount
	d, err := t.client.DescribeClusterMirrors(ctx, []string{*t.mirror}, client.DescribeOptions{})
	if err != nil {
		return n, err
	}
	m := d.Mirrors[*t.mirror]
	if m == nil {
		return n, nil
	}
	if m.Err != nil {
		return n, t.named(m.Err)
	}
	for _, p := range m.Partitions {
		if _, wanted := topics[p.Topic]; !wanted {
			continue
		}
		n.total++
		switch p.State {
		case state.String():
			n.done++
		case messages.StateFailed.String():
			if n.failed++; n.failed == 1 {
				n.example = messages.TopicPartition{Topic: p.Topic, Partition: p.Partition}.String()
			}
		}
	}
	return n, nil
}
