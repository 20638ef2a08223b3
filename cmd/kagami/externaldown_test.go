package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStopWithoutExternalNATS: nodes end soon, and without an error, though the NATS
// cluster that they are on is down: they have nobody to say good-bye to. (Each subject
// that they served took ten seconds.)
func TestStopWithoutExternalNATS(t *testing.T) {
	s := startNATS(t, t.TempDir(), "127.0.0.1:-1", "")
	c := newTestNodes(t, nil, "nats.url=nats://"+s.Addr().String(), "nats.journal.replicas=1", "default.replication.factor=1",
		"mirror.state.topic.replication.factor=1", "kagami.journal.max.bytes=67108864")
	c.start(1, 2)
	_, cl, _ := c.connect(1)
	topic(t, cl, "t", 4, 10, nil)
	s.Shutdown()
	s.WaitForShutdown()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.stop(1)
		c.stop(2)
	}()
	select {
	case <-ended:
	case <-time.After(60 * time.Second): // 100 s each before
		require.Fail(t, "the nodes don't end")
		<-ended
	}
}
