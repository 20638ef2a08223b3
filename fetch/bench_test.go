package fetch_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"kagami/fetch"
	"kagami/internal/clock"
	"kagami/messages/batch"
	"kagami/test/kafka/stub"
)

// discard is a sink that keeps only the end.
type discard struct {
	end  atomic.Int64
	goal int64
	done chan struct{}
}

func (d *discard) State() fetch.LocalState {
	e := d.end.Load()
	return fetch.LocalState{End: e, HighWatermark: e, LeaderEpoch: 100, LatestEpoch: 0}
}

func (d *discard) EpochEndOffset(int32) (int32, int64, bool) { return -1, -1, false }

func (d *discard) AppendMirror(_ context.Context, at int64, b []byte) (fetch.Appended, error) {
	for len(b) > 0 {
		h, err := batch.ParseHeader(b)
		if err != nil {
			return fetch.Appended{}, err
		}
		at = h.LastOffset() + 1
		b = b[h.Size():]
	}
	d.end.Store(at)
	if at >= d.goal {
		close(d.done)
	}
	return fetch.Appended{End: at, MaxTimestamp: -1}, nil
}

func (d *discard) Truncate(context.Context, int64, string) (fetch.Cut, error) {
	return fetch.Cut{}, nil
}

func (d *discard) RestartAt(context.Context, int64, string) (fetch.Cut, error) {
	return fetch.Cut{}, nil
}
func (d *discard) RaiseLogStart(context.Context, int64) error { return nil }

// benchSource has parts partitions with 32 MiB together.
func benchSource(b *testing.B, parts, batchBytes int) (*stub.Cluster, int64, int64) {
	b.Helper()
	const total = 32 << 20
	one := stub.Build(stub.Spec{Records: value(batchBytes - 80)})
	n := total / parts / len(one)
	c := oneTopic(b, parts, func(_ *stub.State, topic *stub.Topic) {
		for _, p := range topic.Partitions {
			for i := range n {
				bytes := append([]byte{}, one...)
				batch.SetOffsetAndEpoch(bytes, int64(i), 0)
				p.Put(bytes)
			}
		}
	})
	return c, int64(n), int64(n * len(one) * parts)
}

var benchShapes = []struct{ partitions, batch int }{{1, 16 << 10}, {1, 1 << 20}, {100, 16 << 10}}

// BenchmarkWorker copies 32 MiB from the scripted source to a sink that keeps
// nothing; BenchmarkBareFetch only fetches the same bytes. Their ratio is what
// sessions, checks and hand-over cost.
func BenchmarkWorker(b *testing.B) {
	for _, shape := range benchShapes {
		b.Run(fmt.Sprintf("partitions=%d/batch=%dKiB", shape.partitions, shape.batch>>10), func(b *testing.B) {
			c, goal, total := benchSource(b, shape.partitions, shape.batch)
			b.SetBytes(total)
			b.ReportAllocs()
			for b.Loop() {
				w, err := fetch.NewWorker(b.Context(), fetch.WorkerConfig{
					Source: plainConfig(b, c.Address()), Mirror: "m", Address: c.Address(), Backoff: time.Second, Clock: clock.Wall{}, Log: zap.NewNop(),
				})
				require.NoError(b, err)
				sinks := make([]*discard, shape.partitions)
				for i := range sinks {
					sinks[i] = &discard{goal: goal, done: make(chan struct{})}
					require.NoError(b, w.Add(b.Context(), fetch.Assignment{TopicPartition: tp("t", int32(i)), TopicID: topicID, Sink: sinks[i]}))
				}
				for _, s := range sinks {
					<-s.done
				}
				require.NoError(b, w.Close())
			}
		})
	}
}

func BenchmarkBareFetch(b *testing.B) {
	for _, shape := range benchShapes {
		b.Run(fmt.Sprintf("partitions=%d/batch=%dKiB", shape.partitions, shape.batch>>10), func(b *testing.B) {
			c, goal, total := benchSource(b, shape.partitions, shape.batch)
			b.SetBytes(total)
			b.ReportAllocs()
			for b.Loop() {
				cl, err := kgo.NewClient(kgo.SeedBrokers(c.Address()))
				require.NoError(b, err)
				bareFetch(b, cl, shape.partitions, goal)
				cl.Close()
			}
		})
	}
}

func bareFetch(b *testing.B, cl *kgo.Client, partitions int, goal int64) {
	b.Helper()
	next := make([]int64, partitions)
	for left := partitions; left > 0; {
		req := kmsg.NewPtrFetchRequest()
		req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 500, 1, 10<<20, -1
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = "t", topicID
		for i, o := range next {
			if o < goal {
				p := kmsg.NewFetchRequestTopicPartition()
				p.Partition, p.FetchOffset, p.PartitionMaxBytes = int32(i), o, 1<<20
				t.Partitions = append(t.Partitions, p)
			}
		}
		req.Topics = append(req.Topics, t)
		kresp, err := cl.SeedBrokers()[0].Request(b.Context(), req)
		require.NoError(b, err)
		for _, p := range kresp.(*kmsg.FetchResponse).Topics[0].Partitions {
			for data := p.RecordBatches; len(data) > 0; {
				h, err := batch.ParseHeader(data)
				require.NoError(b, err)
				next[p.Partition] = h.LastOffset() + 1
				data = data[h.Size():]
			}
			if len(p.RecordBatches) > 0 && next[p.Partition] >= goal {
				left--
			}
		}
	}
}
