package broker

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// TestQuotaOfConnections: an address that opens too many isn't read and is closed when it
// may open the next; its own limit goes before that of each address (KIP-612).
func TestQuotaOfConnections(t *testing.T) {
	clk := newManualClock()
	w := newWorld(t, withClock(clk))
	set := func(ip messages.QuotaPart, rate float64) {
		w.apply(metadata.QuotaRecord(messages.QuotaEntity{IP: ip}, messages.QuotaConnections, &rate))
	}
	works := func() { w.dial().call(sample(w, 3, 9, 0)) }
	works()
	set(messages.QuotaPart{Set: true, Default: true}, 1000)
	works()
	set(messages.QuotaPart{Set: true, Name: "127.0.0.1"}, 1)
	for range int(w.srv.quotas.window / time.Second) {
		works()
	}
	refused, err := net.Dial("tcp", w.addr)
	require.NoError(t, err)
	defer refused.Close()
	clk.awaitTimers(t, 1)
	require.NoError(t, refused.SetReadDeadline(time.Now().Add(10*time.Second)))
	closed := make(chan error, 1)
	go func() {
		_, err := refused.Read(make([]byte, 1))
		closed <- err
	}()
	select {
	case err := <-closed:
		t.Fatalf("closed at once: %v", err)
	default:
	}
	clk.advance(time.Second)
	require.ErrorIs(t, <-closed, io.EOF)
	works()
	require.Eventually(t, func() bool {
		w.srv.mu.Lock()
		defer w.srv.mu.Unlock()
		return w.srv.throttled == 0
	}, 10*time.Second, time.Millisecond)

	again, err := net.Dial("tcp", w.addr)
	require.NoError(t, err)
	defer again.Close()
	clk.awaitTimers(t, 1) // the end of the server closes it
}
