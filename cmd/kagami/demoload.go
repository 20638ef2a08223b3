package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/client"
)

// demoLoad writes records to the demo's topics at a steady rate.
type demoLoad struct {
	client  *kgo.Client
	acked   atomic.Int64
	failed  atomic.Int64
	lastErr atomic.Pointer[error]
	stop    context.CancelFunc
	done    sync.WaitGroup
}

const (
	demoRecordBytes = 1024
	demoBurst       = 20 * time.Millisecond
)

func startLoad(ctx context.Context, bootstrap string, topics []string, perSecond int) (*demoLoad, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.RecordDeliveryTimeout(2*time.Second),
		kgo.RequestRetries(2), kgo.ProducerBatchMaxBytes(1<<20), kgo.DefaultProduceTopic(topics[0]))
	if err != nil {
		return nil, fmt.Errorf("connect a producer to %s: %w", bootstrap, err)
	}
	running, cancel := context.WithCancel(ctx)
	l := &demoLoad{client: cl, stop: cancel}
	l.done.Go(func() { l.run(ctx, running, topics, perSecond) })
	return l, nil
}

// run produces under ctx until running ends: what is on the way then is still
// delivered.
func (l *demoLoad) run(ctx, running context.Context, topics []string, perSecond int) {
	tick := time.NewTicker(demoBurst)
	defer tick.Stop()
	burst := max(1, perSecond*int(demoBurst)/int(time.Second))
	n := uint64(0)
	for {
		select {
		case <-running.Done():
			return
		case <-tick.C:
		}
		for range burst {
			n++
			value := make([]byte, demoRecordBytes)
			for i := 0; i+8 <= len(value); i += 8 {
				binary.BigEndian.PutUint64(value[i:], n*uint64(i+1)*0x9e3779b97f4a7c15)
			}
			l.client.TryProduce(ctx, &kgo.Record{
				Topic: topics[n%uint64(len(topics))], Key: binary.BigEndian.AppendUint64(nil, n%1000), Value: value,
			}, func(_ *kgo.Record, err error) {
				if err != nil {
					l.failed.Add(1)
					l.lastErr.Store(&err)
					return
				}
				l.acked.Add(1)
			})
		}
	}
}

// finish stops the load. With flush, what is on the way is delivered first.
func (l *demoLoad) finish(ctx context.Context, flush bool) error {
	if flush {
		// The writer goes on meanwhile; stop it first, keep its client.
		defer l.client.Close()
		l.stop()
		l.done.Wait()
		return l.client.Flush(ctx)
	}
	l.stop()
	l.done.Wait()
	l.client.Close()
	return nil
}

// demoCluster is a connection to one side of the demo.
type demoCluster struct {
	mirrors *client.Client
	admin   *kadm.Client
}

func connect(bootstrap string) (*demoCluster, error) {
	c, err := client.New(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.RequestRetries(5), kgo.RetryTimeout(10*time.Second))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", bootstrap, err)
	}
	return &demoCluster{mirrors: c, admin: kadm.NewClient(c.Kgo())}, nil
}

func (c *demoCluster) close() { c.mirrors.Close() }

// ends sums the log ends of the topics.
func (c *demoCluster) ends(ctx context.Context, topics []string) (int64, error) {
	ends, err := c.admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return 0, err
	}
	if err := ends.Error(); err != nil {
		return 0, err
	}
	var sum int64
	ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
	return sum, nil
}

func demoRecord(topic, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Value: []byte(value)}
}
