package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// pollInterval is the pause between two looks at something that changes by itself.
const pollInterval = 50 * time.Millisecond

// Poll calls f until it returns nil or ctx ends; then it returns f's last error.
func Poll(ctx context.Context, f func() error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: last: %w", context.Cause(ctx), err)
		}
	}
}

// metadataMinAge: kadm's metadata may be so old. By default it is 5 s, which every
// wait for a change would last.
const metadataMinAge = 10 * time.Millisecond

// Client is a new kgo client of the cluster; the caller closes it.
func (c *Cluster) Client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.Seeds()...), kgo.MetadataMinAge(metadataMinAge)}, opts...)...)
}

// ready waits until each of the brokers answers by itself and names at least
// want brokers and a controller.
func (c *Cluster) ready(ctx context.Context, ids []int, want int) error {
	for _, id := range ids {
		err := Poll(ctx, func() error {
			if p := c.Process(id); !p.Running() {
				return nil // told apart below
			}
			return askBroker(ctx, c.Addr(id), want)
		})
		if err != nil {
			return fmt.Errorf("wait for broker %d: %w", id, err)
		}
		if p := c.Process(id); !p.Running() {
			return fmt.Errorf("wait for broker %d: it has ended: %w", id, errors.Join(p.Err(), errors.New("see its log")))
		}
	}
	return nil
}

func askBroker(ctx context.Context, addr string, want int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RequestRetries(0), kgo.DialTimeout(time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	meta, err := kadm.NewClient(cl).BrokerMetadata(ctx)
	if err != nil {
		return err
	}
	if len(meta.Brokers) < want || meta.Controller < 0 {
		return fmt.Errorf("%d of %d brokers known, controller %d", len(meta.Brokers), want, meta.Controller)
	}
	return nil
}

// ElectLeader makes a replica the leader of a partition: it puts it first in the
// replica list and runs a preferred election. It returns when the broker says so
// itself. For releases from 2.4 on.
func (c *Cluster) ElectLeader(ctx context.Context, topic string, partition int32, to int) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	now, err := c.known(ctx, adm, topic, partition)
	if err != nil {
		return err
	}
	if !slices.Contains(now.Replicas, int32(to)) {
		return fmt.Errorf("elect leader of %s-%d: broker %d is not in %v", topic, partition, to, now.Replicas)
	}
	replicas := []int32{int32(to)}
	for _, r := range now.Replicas {
		if r != int32(to) {
			replicas = append(replicas, r)
		}
	}
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(topic, partition, replicas)
	if res, err := adm.AlterPartitionAssignments(ctx, req); err != nil {
		return fmt.Errorf("reorder replicas of %s-%d: %w", topic, partition, err)
	} else if err := res.Error(); err != nil {
		return fmt.Errorf("reorder replicas of %s-%d: %w", topic, partition, err)
	}
	return Poll(ctx, func() error {
		var set kadm.TopicsSet
		set.Add(topic, partition)
		res, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
		if err != nil {
			return err
		}
		if r := res[topic][partition]; r.Err != nil && !errors.Is(r.Err, kerr.ElectionNotNeeded) {
			return r.Err
		}
		now, err := c.partition(ctx, adm, topic, partition)
		if err == nil && now.Leader != int32(to) {
			err = fmt.Errorf("leader of %s-%d is %d, not %d", topic, partition, now.Leader, to)
		}
		return err
	})
}

// Leader is the leader and leader epoch of a partition.
func (c *Cluster) Leader(ctx context.Context, topic string, partition int32) (id int, epoch int32, err error) {
	cl, err := c.Client()
	if err != nil {
		return 0, 0, err
	}
	defer cl.Close()
	p, err := c.known(ctx, kadm.NewClient(cl), topic, partition)
	return int(p.Leader), p.LeaderEpoch, err
}

// newTopicWait: the controller answers before every broker knows a new topic.
const newTopicWait = 30 * time.Second

// known is partition once the broker that answers has heard of it.
func (c *Cluster) known(ctx context.Context, adm *kadm.Client, topic string, partition int32) (p kadm.PartitionDetail, err error) {
	ctx, cancel := context.WithTimeout(ctx, newTopicWait)
	defer cancel()
	var other error // one that waiting doesn't mend
	err = Poll(ctx, func() error {
		p, err = c.partition(ctx, adm, topic, partition)
		if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) && !errors.Is(err, kerr.LeaderNotAvailable) {
			other, err = err, nil
		}
		return err
	})
	return p, cmp.Or(other, err)
}

func (c *Cluster) partition(ctx context.Context, adm *kadm.Client, topic string, partition int32) (kadm.PartitionDetail, error) {
	details, err := adm.ListTopics(ctx, topic)
	if err != nil {
		return kadm.PartitionDetail{}, fmt.Errorf("look up %s: %w", topic, err)
	}
	p, ok := details[topic].Partitions[partition]
	if !ok {
		return p, fmt.Errorf("look up %s-%d: not there: %w", topic, partition, errors.Join(details[topic].Err, kerr.UnknownTopicOrPartition))
	}
	return p, p.Err
}
