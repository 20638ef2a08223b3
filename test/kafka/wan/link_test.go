package wan_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/test/kafka/wan"
)

func TestLinkCarriesBothWays(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(c, c)
	}()
	const roundTrip = 40 * time.Millisecond
	k, err := wan.NewLink(l.Addr().String(), roundTrip, 10<<20)
	require.NoError(t, err)
	defer k.Close()
	c, err := net.Dial("tcp4", k.Addr())
	require.NoError(t, err)
	defer c.Close()
	sent := make([]byte, 1<<20)
	for i := range sent {
		sent[i] = byte(i * 7)
	}
	began := time.Now()
	go func() {
		_, _ = c.Write(sent)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got := make([]byte, len(sent))
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, sent, got)
	// A tenth of a second in the pipe, and there and back: never less.
	require.GreaterOrEqual(t, time.Since(began), roundTrip+100*time.Millisecond)
	k.Close()
	k.Close()
}
