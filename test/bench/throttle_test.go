package bench

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kagami/client"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/test/e2e"
	"kagami/test/kafka/stub"
)

var mirroredBytes = regexp.MustCompile(`(?m)^kafka_server_broker_topic_metrics_replication_bytes_in_total ([0-9.e+]+)`)

// TestBenchThrottle measures how close a node keeps to mirror.replication.throttled.rate
// over ten seconds, with more to copy than it may. Settings: KAGAMI_BENCH_THROTTLE_RATES
// (bytes a second, default "1000000,5000000"), KAGAMI_BENCH_THROTTLE_PARTITIONS (default
// "1,20"), KAGAMI_BENCH_THROTTLE_WINDOWS (of ten seconds each, default 3).
func TestBenchThrottle(t *testing.T) {
	if os.Getenv("KAGAMI_BENCH") == "" {
		t.Skip("KAGAMI_BENCH=1 measures; it takes minutes")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Minute)
	defer cancel()
	rows := "| rate, bytes/s | partitions | copied of what is allowed, in each ten seconds |\n| --- | --- | --- |\n"
	defer func() { fmt.Println("\n" + rows) }()
	windows := number(t, "KAGAMI_BENCH_THROTTLE_WINDOWS", 3)
	for _, rate := range list(t, "KAGAMI_BENCH_THROTTLE_RATES", "1000000,5000000") {
		for _, partitions := range list(t, "KAGAMI_BENCH_THROTTLE_PARTITIONS", "1,20") {
			t.Run(fmt.Sprintf("rate=%d/partitions=%d", rate, partitions), func(t *testing.T) {
				rows += fmt.Sprintf("| %d | %d | %s |\n", rate, partitions, throttleRun(ctx, t, rate, partitions, windows))
			})
		}
	}
}

func throttleRun(ctx context.Context, t *testing.T, rate, partitions, windows int) (shares string) {
	t.Helper()
	const batchBytes, window = 64 << 10, 10 * time.Second
	source, err := stub.Start(stub.Options{Brokers: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, source.Close()) }()
	id := messages.TopicID{15: 1}
	source.Update(func(s *stub.State) { s.NewTopic("t", id, partitions) })
	node := e2e.StartNode(t, e2e.NodeOptions{})
	adm, err := node.Admin()
	require.NoError(t, err)
	defer adm.Close()
	side, err := node.Side()
	require.NoError(t, err)
	defer side.Close()
	bootstrap := source.Address()
	_, err = side.Admin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "mirror.replication.throttled.rate", Value: new(strconv.Itoa(rate))}})
	require.NoError(t, err)
	require.NoError(t, adm.CreateClusterMirror(ctx, wanMirror, map[string]*string{"bootstrap.servers": &bootstrap}))
	res, err := adm.StartMirrorTopics(ctx, wanMirror, []string{"t"}, client.StartOptions{TopicMetadata: map[string]client.TopicMetadata{"t": {ID: id, Partitions: int32(partitions)}}})
	require.NoError(t, err)
	require.NoError(t, res.Err())
	_, err = side.Admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "mirror.replication.throttled.replicas", Value: new("*")}}, "t")
	require.NoError(t, err)
	require.NoError(t, e2e.AwaitStates(ctx, adm, wanMirror, []string{"t"}, partitions, "MIRRORING"))
	one := stub.Build(stub.Spec{Records: []stub.Record{{Value: make([]byte, batchBytes-80)}}})
	each := 2 * rate * 10 * (windows + 2) / partitions / len(one)
	source.Update(func(s *stub.State) {
		for _, p := range s.Topics["t"].Partitions {
			for i := range each {
				b := append([]byte{}, one...)
				batch.SetOffsetAndEpoch(b, int64(i), 0)
				p.Put(b)
			}
		}
	})
	copied := func() float64 {
		t.Helper()
		body, err := node.Get(ctx, "/metrics")
		require.NoError(t, err)
		m := mirroredBytes.FindSubmatch(body)
		require.NotNil(t, m)
		n, err := strconv.ParseFloat(string(m[1]), 64)
		require.NoError(t, err)
		return n
	}
	tick := time.NewTicker(window)
	defer tick.Stop()
	<-tick.C // the allowance of the first ten seconds comes at once
	before, begun := copied(), time.Now()
	for range windows {
		<-tick.C
		now, at := copied(), time.Now()
		shares += fmt.Sprintf("%.3f ", (now-before)/(float64(rate)*at.Sub(begun).Seconds()))
		before, begun = now, at
	}
	return shares
}
