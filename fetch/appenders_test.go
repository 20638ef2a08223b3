package fetch_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/fetch"
	"kagami/test/kafka/stub"
)

// waitingSink appends when it is let.
type waitingSink struct {
	*memSink
	gate *appendGate
}

// appendGate counts appends that wait, all of them until open is closed.
type appendGate struct {
	open chan struct{}

	mu      sync.Mutex
	waiting int
}

func (s waitingSink) AppendMirror(ctx context.Context, at int64, b []byte) (fetch.Appended, error) {
	s.gate.mu.Lock()
	s.gate.waiting++
	s.gate.mu.Unlock()
	<-s.gate.open
	return s.memSink.AppendMirror(ctx, at, b)
}

func (g *appendGate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

// TestAppenders: many partitions with little to append wait for their logs at once, but
// not many with much.
func TestAppenders(t *testing.T) {
	const partitions, few, many = 60, 4, 50
	for _, row := range []struct {
		name       string
		value      int
		more, want int
	}{
		{name: "little", value: 10, more: many, want: many},
		{name: "much", value: fetch.AppendersBytes / few, more: many, want: few},
		{name: "no more", value: 10, want: few},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := oneTopic(t, partitions, func(_ *stub.State, topic *stub.Topic) {
				for _, p := range topic.Partitions {
					p.Put(stub.Build(stub.Spec{Records: value(row.value)}))
				}
			})
			w := newWorker(t, c.Address(), func(cfg *fetch.WorkerConfig) {
				cfg.Appenders, cfg.AppendersMore, cfg.MaxBytes = few, row.more, 1<<30
			})
			gate := &appendGate{open: make(chan struct{})}
			var sinks []*memSink
			for p := range int32(partitions) {
				s := newMemSink()
				a := assignment(s, p)
				a.Sink = waitingSink{s, gate}
				sinks = append(sinks, s)
				require.NoError(t, w.Add(t.Context(), a))
			}
			require.Eventually(t, func() bool { return gate.count() >= row.want }, 20*time.Second, time.Millisecond)
			require.Never(t, func() bool { return gate.count() > row.want }, 100*time.Millisecond, 10*time.Millisecond)
			close(gate.open)
			for _, s := range sinks {
				s.waitEnd(t, 1)
			}
		})
	}
}
