package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestIdleProducersExpire: what is kept of idempotent producers goes after
// producer.id.expiration.ms, whatever the topic keeps, and the producer goes on all the
// same; one with an open transaction stays.
func TestIdleProducersExpire(t *testing.T) {
	n := startTestNode(t, t.TempDir(), noDelay, "producer.id.expiration.ms=1000", "log.retention.check.interval.ms=100")
	_, cl, adm := connectTo(t, n.kafka())
	topics := []string{"default", "forever", "compacted"}
	topic(t, cl, "default", 1, 0, nil)
	topic(t, cl, "forever", 1, 0, map[string]*string{"retention.ms": new("-1")})
	topic(t, cl, "compacted", 1, 0, map[string]*string{"cleanup.policy": new("compact")})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	producers := func(name string) int {
		t.Helper()
		var set kadm.TopicsSet
		set.Add(name, 0)
		got, err := adm.DescribeProducers(ctx, set)
		require.NoError(t, err)
		return len(got[name].Partitions[0].ActiveProducers)
	}
	idle, err := kgo.NewClient(kgo.SeedBrokers(n.kafka()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer idle.Close()
	open := txnClient(t, "open", time.Minute, n.kafka())
	require.NoError(t, open.BeginTransaction())
	for _, name := range topics {
		for range 2 {
			require.NoError(t, idle.ProduceSync(ctx, &kgo.Record{Topic: name, Key: []byte("k")}).FirstErr())
		}
		require.NoError(t, open.ProduceSync(ctx, &kgo.Record{Topic: name, Key: []byte("k")}).FirstErr())
	}
	for _, name := range topics {
		await(t, "the end of idle producers of "+name, func() error {
			if left := producers(name); left != 1 {
				return fmt.Errorf("%d are left", left)
			}
			return nil
		})
	}
	for _, name := range topics {
		require.NoError(t, idle.ProduceSync(ctx, &kgo.Record{Topic: name, Key: []byte("k")}).FirstErr())
	}
	require.NoError(t, open.EndTransaction(ctx, kgo.TryCommit))
}

// TestIdleTransactionalIDsExpire: an id that nobody uses goes after
// transactional.id.expiration.ms, one with an open transaction stays; its producer is told
// that the id is unknown, and a new one may take it.
func TestIdleTransactionalIDsExpire(t *testing.T) {
	dir := t.TempDir()
	settings := []string{noDelay, "transactional.id.expiration.ms=1000", "transaction.remove.expired.transaction.cleanup.interval.ms=100"}
	n := startTestNode(t, dir, settings...)
	_, cl, adm := connectTo(t, n.kafka())
	topic(t, cl, "t", 1, 0, nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	idle, open := txnClient(t, "idle", time.Minute, n.kafka()), txnClient(t, "open", time.Minute, n.kafka())
	require.NoError(t, writeTxn(ctx, idle, "t", 1, "a", true))
	require.NoError(t, open.BeginTransaction())
	require.NoError(t, open.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("b")}).FirstErr())
	gone := func() error {
		described, err := adm.DescribeTransactions(ctx, "idle")
		if err != nil {
			return err
		}
		if err := described["idle"].Err; !errors.Is(err, kerr.TransactionalIDNotFound) {
			return errors.Join(errors.New("it is there"), err)
		}
		return nil
	}
	await(t, "the end of the id", gone)
	require.ErrorIs(t, writeTxn(ctx, idle, "t", 1, "c", true), kerr.InvalidProducerIDMapping)
	require.NoError(t, writeTxn(ctx, txnClient(t, "idle", time.Minute, n.kafka()), "t", 1, "d", true))
	require.NoError(t, open.EndTransaction(ctx, kgo.TryCommit))
	await(t, "the end of the id once more", gone)
	await(t, "all records", func() error {
		if got := fmt.Sprint(committed(t, "t", 1, n.kafka())[0]); got != "[a b d]" && got != "[a d b]" {
			return errors.New(got)
		}
		return nil
	})
}
