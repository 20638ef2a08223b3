package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"kagami/messages"
	"kagami/messages/wire"
)

// nodeTimeout is how long one node may take to describe its partitions.
const nodeTimeout = 10 * time.Second

// StateNotAnswered is the state of a partition whose node didn't answer (OP-38).
const StateNotAnswered = "-"

// DescribeOptions of [Client.DescribeClusterMirrors].
type DescribeOptions struct {
	IncludeAuthorizedOperations bool
}

// Description is what all nodes together say of mirrors.
type Description struct {
	Mirrors    map[string]*DescribedMirror
	Unanswered []NodeError // nodes that were asked and didn't answer, by id
}

// NodeError names a node that didn't answer, and why.
type NodeError struct {
	Node int32
	Addr string // host:port, "" if the cluster doesn't know it
	Err  error
}

// DescribedMirror is one mirror.
type DescribedMirror struct {
	Name                 string
	Err                  error // unknown mirror, or no right to describe it
	AuthorizedOperations int32 // bit field of ACL operations; -2147483648 = not asked for
	Partitions           []DescribedPartition

	index map[messages.TopicPartition]int // of Partitions, until they are sorted
}

// DescribedPartition is one partition, as its leader sees it.
type DescribedPartition struct {
	Topic     string
	Partition int32
	Node      int32 // leader, -1 if there is none

	SourceOffset      int64  // high watermark on the source, -1 if unknown
	DestinationOffset int64  // log end here, -1 if unknown
	Lag               int64  // -1 if unknown
	State             string // state name, or StateNotAnswered
	LastMirrorEpoch   int32  // -1 if none
	LeaderEpoch       int32  // -1 if unknown

	RetryAttempt     int16  // failures in a row while FAILED
	ErrorText        string // last error, "" if none
	CutRecords       int64  // removed by truncation in this mirror's life
	CutBytes         int64
	CutFrom, CutTo   int64     // offsets of the last cut, -1 if none
	GapFrom, GapTo   int64     // offsets never copied, -1 if none
	GapAt            time.Time // when the gap was met; zero if there is none
	OpenTransactions int32     // -1 if unknown

	LogEnd int64 // log end here in every state, -1 if unknown
	// SeenSourceOffset is the source's high watermark when it last answered, in every
	// state, SeenSourceAge how long ago that was; -1 if it never did since the leader
	// started.
	SeenSourceOffset int64
	SeenSourceAge    time.Duration
}

// DescribeClusterMirrors asks every node for the partitions it leads and merges
// the answers. No names means all mirrors. A node that doesn't answer is no
// error: it stands in Unanswered, and the partitions that nobody answered for
// have state [StateNotAnswered]. The error is for a cluster that can't be
// reached at all, and for a top-level code.
func (c *Client) DescribeClusterMirrors(ctx context.Context, names []string, opts DescribeOptions) (*Description, error) {
	meta, err := kadm.NewClient(c.kgo).Metadata(ctx)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	req := wire.NewPtrDescribeClusterMirrorsRequest()
	req.MirrorNames, req.IncludeAuthorizedOperations = names, opts.IncludeAuthorizedOperations
	answers := c.askAll(ctx, meta.Brokers, req)

	d := &Description{Mirrors: map[string]*DescribedMirror{}}
	var topErr error
	for _, a := range answers {
		switch {
		case a.err != nil:
			d.Unanswered = append(d.Unanswered, NodeError{a.broker.NodeID, fmt.Sprintf("%s:%d", a.broker.Host, a.broker.Port), a.err})
		case a.resp.ErrorCode != 0:
			topErr = topError(a.resp.ErrorCode, a.resp.ErrorMessage)
		default:
			d.merge(a.broker.NodeID, a.resp)
		}
	}
	if topErr != nil {
		return nil, topErr
	}
	if len(d.Unanswered) == len(answers) {
		return nil, fmt.Errorf("describe mirrors: no node answered: %w", d.Unanswered[0].Err)
	}
	if len(meta.Brokers) > 1 || len(d.Unanswered) > 0 || leaderless(meta) {
		if err := d.addMissing(ctx, c, meta, names); err != nil {
			return nil, err
		}
	}
	d.sort()
	return d, nil
}

type nodeAnswer struct {
	broker kadm.BrokerDetail
	resp   *wire.DescribeClusterMirrorsResponse
	err    error
}

func (c *Client) askAll(ctx context.Context, brokers kadm.BrokerDetails, req *wire.DescribeClusterMirrorsRequest) []nodeAnswer {
	answers := make([]nodeAnswer, len(brokers))
	var wg sync.WaitGroup
	for i, b := range brokers {
		wg.Go(func() {
			one := *req // kgo sets the version in it
			answers[i] = nodeAnswer{broker: b}
			answers[i].resp, answers[i].err = c.askNode(ctx, b.NodeID, &one)
		})
	}
	wg.Wait()
	slices.SortFunc(answers, func(a, b nodeAnswer) int { return cmp.Compare(a.broker.NodeID, b.broker.NodeID) })
	return answers
}

// askNode asks twice: an idle connection may have been closed by the node, which
// the first request only finds out.
func (c *Client) askNode(ctx context.Context, node int32, req *wire.DescribeClusterMirrorsRequest) (*wire.DescribeClusterMirrorsResponse, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, nodeTimeout, fmt.Errorf("no answer in %s", nodeTimeout))
	defer cancel()
	resp, err := req.RequestWith(ctx, c.kgo.Broker(int(node)))
	if err != nil && ctx.Err() == nil {
		resp, err = req.RequestWith(ctx, c.kgo.Broker(int(node)))
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return resp, err
}

func (d *Description) merge(node int32, resp *wire.DescribeClusterMirrorsResponse) {
	for i := range resp.Mirrors {
		m := &resp.Mirrors[i]
		have := d.Mirrors[m.MirrorName]
		err := wire.ErrorForCode(m.ErrorCode, "")
		if have == nil {
			have = &DescribedMirror{Name: m.MirrorName, Err: err, AuthorizedOperations: m.AuthorizedOperations}
			d.Mirrors[m.MirrorName] = have
		}
		if err == nil { // one node that knows the mirror is enough: images may lag
			have.Err, have.AuthorizedOperations = nil, m.AuthorizedOperations
		}
		for _, t := range m.Topics {
			for j := range t.Partitions {
				have.add(described(node, t.TopicName, &t.Partitions[j]))
			}
		}
	}
}

// add keeps the newer answer where two nodes claim a partition, which happens
// while its leader moves.
func (m *DescribedMirror) add(p DescribedPartition) {
	tp := messages.TopicPartition{Topic: p.Topic, Partition: p.Partition}
	i, known := m.index[tp]
	if !known {
		if m.index == nil {
			m.index = map[messages.TopicPartition]int{}
		}
		m.index[tp] = len(m.Partitions)
		m.Partitions = append(m.Partitions, p)
	} else if p.LeaderEpoch > m.Partitions[i].LeaderEpoch {
		m.Partitions[i] = p
	}
}

func described(node int32, topic string, p *wire.DescribeClusterMirrorsResponsePartitionDetail) DescribedPartition {
	out := DescribedPartition{
		Topic: topic, Partition: p.PartitionIndex, Node: node,
		SourceOffset: p.SourceOffset, DestinationOffset: p.DestinationOffset, Lag: p.Lag,
		State: p.State, LastMirrorEpoch: p.LastMirrorEpoch, LeaderEpoch: p.LeaderEpoch,
		RetryAttempt: p.RetryAttempt, ErrorText: p.ErrorText,
		CutRecords: p.CutRecords, CutBytes: p.CutBytes, CutFrom: p.CutFrom, CutTo: p.CutTo,
		GapFrom: p.GapFrom, GapTo: p.GapTo, OpenTransactions: p.OpenTransactions,
		LogEnd: p.LogEnd, SeenSourceOffset: p.SeenSourceOffset, SeenSourceAge: -1,
	}
	if p.SeenSourceAgeMs >= 0 {
		out.SeenSourceAge = time.Duration(p.SeenSourceAgeMs) * time.Millisecond
	}
	if p.GapAtMs > 0 {
		out.GapAt = time.UnixMilli(p.GapAtMs).UTC()
	}
	return out
}

func leaderless(meta kadm.Metadata) bool {
	live := map[int32]bool{}
	for _, b := range meta.Brokers {
		live[b.NodeID] = true
	}
	for _, t := range meta.Topics {
		for _, p := range t.Partitions {
			if !live[p.Leader] {
				return true
			}
		}
	}
	return false
}

// addMissing adds the partitions of mirror topics that nobody answered for: their
// node is away, or their leadership is on its way from one to another.
func (d *Description) addMissing(ctx context.Context, c *Client, meta kadm.Metadata, names []string) error {
	members, err := c.members(ctx, d.unreported(meta.Topics))
	if err != nil {
		return err
	}
	for topic, member := range members {
		if len(names) > 0 && !slices.Contains(names, member.Mirror) {
			continue
		}
		m := d.Mirrors[member.Mirror]
		if m == nil {
			m = &DescribedMirror{Name: member.Mirror, AuthorizedOperations: -1 << 31}
			d.Mirrors[member.Mirror] = m
		}
		for _, p := range meta.Topics[topic].Partitions {
			m.addIfMissing(topic, p.Partition, p.Leader)
		}
	}
	return nil
}

// unreported are the topics of which not every partition was reported, so that the
// configs of the others needn't be asked for.
func (d *Description) unreported(topics kadm.TopicDetails) kadm.TopicDetails {
	reported := map[string]int{}
	for _, m := range d.Mirrors {
		for _, p := range m.Partitions {
			reported[p.Topic]++
		}
	}
	out := kadm.TopicDetails{}
	for name, t := range topics {
		if reported[name] < len(t.Partitions) {
			out[name] = t
		}
	}
	return out
}

// addIfMissing relies on add: an answer has at least the epoch -1 of this entry.
func (m *DescribedMirror) addIfMissing(topic string, partition, leader int32) {
	m.add(DescribedPartition{
		Topic: topic, Partition: partition, Node: leader, State: StateNotAnswered,
		SourceOffset: -1, DestinationOffset: -1, Lag: -1, LastMirrorEpoch: -1, LeaderEpoch: -1,
		CutFrom: -1, CutTo: -1, GapFrom: -1, GapTo: -1, OpenTransactions: -1,
		LogEnd: -1, SeenSourceOffset: -1, SeenSourceAge: -1,
	})
}

func (d *Description) sort() {
	for _, m := range d.Mirrors {
		m.index = nil
		slices.SortFunc(m.Partitions, func(a, b DescribedPartition) int {
			return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
		})
	}
}

// Names lists the mirrors in order.
func (d *Description) Names() []string {
	var out []string
	for name := range d.Mirrors {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
