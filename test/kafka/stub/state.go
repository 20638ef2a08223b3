package stub

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
)

// State is everything the stub answers from. Change it in Cluster.Update only.
type State struct {
	ClusterID string
	Topics    map[string]*Topic
	Groups    map[string]*Group
	ACLs      []kmsg.DescribeACLsResponseResource
	// Mirrors is what each broker says to DescribeClusterMirrors, by broker id.
	Mirrors map[int32][]wire.DescribeClusterMirrorsResponseDescribedMirror
	// Versions offered, by API key: lowest and highest. Anything else costs the
	// connection.
	Versions map[int16]Range
	// NoSessions: Fetch always answers with session id 0.
	NoSessions bool
	// StickySessions: a session never moves the position of a partition that it
	// has seen once (a source that ignores updates, C40).
	StickySessions bool
	// CutOffTails: every Fetch answer with more data behind it ends in a cut-off
	// batch, as Kafka's do.
	CutOffTails bool

	ids map[messages.TopicID]*Topic // of Topics; nil: look at them again
}

// Range is a range of versions.
type Range struct{ Min, Max int16 }

// Topic of the source.
type Topic struct {
	Name       string
	ID         messages.TopicID // zero = this source has none
	Internal   bool
	Configs    map[string]string // overrides
	Partitions []*Partition
	Code       int16 // of Metadata and DescribeConfigs, 0 = none
}

// Partition of the source.
type Partition struct {
	Leader   int32 // broker id, -1 = none
	Epoch    int32
	LogStart int64
	Batches  []Batch
	// EndAt overrides the log end, which else follows the last batch; 0 = doesn't.
	EndAt int64
	// HWLag is how far the high watermark is below the log end.
	HWLag int64
	// Code that Fetch answers with, 0 = none. NoHint leaves out the leader hint.
	Code   int16
	NoHint bool
}

// End is the log end offset.
func (p *Partition) End() int64 {
	if p.EndAt > 0 {
		return p.EndAt
	}
	if n := len(p.Batches); n > 0 {
		return p.Batches[n-1].Last + 1
	}
	return p.LogStart
}

// HighWatermark is End less HWLag.
func (p *Partition) HighWatermark() int64 { return p.End() - p.HWLag }

// Batch is a stored batch: its bytes as sent, right or wrong, and where it stands.
type Batch struct {
	Base, Last int64
	Epoch      int32
	Bytes      []byte
}

// Put appends batches as they are; offsets and epoch are read from their headers.
func (p *Partition) Put(batches ...[]byte) {
	for _, b := range batches {
		h, err := batch.ParseHeader(b)
		if err != nil {
			panic("stub: " + err.Error()) // the test built it; use PutRaw for bad bytes
		}
		p.Batches = append(p.Batches, Batch{Base: h.BaseOffset, Last: h.LastOffset(), Epoch: h.LeaderEpoch, Bytes: b})
	}
}

// PutRaw appends bytes that need not be a batch.
func (p *Partition) PutRaw(base, last int64, epoch int32, b []byte) {
	p.Batches = append(p.Batches, Batch{Base: base, Last: last, Epoch: epoch, Bytes: b})
}

// Fill appends n one-record batches with the partition's epoch.
func (p *Partition) Fill(n int) {
	for range n {
		p.Put(Build(Spec{Base: p.End(), Epoch: p.Epoch, Records: []Record{{Value: []byte("value")}}}))
	}
}

// Bytes is the log from its start, as one slice.
func (p *Partition) Bytes() []byte {
	var out []byte
	for _, b := range p.Batches {
		out = append(out, b.Bytes...)
	}
	return out
}

// Trim moves the log start, dropping whole batches below it.
func (p *Partition) Trim(offset int64) {
	p.LogStart = offset
	for len(p.Batches) > 0 && p.Batches[0].Last < offset {
		p.Batches = p.Batches[1:]
	}
}

// Truncate cuts the log to offset, whole batches only (an unclean election).
func (p *Partition) Truncate(offset int64) {
	for n := len(p.Batches); n > 0 && p.Batches[n-1].Last >= offset; n = len(p.Batches) {
		p.Batches = p.Batches[:n-1]
	}
}

// epochEnd is the largest epoch <= epoch and where it ends. Below all that it has,
// Kafka answers the epoch itself and where its log begins.
func (p *Partition) epochEnd(epoch int32) (e int32, end int64) {
	e, end = -1, -1
	for _, b := range p.Batches {
		if b.Epoch > epoch {
			if e < 0 {
				e = epoch
			}
			return e, b.Base
		}
		e, end = b.Epoch, p.End()
	}
	return e, end
}

// Group is a consumer group of the source.
type Group struct {
	Type    string // "classic", "consumer" or "share"
	State   string
	Offsets map[messages.TopicPartition]GroupOffset
}

// GroupOffset is a committed offset.
type GroupOffset struct {
	Offset   int64
	Epoch    int32
	Metadata string
}

// NewTopic makes a topic whose partitions are led by broker 0 with epoch 0, and
// puts it into the state.
func (s *State) NewTopic(name string, id messages.TopicID, partitions int) *Topic {
	t := &Topic{Name: name, ID: id, Configs: make(map[string]string)}
	for range partitions {
		t.Partitions = append(t.Partitions, &Partition{})
	}
	s.Topics[name] = t
	return t
}

func (s *State) byID(id messages.TopicID) *Topic {
	if s.ids == nil {
		s.ids = make(map[messages.TopicID]*Topic, len(s.Topics))
		for _, t := range s.Topics {
			if !t.ID.IsZero() {
				s.ids[t.ID] = t
			}
		}
	}
	return s.ids[id]
}

// NewestVersions is what a source of our day offers, without the KIP's keys.
func NewestVersions() map[int16]Range {
	return map[int16]Range{
		1: {4, 18}, 2: {1, 10}, 3: {0, 13}, 9: {1, 8}, 10: {0, 6}, 16: {0, 5}, 18: {0, 4},
		23: {2, 4}, 29: {1, 3}, 32: {1, 4}, 60: {0, 2},
	}
}

// VersionsWithMirrors adds DescribeClusterMirrors.
func VersionsWithMirrors() map[int16]Range {
	v := NewestVersions()
	v[wire.KeyDescribeClusterMirrors] = Range{0, 0}
	return v
}

// Versions21 is what a 2.1 source offers (C41): no topic ids, no share groups, no
// incremental configs, and it closes the connection on anything else.
func Versions21() map[int16]Range {
	return map[int16]Range{
		1: {4, 10}, 2: {0, 4}, 3: {0, 7}, 9: {0, 5}, 10: {0, 2}, 16: {0, 2}, 18: {0, 2}, 23: {0, 2}, 29: {0, 1}, 32: {0, 2},
	}
}
