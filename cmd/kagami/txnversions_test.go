package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"kagami/messages"
)

// TestTxnVersions: transactions of a group, committed and aborted, of a client that has an
// epoch for each (transaction.version 2), of one that is told of version 1, and of one
// that knows neither the feature nor the requests (Kafka 3.3): their epochs stay.
func TestTxnVersions(t *testing.T) {
	n := startTestNode(t, t.TempDir(), noDelay)
	_, cl, adm := connectTo(t, n.kafka())
	topic(t, cl, "in", 1, 40, nil)
	for _, row := range []struct {
		name  string
		level int16
		opts  []kgo.Opt
		epoch int16 // after four transactions
	}{
		{"newer", 2, nil, 4},
		{"downgraded", 1, nil, 0},
		{"older", 2, []kgo.Opt{kgo.MaxVersions(kversion.V3_3_0())}, 0},
		{"downgraded to nothing", 0, nil, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			setFeature(ctx, t, n, cl, "transaction.version", row.level)
			out := fmt.Sprintf("out-%d-%d", row.level, len(row.opts))
			topic(t, cl, out, 1, 0, nil)
			s, err := kgo.NewGroupTransactSession(append([]kgo.Opt{
				kgo.SeedBrokers(n.kafka()), kgo.TransactionalID(out), kgo.ConsumerGroup(out), kgo.ConsumeTopics("in"),
				kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6 * time.Second),
			}, row.opts...)...)
			require.NoError(t, err)
			defer s.Close()
			for txn := range 4 {
				fetches := s.PollRecords(ctx, 10)
				require.NoError(t, fetches.Err0())
				require.NoError(t, s.Begin())
				for _, r := range fetches.Records() {
					require.NoError(t, s.ProduceSync(ctx, &kgo.Record{Topic: out, Value: fmt.Appendf(nil, "%d", r.Offset)}).FirstErr())
				}
				ended, err := s.End(ctx, kgo.TransactionEndTry(txn != 1))
				require.NoError(t, err)
				require.Equal(t, txn != 1, ended)
			}
			for i, value := range committed(t, out, 1, n.kafka())[0] {
				require.Equal(t, fmt.Sprint(i), value, "each once, in order: the aborted ones came again")
			}
			await(t, "the end of the last transaction", func() error {
				described, err := adm.DescribeTransactions(ctx, out)
				if err == nil && described[out].State != "CompleteCommit" {
					err = fmt.Errorf("it is %s", described[out].State)
				}
				require.Equal(t, row.epoch, described[out].ProducerEpoch)
				return err
			})
			offsets, err := adm.FetchOffsets(ctx, out)
			require.NoError(t, err)
			at, _ := offsets.Lookup("in", 0)
			require.Equal(t, int64(len(committed(t, out, 1, n.kafka())[0])), at.At)
		})
	}
}

// setFeature changes a feature and waits until it is told.
func setFeature(ctx context.Context, t *testing.T, n *node, cl *kgo.Client, name string, level int16) {
	t.Helper()
	f, ok := messages.FeatureByName(name)
	require.True(t, ok)
	now := n.store.Image().FeatureLevel(f)
	if now == level {
		return
	}
	req := kmsg.NewPtrUpdateFeaturesRequest()
	u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	u.Feature, u.MaxVersionLevel, u.UpgradeType = name, level, int8(messages.FeatureUpgrade)
	if level < now {
		u.UpgradeType = int8(messages.FeatureSafeDowngrade)
	}
	req.FeatureUpdates = append(req.FeatureUpdates, u)
	resp, err := req.RequestWith(ctx, cl)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(resp.ErrorCode))
	await(t, "the feature's level", func() error {
		if got := n.store.Image().FeatureLevel(f); got != level {
			return fmt.Errorf("%s is %d", name, got)
		}
		return nil
	})
}
