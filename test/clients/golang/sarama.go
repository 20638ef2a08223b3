package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

func saramaConfig(j *job) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.ClientID = j.text("name")
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	return config
}

// saramaExactly has what the library demands for idempotence.
func saramaExactly(j *job) *sarama.Config {
	config := saramaConfig(j)
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	return config
}

func saramaProduce(_ context.Context, j *job) error {
	config := saramaConfig(j)
	if j.text("mode") == "idempotent" {
		config = saramaExactly(j)
	}
	config.Producer.Compression = map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}[j.text("codec")]
	p, err := sarama.NewSyncProducer(j.bootstrap(), config)
	if err != nil {
		return err
	}
	var messages []*sarama.ProducerMessage
	for _, r := range j.records() {
		messages = append(messages, &sarama.ProducerMessage{
			Topic: j.text("topic"), Key: sarama.StringEncoder(r.key), Value: sarama.StringEncoder(r.value),
			Headers: []sarama.RecordHeader{{Key: []byte("n"), Value: []byte(r.header)}}, Metadata: r.value,
		})
	}
	if err := p.SendMessages(messages); err != nil {
		return errors.Join(err, p.Close())
	}
	for _, m := range messages {
		j.say("acked", m.Partition, m.Offset, m.Metadata)
	}
	return p.Close()
}

func saramaTransact(_ context.Context, j *job) error {
	config := saramaExactly(j)
	config.Producer.Transaction.ID = j.text("id")
	p, err := sarama.NewSyncProducer(j.bootstrap(), config)
	if err != nil {
		return err
	}
	write := func(p sarama.SyncProducer, values ...string) error {
		for _, v := range values {
			partition, offset, err := p.SendMessage(&sarama.ProducerMessage{Topic: j.text("topic"), Value: sarama.StringEncoder(v)})
			if err != nil {
				return err
			}
			j.say("acked", partition, offset, v)
		}
		return nil
	}
	end := func(commit bool) error {
		if commit {
			return p.CommitTxn()
		}
		return p.AbortTxn()
	}
	for _, t := range transactions {
		if err := errors.Join(p.BeginTxn(), write(p, t.values...), end(t.commit)); err != nil {
			return err
		}
	}
	for i, commit := range []bool{true, false} {
		from := int64(i * copied)
		values, err := saramaRead(j, from)
		if err != nil {
			return err
		}
		to := map[string][]*sarama.PartitionOffsetMetadata{j.text("input"): {{Partition: 0, Offset: from + copied}}}
		if err := errors.Join(p.BeginTxn(), write(p, values...), p.AddOffsetsToTxn(to, j.text("group")), end(commit)); err != nil {
			return fmt.Errorf("copy: %w", err)
		}
	}
	if err := errors.Join(p.BeginTxn(), write(p, "f0")); err != nil {
		return err
	}
	next, err := sarama.NewSyncProducer(j.bootstrap(), config)
	if err != nil {
		return err
	}
	if err := errors.Join(next.BeginTxn(), write(next, "c5"), next.CommitTxn(), next.Close()); err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	if err = write(p, "f1"); err == nil {
		err = p.CommitTxn()
	}
	if err == nil {
		return errNotFenced
	}
	j.say("fenced", err)
	_ = p.Close() // it tells of the same
	return nil
}

// saramaRead reads what a transaction copies.
func saramaRead(j *job, from int64) ([]string, error) {
	c, err := sarama.NewConsumer(j.bootstrap(), saramaConfig(j))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	part, err := c.ConsumePartition(j.text("input"), 0, from)
	if err != nil {
		return nil, err
	}
	defer part.Close()
	var values []string
	for len(values) < copied {
		select {
		case m := <-part.Messages():
			values = append(values, "p"+string(m.Value))
		case <-time.After(time.Minute):
			return nil, fmt.Errorf("read %d of %d records", len(values), copied)
		}
	}
	return values, nil
}

func saramaMember(ctx context.Context, j *job, name string) error {
	config := saramaConfig(j)
	config.ClientID += "-" + name
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky(), sarama.NewBalanceStrategyRange()}
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.Offsets.AutoCommit.Enable = false
	group, err := sarama.NewConsumerGroup(j.bootstrap(), j.text("group"), config)
	if err != nil {
		return fmt.Errorf("make consumer group: %w", err)
	}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{j.text("topic")}, saramaHandler{j, name}); err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
			return fmt.Errorf("consume: %w", err)
		}
	}
	if err := group.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

type saramaHandler struct {
	job  *job
	name string
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
			h.job.say("record", h.name, m.Partition, m.Offset, string(m.Value)) // first: nobody else may have what comes after it before
			s.MarkMessage(m, "")
			s.Commit()
		case <-s.Context().Done():
			return nil
		}
	}
}
