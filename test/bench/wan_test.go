package bench

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/client"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/test/e2e"
	"kagami/test/kafka"
	"kagami/test/kafka/stub"
	"kagami/test/kafka/wan"
)

// wanMirror is the mirror over the link.
const wanMirror = "far"

// TestBenchWAN measures one node that mirrors over a link of some round trip and rate,
// as a share of that rate (scenario K13). Settings: KAGAMI_BENCH_WAN_MB (megabytes of the
// topic, default 256), KAGAMI_BENCH_WAN_RATES (MB/s, default "10,25,50"),
// KAGAMI_BENCH_WAN_RTT (ms, default 100), KAGAMI_BENCH_WAN_PARTITIONS (default "1,50"),
// KAGAMI_BENCH_WAN_WINDOWS (kagami.fetch.window.max.bytes, default "0,33554432").
func TestBenchWAN(t *testing.T) {
	if os.Getenv("KAGAMI_BENCH") == "" {
		t.Skip("KAGAMI_BENCH=1 measures; it takes minutes")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Minute)
	defer cancel()
	size := int64(number(t, "KAGAMI_BENCH_WAN_MB", 256)) << 20
	roundTrip := time.Duration(number(t, "KAGAMI_BENCH_WAN_RTT", 100)) * time.Millisecond
	rows := "| round trip | link MB/s | partitions | window MiB | MB/s | of the link |\n| --- | --- | --- | --- | --- | --- |\n"
	defer func() { fmt.Println("\n" + rows) }()
	for _, rate := range list(t, "KAGAMI_BENCH_WAN_RATES", "10,25,50") {
		for _, partitions := range list(t, "KAGAMI_BENCH_WAN_PARTITIONS", "1,50") {
			for _, window := range list(t, "KAGAMI_BENCH_WAN_WINDOWS", "0,33554432") {
				t.Run(fmt.Sprintf("rate=%d/partitions=%d/window=%d", rate, partitions, window), func(t *testing.T) {
					bytes := min(size, int64(rate)*20<<20) // 20 s are enough
					got := wanRun(ctx, t, roundTrip, int64(rate)*1_000_000, partitions, window, bytes)
					rows += fmt.Sprintf("| %s | %d | %d | %d | %.1f | %.2f |\n", roundTrip, rate, partitions, window>>20, got/1e6, got/1e6/float64(rate))
				})
			}
		}
	}
}

// wanRun is the bytes a second of everything but the first tenth.
func wanRun(ctx context.Context, t *testing.T, roundTrip time.Duration, rate int64, partitions, window int, size int64) float64 {
	t.Helper()
	const batchBytes = 64 << 10
	source, err := stub.Start(stub.Options{Brokers: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, source.Close()) }()
	one := stub.Build(stub.Spec{Records: []stub.Record{{Value: make([]byte, batchBytes-80)}}})
	each := size / int64(len(one)) / int64(partitions)
	id := messages.TopicID{15: 1}
	source.Update(func(s *stub.State) {
		topic := s.NewTopic("t", id, partitions)
		for _, p := range topic.Partitions {
			for i := range each {
				b := append([]byte{}, one...)
				batch.SetOffsetAndEpoch(b, i, 0)
				p.Put(b)
			}
		}
	})
	link, err := wan.NewLink(source.Address(), roundTrip, rate)
	require.NoError(t, err)
	defer link.Close()
	source.Broker(0).Advertise(link.Addr())
	node := e2e.StartNode(t, e2e.NodeOptions{Properties: map[string]string{"kagami.fetch.window.max.bytes": fmt.Sprint(window)}})
	adm, err := node.Admin()
	require.NoError(t, err)
	defer adm.Close()
	side, err := node.Side()
	require.NoError(t, err)
	defer side.Close()
	bootstrap := link.Addr()
	require.NoError(t, adm.CreateClusterMirror(ctx, wanMirror, map[string]*string{"bootstrap.servers": &bootstrap}))
	res, err := adm.StartMirrorTopics(ctx, wanMirror, []string{"t"}, client.StartOptions{TopicMetadata: map[string]client.TopicMetadata{
		"t": {ID: id, Partitions: int32(partitions)},
	}})
	require.NoError(t, err)
	require.NoError(t, res.Err())
	all := each * int64(partitions)
	first, begun := reached(ctx, t, side, all/10)
	last, ended := reached(ctx, t, side, all)
	return float64((last-first)*int64(len(one))) / ended.Sub(begun).Seconds()
}

// reached waits until the topic has so many records at least, and says how many and when.
func reached(ctx context.Context, t *testing.T, side *e2e.Side, goal int64) (n int64, at time.Time) {
	t.Helper()
	require.NoError(t, kafka.Poll(ctx, func() error {
		ends, err := side.TopicEnds(ctx, "t")
		if err != nil {
			return err
		}
		n, at = 0, time.Now()
		for _, e := range ends {
			n += e.End
		}
		if n < goal {
			return fmt.Errorf("%d records of %d", n, goal)
		}
		return nil
	}))
	return n, at
}
