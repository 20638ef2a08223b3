package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"kagami/client"
	"kagami/messages"
	"kagami/messages/wire"
	"kagami/test/kafka"
	"kagami/test/kafka/stub"
)

const (
	roundsTopic      = "rounds"
	roundsPartitions = 3
	rounds           = 5
)

// cluster is one of two that take over from one another.
type cluster struct {
	node *Node
	side *Side
	adm  *client.Client
	seen int // lines of its audit that were judged
}

// extent is what a cut took from a partition, or should have.
type extent struct{ Records, Bytes, From, To int64 }

// failback is the world of TestFailbackRounds.
type failback struct {
	t       *testing.T
	ctx     context.Context
	created map[*cluster]bool
	written int
	kept    []string // values that must be on both sides at the end
	lost    []string // and those that must be on neither
}

// TestFailbackRounds: two clusters take over from one another, again and again,
// with writes on both sides each time, in the epoch that both have agreed on, and
// in one that both reached by themselves. Both are equal byte for byte each time,
// and what a failback cut is told by describe and by audit, to the byte. The first
// of them took over from a source with open transactions, which a cluster without
// a transaction coordinator can't have of its own.
func TestFailbackRounds(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	f := &failback{t: t, ctx: ctx, created: map[*cluster]bool{}}
	source, dest := f.start("A"), f.start("B")
	f.takeOver(source)
	f.keep(f.write(source, 30))
	f.mirror(source, dest)
	for round := range rounds {
		f.keep(f.write(source, 30))
		f.caughtUp(source, dest)
		common := f.ends(source)
		f.stop(dest)

		// Both go on: first in the epoch that both know, then in one and the same that
		// means something else on each side.
		f.lose(f.write(source, 7+round))
		f.keep(f.write(dest, 11+round))
		epoch := f.raise(source, dest)
		f.lose(f.write(source, 9))
		f.keep(f.write(dest, 13))

		want := f.above(source, common, epoch)
		f.above(dest, common, epoch)
		before := f.described(source)
		f.mirror(dest, source)
		f.judge(round, source, before, want)
		source, dest = dest, source
	}
	f.judgeValues(source)
	f.judgeValues(dest)
	f.stop(dest)
	require.NoError(t, dest.side.lsoAtEnd(ctx, roundsTopic))
}

func (f *failback) start(name string) *cluster {
	f.t.Helper()
	c := &cluster{node: StartNode(f.t, NodeOptions{})}
	var err error
	c.side, err = NewSide(name, c.node.Bootstrap())
	require.NoError(f.t, err)
	f.t.Cleanup(c.side.Close)
	c.adm, err = c.node.Admin()
	require.NoError(f.t, err)
	f.t.Cleanup(c.adm.Close)
	return c
}

// takeOver mirrors a scripted source with a transaction of each kind in each
// partition, and stops.
func (f *failback) takeOver(c *cluster) {
	f.t.Helper()
	origin, err := stub.Start(stub.Options{ClusterID: "origin"})
	require.NoError(f.t, err)
	defer func() { require.NoError(f.t, origin.Close()) }()
	id := messages.NewTopicID()
	origin.Update(func(s *stub.State) {
		for n, p := range s.NewTopic(roundsTopic, id, roundsPartitions).Partitions {
			for pid := range int64(3) { // the last one stays open
				f.written++
				value := fmt.Sprintf("record %d", f.written)
				f.keep([]string{value})
				p.Put(stub.Build(stub.Spec{
					Base: p.End(), Epoch: int32(n), Producer: true, ProducerID: pid, Transactional: true, Timestamp: time.Now().UnixMilli(),
					Records: []stub.Record{{Value: []byte(value)}},
				}))
				if pid < 2 {
					p.Put(stub.EndMarker(p.End(), int32(n), pid, 0, pid == 0))
				}
			}
			p.Epoch = int32(n)
		}
	})
	require.NoError(f.t, c.adm.CreateClusterMirror(f.ctx, "origin", map[string]*string{"bootstrap.servers": new(origin.Address())}))
	topics := []string{roundsTopic}
	res, err := c.adm.StartMirrorTopics(f.ctx, "origin", topics, client.StartOptions{
		TopicMetadata: map[string]client.TopicMetadata{roundsTopic: {ID: id, Partitions: roundsPartitions}},
	})
	require.NoError(f.t, err)
	require.NoError(f.t, res.Err())
	require.NoError(f.t, kafka.Poll(f.ctx, func() error {
		ends, err := c.side.TopicEnds(f.ctx, roundsTopic)
		for p, e := range ends {
			if e.End != 5 {
				return fmt.Errorf("%s-%d: %v", roundsTopic, p, e)
			}
		}
		return err
	}))
	require.Error(f.t, c.side.lsoAtEnd(f.ctx, roundsTopic), "a transaction is open")
	res, err = c.adm.StopMirrorTopics(f.ctx, "origin", topics)
	require.NoError(f.t, err)
	require.NoError(f.t, res.Err())
	require.NoError(f.t, AwaitStates(f.ctx, c.adm, "origin", topics, roundsPartitions, "STOPPED"))
	require.NoError(f.t, c.side.lsoAtEnd(f.ctx, roundsTopic))
}

// write stores n records with values of their own, spread evenly.
func (f *failback) write(c *cluster, n int) []string {
	f.t.Helper()
	cl, err := producer(c.node.Bootstrap(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(f.t, err)
	defer cl.Close()
	var values []string
	var records []*kgo.Record
	for range n {
		f.written++
		values = append(values, fmt.Sprintf("record %d", f.written))
		records = append(records, &kgo.Record{Topic: roundsTopic, Partition: int32(f.written % roundsPartitions), Value: []byte(values[len(values)-1])})
	}
	require.NoError(f.t, cl.ProduceSync(f.ctx, records...).FirstErr())
	return values
}

func (f *failback) keep(values []string) { f.kept = append(f.kept, values...) }
func (f *failback) lose(values []string) { f.lost = append(f.lost, values...) }

// mirror makes to follow from, and waits until both are equal.
func (f *failback) mirror(from, to *cluster) {
	f.t.Helper()
	if !f.created[to] {
		f.created[to] = true
		require.NoError(f.t, to.adm.CreateClusterMirror(f.ctx, "m", map[string]*string{"bootstrap.servers": new(from.node.Bootstrap())}))
	}
	detail, err := from.side.Topic(f.ctx, roundsTopic)
	require.NoError(f.t, err)
	res, err := to.adm.StartMirrorTopics(f.ctx, "m", []string{roundsTopic}, client.StartOptions{TopicMetadata: map[string]client.TopicMetadata{
		roundsTopic: {ID: messages.TopicID(detail.ID), Partitions: roundsPartitions},
	}})
	require.NoError(f.t, err)
	require.NoError(f.t, res.Err())
	f.caughtUp(from, to)
}

func (f *failback) caughtUp(from, to *cluster) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.ctx, convergeTimeout)
	defer cancel()
	require.NoError(f.t, AwaitStates(ctx, to.adm, "m", []string{roundsTopic}, roundsPartitions, "MIRRORING"))
	require.NoError(f.t, AwaitCut(ctx, from.side, to.side, roundsTopic))
}

func (f *failback) stop(c *cluster) {
	f.t.Helper()
	res, err := c.adm.StopMirrorTopics(f.ctx, "m", []string{roundsTopic})
	require.NoError(f.t, err)
	require.NoError(f.t, res.Err())
	require.NoError(f.t, AwaitStates(f.ctx, c.adm, "m", []string{roundsTopic}, roundsPartitions, "STOPPED"))
}

func (f *failback) ends(c *cluster) map[int32]Ends {
	f.t.Helper()
	ends, err := c.side.TopicEnds(f.ctx, roundsTopic)
	require.NoError(f.t, err)
	return ends
}

// raise takes both to one leader epoch that neither has had.
func (f *failback) raise(cs ...*cluster) int32 {
	f.t.Helper()
	highest := int32(0)
	for _, c := range cs {
		for _, p := range f.topic(c).Partitions {
			highest = max(highest, p.LeaderEpoch)
		}
	}
	for _, c := range cs {
		req := wire.NewPtrBumpLeaderEpochsRequest()
		rt := wire.NewBumpLeaderEpochsRequestTopicBump()
		rt.TopicID = messages.TopicID(f.topic(c).ID)
		for p := range int32(roundsPartitions) {
			rp := wire.NewBumpLeaderEpochsRequestPartitionBump()
			rp.PartitionIndex, rp.MinLeaderEpoch = p, highest+4
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
		versions := kversion.Stable()
		wire.RaiseMaxVersions(versions)
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.node.Bootstrap()), kgo.MaxVersions(versions))
		require.NoError(f.t, err)
		raw, err := cl.Request(f.ctx, req)
		cl.Close()
		require.NoError(f.t, err)
		require.Zero(f.t, raw.(*wire.BumpLeaderEpochsResponse).ErrorCode)
		require.NoError(f.t, kafka.Poll(f.ctx, func() error {
			for _, p := range f.topic(c).Partitions {
				if p.LeaderEpoch != highest+5 {
					return fmt.Errorf("%s-%d has epoch %d, want %d", roundsTopic, p.Partition, p.LeaderEpoch, highest+5)
				}
			}
			return nil
		}))
	}
	return highest + 5
}

// topic is asked for on a connection of its own: a client's answer may be cached.
func (f *failback) topic(c *cluster) kadm.TopicDetail {
	f.t.Helper()
	s, err := NewSide(c.side.Name, c.node.Bootstrap())
	require.NoError(f.t, err)
	defer s.Close()
	d, err := s.Topic(f.ctx, roundsTopic)
	require.NoError(f.t, err)
	return d
}

// above is what a side has above the common part: some of it in the epoch.
func (f *failback) above(c *cluster, common map[int32]Ends, epoch int32) map[int32]extent {
	f.t.Helper()
	out := map[int32]extent{}
	ends, detail, some := f.ends(c), f.topic(c), false
	for p, e := range ends {
		batches, err := c.side.Batches(f.ctx, detail, p, common[p].End, e.End)
		require.NoError(f.t, err)
		x := extent{From: common[p].End, To: e.End}
		for _, b := range batches {
			x.Records += int64(b.Count)
			x.Bytes += int64(b.Size)
			some = some || b.Epoch == epoch
		}
		out[p] = x
	}
	require.True(f.t, some, "%s wrote in epoch %d", c.side.Name, epoch)
	return out
}

// shown is a row of describe --json.
type shown struct {
	Partition int32
	State     string
	extent
}

// UnmarshalJSON reads the fields by their names there.
func (s *shown) UnmarshalJSON(b []byte) error {
	var row struct {
		Partition                            int32
		State                                string
		CutRecords, CutBytes, CutFrom, CutTo int64
	}
	if err := json.Unmarshal(b, &row); err != nil {
		return err
	}
	*s = shown{row.Partition, row.State, extent{row.CutRecords, row.CutBytes, row.CutFrom, row.CutTo}}
	return nil
}

// described is what describe --json says, by partition.
func (f *failback) described(c *cluster) map[int32]shown {
	f.t.Helper()
	out := map[int32]shown{}
	if !f.created[c] {
		return out
	}
	res, err := c.node.Mirrors(f.ctx, "--describe", "--mirror", "m", "--json")
	require.NoError(f.t, err)
	require.Zero(f.t, res.Code, res.Stderr)
	dec := json.NewDecoder(strings.NewReader(res.Stdout))
	if strings.HasPrefix(strings.TrimSpace(res.Stdout), "[") {
		_, err = dec.Token()
		require.NoError(f.t, err)
	}
	for dec.More() {
		var row shown
		require.NoError(f.t, dec.Decode(&row), res.Stdout)
		out[row.Partition] = row
	}
	return out
}

// audited is what audit tells of cuts since it was asked last, by partition.
func (f *failback) audited(c *cluster) map[int32][]extent {
	f.t.Helper()
	res, err := Run(f.ctx, "kagami", "audit", "--bootstrap-server", c.node.Bootstrap(), "--mirror", "m", "--json")
	require.NoError(f.t, err)
	require.Zero(f.t, res.Code, res.Stderr)
	out, n := map[int32][]extent{}, 0
	for dec := json.NewDecoder(strings.NewReader(res.Stdout)); dec.More(); n++ {
		var row struct {
			Partition int32
			Cut       *extent
		}
		require.NoError(f.t, dec.Decode(&row))
		if row.Cut != nil && n >= c.seen {
			out[row.Partition] = append(out[row.Partition], *row.Cut)
		}
	}
	c.seen = n
	return out
}

// judge compares what was cut from c with what must have been.
func (f *failback) judge(round int, c *cluster, before map[int32]shown, want map[int32]extent) {
	f.t.Helper()
	for p, w := range want {
		require.NoError(f.t, kafka.Poll(f.ctx, func() error { // the cut is stored after it is made
			now := f.described(c)[p]
			got := extent{now.Records - before[p].Records, now.Bytes - before[p].Bytes, now.From, w.To}
			if got != w {
				return fmt.Errorf("round %d: describe of %s-%d: cut %+v, want %+v", round, c.side.Name, p, got, w)
			}
			return nil
		}))
	}
	told := f.audited(c)
	for p, w := range want {
		var got extent
		for i, x := range told[p] {
			if i == 0 {
				got.To = x.To
			} else {
				require.Equal(f.t, told[p][i-1].From, x.To, "cuts follow one another")
			}
			got.Records, got.Bytes, got.From = got.Records+x.Records, got.Bytes+x.Bytes, x.From
		}
		require.Equal(f.t, w, got, "round %d: audit of %s-%d", round, c.side.Name, p)
		f.t.Logf("round %d: %s-%d lost %d records, %d bytes, offsets %d to %d, in %d cuts", round, c.side.Name, p, w.Records, w.Bytes, w.From, w.To, len(told[p]))
	}
}

// judgeValues: what was kept is there once, what was lost isn't.
func (f *failback) judgeValues(c *cluster) {
	f.t.Helper()
	count := map[string]int{}
	for p, e := range f.ends(c) {
		starts := map[string]map[int32]kgo.Offset{roundsTopic: {p: kgo.NewOffset().AtStart()}}
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.node.Bootstrap()), kgo.ConsumePartitions(starts), kgo.KeepControlRecords())
		require.NoError(f.t, err)
		for at := int64(0); at < e.End; {
			fetches := cl.PollFetches(f.ctx)
			require.NoError(f.t, fetches.Err())
			fetches.EachRecord(func(r *kgo.Record) {
				at = r.Offset + 1
				count[string(r.Value)]++
			})
		}
		cl.Close()
	}
	for _, v := range f.kept {
		require.Equal(f.t, 1, count[v], "%s on %s", v, c.side.Name)
	}
	for _, v := range f.lost {
		require.Zero(f.t, count[v], "%s on %s", v, c.side.Name)
	}
}
