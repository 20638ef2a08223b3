package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
)

func segmentioProduce(ctx context.Context, j *job) error {
	w := &kafka.Writer{
		Addr: kafka.TCP(j.bootstrap()...), Topic: j.text("topic"), Balancer: kafka.Murmur2Balancer{}, RequiredAcks: kafka.RequireAll, BatchTimeout: 10 * time.Millisecond,
		Compression: map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}[j.text("codec")],
		Transport:   &kafka.Transport{ClientID: j.text("name")},
		Completion: func(messages []kafka.Message, err error) {
			for _, m := range messages {
				if err == nil {
					j.say("acked", m.Partition, m.Offset, string(m.Value))
				}
			}
		},
	}
	var messages []kafka.Message
	for _, r := range j.records() {
		messages = append(messages, kafka.Message{Key: []byte(r.key), Value: []byte(r.value), Headers: []kafka.Header{{Key: "n", Value: []byte(r.header)}}})
	}
	return errors.Join(w.WriteMessages(ctx, messages...), w.Close())
}

func segmentioMember(ctx context.Context, j *job, name string) error {
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: j.bootstrap(), GroupID: j.text("group"), Topic: j.text("topic"), StartOffset: kafka.FirstOffset,
		HeartbeatInterval: 200 * time.Millisecond, MaxWait: 200 * time.Millisecond, WatchPartitionChanges: true,
		Dialer: &kafka.Dialer{ClientID: j.text("name") + "-" + name, Timeout: 10 * time.Second},
	})
	for ctx.Err() == nil {
		m, err := r.FetchMessage(ctx)
		switch {
		case errors.Is(err, context.Canceled), errors.Is(err, io.EOF):
			continue
		case err != nil:
			return errors.Join(fmt.Errorf("fetch: %w", err), r.Close())
		}
		j.say("record", name, m.Partition, m.Offset, string(m.Value)) // first: nobody else may have what comes after it before
		if err := r.CommitMessages(context.WithoutCancel(ctx), m); err != nil {
			return errors.Join(fmt.Errorf("commit: %w", err), r.Close())
		}
	}
	if err := r.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}
