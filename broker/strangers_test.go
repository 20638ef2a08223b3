package broker

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestStrangersTakeLittle: clients that haven't authenticated and send large tokens by halves, as
// requests or bare, take no room from those that have, and only so much memory in all.
func TestStrangersTakeLittle(t *testing.T) {
	const clients, tokenBytes = 600, 500 << 10
	w := newWorld(t, withSASL(0), func(_ *world, cfg *Config) {
		cfg.Listeners[0].SASL.ReceiveBytesMax = tokenBytes
		cfg.RequestBytesMax, cfg.RequestBytesQueued = 8<<20, 8<<20
	})
	topic := w.topic("t", 1, nil)
	good := w.dial()
	good.login("alice")
	before := heapBytes()

	hello := kmsg.NewPtrSASLHandshakeRequest()
	hello.Mechanism = "PLAIN"
	bare := append(encodeRequest(hello, 1, "stranger"), kbin.AppendInt32(nil, tokenBytes)...)
	bare = append(bare, make([]byte, tokenBytes-1)...)
	framed := make([]byte, tokenBytes)
	binary.BigEndian.PutUint32(framed, tokenBytes)
	binary.BigEndian.PutUint16(framed[4:], uint16(keySASLAuthenticate))
	for range clients / 2 {
		w.attack(bare)
		w.attack(framed)
	}
	require.Eventually(t, func() bool { return w.srv.strangers.waiting.Load() > 0 }, time.Minute, 10*time.Millisecond, "there is no room for all of them")
	large := oneBatch(string(make([]byte, 500<<10)))
	for range 5 {
		resp := good.call(produceRequest(9, 1, "t", topic.ID, 0, large)).(*kmsg.ProduceResponse)
		require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode)
		another := w.dial()
		another.login("bob") // a token of ordinary size needs no room
		_ = another.Close()
	}
	require.Less(t, heapBytes()-before, int64(strangerBytesMax+clients*96<<10+64<<20), "bytes of memory for %d strangers", clients)
	runtime.KeepAlive(bare)
}

// TestStrangersGiveWay: when there are too many connections, one that hasn't said who it is goes for
// a newcomer, and never one that has.
func TestStrangersGiveWay(t *testing.T) {
	w := newWorld(t, withSASL(0), func(_ *world, cfg *Config) { cfg.ConnectionsMax = 3 })
	known := w.dial()
	known.login("alice")
	first, second := w.dial(), w.dial()
	require.Eventually(t, func() bool { return w.srv.Connections() == 3 }, 10*time.Second, time.Millisecond)
	bob := w.dial()
	bob.login("bob")
	first.requireClosed()
	carol := w.dial()
	carol.login("alice")
	second.requireClosed()
	require.Eventually(t, func() bool { return w.srv.Connections() == 3 }, 10*time.Second, time.Millisecond)
	w.dial().requireClosed() // nobody is left to give way
	for _, c := range []*rawConn{known, bob, carol} {
		c.metadata()
	}
	_ = carol.Close()
	require.Eventually(t, func() bool { return w.srv.Connections() == 2 }, 10*time.Second, time.Millisecond)
	next := w.dial()
	next.login("alice")
	next.metadata()
}
