package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type place struct {
	partition int32
	offset    int64
}

// topic is what the test knows of a topic: every acknowledged record that must
// still be there.
type topic struct {
	name string
	life int // of the writer, makes values differ

	mu    sync.Mutex
	acked map[string]place
	sent  int
	errs  []error

	stop context.CancelFunc
	done chan struct{}
}

func newTopic(name string) *topic { return &topic{name: name, acked: map[string]place{}} }

// write starts an idempotent producer in the background.
func (tp *topic) write(bootstrap string, pause time.Duration) error {
	cl, err := kgo.NewClient(patient(bootstrap)...)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	tp.stop, tp.done = stop, make(chan struct{})
	tp.life++
	life := tp.life
	go func() {
		defer close(tp.done)
		defer cl.Close()
		tp.run(ctx, cl, life, pause)
	}()
	return nil
}

func (tp *topic) run(ctx context.Context, cl *kgo.Client, life int, pause time.Duration) {
	rng := rand.New(rand.NewPCG(uint64(life), 5))
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for i := 0; ; i++ {
		for j := range 3 {
			value := fmt.Appendf(nil, "%s/%d/%d/%d ", tp.name, life, i, j)
			for range rng.IntN(300) {
				value = append(value, byte('a'+rng.IntN(26)))
			}
			tp.mu.Lock()
			tp.sent++
			tp.mu.Unlock()
			cl.Produce(context.WithoutCancel(ctx), &kgo.Record{Topic: tp.name, Key: fmt.Appendf(nil, "%d", rng.IntN(1000)), Value: value}, tp.answered)
		}
		select {
		case <-ctx.Done():
			flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), 40*time.Second)
			defer cancel()
			if err := cl.Flush(flush); err != nil {
				tp.mu.Lock()
				tp.errs = append(tp.errs, fmt.Errorf("flush: %w", err))
				tp.mu.Unlock()
			}
			return
		case <-tick.C:
		}
	}
}

func (tp *topic) answered(r *kgo.Record, err error) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	if err != nil {
		tp.errs = append(tp.errs, err)
		return
	}
	tp.acked[string(r.Value)] = place{r.Partition, r.Offset}
}

// end waits for what is in flight and returns what went wrong in the producer's life.
func (tp *topic) end() error {
	if tp.stop == nil {
		return nil
	}
	tp.stop()
	<-tp.done
	tp.stop = nil
	tp.mu.Lock()
	defer tp.mu.Unlock()
	err := errors.Join(tp.errs...)
	tp.errs = nil
	return err
}

// abandon ends a writer whose records nobody waits for.
func (tp *topic) abandon() {
	if tp.stop != nil {
		tp.stop()
	}
}

// forget drops records for which keep is false: they were cut, as announced.
func (tp *topic) forget(keep func(place) bool) int {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	n := 0
	for v, p := range tp.acked {
		if !keep(p) {
			delete(tp.acked, v)
			n++
		}
	}
	return n
}
