// Package wiretest is a small scripted Kafka cluster for tests: it speaks
// frames, ApiVersions and Metadata by itself and asks a handler for every other
// key, those of the KIP included.
//
// Its main types are [Cluster] and [Handler]. A Cluster owns its listeners and
// connections; [Cluster.Close] stops and waits for all of them. It never checks
// what a client is allowed to do, keeps no topics and no records, and is no
// substitute for a real server.
package wiretest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/wire"
)

// Handler answers one request at one node. nil closes the connection.
type Handler func(node int32, req kmsg.Request) kmsg.Response

// Topic is a topic of Metadata: its id and the leader of each partition.
type Topic struct {
	ID      messages.TopicID
	Leaders []int32
}

// frameMax bounds a request, bytes.
const frameMax = 16 << 20

// Cluster is a scripted cluster. Its methods may be called from several
// goroutines.
type Cluster struct {
	wg sync.WaitGroup

	mu       sync.Mutex
	nodes    []*node
	handlers map[int16]Handler
	topics   map[string]Topic
	seen     map[int16][]kmsg.Request
	closed   bool
}

type node struct {
	id    int32
	l     net.Listener
	conns map[net.Conn]struct{}
	down  bool
}

// NewCluster starts nodes 0 to n-1 on free ports of 127.0.0.1.
func NewCluster(n int) (*Cluster, error) {
	c := &Cluster{handlers: map[int16]Handler{}, topics: map[string]Topic{}, seen: map[int16][]kmsg.Request{}}
	for id := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("listen for node %d: %w", id, err)
		}
		nd := &node{id: int32(id), l: l, conns: map[net.Conn]struct{}{}}
		c.nodes = append(c.nodes, nd)
		c.wg.Go(func() { c.accept(nd) })
	}
	return c, nil
}

// Handle sets the handler of a key; before that the key isn't advertised.
func (c *Cluster) Handle(key int16, h Handler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handlers[key] = h
}

// SetTopic adds or replaces a topic of Metadata.
func (c *Cluster) SetTopic(name string, t Topic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.topics[name] = t
}

// Addr is host:port of a node.
func (c *Cluster) Addr(node int) string { return c.nodes[node].l.Addr().String() }

// Requests lists the requests of a key so far, in order of arrival.
func (c *Cluster) Requests(key int16) []kmsg.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]kmsg.Request(nil), c.seen[key]...)
}

// Down stops a node: its port is closed, Metadata goes on to name it.
func (c *Cluster) Down(id int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.downLocked(c.nodes[id])
}

func (c *Cluster) downLocked(nd *node) {
	nd.down = true
	_ = nd.l.Close()
	for conn := range nd.conns {
		_ = conn.Close()
	}
}

// Close stops everything and waits. It may be called twice.
func (c *Cluster) Close() {
	c.mu.Lock()
	c.closed = true
	for _, nd := range c.nodes {
		c.downLocked(nd)
	}
	c.mu.Unlock()
	c.wg.Wait()
}

func (c *Cluster) accept(nd *node) {
	for {
		conn, err := nd.l.Accept()
		if err != nil {
			return
		}
		c.mu.Lock()
		if nd.down {
			c.mu.Unlock()
			_ = conn.Close()
			return
		}
		nd.conns[conn] = struct{}{}
		c.wg.Go(func() {
			c.serve(nd, conn)
			_ = conn.Close()
			c.mu.Lock()
			delete(nd.conns, conn)
			c.mu.Unlock()
		})
		c.mu.Unlock()
	}
}

func (c *Cluster) serve(nd *node, conn net.Conn) {
	for {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(size[:])
		if n > frameMax {
			return
		}
		frame := make([]byte, n)
		if _, err := io.ReadFull(conn, frame); err != nil {
			return
		}
		correlation, req, err := parseRequest(frame)
		if err != nil {
			return
		}
		resp := c.answer(nd.id, req)
		if resp == nil {
			return
		}
		resp.SetVersion(req.GetVersion())
		out := kbin.AppendInt32(make([]byte, 4), correlation)
		if resp.IsFlexible() && resp.Key() != 18 {
			out = append(out, 0)
		}
		out = resp.AppendTo(out)
		binary.BigEndian.PutUint32(out, uint32(len(out)-4))
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

var errFrame = errors.New("no request that is known here")

func parseRequest(frame []byte) (correlation int32, req kmsg.Request, err error) {
	r := kbin.Reader{Src: frame}
	key, version := r.Int16(), r.Int16()
	correlation = r.Int32()
	r.NullableString()
	req = wire.RequestForKey(key)
	if req == nil {
		req = kmsg.RequestForKey(key)
	}
	if req == nil || version > req.MaxVersion() {
		return 0, nil, fmt.Errorf("%w: key %d version %d", errFrame, key, version)
	}
	req.SetVersion(version)
	if req.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	if err := r.Complete(); err != nil {
		return 0, nil, err
	}
	return correlation, req, req.ReadFrom(r.Src)
}

func (c *Cluster) answer(id int32, req kmsg.Request) kmsg.Response {
	c.mu.Lock()
	c.seen[req.Key()] = append(c.seen[req.Key()], req)
	h := c.handlers[req.Key()]
	c.mu.Unlock()
	if h != nil {
		return h(id, req)
	}
	switch req := req.(type) {
	case *kmsg.ApiVersionsRequest:
		return c.apiVersions()
	case *kmsg.MetadataRequest:
		return c.metadata(req)
	default:
		return nil
	}
}

func (c *Cluster) apiVersions() kmsg.Response {
	c.mu.Lock()
	defer c.mu.Unlock()
	resp := kmsg.NewPtrApiVersionsResponse()
	add := func(key int16) {
		req := wire.RequestForKey(key)
		if req == nil {
			req = kmsg.RequestForKey(key)
		}
		resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: req.MaxVersion()})
	}
	add(3)
	add(18)
	for key := range c.handlers {
		add(key)
	}
	return resp
}

func (c *Cluster) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	c.mu.Lock()
	defer c.mu.Unlock()
	resp := kmsg.NewPtrMetadataResponse()
	resp.ClusterID = new("wiretest")
	for _, nd := range c.nodes {
		addr := nd.l.Addr().(*net.TCPAddr)
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = nd.id, "127.0.0.1", int32(addr.Port)
		resp.Brokers = append(resp.Brokers, b)
	}
	for name, t := range c.topics {
		if req.Topics == nil || asks(req, name) {
			resp.Topics = append(resp.Topics, metadataTopic(name, t))
		}
	}
	for _, t := range req.Topics {
		if t.Topic != nil {
			if _, ok := c.topics[*t.Topic]; !ok {
				mt := kmsg.NewMetadataResponseTopic()
				mt.Topic, mt.ErrorCode = t.Topic, 3
				resp.Topics = append(resp.Topics, mt)
			}
		}
	}
	return resp
}

func asks(req *kmsg.MetadataRequest, name string) bool {
	for _, t := range req.Topics {
		if t.Topic != nil && *t.Topic == name {
			return true
		}
	}
	return false
}

func metadataTopic(name string, t Topic) kmsg.MetadataResponseTopic {
	mt := kmsg.NewMetadataResponseTopic()
	mt.Topic, mt.TopicID = &name, t.ID
	for i, leader := range t.Leaders {
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Partition, p.Leader, p.Replicas, p.ISR = int32(i), leader, []int32{max(leader, 0)}, []int32{max(leader, 0)}
		if leader < 0 {
			p.ErrorCode = 5 // LEADER_NOT_AVAILABLE
		}
		mt.Partitions = append(mt.Partitions, p)
	}
	return mt
}
