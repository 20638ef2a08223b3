package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kagami/client"
	"kagami/messages"
	"kagami/test/kafka"
)

// auditedState is what describe and audit --at both know of a partition.
type auditedState struct {
	Topic           string
	Partition       int32
	State           string
	LastMirrorEpoch int32
	Retry           int16
	CutRecords      int64
}

// TestKill9AuditAgrees kills the node at random moments while topics are paused,
// resumed, stopped and started all the time. After the last kill the audit of the
// files is what the node says, and so is the one over the protocol, to the letter.
func TestKill9AuditAgrees(t *testing.T) {
	n, seed := kills(t), killSeed(t)
	t.Logf("repeat with KAGAMI_KILLS=%d KAGAMI_KILL_SEED=%d go test -run TestKill9AuditAgrees ./test/e2e", n, seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	source, node := StartNode(t, NodeOptions{}), StartNode(t, NodeOptions{})
	side, err := source.Side()
	require.NoError(t, err)
	t.Cleanup(side.Close)
	adm, err := node.Admin()
	require.NoError(t, err)
	t.Cleanup(adm.Close)
	topics := []string{"one", "two", "three"}
	opts := client.StartOptions{TopicMetadata: map[string]client.TopicMetadata{}}
	for _, topic := range topics {
		_, err := kadm.NewClient(side.cl).CreateTopic(ctx, 4, 1, nil, topic)
		require.NoError(t, err)
		d, err := side.Topic(ctx, topic)
		require.NoError(t, err)
		opts.TopicMetadata[topic] = client.TopicMetadata{ID: messages.TopicID(d.ID), Partitions: 4}
	}
	bootstrap := source.Bootstrap()
	require.NoError(t, adm.CreateClusterMirror(ctx, "m", map[string]*string{"bootstrap.servers": &bootstrap}))
	_, err = adm.StartMirrorTopics(ctx, "m", topics, opts)
	require.NoError(t, err)

	// Refusals are part of the load: what is asked for often can't be.
	loading, stop := context.WithCancel(ctx)
	var load sync.WaitGroup
	for i, topic := range topics {
		rng := rand.New(rand.NewPCG(seed, uint64(10+i)))
		load.Go(func() {
			one := []string{topic}
			for loading.Err() == nil {
				asking, done := context.WithTimeout(loading, 5*time.Second)
				switch rng.IntN(4) {
				case 0:
					_, _ = adm.PauseMirrorTopics(asking, "m", one)
				case 1:
					_, _ = adm.ResumeMirrorTopics(asking, "m", one)
				case 2:
					_, _ = adm.StopMirrorTopics(asking, "m", one)
				default:
					_, _ = adm.StartMirrorTopics(asking, "m", one, opts)
				}
				done()
			}
		})
	}
	halt := sync.OnceFunc(func() { stop(); load.Wait() })
	defer halt()
	for kill := range n {
		timer := time.NewTimer(time.Duration(100+rng.IntN(900)) * time.Millisecond) // an input, no wait for something
		<-timer.C
		if kill == n-1 {
			halt()
		}
		require.NoError(t, node.Kill9())
		require.NoError(t, node.Start(ctx), "after kill %d", kill+1)
	}
	require.NoError(t, kafka.Poll(ctx, func() error { return auditsAgree(ctx, node, adm) }))
}

// auditsAgree compares what the node says with both audits.
func auditsAgree(ctx context.Context, node *Node, adm *client.Client) error {
	live, err := Partitions(ctx, adm, "m")
	if err != nil {
		return err
	}
	var want, got []auditedState
	for _, p := range live {
		want = append(want, auditedState{p.Topic, p.Partition, p.State, p.LastMirrorEpoch, p.RetryAttempt, p.CutRecords})
	}
	at := strconv.FormatInt(time.Now().UnixMilli(), 10)
	files, err := Run(ctx, "kagami", "audit", "--mirror", "m", "--data", node.DataDir(), "--at", at, "--json")
	if err != nil || files.Code != 0 {
		return errors.Join(err, fmt.Errorf("audit ends with code %d: %s", files.Code, files.Stderr))
	}
	for line := range bytes.Lines([]byte(files.Stdout)) {
		var s auditedState
		if err := json.Unmarshal(line, &s); err != nil {
			return fmt.Errorf("read %q: %w", line, err)
		}
		got = append(got, s)
	}
	if d := cmp.Diff(want, got); d != "" {
		return fmt.Errorf("the replay differs (-live +replay): %s", d)
	}
	for _, more := range [][]string{{"--at", at, "--json"}, {"--json"}, nil} {
		args := append([]string{"audit", "--mirror", "m"}, more...)
		files, err1 := Run(ctx, "kagami", append(args, "--data", node.DataDir())...)
		protocol, err2 := Run(ctx, "kagami", append(args, "--bootstrap-server", node.Bootstrap())...)
		if err1 != nil || err2 != nil || files != protocol {
			return errors.Join(err1, err2, fmt.Errorf("audit %v, files against protocol: %s", more, cmp.Diff(files, protocol)))
		}
	}
	return nil
}
