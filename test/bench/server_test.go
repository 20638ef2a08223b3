package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/e2e"
	"kagami/test/kafka"
	"kagami/test/kafka/proc"
)

// served is one server of the comparison.
type served struct {
	who       string
	bootstrap string
	process   *proc.Process
}

func (s served) cpu(t *testing.T) time.Duration {
	t.Helper()
	cpu, err := s.process.CPU()
	require.NoError(t, err)
	return cpu
}

// TestBenchServer measures one node as a Kafka server next to one broker of Apache Kafka
// 4.4 in the same run: bulk produce and fetch, small records, and the time from a produce
// to its consumer. Clients are the same, in this process. Settings: KAGAMI_BENCH_SERVER_MB
// (default 512), KAGAMI_BENCH_SERVER_PARTITIONS (default "1,16"), KAGAMI_BENCH_SERVER_RUNS
// (default 2; they take turns, the last one counts).
func TestBenchServer(t *testing.T) {
	if os.Getenv("KAGAMI_BENCH") == "" {
		t.Skip("KAGAMI_BENCH=1 measures; it takes minutes")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Minute)
	defer cancel()
	t.Setenv(javaOptions, "-XX:TieredStopAtLevel=4 -XX:-UseSerialGC -XX:+UseG1GC")
	broker := kafka.Start(t, kafka.Options{HeapMB: 1024})
	node := e2e.StartNode(t, e2e.NodeOptions{})
	servers := []served{{"Apache Kafka 4.4", broker.Bootstrap(), broker.Process(1)}, {kagami, node.Bootstrap(), node.Process()}}
	table := serverTable{values: map[string]map[string]float64{}}
	defer func() { fmt.Print("\n" + table.String() + "\n") }()
	for _, partitions := range list(t, "KAGAMI_BENCH_SERVER_PARTITIONS", "1,16") {
		for run := range number(t, "KAGAMI_BENCH_SERVER_RUNS", 2) {
			for _, s := range servers {
				measureServer(ctx, t, &table, s, fmt.Sprintf("bench-%d-%d", partitions, run), partitions)
			}
		}
	}
}

func measureServer(ctx context.Context, t *testing.T, table *serverTable, s served, topic string, partitions int) {
	t.Helper()
	put := func(what string, v float64) { table.put(fmt.Sprintf("%s, %d partitions", what, partitions), s.who, v) }
	side, err := e2e.NewSide("S", s.bootstrap)
	require.NoError(t, err)
	defer side.Close()
	for _, name := range []string{topic, topic + "-small"} {
		_, err := side.Admin.CreateTopic(ctx, int32(partitions), 1, nil, name)
		require.NoError(t, err)
		require.NoError(t, kafka.Poll(ctx, func() error {
			_, err := side.TopicEnds(ctx, name)
			return err
		}))
	}
	megabytes := number(t, "KAGAMI_BENCH_SERVER_MB", 512)
	before, begun := s.cpu(t), time.Now()
	records := e2e.Records{Count: megabytes << 20 / recordBytes, Size: recordBytes, PerFlush: 20_000}
	require.NoError(t, e2e.Produce(ctx, s.bootstrap, topic, records, kgo.MaxBufferedRecords(100_000), kgo.ProducerLinger(5*time.Millisecond)))
	bytes := float64(megabytes << 20)
	put("produce MB/s", bytes/1e6/time.Since(begun).Seconds())
	put("produce, server's CPU s/GB", (s.cpu(t)-before).Seconds()/(bytes/1e9))

	for range 2 { // the first one warms the page cache
		before, begun = s.cpu(t), time.Now()
		child, err := proc.Start(proc.Spec{Name: "fetch", Path: os.Args[0], Log: t.TempDir() + "/fetch.log", Env: []string{childTopic + "=" + topic, childBootstrap + "=" + s.bootstrap, childDir + "="}})
		require.NoError(t, err)
		<-child.Done()
		require.NoError(t, child.Err(), child.Log())
		n, err := strconv.ParseFloat(strings.TrimSpace(child.Log()), 64)
		require.NoError(t, err)
		put("fetch MB/s", n/1e6/time.Since(begun).Seconds())
		put("fetch, server's CPU s/GB", (s.cpu(t)-before).Seconds()/(n/1e9))
	}

	small, err := ProduceSmall(ctx, s.bootstrap, topic+"-small", func() time.Duration { return s.cpu(t) })
	require.NoError(t, err)
	put("small records/s, acks=all", small.PerSecond)
	put("one record, acks=all, p50 ms", small.P50.Seconds()*1e3)
	put("one record, acks=all, p99 ms", small.P99.Seconds()*1e3)
	p50, p99 := throughConsumer(ctx, t, s.bootstrap, topic+"-small")
	put("produce to consumer, p50 ms", p50.Seconds()*1e3)
	put("produce to consumer, p99 ms", p99.Seconds()*1e3)
	res, err := side.Admin.DeleteTopics(ctx, topic, topic+"-small")
	require.NoError(t, err)
	require.NoError(t, res.Error())
}

// throughConsumer is the time from a produce to the poll that brings the record, one
// record at a time.
func throughConsumer(ctx context.Context, t *testing.T, bootstrap, topic string) (p50, p99 time.Duration) {
	t.Helper()
	cl, err := smallProducer(bootstrap, topic, kgo.ProducerLinger(0), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()), kgo.FetchMaxWait(time.Second))
	require.NoError(t, err)
	defer cl.Close()
	value := make([]byte, smallRecordBytes)
	next := func(begun time.Time) (time.Duration, bool) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		for n := 0; n == 0; {
			f := cl.PollFetches(ctx)
			if ctx.Err() != nil {
				return 0, false
			}
			require.NoError(t, f.Err())
			n = f.NumRecords()
		}
		return time.Since(begun), true
	}
	var took []time.Duration
	for len(took) < latencyRecords+100 {
		begun := time.Now()
		require.NoError(t, cl.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr())
		if d, ok := next(begun); ok { // the consumer may not be at the end yet
			took = append(took, d)
		}
	}
	took = took[100:]
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100]
}

// serverTable is what was measured, by row and server; the last value counts.
type serverTable struct {
	rows, who []string
	values    map[string]map[string]float64
}

func (s *serverTable) put(row, who string, v float64) {
	if s.values[row] == nil {
		s.rows, s.values[row] = append(s.rows, row), map[string]float64{}
	}
	if !slices.Contains(s.who, who) {
		s.who = append(s.who, who)
	}
	s.values[row][who] = v
}

// String is the table in Markdown; the ratio is of the last server to the first.
func (s *serverTable) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | %s | ratio |\n| --- |%s --- |\n", strings.Join(s.who, " | "), strings.Repeat(" --- |", len(s.who)))
	for _, row := range s.rows {
		fmt.Fprintf(&b, "| %s |", row)
		for _, who := range s.who {
			fmt.Fprintf(&b, " %.4g |", s.values[row][who])
		}
		fmt.Fprintf(&b, " %.2f |\n", s.values[row][s.who[len(s.who)-1]]/s.values[row][s.who[0]])
	}
	return b.String()
}
