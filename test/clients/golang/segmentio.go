package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
)

// segmentioMember is a member with Segment's client.
func segmentioMember(ctx context.Context, j *job, member int) error {
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: j.bootstrap, GroupID: j.group, Topic: j.topic, StartOffset: kafka.FirstOffset,
		HeartbeatInterval: 200 * time.Millisecond, MaxWait: 200 * time.Millisecond, WatchPartitionChanges: true,
		Dialer: &kafka.Dialer{ClientID: fmt.Sprint("segmentio-", member), Timeout: 10 * time.Second},
	})
	for ctx.Err() == nil {
		m, err := r.FetchMessage(ctx)
		switch {
		case errors.Is(err, context.Canceled), errors.Is(err, io.EOF):
			continue
		case err != nil:
			return errors.Join(fmt.Errorf("fetch: %w", err), r.Close())
		}
		j.record(member, int32(m.Partition), m.Offset, m.Value) // first: nobody else may have what comes after it before
		if err := r.CommitMessages(context.WithoutCancel(ctx), m); err != nil {
			return errors.Join(fmt.Errorf("commit: %w", err), r.Close())
		}
	}
	if err := r.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}
