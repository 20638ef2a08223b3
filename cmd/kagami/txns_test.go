package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"kagami/client"
	"kagami/messages"
)

// txnClient is a transactional producer; seeds may be several nodes.
func txnClient(t *testing.T, id string, timeout time.Duration, seeds ...string) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.TransactionalID(id), kgo.TransactionTimeout(timeout), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// writeTxn writes one record into each partition, in a transaction.
func writeTxn(ctx context.Context, cl *kgo.Client, topic string, partitions int32, value string, commit bool) error {
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	err := error(nil)
	for p := range partitions {
		if err = cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: p, Value: []byte(value)}).FirstErr(); err != nil {
			break
		}
	}
	end := kgo.TryCommit
	if err != nil || !commit {
		end = kgo.TryAbort
	}
	if ended := cl.EndTransaction(ctx, end); ended != nil {
		return ended
	}
	return err
}

// committed reads what committed readers see of a topic, by partition, up to the last
// stable offsets that there are now.
func committed(t *testing.T, topic string, partitions int32, seeds ...string) [][]string {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	require.NoError(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, topic)
	require.NoError(t, err)
	require.NoError(t, ends.Error())
	out := make([][]string, partitions)
	left := map[int32]bool{}
	ends.Each(func(o kadm.ListedOffset) { left[o.Partition] = o.Offset > 0 })
	for slices.Contains(mapValues(left), true) {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "%v", left)
		fetches.EachRecord(func(r *kgo.Record) {
			if o, _ := ends.Lookup(topic, r.Partition); r.Offset >= o.Offset-1 {
				left[r.Partition] = false
			}
			if !r.Attrs.IsControl() {
				out[r.Partition] = append(out[r.Partition], string(r.Value))
			}
		})
	}
	return out
}

func mapValues(m map[int32]bool) []bool {
	var out []bool
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// TestTxnExactlyOnce: what is consumed, changed and produced in transactions of a group
// comes out once, across restarts of the node.
func TestTxnExactlyOnce(t *testing.T) {
	dir := t.TempDir()
	n := startTestNode(t, dir, noDelay)
	_, cl, _ := connectTo(t, n.kafka())
	topic(t, cl, "in", 1, 100, nil)
	topic(t, cl, "out", 1, 0, nil)
	var want []string
	for round := range 3 {
		s, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(n.kafka()), kgo.TransactionalID("eos"), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("in"),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxBytes(100), kgo.SessionTimeout(6*time.Second))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		for done, tried := 0, 0; done < 20; tried++ {
			fetches := s.PollRecords(ctx, 7)
			require.NoError(t, fetches.Err0())
			records := fetches.Records()
			require.NoError(t, s.Begin())
			written := kgo.AbortingFirstErrPromise(s.Client())
			for _, r := range records {
				s.Produce(ctx, &kgo.Record{Topic: "out", Value: fmt.Appendf(nil, "%d", r.Offset)}, written.Promise())
			}
			require.NoError(t, written.Err())
			commit := (tried+round)%3 != 1
			ok, err := s.End(ctx, kgo.TransactionEndTry(commit))
			require.NoError(t, err)
			require.Equal(t, commit, ok)
			if ok {
				done += len(records)
				for _, r := range records {
					want = append(want, fmt.Sprint(r.Offset))
				}
			}
		}
		s.Close()
		cancel()
		stopTestNode(t, n)
		n = startTestNode(t, dir, noDelay)
	}
	for i, v := range want {
		require.Equal(t, fmt.Sprint(i), v, "each once and in order, aborted ones again")
	}
	require.Equal(t, [][]string{want}, committed(t, "out", 1, n.kafka()))
	_, _, adm := connectTo(t, n.kafka())
	await(t, "the marker of the offsets", func() error {
		offsets, err := adm.FetchOffsets(t.Context(), "g")
		if err != nil {
			return err
		}
		if o, _ := offsets.Lookup("in", 0); o.At != int64(len(want)) {
			return fmt.Errorf("committed offset %d, want %d", o.At, len(want))
		}
		return nil
	})
}

// TestTxnPendingOffsets: the offsets of an open transaction aren't there, and who asks
// for stable ones is told to wait (KIP-447).
func TestTxnPendingOffsets(t *testing.T) {
	dir := t.TempDir()
	n := startTestNode(t, dir, noDelay)
	_, cl, adm := connectTo(t, n.kafka())
	topic(t, cl, "t", 1, 1, nil)
	_, err := adm.CommitOffsets(t.Context(), "g", kadm.OffsetsFromRecords(kgo.Record{Topic: "t", Offset: 3}))
	require.NoError(t, err)
	at := func(stable bool) (int64, error) {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.RequireStable = stable
		g := kmsg.NewOffsetFetchRequestGroup()
		rt := kmsg.NewOffsetFetchRequestGroupTopic()
		g.Group, rt.Topic, rt.Partitions = "g", "t", []int32{0}
		g.Topics = append(g.Topics, rt)
		req.Groups = append(req.Groups, g)
		resp, err := req.RequestWith(t.Context(), cl)
		require.NoError(t, err)
		p := resp.Groups[0].Topics[0].Partitions[0]
		return p.Offset, kerr.ErrorForCode(p.ErrorCode)
	}
	p := newRawTxn(t, cl, "x")
	for i, commit := range []bool{false, true} {
		p.commit("g", "t", int64(10+i))
		got, err := at(false)
		require.NoError(t, err)
		require.Equal(t, int64(4), got)
		_, err = at(true)
		require.ErrorIs(t, err, kerr.UnstableOffsetCommit)
		if commit { // the same after a replay
			stopTestNode(t, n)
			n = startTestNode(t, dir, noDelay)
			_, cl, _ = connectTo(t, n.kafka())
			p.cl = cl
			_, err = at(true)
			require.ErrorIs(t, err, kerr.UnstableOffsetCommit)
		}
		p.end(commit)
		await(t, "stable offsets", func() error { _, err := at(true); return err })
	}
	got, err := at(true)
	require.NoError(t, err)
	require.Equal(t, int64(11), got)
}

// rawTxn speaks the newest requests of one transactional producer.
type rawTxn struct {
	t     *testing.T
	cl    *kgo.Client
	id    string
	pid   int64
	epoch int16
}

func newRawTxn(t *testing.T, cl *kgo.Client, id string) *rawTxn {
	t.Helper()
	p := &rawTxn{t: t, cl: cl, id: id}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, 60_000
	await(t, "a producer id", func() error {
		resp, err := req.RequestWith(t.Context(), cl)
		if err != nil {
			return err
		}
		p.pid, p.epoch = resp.ProducerID, resp.ProducerEpoch
		return kerr.ErrorForCode(resp.ErrorCode)
	})
	return p
}

func (p *rawTxn) commit(group, topic string, offset int64) {
	p.t.Helper()
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = p.id, group, p.pid, p.epoch, -1
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	part.Offset = offset
	t.Topic, t.Partitions = topic, append(t.Partitions, part)
	if img, err := kadm.NewClient(p.cl).ListTopics(p.t.Context(), topic); err == nil {
		t.TopicID = img[topic].ID
	}
	req.Topics = append(req.Topics, t)
	await(p.t, "a transactional commit", func() error {
		resp, err := req.RequestWith(p.t.Context(), p.cl)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	})
}

func (p *rawTxn) end(commit bool) {
	p.t.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.id, p.pid, p.epoch, commit
	await(p.t, "end of transaction", func() error {
		resp, err := req.RequestWith(p.t.Context(), p.cl)
		if err == nil {
			if err = kerr.ErrorForCode(resp.ErrorCode); err == nil {
				p.pid, p.epoch = resp.ProducerID, resp.ProducerEpoch
			}
		}
		return err
	})
}

// TestTxnTimeout: what a producer leaves open is aborted for it, and it is fenced.
func TestTxnTimeout(t *testing.T) {
	n := startTestNode(t, t.TempDir())
	_, cl, adm := connectTo(t, n.kafka())
	topic(t, cl, "t", 1, 0, nil)
	p := txnClient(t, "slow", 500*time.Millisecond, n.kafka())
	require.NoError(t, writeTxn(t.Context(), p, "t", 1, "a", true))
	require.NoError(t, p.BeginTransaction())
	require.NoError(t, p.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("b")}).FirstErr())
	require.Equal(t, [][]string{{"a"}}, committed(t, "t", 1, n.kafka()))
	await(t, "the abort", func() error {
		stable, err := adm.ListCommittedOffsets(t.Context(), "t")
		if err != nil {
			return err
		}
		if o, _ := stable.Lookup("t", 0); o.Offset != 4 {
			return fmt.Errorf("last stable offset %d", o.Offset)
		}
		return nil
	})
	require.Error(t, p.EndTransaction(t.Context(), kgo.TryCommit))
	require.Equal(t, [][]string{{"a"}}, committed(t, "t", 1, n.kafka()))
	described, err := adm.DescribeTransactions(t.Context(), "slow")
	require.NoError(t, err)
	require.Equal(t, "CompleteAbort", described["slow"].State)
}

// TestTxnOfMirrors: transactions that were mirrored look as they did; a mirror topic
// takes none before it is stopped, and then it does; a transaction that is open when
// its topic is mirrored again ends without it (C04, C33, U6).
func TestTxnOfMirrors(t *testing.T) {
	p := startPair(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	there := txnClient(t, "there", time.Minute, p.src.kafka())
	require.NoError(t, writeTxn(ctx, there, "t", 2, "committed", true))
	require.NoError(t, writeTxn(ctx, there, "t", 2, "aborted", false))
	require.NoError(t, there.BeginTransaction())
	for n := range int32(2) {
		require.NoError(t, there.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: n, Value: []byte("open")}).FirstErr())
	}
	p.awaitEnd("t")
	before := committed(t, "t", 2, p.src.kafka())
	require.Equal(t, before, committed(t, "t", 2, p.dst.kafka()))

	here := txnClient(t, "here", time.Minute, p.dst.kafka())
	require.ErrorIs(t, writeTxn(ctx, here, "t", 2, "refused", true), kerr.PolicyViolation)
	raw := newRawTxn(t, p.dstCl, "raw")
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.Version = 3
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = raw.id, raw.pid, raw.epoch
	add.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	old, err := kgo.NewClient(kgo.SeedBrokers(p.dst.kafka()), kgo.MaxVersions(kversion.V3_0_0()))
	require.NoError(t, err)
	defer old.Close()
	added, err := add.RequestWith(ctx, old)
	require.NoError(t, err)
	require.Equal(t, kerr.PolicyViolation.Code, added.Topics[0].Partitions[0].ErrorCode)

	res, err := p.adm.StopMirrorTopics(ctx, "m", []string{"t"})
	require.NoError(t, errors.Join(err, res.Err()))
	await(t, "a stopped topic", func() error {
		return p.dstCl.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: 0, Value: []byte("plain")}).FirstErr()
	})
	await(t, "a stopped topic", func() error {
		return p.dstCl.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: 1, Value: []byte("plain")}).FirstErr()
	})
	here = txnClient(t, "here", time.Minute, p.dst.kafka())
	require.NoError(t, writeTxn(ctx, here, "t", 2, "ours", true))
	require.NoError(t, writeTxn(ctx, here, "t", 2, "not ours", false))
	for n := range before {
		before[n] = append(before[n], "plain", "ours")
	}
	await(t, "what is committed after the stop", func() error {
		if got := committed(t, "t", 2, p.dst.kafka()); !slices.EqualFunc(got, before, slices.Equal) {
			return fmt.Errorf("%v, want %v", got, before)
		}
		return nil
	})

	topic(t, p.dstCl, "own", 1, 0, nil)
	require.NoError(t, here.BeginTransaction())
	for _, r := range []*kgo.Record{{Topic: "t", Value: []byte("lost")}, {Topic: "own", Value: []byte("kept")}} {
		require.NoError(t, here.ProduceSync(ctx, r).FirstErr())
	}
	res, err = p.adm.StartMirrorTopics(ctx, "m", []string{"t"}, client.StartOptions{})
	require.NoError(t, errors.Join(err, res.Err()))
	require.NoError(t, here.EndTransaction(ctx, kgo.TryCommit))
	await(t, "the end of the transaction", func() error {
		described, err := kadm.NewClient(p.dstCl).DescribeTransactions(ctx, "here")
		if err != nil {
			return err
		}
		if state := described["here"].State; state != "CompleteCommit" {
			return fmt.Errorf("it is %s", state)
		}
		return nil
	})
	require.Equal(t, [][]string{{"kept"}}, committed(t, "own", 1, p.dst.kafka()))
	p.awaitEnd("t")
}

// TestTxnOverNodes: on three nodes transactions go on, each whole or not at all, while
// the node of their coordinator ends, and one that leads partitions of theirs.
func TestTxnOverNodes(t *testing.T) {
	c := newTestNodes(t, []messages.NodeID{1, 2, 3}, "transaction.state.log.num.partitions=3")
	c.start(1, 2, 3)
	_, _, adm := c.connect(1)
	c.create(adm, "t", 6)
	var seeds []string
	for _, n := range c.nodes {
		seeds = append(seeds, n.kafka())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	p := txnClient(t, "x", time.Minute, seeds...)
	want := []string{}
	write := func(value string, commit bool) {
		t.Helper()
		require.NoError(t, writeTxn(ctx, p, "t", 6, value, commit))
		if commit {
			want = append(want, value)
		}
	}
	for i := range 4 {
		write(fmt.Sprintf("a%d", i), i%2 == 0)
	}
	// A transaction is open while a node ends.
	require.NoError(t, p.BeginTransaction())
	for part := range int32(6) {
		require.NoError(t, p.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: part, Value: []byte("open")}).FirstErr())
	}
	found := adm.FindTxnCoordinators(ctx, "x")["x"]
	require.NoError(t, found.Err)
	gone := messages.NodeID(found.NodeID)
	c.stop(gone)
	require.NoError(t, p.EndTransaction(ctx, kgo.TryCommit))
	want = append(want, "open")
	for i := range 4 {
		write(fmt.Sprintf("b%d", i), i%2 == 0)
	}
	var left []string
	for _, n := range c.nodes {
		left = append(left, n.kafka())
	}
	await(t, "all markers", func() error {
		for part, got := range committed(t, "t", 6, left...) {
			if strings.Join(got, " ") != strings.Join(want, " ") {
				return fmt.Errorf("partition %d: %v", part, got)
			}
		}
		return nil
	})
}
