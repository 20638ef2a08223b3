package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/test/kafka/stub"
)

// Accepted says when a node took records, counted from the start of Probe.
type Accepted struct {
	First, All time.Duration // the first partition, and the last one
	Rounds     int           // how often the partitions that didn't take one were asked
}

// ProbeOptions of Probe.
type ProbeOptions struct {
	Bootstrap string // of one node that leads everything
	Topics    []kadm.TopicDetail
	Begun     time.Time // what the times count from
}

// Probe writes one record into every partition, again and again where it is
// refused because a partition is read-only or has no leader yet, until each has
// taken one. One raw request per topic carries all its partitions that are still
// missing. Between two rounds it waits 10 ms and 25 us for each of them: the
// times can't be finer than that, and asking must not be what takes the time.
func Probe(ctx context.Context, o ProbeOptions) (Accepted, error) {
	const pause, pauseEach = 10 * time.Millisecond, 25 * time.Microsecond
	cl, err := kgo.NewClient(kgo.SeedBrokers(o.Bootstrap))
	if err != nil {
		return Accepted{}, fmt.Errorf("make client: %w", err)
	}
	defer cl.Close()
	missing := make([][]int32, len(o.Topics))
	for i, t := range o.Topics {
		missing[i] = t.Partitions.Numbers()
	}
	var a Accepted
	for ctx.Err() == nil {
		a.Rounds++
		left := 0
		for i, t := range o.Topics {
			before := len(missing[i])
			if missing[i], err = probeTopic(ctx, cl, t, missing[i]); err != nil {
				return a, err
			}
			if len(missing[i]) < before {
				a.All = time.Since(o.Begun)
				if a.First == 0 {
					a.First = a.All
				}
			}
			left += len(missing[i])
		}
		if left == 0 {
			return a, nil
		}
		select {
		case <-time.After(pause + time.Duration(left)*pauseEach):
		case <-ctx.Done():
		}
	}
	return a, context.Cause(ctx)
}

// probeTopic returns the partitions that refused.
func probeTopic(ctx context.Context, cl *kgo.Client, topic kadm.TopicDetail, partitions []int32) (refused []int32, err error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	batch := stub.Build(stub.Spec{Timestamp: time.Now().UnixMilli(), Records: []stub.Record{{Value: []byte("probe")}}})
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, math.MaxInt16
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic.Topic, topic.ID
	for _, n := range partitions {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = n, batch
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	resp, err := cl.SeedBrokers()[0].RetriableRequest(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", topic.Topic, err)
	}
	for _, t := range resp.(*kmsg.ProduceResponse).Topics {
		for _, p := range t.Partitions {
			err := kerr.ErrorForCode(p.ErrorCode)
			switch {
			case err == nil:
			case errors.Is(err, kerr.PolicyViolation), errors.Is(err, kerr.NotLeaderForPartition), errors.Is(err, kerr.LeaderNotAvailable),
				errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
				refused = append(refused, p.Partition)
			default:
				return nil, fmt.Errorf("write %s-%d: %w", topic.Topic, p.Partition, err)
			}
		}
	}
	return refused, nil
}
