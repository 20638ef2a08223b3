package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// saramaMember is a member with IBM's client.
func saramaMember(ctx context.Context, j *job, member int) error {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.ClientID = fmt.Sprint("sarama-", member)
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky(), sarama.NewBalanceStrategyRange()}
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.Offsets.AutoCommit.Enable = false
	group, err := sarama.NewConsumerGroup(j.bootstrap, j.group, config)
	if err != nil {
		return fmt.Errorf("make consumer group: %w", err)
	}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{j.topic}, saramaHandler{j, member}); err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
			return fmt.Errorf("consume: %w", err)
		}
	}
	if err := group.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

type saramaHandler struct {
	job    *job
	member int
}

// Setup begins a generation.
func (saramaHandler) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup ends a generation.
func (saramaHandler) Cleanup(s sarama.ConsumerGroupSession) error {
	s.Commit()
	return nil
}

// ConsumeClaim reads one partition.
func (h saramaHandler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			h.job.record(h.member, m.Partition, m.Offset, m.Value) // first: nobody else may have what comes after it before
			s.MarkMessage(m, "")
			s.Commit()
		case <-s.Context().Done():
			return nil
		}
	}
}
