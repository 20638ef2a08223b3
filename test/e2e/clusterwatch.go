package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// askTimeout bounds one question to one node that isn't known to be dead.
const askTimeout = 3 * time.Second

// Leaders are the leaders of topics as one node tells them to clients. Nobody else is
// asked: an ordinary client may go to a node that is stopped and wait for its own
// time-out there, 20 s with kgo's defaults.
func (n *Node) Leaders(ctx context.Context, topics ...string) (map[string][]int32, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Bootstrap()))
	if err != nil {
		return nil, fmt.Errorf("connect to the node: %w", err)
	}
	defer cl.Close()
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topic
		req.Topics = append(req.Topics, t)
	}
	raw, err := cl.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("ask for leaders: %w", err)
	}
	out := map[string][]int32{}
	for _, t := range raw.(*kmsg.MetadataResponse).Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return nil, fmt.Errorf("ask for leaders of %s: %w", *t.Topic, err)
		}
		leaders := make([]int32, len(t.Partitions))
		for _, p := range t.Partitions {
			leaders[p.Partition] = p.Leader
		}
		out[*t.Topic] = leaders
	}
	return out, nil
}

// MirrorRow is one partition of a mirror as `kagami query partitions` shows it.
type MirrorRow struct {
	Topic     string
	Partition int32
	Leader    int
	State     string
	Attempt   int
	Epoch     int32 // leader epoch here, the source's
	Source    int32
	LME       int32
	End       int64 // -1: its leader doesn't answer
	Error     string
}

// MirrorRows are the partitions of a mirror as one node knows them.
func (n *Node) MirrorRows(ctx context.Context, mirror string) ([]MirrorRow, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*askTimeout)
	defer cancel()
	rows, err := n.Query(ctx, "partitions?mirror="+url.QueryEscape(mirror))
	if err != nil {
		return nil, err
	}
	out := make([]MirrorRow, 0, len(rows))
	for _, row := range rows {
		number := func(key string) int64 {
			v, ok := row[key].(float64)
			if !ok {
				return -1
			}
			return int64(v)
		}
		text := func(key string) string { s, _ := row[key].(string); return s }
		out = append(out, MirrorRow{
			Topic: text("topic"), Partition: int32(number("partition")), Leader: int(number("node")), State: text("state"), Attempt: int(number("attempt")),
			Epoch: int32(number("leaderEpoch")), Source: int32(number("sourceLeaderEpoch")), LME: int32(number("lme")), End: number("end"), Error: text("error"),
		})
	}
	if len(out) == 0 {
		return nil, errors.New("the node shows no partition of the mirror")
	}
	return out, nil
}
