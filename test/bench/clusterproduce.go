package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Produced is one measured producer of small records with acks=all.
type Produced struct {
	Who        string
	Partitions int
	P50, P99   time.Duration // of a record on its own, one after the other
	PerSecond  float64       // records of a producer that gathers
	CPU        time.Duration // of the nodes, while it gathers
	Records    int           // that it wrote
}

// ProducedTable is all of them; Write prints it.
type ProducedTable []Produced

// Write prints the table in Markdown; ratios are to one node.
func (all ProducedTable) Write(w io.Writer) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w, "\n| partitions | who | p50 ms | p99 ms | records/s | to one node | CPU us a record |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- |")
	for _, p := range all {
		ratio := "-"
		for _, o := range all {
			if o.Partitions == p.Partitions && o.Who == oneNode && p.Who != oneNode {
				ratio = fmt.Sprintf("%.2f", p.PerSecond/o.PerSecond)
			}
		}
		fmt.Fprintf(w, "| %d | %s | %.2f | %.2f | %.0f | %s | %.1f |\n", p.Partitions, p.Who,
			p.P50.Seconds()*1e3, p.P99.Seconds()*1e3, p.PerSecond, ratio, p.CPU.Seconds()*1e6/float64(max(p.Records, 1)))
	}
	fmt.Fprintln(w)
}

// Sizes of a produce measurement.
const (
	smallRecordBytes = 100
	latencyRecords   = 1000
	gatherTime       = 4 * time.Second
)

// ProduceSmall measures a topic that is there; cpu tells the processor time of its
// nodes so far.
func ProduceSmall(ctx context.Context, bootstrap, topic string, cpu func() time.Duration) (p Produced, err error) {
	if p.P50, p.P99, err = oneByOne(ctx, bootstrap, topic); err != nil {
		return p, err
	}
	cl, err := smallProducer(bootstrap, topic, kgo.ProducerLinger(time.Millisecond), kgo.MaxBufferedRecords(50_000))
	if err != nil {
		return p, err
	}
	defer cl.Close()
	var stored atomic.Int64
	var failed atomic.Pointer[error]
	value := make([]byte, smallRecordBytes)
	before, begun := cpu(), time.Now()
	for time.Since(begun) < gatherTime {
		cl.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
				return
			}
			stored.Add(1)
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return p, fmt.Errorf("flush: %w", err)
	}
	p.PerSecond = float64(stored.Load()) / time.Since(begun).Seconds()
	p.CPU, p.Records = cpu()-before, int(stored.Load())
	if err := failed.Load(); err != nil {
		return p, fmt.Errorf("produce: %w", *err)
	}
	return p, nil
}

func smallProducer(bootstrap, topic string, opts ...kgo.Opt) (*kgo.Client, error) {
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.UnknownTopicRetries(20),
	}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("make producer: %w", err)
	}
	return cl, nil
}

// oneByOne writes records each of which waits for the one before.
func oneByOne(ctx context.Context, bootstrap, topic string) (p50, p99 time.Duration, err error) {
	cl, err := smallProducer(bootstrap, topic, kgo.ProducerLinger(0))
	if err != nil {
		return 0, 0, err
	}
	defer cl.Close()
	value := make([]byte, smallRecordBytes)
	took := make([]time.Duration, 0, latencyRecords)
	for i := range latencyRecords + 100 {
		begun := time.Now()
		if err := cl.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr(); err != nil {
			return 0, 0, fmt.Errorf("produce: %w", err)
		}
		if i >= 100 { // connections, producer ids
			took = append(took, time.Since(begun))
		}
	}
	if len(took) == 0 {
		return 0, 0, errors.New("no record was written")
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100], nil
}
