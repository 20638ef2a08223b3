package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"kagami/client"
	"kagami/test/kafka"
)

// AwaitStates waits until every partition of the topics is in one of the states,
// at least want of them (0: at least one per topic).
func AwaitStates(ctx context.Context, adm *client.Client, mirror string, topics []string, want int, states ...string) error {
	return kafka.Poll(ctx, func() error {
		ps, err := Partitions(ctx, adm, mirror)
		if err != nil {
			return err
		}
		seen := 0
		for _, topic := range topics {
			some := false
			for _, p := range ps {
				if p.Topic != topic {
					continue
				}
				some = true
				seen++
				if !slices.Contains(states, p.State) {
					return fmt.Errorf("%s-%d is %s (%s), want %s", p.Topic, p.Partition, p.State, p.ErrorText, strings.Join(states, " or "))
				}
			}
			if !some {
				return fmt.Errorf("%s isn't in mirror %s", topic, mirror)
			}
		}
		if seen < want {
			return fmt.Errorf("%d partitions, want %d", seen, want)
		}
		return nil
	})
}

// Partitions are the partitions of a mirror as described by the cluster.
func Partitions(ctx context.Context, adm *client.Client, mirror string) ([]client.DescribedPartition, error) {
	d, err := adm.DescribeClusterMirrors(ctx, []string{mirror}, client.DescribeOptions{})
	if err != nil {
		return nil, err
	}
	var all []client.DescribedPartition
	for _, m := range d.Mirrors {
		if m.Err != nil {
			return nil, m.Err
		}
		all = append(all, m.Partitions...)
	}
	return all, nil
}

// AwaitEnds waits until B's bounds of the topics equal A's, which is cheap, and
// AwaitEqual then compares every byte.
func AwaitEnds(ctx context.Context, a, b *Side, topics ...string) error {
	for _, topic := range topics {
		err := kafka.Poll(ctx, func() error {
			ea, err := a.TopicEnds(ctx, topic)
			if err != nil {
				return err
			}
			eb, err := b.TopicEnds(ctx, topic)
			if err != nil {
				return err
			}
			for p, e := range ea {
				if eb[p] != e {
					return fmt.Errorf("%s-%d: %v on %s, %v on %s", topic, p, e, a.Name, eb[p], b.Name)
				}
			}
			if len(eb) != len(ea) {
				return fmt.Errorf("%s: %d partitions on %s, %d on %s", topic, len(ea), a.Name, len(eb), b.Name)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// cutWait is how long a start may still have to cut what only B has, after both logs
// happen to end at the same offset.
const cutWait = 30 * time.Second

// AwaitCut waits until the topics are equal, for B which has records of its own that a
// start takes away: it may be MIRRORING at the right end already before its first fetch
// finds the difference.
func AwaitCut(ctx context.Context, a, b *Side, topics ...string) error {
	ctx, cancel := context.WithTimeout(ctx, cutWait)
	defer cancel()
	return kafka.Poll(ctx, func() error { return AwaitEqual(ctx, a, b, topics...) })
}

// AwaitEqual waits until the bounds of the topics agree, and returns the first
// difference between the two sides then, ids included.
func AwaitEqual(ctx context.Context, a, b *Side, topics ...string) error {
	if err := AwaitEnds(ctx, a, b, topics...); err != nil {
		return err
	}
	for _, topic := range topics {
		if err := Different(ctx, a, b, topic, true); err != nil {
			return err
		}
	}
	return nil
}
