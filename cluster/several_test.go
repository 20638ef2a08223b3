package cluster

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/cluster/journal"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// memStream is a stream in memory that all nodes of a test share.
type memStream struct {
	mu       sync.Mutex
	first    uint64
	messages [][]byte
	ids      map[string]uint64
	moved    chan struct{}
	stalled  bool // publishes wait in held
	lose     int  // so many messages with an id vanish: nobody is told
	held     []func()
}

func newMemStream() *memStream {
	return &memStream{first: 1, ids: make(map[string]uint64), moved: make(chan struct{})}
}

func (m *memStream) Publish(id string, payload []byte, done func(uint64, error)) {
	payload = slices.Clone(payload)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stalled {
		m.held = append(m.held, func() { m.Publish(id, payload, done) })
		return
	}
	if m.lose > 0 && id != "" {
		m.lose--
		return
	}
	sequence, twice := m.ids[id]
	if !twice || id == "" {
		m.messages = append(m.messages, payload)
		sequence = m.first + uint64(len(m.messages)) - 1
		m.ids[id] = sequence
		close(m.moved)
		m.moved = make(chan struct{})
	}
	go done(sequence, nil)
}

func (m *memStream) stall(on bool) {
	m.mu.Lock()
	m.stalled = on
	held := m.held
	m.held = nil
	m.mu.Unlock()
	for _, f := range held {
		f()
	}
}

func (m *memStream) Follow(ctx context.Context, from uint64, f func(uint64, []byte) error) error {
	for {
		m.mu.Lock()
		first, moved := m.first, m.moved
		var b []byte
		if i := from - first; from >= first && i < uint64(len(m.messages)) {
			b = m.messages[i]
		}
		m.mu.Unlock()
		switch {
		case from < first:
			return &HoleError{Next: from, First: first}
		case b != nil:
			if err := f(from, b); err != nil {
				return err
			}
			from++
			continue
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (m *memStream) Bounds(context.Context) (first, last uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.first, m.first + uint64(len(m.messages)) - 1, nil
}

func (m *memStream) Purge(_ context.Context, upTo uint64) error {
	m.purge(upTo)
	return nil
}

func (m *memStream) State(context.Context) (StreamState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return StreamState{First: m.first, Last: m.first + uint64(len(m.messages)) - 1}, nil
}

func (m *memStream) purge(upTo uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := upTo + 1 - m.first; upTo >= m.first && n <= uint64(len(m.messages)) {
		m.messages, m.first = m.messages[n:], upTo+1
	}
}

// several is a cluster of nodes with real segments over streams in memory.
type several struct {
	t       *testing.T
	streams map[int32]*memStream
	nodes   map[messages.NodeID]*severalNode
	wait    bool        // nodes start with the metadata of now, as processes do
	quiet   bool        // nothing happens by a timer of the journal's or of claims
	alone   atomic.Bool // no replica of a topic is copied from another node

	unsynced *atomic.Pointer[string] // if set, files of all nodes that can't be synced
	under    persistence.FS          // if set, what the checkpoint files of all nodes are on
}

const severalShards = 3

func newSeveral(t *testing.T, nodes ...messages.NodeID) *several {
	t.Helper()
	return (&several{t: t}).begin(nodes...)
}

func (s *several) begin(nodes ...messages.NodeID) *several {
	t := s.t
	t.Helper()
	s.streams, s.nodes = map[int32]*memStream{}, map[messages.NodeID]*severalNode{}
	for id := MetadataShard; id < severalShards; id++ {
		s.streams[id] = newMemStream()
	}
	for _, id := range nodes {
		s.nodes[id] = &severalNode{s: s, id: id, folder: t.TempDir()}
		s.nodes[id].start()
	}
	t.Cleanup(func() {
		for _, n := range s.nodes {
			n.stop()
		}
	})
	return s
}

// severalNode is one node; it can be stopped and started again.
type severalNode struct {
	s           *several
	id          messages.NodeID
	folder      string
	running     bool
	broken      brokenLogs
	manager     *persistence.Manager
	checkpoints *Checkpoints
	journal     *Journal
	serving     atomic.Pointer[Journal] // the same while the node runs, for other nodes
	meta        *Replica
	store       *metadata.Store
	replicas    *Replicas
	cancel      func()
}

// Copy asks the other nodes in the same process.
func (n *severalNode) Copy(ctx context.Context, key messages.PartitionKey, offset int64, sequence uint64) (piece, error) {
	if n.s.alone.Load() && key.TopicID != MetadataTopicID {
		return piece{}, ErrNoReplica
	}
	blank, others := 0, 0
	for _, other := range n.s.nodes {
		if other == n || !n.holds(other.id, key) {
			continue
		}
		others++
		serving := other.serving.Load()
		if serving == nil {
			continue
		}
		r := serving.replica(key)
		if r == nil {
			continue
		}
		p, err := r.order.(*streamed).offer(ctx, offset, sequence)
		if err == nil {
			return p, nil
		}
		if err == errBlank { //nolint:errorlint // never wrapped
			blank++
		}
	}
	if others == 0 {
		return piece{}, errSole
	}
	if blank == others {
		return piece{}, errAllBlank
	}
	return piece{}, ErrNoReplica
}

// holds reports whether a node is to have a replica, as far as node n knows.
func (n *severalNode) holds(id messages.NodeID, key messages.PartitionKey) bool {
	if key.TopicID == MetadataTopicID {
		return true
	}
	t := n.store.Image().TopicByID(key.TopicID)
	return t != nil && slices.Contains(t.Partitions[key.Partition].Replicas, id)
}

func (n *severalNode) start() {
	t, ctx, log := n.s.t, n.s.t.Context(), zap.NewNop()
	t.Helper()
	beat, isolatedAfter, retry := 20*time.Millisecond, 2*time.Second, 10*time.Millisecond
	if n.s.quiet {
		beat, isolatedAfter, retry = time.Hour, time.Hour, time.Hour
	}
	var err error
	o := persistence.Options{NodeID: n.id, Logger: log}
	if n.s.unsynced != nil {
		o.FS = failingFS{unsynced: n.s.unsynced}
	}
	n.manager, err = persistence.Open(ctx, n.folder, o)
	require.NoError(t, err)
	var under persistence.FS = persistence.OSFS{}
	if n.s.under != nil {
		under = n.s.under
	}
	n.checkpoints, err = OpenCheckpoints(under, n.folder, log)
	require.NoError(t, err)
	n.journal, err = NewJournal(ctx, JournalOptions{
		Node: n.id, Incarnation: messages.NewTopicID(), Shards: severalShards, Checkpoints: n.checkpoints, Copier: n, Logger: log,
		CheckpointInterval: time.Hour, BeatInterval: beat, IsolatedAfter: isolatedAfter, RepairRetry: time.Millisecond, TrimBytes: -1,
		open: func(_ context.Context, shard int32) (stream, error) { return n.s.streams[shard], nil },
	})
	require.NoError(t, err)
	n.meta, err = n.journal.OpenMetadataReplica(ctx, n.manager)
	require.NoError(t, err)
	n.journal.StartMetadata(n.meta)
	if n.s.wait {
		require.NoError(t, n.journal.WaitCaughtUp(ctx, MetadataShard))
	}
	n.store, err = metadata.Open(ctx, metadata.Options{
		Journal: n.meta, Source: n.meta, Dir: filepath.Join(n.folder, messages.ClusterMetadataTopic+"-0"),
		Now: func() int64 { return time.Now().UnixMilli() }, Logger: log,
	})
	require.NoError(t, err)
	n.replicas = NewReplicas(ctx, ReplicasOptions{Node: n.id, Logs: n.broken.over(n.manager), Checkpoints: n.checkpoints, Journal: n.journal, Logger: log, ClaimRetry: retry})
	n.cancel = n.store.Subscribe(n.replicas.Apply)
	n.running = true
	n.serving.Store(n.journal)
}

func (n *severalNode) stop() {
	t := n.s.t
	t.Helper()
	if !n.running {
		return
	}
	n.running = false
	n.serving.Store(nil)
	n.cancel()
	n.journal.Close()
	require.NoError(t, n.replicas.Close())
	require.NoError(t, n.store.Close())
	require.NoError(t, n.meta.Close())
	require.NoError(t, n.journal.Finish())
	require.NoError(t, n.checkpoints.Close())
	require.NoError(t, n.manager.Close())
}

// change writes metadata through node n, which claims the metadata log.
func (n *severalNode) change(records ...metadata.Record) {
	n.s.t.Helper()
	require.NoError(n.s.t, n.meta.Claim(n.s.t.Context(), n.meta.State().LeaderEpoch+1))
	offset, err := n.store.Append(n.s.t.Context(), records, messages.Requester{Principal: "User:test"})
	require.NoError(n.s.t, err)
	for _, other := range n.s.nodes {
		if other.running {
			require.NoError(n.s.t, other.replicas.WaitApplied(n.s.t.Context(), offset))
		}
	}
}

// topic creates a topic of one partition on all nodes, led by the first.
func (s *several) topic(name string, id byte, replicas ...messages.NodeID) {
	s.t.Helper()
	r := wire.NewPtrTopicRecord()
	r.Name, r.TopicID = name, messages.TopicID{id}
	p := metadata.PartitionRecord(r.TopicID, 0, metadata.Partition{Leader: replicas[0], Replicas: replicas, ISR: replicas})
	s.nodes[replicas[0]].change(r, p)
}

// lead moves the leadership of a topic's partition 0, which raises its epoch.
func (s *several) lead(by messages.NodeID, id byte, leader messages.NodeID) {
	s.t.Helper()
	r := wire.NewPtrPartitionChangeRecord()
	r.TopicID, r.PartitionID, r.Leader = messages.TopicID{id}, 0, int32(leader)
	s.nodes[by].change(r)
}

func (n *severalNode) get(topic string) *Replica {
	n.s.t.Helper()
	r, err := n.replicas.Get(messages.TopicPartition{Topic: topic})
	require.NoError(n.s.t, err)
	return r
}

func (n *severalNode) append(topic, value string) {
	n.s.t.Helper()
	b := batch.Append(nil, batch.Plain(), batch.Record{Value: []byte(value)})
	_, err := n.get(topic).AppendClient(n.s.t.Context(), b, anyEpoch)
	require.NoError(n.s.t, err)
}

func (n *severalNode) bytes(topic string) []byte {
	n.s.t.Helper()
	r := n.get(topic)
	var out []byte
	for at := r.Log().LogStart(); at < r.Log().End(); {
		c, err := r.Log().Read(at, 1<<20, r.Log().End(), true)
		require.NoError(n.s.t, err)
		b, err := c.ReadAll()
		require.NoError(n.s.t, err)
		out = append(out, b...)
		at = c.NextOffset
		c.Release()
	}
	return out
}

// equal waits until all running nodes have the topic's bytes that node by has.
func (s *several) equal(by messages.NodeID, topic string) {
	s.t.Helper()
	want := s.nodes[by].get(topic).order.State()
	for id, n := range s.nodes {
		if !n.running {
			continue
		}
		require.Eventually(s.t, func() bool {
			r, err := n.replicas.Get(messages.TopicPartition{Topic: topic})
			if err != nil {
				return false
			}
			got := r.order.State()
			return got.Generation == want.Generation && got.LogEnd == want.LogEnd && got.Mode == want.Mode && r.order.inOrder()
		}, 20*time.Second, time.Millisecond, "node %d of %s", id, topic)
		require.True(s.t, bytes.Equal(s.nodes[by].bytes(topic), n.bytes(topic)), "node %d of %s", id, topic)
	}
}

func TestSeveralReplicate(t *testing.T) {
	s := newSeveral(t, 1, 2, 3)
	s.topic("t", 7, 1, 2, 3)
	for i := range 50 {
		s.nodes[1].append("t", fmt.Sprint("a", i))
	}
	s.equal(1, "t")
	_, err := s.nodes[2].get("t").AppendClient(t.Context(), records(0, 1, 0), anyEpoch)
	require.ErrorIs(t, err, messages.ErrNotLeader)

	s.lead(1, 7, 2)
	require.Eventually(t, s.nodes[2].get("t").Leads, 20*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return s.nodes[1].get("t").order.State().Node == 2 }, 20*time.Second, time.Millisecond)
	_, err = s.nodes[1].get("t").SetMode(t.Context(), messages.ModeSealed)
	require.ErrorIs(t, err, messages.ErrNotLeader, "under the generation of another node's claim")
	_, err = s.nodes[1].get("t").AppendClient(t.Context(), records(0, 1, 0), anyEpoch)
	require.ErrorIs(t, err, messages.ErrNotLeader)
	for i := range 50 {
		s.nodes[2].append("t", fmt.Sprint("b", i))
	}
	s.equal(2, "t")
	require.EqualValues(t, 100, s.nodes[3].get("t").State().End)
}

// TestSeveralRestart: a node that was away applies what it missed; one that finds
// it purged copies.
func TestSeveralRestart(t *testing.T) {
	for _, purged := range []bool{false, true} {
		t.Run(fmt.Sprint("purged=", purged), func(t *testing.T) {
			s := newSeveral(t, 1, 2, 3)
			s.topic("t", 7, 1, 2, 3)
			s.topic("idle", 8, 2, 1, 3)
			for i := range 20 {
				s.nodes[1].append("t", fmt.Sprint("a", i))
			}
			s.equal(1, "t")
			s.nodes[3].stop()
			for i := range 20 {
				s.nodes[1].append("t", fmt.Sprint("b", i))
			}
			if purged {
				for id := range int32(severalShards) {
					_, last, _ := s.streams[id].Bounds(t.Context())
					s.streams[id].purge(last)
				}
			}
			s.nodes[3].start()
			s.nodes[1].append("t", "c")
			s.equal(1, "t")
			s.equal(2, "idle")
			s.lead(1, 7, 3)
			s.nodes[3].append("t", "d")
			s.equal(3, "t")
		})
	}
}

// TestSeveralCutsAndModes: the operations of a start and a stop, on every replica.
func TestSeveralCutsAndModes(t *testing.T) {
	s := newSeveral(t, 1, 2, 3)
	s.topic("t", 7, 1, 2, 3)
	for i := range 30 {
		s.nodes[1].append("t", fmt.Sprint("a", i))
	}
	r := s.nodes[1].get("t")
	seal, err := r.SetMode(t.Context(), messages.ModeSealed)
	require.NoError(t, err)
	require.EqualValues(t, 30, seal)
	cut, err := r.Truncate(t.Context(), 12, "test")
	require.NoError(t, err)
	require.Equal(t, persistence.Cut{From: 12, To: 30, Records: 18, Bytes: cut.Bytes}, cut)
	_, err = r.SetMode(t.Context(), messages.ModeMirroring)
	require.NoError(t, err)
	_, err = r.AppendMirror(t.Context(), 12, records(15, 3, 0))
	require.NoError(t, err)
	s.equal(1, "t")
	s.nodes[2].stop()
	_, _, err = r.RestartAt(t.Context(), 100, "test")
	require.NoError(t, err)
	_, err = r.AppendMirror(t.Context(), 100, records(100, 3, 0))
	require.NoError(t, err)
	s.nodes[2].start()
	s.equal(1, "t")
	require.EqualValues(t, 100, s.nodes[2].get("t").Log().LogStart())
}

// TestSeveralNewReplica: a node that becomes a replica later copies, while the
// leader goes on.
func TestSeveralNewReplica(t *testing.T) {
	s := newSeveral(t, 1, 2, 3)
	s.topic("t", 7, 1)
	for i := range 300 {
		s.nodes[1].append("t", fmt.Sprint("a", i))
	}
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				b := batch.Append(nil, batch.Plain(), batch.Record{Value: fmt.Append(nil, "b", i)})
				if _, err := s.nodes[1].get("t").AppendClient(t.Context(), b, anyEpoch); err != nil {
					t.Errorf("append %d: %v", i, err)
					return
				}
			}
		}
	})
	r := wire.NewPtrPartitionChangeRecord()
	r.TopicID, r.PartitionID, r.Replicas = messages.TopicID{7}, 0, []int32{1, 2, 3}
	s.nodes[2].change(r)
	require.Eventually(t, func() bool { return s.nodes[2].get("t").order.inOrder() && s.nodes[3].get("t").order.inOrder() }, 20*time.Second, time.Millisecond)
	close(stop)
	writer.Wait()
	s.equal(1, "t")
}

// TestSeveralIsolated: a leader whose beats don't come back leads no longer, and
// again when they do.
func TestSeveralIsolated(t *testing.T) {
	s := newSeveral(t, 1, 2)
	s.topic("t", 7, 1, 2)
	s.nodes[1].append("t", "a")
	r := s.nodes[1].get("t")
	st := s.streams[s.nodes[1].journal.shardOf(r.Key()).id]
	st.stall(true)
	require.Eventually(t, func() bool { return !r.Leads() }, 20*time.Second, time.Millisecond)
	_, err := r.AppendClient(t.Context(), records(0, 1, 0), anyEpoch)
	require.ErrorIs(t, err, messages.ErrNotLeader)
	st.stall(false)
	require.Eventually(t, r.Leads, 20*time.Second, time.Millisecond)
	s.nodes[1].append("t", "b")
	s.equal(1, "t")
	require.EqualValues(t, 2, r.State().End)
}

// TestSeveralLost: messages on their way to a stream leader that dies vanish. That a
// later beat comes back tells, long before any time-out.
func TestSeveralLost(t *testing.T) {
	s := newSeveral(t, 1, 2)
	s.topic("t", 7, 1, 2)
	s.nodes[1].append("t", "a")
	st := s.streams[s.nodes[1].journal.shardOf(s.nodes[1].get("t").Key()).id]
	st.mu.Lock()
	st.lose = 3
	st.mu.Unlock()
	s.nodes[1].append("t", "b")
	s.equal(1, "t")
	require.EqualValues(t, 2, s.nodes[1].get("t").State().End)
}

// TestShardBeatCountsFromSending: a beat that comes late, after a pause of the
// process, doesn't say that the shard reaches this node now.
func TestShardBeatCountsFromSending(t *testing.T) {
	s := newSeveral(t, 1)
	sh := &shard{j: s.nodes[1].journal, stream: newMemStream(), log: zap.NewNop(), proposer: journal.NewProposer(journal.Author{Node: 1}, journal.ProposerOptions{})}
	began := time.Unix(1000, 0)
	for i := range 3 {
		sh.beat(began.Add(time.Duration(i) * time.Second))
	}
	for i, number := range []uint64{1, 1, 3, 2} {
		sh.beatBack(number)
		require.Equal(t, began.Add(time.Duration(i/2*2)*time.Second).UnixNano(), sh.beatAt.Load(), "return %d", i)
	}
}

// TestShardAloneAtOnce: a process that was stopped knows that it leads nothing before
// its next round of beats.
func TestShardAloneAtOnce(t *testing.T) {
	s := newSeveral(t, 1, 2)
	s.topic("t", 7, 1, 2)
	s.nodes[1].append("t", "a")
	r := s.nodes[1].get("t")
	sh := s.nodes[1].journal.shardOf(r.Key())
	st := s.streams[sh.id]
	st.stall(true) // no beat comes back any more
	sh.beatAt.Store(time.Now().Add(-time.Minute).UnixNano())
	require.False(t, r.Leads())
	_, err := r.AppendClient(t.Context(), records(0, 1, 0), anyEpoch)
	require.ErrorIs(t, err, messages.ErrNotLeader)
	st.stall(false)
	require.Eventually(t, r.Leads, 20*time.Second, time.Millisecond)
}

// TestSeveralGrow: the folder of a cluster of one goes on as one of several.
func TestSeveralGrow(t *testing.T) {
	folder := t.TempDir()
	alone := startNode(t, folder)
	alone.change(topicRecords("t", 7, 1, "", "")...)
	for i := range 20 {
		b := batch.Append(nil, batch.Plain(), batch.Record{Value: fmt.Append(nil, "a", i)})
		_, err := alone.get("t", 0).AppendClient(t.Context(), b, anyEpoch)
		require.NoError(t, err)
	}
	alone.stop()

	s := newSeveral(t)
	s.nodes[1] = &severalNode{s: s, id: 1, folder: folder}
	s.nodes[1].start()
	require.NoError(t, s.nodes[1].meta.Claim(t.Context(), s.nodes[1].meta.State().LeaderEpoch+1))
	require.Eventually(t, func() bool {
		r, err := s.nodes[1].replicas.Get(messages.TopicPartition{Topic: "t"})
		return err == nil && r.Leads()
	}, 20*time.Second, time.Millisecond)
	s.nodes[1].append("t", "b")

	s.nodes[2] = &severalNode{s: s, id: 2, folder: t.TempDir()}
	s.nodes[2].start()
	r := wire.NewPtrPartitionChangeRecord()
	r.TopicID, r.PartitionID, r.Replicas = s.nodes[1].get("t").Key().TopicID, 0, []int32{1, 2}
	s.nodes[1].change(r)
	s.equal(1, "t")
	require.EqualValues(t, 21, s.nodes[2].get("t").Log().End())
	for range 2 { // and it starts as one of several from now on
		s.nodes[1].stop()
		s.nodes[1].start()
		require.Eventually(t, func() bool {
			r, err := s.nodes[1].replicas.Get(messages.TopicPartition{Topic: "t"})
			return err == nil && r.Leads()
		}, 20*time.Second, time.Millisecond)
		s.nodes[1].append("t", "c")
		s.equal(1, "t")
	}
}
