package fetch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"kagami/messages"
)

// sourceRetries is how often a request that any broker can answer goes to
// another one.
const sourceRetries = 3

// SourceConfig of one [Source].
type SourceConfig struct {
	Source Config          // connection of the mirror
	Mirror string          // mirror name
	Node   messages.NodeID // this node, for the client id
	// RequestTimeout is replica.socket.timeout.ms; default 30 s. It bounds each
	// request to one broker.
	RequestTimeout time.Duration
	Log            *zap.Logger
}

// Source is the metadata connection of one mirror to its source. Its methods
// ask the source each time; nothing is remembered but connections. After a
// change of the mirror's settings make a new one. Safe for concurrent use.
//
// Errors: a request that got no answer is a *ConnectionError, an error code a
// *CodeError; per-item errors stand with the items.
type Source struct {
	cfg    SourceConfig
	client *kgo.Client
	once   sync.Once
}

// NewSource makes a source; it connects with the first request.
func NewSource(cfg SourceConfig) (*Source, error) {
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = 30 * time.Second
	}
	if cfg.Log == nil {
		return nil, errors.New("source config: no logger")
	}
	client, err := newClient(clientOptions{
		config: cfg.Source, clientID: fmt.Sprintf("broker-%d-mirror-%s", cfg.Node, cfg.Mirror), seeds: cfg.Source.Bootstrap,
		timeout: cfg.RequestTimeout, retries: sourceRetries, log: cfg.Log.With(zap.String(messages.FieldMirror, cfg.Mirror)),
	})
	if err != nil {
		return nil, fmt.Errorf("open connection to source %s: %w", cfg.Source, err)
	}
	return &Source{cfg: cfg, client: client}, nil
}

// Close ends requests on the way and closes connections. It may be called twice.
func (s *Source) Close() error {
	s.once.Do(s.client.Close)
	return nil
}

// Broker is a broker of the source as it is advertised.
type Broker struct {
	ID   messages.NodeID
	Host string
	Port int32
}

// Address is host:port.
func (b Broker) Address() string { return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))) }

// Address is host:port, "" if the host isn't known.
func (l Leader) Address() string {
	if l.Host == "" {
		return ""
	}
	return net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port)))
}

// Cluster is an answer about the source's topology.
type Cluster struct {
	ID      string // "" if the source gives none
	Brokers []Broker
	Topics  map[string]SourceTopic
}

// SourceTopic is a topic of the source. With Err set (a *CodeError) the rest may
// be empty.
type SourceTopic struct {
	Name       string
	ID         messages.TopicID // zero if the source has no topic ids
	Internal   bool
	Partitions []SourcePartition // by number; numbers that the source left out have Err set
	Err        error
}

// SourcePartition is a partition of the source. Leader.ID is NoNode when it has
// no leader now.
type SourcePartition struct {
	Leader Leader
	Err    error
}

// ClusterID asks for the source's cluster id.
func (s *Source) ClusterID(ctx context.Context) (string, error) {
	c, err := s.metadata(ctx, []string{})
	return c.ID, err
}

// Brokers asks for the live brokers of the source.
func (s *Source) Brokers(ctx context.Context) ([]Broker, error) {
	c, err := s.metadata(ctx, []string{})
	return c.Brokers, err
}

// Topics describes the named topics, or all of them (nil), internal ones
// included and marked. Topics are never created by asking.
func (s *Source) Topics(ctx context.Context, names []string) (Cluster, error) {
	return s.metadata(ctx, names)
}

func (s *Source) metadata(ctx context.Context, names []string) (Cluster, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	if names != nil {
		req.Topics = make([]kmsg.MetadataRequestTopic, 0, len(names))
		for _, n := range names {
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = new(n)
			req.Topics = append(req.Topics, t)
		}
	}
	kresp, err := s.client.Request(ctx, req)
	if err != nil {
		return Cluster{}, s.unanswered("Metadata", err)
	}
	resp, ok := kresp.(*kmsg.MetadataResponse)
	if !ok {
		return Cluster{}, errors.New("metadata: answer of another kind")
	}
	return cluster(resp), nil
}

func cluster(resp *kmsg.MetadataResponse) Cluster {
	c := Cluster{Topics: make(map[string]SourceTopic, len(resp.Topics))}
	if resp.ClusterID != nil {
		c.ID = *resp.ClusterID
	}
	byID := make(map[int32]Broker, len(resp.Brokers))
	for _, b := range resp.Brokers {
		broker := Broker{ID: messages.NodeID(b.NodeID), Host: b.Host, Port: b.Port}
		c.Brokers = append(c.Brokers, broker)
		byID[b.NodeID] = broker
	}
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		topic := SourceTopic{
			Name: *t.Topic, ID: t.TopicID, Internal: t.IsInternal,
			Err: codeError("Metadata of "+*t.Topic, t.ErrorCode, nil), Partitions: make([]SourcePartition, len(t.Partitions)),
		}
		for i := range topic.Partitions {
			topic.Partitions[i] = SourcePartition{
				Leader: Leader{ID: messages.NoNode, Epoch: messages.NoEpoch}, Err: codeError("Metadata of "+*t.Topic, codeUnknownTopic, nil),
			}
		}
		for _, p := range t.Partitions {
			if p.Partition < 0 || int(p.Partition) >= len(topic.Partitions) {
				continue // numbers have no holes in Kafka
			}
			sp := SourcePartition{
				Leader: Leader{ID: messages.NodeID(p.Leader), Epoch: p.LeaderEpoch},
				Err:    codeError("Metadata of "+*t.Topic+"-"+strconv.Itoa(int(p.Partition)), p.ErrorCode, nil),
			}
			if b, ok := byID[p.Leader]; ok {
				sp.Leader.Host, sp.Leader.Port = b.Host, b.Port
			}
			topic.Partitions[p.Partition] = sp
		}
		c.Topics[topic.Name] = topic
	}
	return c
}

func (s *Source) unanswered(request string, err error) error {
	return &ConnectionError{Address: strings.Join(s.cfg.Source.Bootstrap, ","), Request: request, Err: err}
}

// At says which end of a log is asked for.
type At int8

// The two ends.
const (
	Earliest At = iota + 1 // log start offset
	Latest                 // high watermark
)

// OffsetQuery asks for one partition; LeaderEpoch is the SLE, NoEpoch = don't check.
type OffsetQuery struct {
	TopicPartition messages.TopicPartition
	LeaderEpoch    int32
}

// OffsetAnswer is a listed offset or why there is none.
type OffsetAnswer struct {
	Offset int64
	Epoch  int32 // NoEpoch if the source gives none
	Err    error
}

// ListOffsets asks the partitions' leaders. Every query gets an answer.
func (s *Source) ListOffsets(ctx context.Context, at At, queries []OffsetQuery) (map[messages.TopicPartition]OffsetAnswer, error) {
	timestamp := timestampLatest
	if at == Earliest {
		timestamp = timestampEarliest
	}
	out := make(map[messages.TopicPartition]OffsetAnswer, len(queries))
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	index := make(map[string]int)
	for _, q := range queries {
		one := listOffsetsRequest(q.TopicPartition, timestamp, q.LeaderEpoch).Topics[0]
		if i, ok := index[one.Topic]; ok {
			req.Topics[i].Partitions = append(req.Topics[i].Partitions, one.Partitions...)
		} else {
			index[one.Topic] = len(req.Topics)
			req.Topics = append(req.Topics, one)
		}
		out[q.TopicPartition] = OffsetAnswer{Offset: messages.NoOffset, Epoch: messages.NoEpoch, Err: codeError("ListOffsets of "+q.TopicPartition.String(), codeUnknownTopic, nil)}
	}
	if len(queries) == 0 {
		return out, nil
	}
	for _, shard := range s.client.RequestSharded(ctx, req) {
		mergeOffsets(out, shard, s)
	}
	return out, nil
}

func mergeOffsets(out map[messages.TopicPartition]OffsetAnswer, shard kgo.ResponseShard, s *Source) {
	if shard.Err != nil {
		asked, ok := shard.Req.(*kmsg.ListOffsetsRequest)
		if !ok {
			return
		}
		for _, t := range asked.Topics {
			for _, p := range t.Partitions {
				tp := messages.TopicPartition{Topic: t.Topic, Partition: p.Partition}
				out[tp] = OffsetAnswer{Offset: messages.NoOffset, Epoch: messages.NoEpoch, Err: s.unanswered("ListOffsets of "+tp.String(), shard.Err)}
			}
		}
		return
	}
	resp, ok := shard.Resp.(*kmsg.ListOffsetsResponse)
	if !ok {
		return
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			tp := messages.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			a := OffsetAnswer{Offset: p.Offset, Epoch: p.LeaderEpoch, Err: codeError("ListOffsets of "+tp.String(), p.ErrorCode, nil)}
			if a.Err != nil {
				a.Offset = messages.NoOffset
			}
			out[tp] = a
		}
	}
}
