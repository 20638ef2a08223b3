package cases

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	rawTimeout     = 20 * time.Second
	keyAPIVersions = 18
)

// conn is a bare connection: exactly the versions a test asks for, no retries.
type conn struct {
	c    net.Conn
	corr int32
}

func dial(t *testing.T, addr string) *conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, rawTimeout)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return &conn{c: c}
}

// send writes a request in the version it carries.
func (c *conn) send(req kmsg.Request) error {
	c.corr++
	if err := c.c.SetDeadline(time.Now().Add(rawTimeout)); err != nil {
		return err
	}
	_, err := c.c.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("cases")).AppendRequest(nil, req, c.corr))
	return err
}

// receive reads the response body of the last request.
func (c *conn) receive() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c.c, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c.c, b); err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(b)); got != c.corr {
		return nil, fmt.Errorf("correlation id %d, want %d", got, c.corr)
	}
	return b[4:], nil
}

func (c *conn) ask(req kmsg.Request) (kmsg.Response, error) {
	if err := c.send(req); err != nil {
		return nil, err
	}
	b, err := c.receive()
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && req.Key() != keyAPIVersions {
		r := kbin.Reader{Src: b}
		kmsg.SkipTags(&r)
		b = r.Src
	}
	return resp, resp.ReadFrom(b)
}

// ask sends one request on a connection of its own.
func ask[R kmsg.Response](w *world, req kmsg.Request, version int16) R {
	w.t.Helper()
	req.SetVersion(version)
	c := dial(w.t, w.node.Bootstrap())
	defer c.c.Close()
	resp, err := c.ask(req)
	require.NoError(w.t, err)
	return resp.(R)
}

// fetchRequest asks for one partition by name.
func fetchRequest(topic string, partition int32, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = 12
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = -1, 100, 1, 64<<20, -1
	req.Topics = []kmsg.FetchRequestTopic{fetchTopic(topic, partition, offset)}
	return req
}

func fetchTopic(topic string, partition int32, offset int64) kmsg.FetchRequestTopic {
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = partition, offset, 64<<20, -1
	t.Partitions = append(t.Partitions, p)
	return t
}

func produceRequest(acks int16, batches map[string][]byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, acks, 10_000
	for topic, b := range batches {
		t := kmsg.NewProduceRequestTopic()
		t.Topic = topic
		p := kmsg.NewProduceRequestTopicPartition()
		p.Records = b
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	return req
}
