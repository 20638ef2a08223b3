package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"kagami/messages"
)

const testClusterID = "lBq12jYZRp-9wF3M9MPopg"

func openTestBus(tb testing.TB, change func(*BusOptions)) *Bus {
	tb.Helper()
	o := BusOptions{ClusterID: testClusterID, Node: 1, Logger: zap.NewNop()}
	if change != nil {
		change(&o)
	}
	b, err := OpenBus(tb.Context(), o)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, b.Close()) })
	return b
}

func serve(tb testing.TB, b *Bus, subject string, h Handler) (stop func()) {
	tb.Helper()
	stop, err := b.Serve(subject, h)
	require.NoError(tb, err)
	return stop
}

func TestBusRequest(t *testing.T) {
	b := openTestBus(t, func(o *BusOptions) { o.MessageBytesMax = 1 << 20 })
	release := make(chan struct{})
	serve(t, b, b.MirrorRead(7, 4), func(_ context.Context, p []byte) []byte { return append([]byte("re:"), p...) })
	serve(t, b, b.MirrorWrite(7, 4), func(context.Context, []byte) []byte { return make([]byte, 2<<20) })
	serve(t, b, b.ControllerBump(1), func(context.Context, []byte) []byte { panic("boom") })
	serve(t, b, "slow", func(ctx context.Context, _ []byte) []byte {
		<-ctx.Done() // the requester's deadline reaches the handler
		<-release
		return nil
	})
	for _, tc := range []struct {
		name    string
		subject string
		payload []byte
		wait    time.Duration
		want    string
		wantErr error
	}{
		{"answer", b.MirrorRead(7, 4), []byte("x"), time.Minute, "re:x", nil},
		{"empty payload", b.MirrorRead(7, 4), nil, time.Minute, "re:", nil},
		{"nobody serves", b.MirrorRead(8, 4), nil, time.Minute, "", ErrNoResponders},
		{"payload too large", b.MirrorRead(7, 4), make([]byte, 1<<20+1), time.Minute, "", ErrTooLarge},
		{"answer too large", b.MirrorWrite(7, 4), nil, time.Minute, "", ErrTooLarge},
		{"handler panics", b.ControllerBump(1), nil, time.Minute, "", ErrHandler},
		{"no answer in time", "slow", nil, 50 * time.Millisecond, "", messages.ErrTimedOut},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), tc.wait)
			defer cancel()
			got, err := b.Request(ctx, tc.subject, tc.payload)
			require.ErrorIs(t, err, tc.wantErr)
			require.Equal(t, tc.want, string(got))
		})
	}
	close(release)
}

func TestBusLargestMessagesPass(t *testing.T) {
	b := openTestBus(t, nil)
	serve(t, b, "echo", func(_ context.Context, p []byte) []byte { return p })
	want := bytes.Repeat([]byte("k"), 20<<20)
	got, err := b.Request(t.Context(), "echo", want)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
}

func TestBusStopAnswersWhatArrived(t *testing.T) {
	b := openTestBus(t, func(o *BusOptions) { o.HandlersMax = 2 })
	const n = 20
	arrived, release := make(chan struct{}, n), make(chan struct{})
	stop := serve(t, b, "s", func(context.Context, []byte) []byte {
		arrived <- struct{}{}
		<-release
		return []byte("done")
	})
	errs := make([]error, n)
	var requests sync.WaitGroup
	for i := range n {
		requests.Go(func() { _, errs[i] = b.Request(t.Context(), "s", nil) })
	}
	<-arrived
	<-arrived // both slots are taken, the rest waits in the queue or on the way
	close(release)
	for range n - 2 {
		<-arrived
	}
	stop()
	stop()
	requests.Wait()
	require.NoError(t, errors.Join(errs...))
	_, err := b.Request(t.Context(), "s", nil)
	require.ErrorIs(t, err, ErrNoResponders)
}

func TestBusCloseEndsHandlers(t *testing.T) {
	b := openTestBus(t, func(o *BusOptions) { o.DrainTimeout = 10 * time.Millisecond })
	started := make(chan struct{})
	stop := serve(t, b, "s", func(ctx context.Context, _ []byte) []byte {
		close(started)
		<-ctx.Done()
		return []byte(context.Cause(ctx).Error())
	})
	var got []byte
	var err error
	var requests sync.WaitGroup
	requests.Go(func() { got, err = b.Request(t.Context(), "s", nil) })
	<-started
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	requests.Wait()
	if err != nil { // the connection closed in the moment of the answer
		require.ErrorIs(t, err, ErrClosed)
	} else {
		require.Equal(t, ErrClosed.Error(), string(got))
	}
	stop()
	_, err = b.Request(t.Context(), "s", nil)
	require.ErrorIs(t, err, ErrClosed)
	_, err = b.Serve("s", func(context.Context, []byte) []byte { return nil })
	require.ErrorIs(t, err, ErrClosed)
}

// A start is no reason for a warning.
func TestBusStartIsQuiet(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	openTestBus(t, func(o *BusOptions) { o.Logger = zap.New(core) })
	require.Empty(t, logs.All())
}

func TestSubjects(t *testing.T) {
	for _, tc := range []struct{ name, id, want string }{
		{"base64 id", "lBq12jYZRp-9wF3M9MPopg", "kagami.lBq12jYZRp-9wF3M9MPopg.mirror.3.4.read"},
		{"dots and stars", "a.b*c>d e", "kagami.a%2Eb%2Ac%3Ed%20e.mirror.3.4.read"},
		{"percent", "a%2Eb", "kagami.a%252Eb.mirror.3.4.read"},
		{"empty", "", "kagami.%.mirror.3.4.read"},
		{"not ASCII", "鏡", "kagami.%E9%8F%A1.mirror.3.4.read"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, NewSubjects(tc.id).MirrorRead(3, 4))
			require.Equal(t, 6, len(strings.Split(tc.want, ".")))
		})
	}
	s := NewSubjects("c")
	require.Equal(t, "kagami.c.mirror.0.4.write", s.MirrorWrite(0, 4))
	require.Equal(t, "kagami.c.controller.1.bump", s.ControllerBump(1))
	require.Equal(t, "kagami.c.node.4.actor", s.NodeActor(4))
}

func TestBusServesAnyClusterID(t *testing.T) {
	b := openTestBus(t, func(o *BusOptions) { o.ClusterID = "a.b >*" })
	serve(t, b, b.ControllerBump(1), func(context.Context, []byte) []byte { return []byte("ok") })
	got, err := b.Request(t.Context(), b.ControllerBump(1), nil)
	require.NoError(t, err)
	require.Equal(t, "ok", string(got))
}

func BenchmarkBusRequest(b *testing.B) {
	for _, size := range []int{100, 64 << 10} {
		b.Run(fmt.Sprintf("payload=%dB", size), func(b *testing.B) {
			bus := openTestBus(b, nil)
			serve(b, bus, "echo", func(_ context.Context, p []byte) []byte { return p })
			payload := make([]byte, size)
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := bus.Request(b.Context(), "echo", payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
