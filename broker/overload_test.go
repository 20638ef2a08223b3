package broker

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// heapBytes is what is in use after a collection.
func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestOverloadIsBounded: two thousand clients that send half a request, ones that send a
// hundred thousand and read nothing, ones that ask for records and don't take them, impossible
// lengths and garbage. The memory of the node stays below what its limits say, and a client
// that behaves is served all the while.
func TestOverloadIsBounded(t *testing.T) {
	const (
		clients  = 2000
		budget   = 16 << 20
		perConn  = 48 << 10 // read buffer, first piece of a frame, and what belongs to a connection
		slack    = 96 << 20 // what a collection finds still in use; without limits it is ten times more
		memBound = clients*perConn + 2*budget + slack
	)
	w := newWorld(t, onDisk, func(_ *world, cfg *Config) {
		cfg.RequestBytesMax, cfg.RequestBytesQueued, cfg.AnswerBytesQueued = 8<<20, budget, budget
	})
	topic := w.topic("t", 1, nil)
	good := w.dial()
	value := string(make([]byte, 500_000))
	for range 20 {
		good.call(produceRequest(9, 1, "t", topic.ID, 0, oneBatch(value)))
	}
	before := heapBytes()

	half := make([]byte, 300<<10)
	binary.BigEndian.PutUint32(half, 8<<20) // and no more of it comes
	binary.BigEndian.PutUint16(half[4:], uint16(keyProduce))
	binary.BigEndian.PutUint16(half[6:], 9)
	for range clients {
		w.attack(half)
	}
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 9
	var many []byte
	one := encodeRequest(metadata, 1, "flood")
	for range 100_000 {
		many = append(many, one...)
	}
	fetch := fetchRequest(12, fetchPart{"t", topic.ID, 0, 0})
	fetch.MaxBytes = 50 << 20
	var greedy []byte
	for range 1000 {
		greedy = append(greedy, encodeRequest(fetch, 1, "greedy")...)
	}
	for range 20 {
		w.attack(many)
		w.attack(greedy)
	}
	chance := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		garbage := make([]byte, 5000)
		for i := range garbage {
			garbage[i] = byte(chance.IntN(256))
		}
		w.attack(garbage)
		w.attack([]byte{0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 9})
	}

	for range 10 {
		resp := good.call(produceRequest(9, 1, "t", topic.ID, 0, oneBatch("v"))).(*kmsg.ProduceResponse)
		require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode)
		require.Zero(t, good.call(sample(w, 3, 9, 0)).(*kmsg.MetadataResponse).Topics[0].ErrorCode)
		require.Less(t, heapBytes()-before, int64(memBound), "bytes of memory for the hostile clients")
	}
	// A large request gets its room when those that have sent half of one are cut.
	require.Eventually(t, func() bool {
		resp, ok := w.try(produceRequest(9, 1, "t", topic.ID, 0, oneBatch(value)))
		return ok && resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode == 0
	}, time.Minute, 50*time.Millisecond)
}

// attack sends bytes on a connection of its own, and nothing reads there.
func (w *world) attack(b []byte) {
	w.t.Helper()
	var d net.Dialer
	c, err := d.DialContext(w.t.Context(), "tcp", w.addr)
	require.NoError(w.t, err)
	stop := context.AfterFunc(w.t.Context(), func() { _ = c.Close() })
	w.t.Cleanup(func() { stop(); _ = c.Close() })
	go func() { _, _ = c.Write(b) }() // ends with the connection
}

// try is one request on a connection of its own; ok is false if the server hung up.
func (w *world) try(req kmsg.Request) (resp kmsg.Response, ok bool) {
	w.t.Helper()
	c := w.dial()
	defer c.Close()
	if _, err := c.Write(encodeRequest(req, 1, "try")); err != nil {
		return nil, false
	}
	b, err := c.frame()
	if err != nil {
		return nil, false
	}
	resp = req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	return resp, resp.ReadFrom(b[5:]) == nil // correlation id, no tags
}

// TestBudget: who gets no room is disconnected, and what was held is given back.
func TestBudget(t *testing.T) {
	b := newBudget("requests", 100<<10)
	held, err := b.take(t.Context(), 60<<10)
	require.NoError(t, err)
	small, err := b.take(t.Context(), 1000)
	require.NoError(t, err)
	require.Zero(t, small, "small ones aren't counted")
	held, err = b.swap(t.Context(), held, 30<<10)
	require.NoError(t, err)
	require.Equal(t, int64(30<<10), held)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errOverloaded)
	_, err = b.take(ctx, 90<<10)
	require.ErrorIs(t, err, errOverloaded)
	b.give(held)
	all, err := b.take(ctx, 1<<30)
	require.NoError(t, err, "more than there ever is takes all")
	require.Equal(t, int64(100<<10), all)
	b.give(all)
	unbounded := newBudget("requests", -1)
	held, err = unbounded.take(t.Context(), 1<<30)
	require.NoError(t, err)
	require.Zero(t, held)
}
