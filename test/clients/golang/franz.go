package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// franzMetadata: before records are sent again after a lost connection the library asks
// for metadata, which it does once in five seconds by default.
const franzMetadata = 100 * time.Millisecond

func franzClient(j *job, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(j.bootstrap()...), kgo.ClientID(j.text("name")), kgo.MetadataMinAge(franzMetadata)}, opts...)...)
}

func franzProduce(ctx context.Context, j *job) error {
	codec := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[j.text("codec")]
	opts := []kgo.Opt{kgo.ProducerBatchCompression(codec)}
	if j.text("mode") == "plain" {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	}
	cl, err := franzClient(j, opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	var records []*kgo.Record
	for _, r := range j.records() {
		records = append(records, &kgo.Record{Topic: j.text("topic"), Key: []byte(r.key), Value: []byte(r.value), Headers: []kgo.RecordHeader{{Key: "n", Value: []byte(r.header)}}})
	}
	for _, res := range cl.ProduceSync(ctx, records...) {
		if res.Err != nil {
			return res.Err
		}
		j.say("acked", res.Record.Partition, res.Record.Offset, string(res.Record.Value))
	}
	return nil
}

func franzTransact(ctx context.Context, j *job) error {
	cl, err := franzClient(j, kgo.TransactionalID(j.text("id")))
	if err != nil {
		return err
	}
	defer cl.Close()
	write := func(cl *kgo.Client, values ...string) error {
		for _, v := range values {
			rec, err := cl.ProduceSync(ctx, &kgo.Record{Topic: j.text("topic"), Value: []byte(v)}).First()
			if err != nil {
				return err
			}
			j.say("acked", rec.Partition, rec.Offset, v)
		}
		return nil
	}
	for _, t := range transactions {
		if err := errors.Join(cl.BeginTransaction(), write(cl, t.values...), cl.EndTransaction(ctx, kgo.TransactionEndTry(t.commit))); err != nil {
			return err
		}
	}
	for _, commit := range []bool{true, false} {
		if err := franzCopy(ctx, j, commit, write); err != nil {
			return fmt.Errorf("copy: %w", err)
		}
	}
	if err := errors.Join(cl.BeginTransaction(), write(cl, "f0")); err != nil {
		return err
	}
	next, err := franzClient(j, kgo.TransactionalID(j.text("id")))
	if err != nil {
		return err
	}
	defer next.Close()
	if err := errors.Join(next.BeginTransaction(), write(next, "c5"), next.EndTransaction(ctx, kgo.TryCommit)); err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	if err = write(cl, "f1"); err == nil {
		err = cl.EndTransaction(ctx, kgo.TryCommit)
	}
	if err == nil {
		return errNotFenced
	}
	j.say("fenced", err)
	return nil
}

// franzCopy copies by a session, which is how a program does that with this library.
func franzCopy(ctx context.Context, j *job, commit bool, write func(*kgo.Client, ...string) error) error {
	s, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(j.bootstrap()...), kgo.ClientID(j.text("name")), kgo.TransactionalID(j.text("id")+"-copy"),
		kgo.ConsumerGroup(j.text("group")), kgo.ConsumeTopics(j.text("input")), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MaxConcurrentFetches(1), kgo.RequireStableFetchOffsets(), kgo.FetchMaxWait(200*time.Millisecond))
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Begin(); err != nil {
		return err
	}
	for done := 0; done < copied; {
		fetches := s.PollRecords(ctx, copied-done)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, r := range fetches.Records() {
			if err := write(s.Client(), "p"+string(r.Value)); err != nil {
				return err
			}
			done++
		}
	}
	if _, err := s.End(ctx, kgo.TransactionEndTry(commit)); err != nil {
		return err
	}
	return nil
}

func franzMember(ctx context.Context, j *job, name string) error {
	opts := []kgo.Opt{
		kgo.ClientID(j.text("name") + "-" + name), kgo.ConsumerGroup(j.text("group")), kgo.ConsumeTopics(j.text("topic")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.FetchMaxWait(200 * time.Millisecond),
	}
	if j.text("protocol") == "consumer" {
		opts = append(opts, kgo.ServerSideBalancer())
	}
	cl, err := franzClient(j, opts...)
	if err != nil {
		return err
	}
	defer cl.CloseAllowingRebalance()
	for ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		for _, err := range fetches.Errors() {
			if ctx.Err() == nil {
				return err.Err
			}
		}
		for _, r := range fetches.Records() {
			j.say("record", name, r.Partition, r.Offset, string(r.Value))
		}
		if err := cl.CommitRecords(context.WithoutCancel(ctx), fetches.Records()...); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		cl.AllowRebalance()
	}
	return nil
}
