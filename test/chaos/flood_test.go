package chaos

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/test/e2e"
)

// TestSlowReadersAndGarbage: readers that ask for everything and hardly read, and
// two hundred connections that send garbage, cost their own connections and nobody
// else: the mirror goes on, memory is bounded, and everything is given back.
func TestSlowReadersAndGarbage(t *testing.T) {
	a, b := startCluster(t, "A", nil), startCluster(t, "B", nil)
	w := single(t, b, a)
	require.NoError(t, w.newTopic("t", 2))
	require.NoError(t, e2e.Produce(t.Context(), a.node.Bootstrap(), "t-0", e2e.Records{Count: 3000, Size: 10_000}, wholeInSegment))
	w.poll(settleWithin, "mirror", w.create)
	w.normalise()
	w.poll(settleWithin, "mirroring", w.mirroring)
	w.settle()
	before := w.usage[b.node.Process().Pid()]

	var all sync.WaitGroup
	stop := make(chan struct{})
	slow := 20
	for i := range slow {
		conn := dial(t, b.node.Bootstrap())
		all.Go(func() { readSlowly(conn, int32(i%2), stop) })
	}
	for i := range 200 {
		conn := dial(t, b.node.Bootstrap())
		all.Go(func() { sendGarbage(conn, i, stop) })
	}
	w.writer("t-0")
	w.pause(3000, 3000)
	require.NoError(t, w.topics["t-0"].end())
	peak, err := b.node.Process().Memory()
	require.NoError(t, err)
	w.poll(15*time.Second, "the mirror goes on", w.mirroring)
	require.NoError(t, e2e.AwaitEqual(t.Context(), a.side, b.side, "t-0"))
	close(stop)
	all.Wait()
	w.settle() // files and goroutines are as before
	after, err := b.node.Process().Memory()
	require.NoError(t, err)
	w.note("before %+v, memory %d MB, afterwards %d MB", before, peak>>20, after>>20)
	t.Logf("memory with the flood %d MB, after it %d MB", peak>>20, after>>20)
	require.Less(t, peak, int64(1500<<20), "memory")
	w.end()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp4", addr)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// readSlowly asks for the whole partition in requests that it doesn't wait for,
// and reads a byte now and then.
func readSlowly(conn net.Conn, partition int32, stop <-chan struct{}) {
	defer conn.Close()
	go func() {
		for i := range int32(50) {
			if _, err := conn.Write(fetchAll(i, partition)); err != nil {
				return
			}
		}
	}()
	one := make([]byte, 1)
	for {
		select {
		case <-stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := conn.Read(one); err != nil {
			return
		}
	}
}

// fetchAll is a framed Fetch v12 of 50 MB of t-0.
func fetchAll(correlation, partition int32) []byte {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 11, -1, 100, 1, 50<<20, -1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = "t-0"
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.PartitionMaxBytes, p.CurrentLeaderEpoch = partition, 50<<20, -1
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	b := binary.BigEndian.AppendUint16(make([]byte, 4), 1)
	b = binary.BigEndian.AppendUint16(b, 11)
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	b = binary.BigEndian.AppendUint16(b, 0xffff) // no client id
	b = req.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// sendGarbage sends what no client would, in several ways, and waits to be cut off.
func sendGarbage(conn net.Conn, kind int, stop <-chan struct{}) {
	defer conn.Close()
	junk := make([]byte, 4096)
	_, _ = rand.Read(junk)
	switch kind % 5 {
	case 0: // random bytes
	case 1: // a huge frame that never comes
		binary.BigEndian.PutUint32(junk, 100<<20)
		junk = junk[:8]
	case 2: // a frame of the right length with random content
		binary.BigEndian.PutUint32(junk, uint32(len(junk)-4))
	case 3: // a known request with a random body
		binary.BigEndian.PutUint32(junk, uint32(len(junk)-4))
		binary.BigEndian.PutUint16(junk[4:], uint16(kind%62))
		binary.BigEndian.PutUint16(junk[6:], uint16(kind%4))
	case 4: // another protocol
		junk = fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: %d\r\n\r\n", kind)
	}
	_, _ = conn.Write(junk)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, conn)
	}()
	select {
	case <-done:
	case <-stop:
		conn.Close()
		<-done
	}
}
