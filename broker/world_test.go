package broker

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// world is all of a node but the server: an image, a controller that changes it,
// partitions with fake logs, and mirrors by script.
type world struct {
	t    testing.TB
	disk *persistence.Manager // nil: logs in memory
	clk  clock.Clock
	srv  *Server
	addr string
	log  *zap.Logger // nil: none, or the test's own

	mu         sync.Mutex
	img        *metadata.Image
	parts      map[messages.TopicPartition]*fakePartition
	nextPID    int64
	commands   []messages.Command
	who        messages.Requester // of the last command
	states     map[messages.TopicPartition]messages.State
	described  []MirrorPartition
	startErrs  map[string]error
	deleteErr  error
	recoverErr map[string]error
	busErr     error
	planned    []messages.PlannedStart
	planErr    error
	page       metadata.Page
	pageErr    error
	pageAsked  metadata.PageRequest
	groups     *fakeGroups
	txns       *fakeTxns
	deny       func(who messages.Requester, op Operation, on Resource) bool
}

type worldOption func(*world, *Config)

// onDisk keeps the logs as segments in a folder of their own.
func onDisk(w *world, _ *Config) {
	var err error
	w.disk, err = persistence.Open(w.t.Context(), w.t.TempDir(), persistence.Options{})
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, w.disk.Close()) })
}

// newWorld starts a server of node 1 on a free port.
func newWorld(tb testing.TB, opts ...worldOption) *world {
	tb.Helper()
	w := &world{
		t: tb, img: metadata.EmptyImage(), parts: map[messages.TopicPartition]*fakePartition{}, nextPID: 5000,
		states: map[messages.TopicPartition]messages.State{}, groups: newFakeGroups(),
	}
	w.txns = newFakeTxns(w)
	w.clk = clock.Wall{}
	cfg := Config{NodeID: 1, Listeners: []Listener{{Name: "PLAINTEXT", Protocol: ProtocolPlaintext, Address: "127.0.0.1:0"}}, StaticConfigs: map[string]string{}}
	for _, o := range opts {
		o(w, &cfg)
	}
	log := zap.NewNop()
	if _, fuzz := tb.(*testing.F); testing.Verbose() && !fuzz { // a fuzz target's own log can't be written to while it runs
		log = zaptest.NewLogger(tb, zaptest.Level(zap.InfoLevel))
	}
	if w.log != nil {
		log = w.log
	}
	srv, err := New(cfg, Deps{Partitions: w, Images: w, Controller: w, Mirrors: w, Planner: w, History: w, Bus: w, Groups: w.groups, Shares: fakeShares{w}, Transactions: w.txns, Authorizer: w}, w.clk, log)
	require.NoError(tb, err)
	w.srv = srv
	require.NoError(tb, srv.Listen(tb.Context()))
	w.addr = srv.Addr("PLAINTEXT").String()
	host, port, err := net.SplitHostPort(w.addr)
	require.NoError(tb, err)
	n, err := strconv.Atoi(port)
	require.NoError(tb, err)
	cluster, feature := wire.NewPtrClusterRecord(), wire.NewPtrFeatureLevelRecord()
	cluster.ClusterID = "cluster-of-tests-00000"
	feature.Name, feature.FeatureLevel = metadata.MirrorVersionFeature, 1
	claim := wire.NewPtrControllerClaimRecord()
	claim.NodeID, claim.Epoch = 1, 1
	w.apply(cluster, feature, claim, metadata.NodeRecord(messages.Node{ID: 1, Endpoints: []messages.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: host, Port: int32(n)}}}))
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx) }()
	tb.Cleanup(func() {
		end, stop := context.WithTimeout(context.WithoutCancel(tb.Context()), 10*time.Second)
		defer stop()
		require.NoError(tb, srv.Close(end))
		require.NoError(tb, <-done)
		cancel()
	})
	return w
}

func (w *world) apply(records ...metadata.Record) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.applyLocked(records...)
}

func (w *world) applyLocked(records ...metadata.Record) int64 {
	require.NoError(w.t, w.tryLocked(records...))
	return w.img.Offset()
}

func (w *world) tryLocked(records ...metadata.Record) error {
	d, err := w.img.Apply(w.img.Offset()+1, records)
	if err != nil {
		return fmt.Errorf("%w: %w", messages.ErrInvalidRequest, err)
	}
	w.img = d.New
	return nil
}

// partitionsMax keeps fuzzed counts small.
const partitionsMax = 100

// topic creates a topic with one replica on node 1 per partition.
func (w *world) topic(name string, partitions int32, configs map[string]string) *metadata.Topic {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.topicLocked(name, messages.TopicID{}, partitions, configs)
}

func (w *world) topicLocked(name string, id messages.TopicID, partitions int32, configs map[string]string) *metadata.Topic {
	if id.IsZero() {
		id = messages.NewTopicID()
	}
	t := wire.NewPtrTopicRecord()
	t.Name, t.TopicID = name, id
	records := []metadata.Record{t}
	for n := range partitions {
		records = append(records, metadata.PartitionRecord(id, n, metadata.Partition{Leader: 1, Replicas: []messages.NodeID{1}, ISR: []messages.NodeID{1}}))
		w.parts[messages.TopicPartition{Topic: name, Partition: n}] = w.newPartition(name, n)
	}
	for k, v := range configs {
		records = append(records, metadata.ConfigRecord(messages.ResourceTopic, name, k, &v))
	}
	w.applyLocked(records...)
	return w.img.Topic(name)
}

// newPartition opens a log: segments on disk, or the memory twin.
func (w *world) newPartition(topic string, n int32) *fakePartition {
	tp := messages.TopicPartition{Topic: topic, Partition: n}
	info := persistence.Info{TopicPartition: tp, Key: messages.PartitionKey{TopicID: messages.NewTopicID(), Partition: n}}
	if w.disk == nil {
		return newFakePartition(persistence.NewMemoryLog(info, persistence.Config{}))
	}
	if w.parts[tp] != nil { // deleted and created again
		require.NoError(w.t, w.disk.Delete(w.t.Context(), tp))
	}
	log, err := w.disk.Create(w.t.Context(), info, persistence.Config{})
	require.NoError(w.t, err)
	return newFakePartition(log)
}

func (w *world) mirrorOf(name string, configs map[string]string) {
	if configs == nil {
		configs = map[string]string{"bootstrap.servers": "127.0.0.1:1"}
	}
	var records []metadata.Record
	for k, v := range configs {
		records = append(records, metadata.ConfigRecord(messages.ResourceClusterMirror, name, k, &v))
	}
	w.apply(records...)
}

func (w *world) part(topic string, n int32) *fakePartition {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.parts[messages.TopicPartition{Topic: topic, Partition: n}]
}

// client is a kgo client of the server that knows the KIP's keys.
func (w *world) client(opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(w.addr), kgo.MaxVersions(mirrorVersions())}, opts...)...)
	require.NoError(w.t, err)
	w.t.Cleanup(cl.Close)
	return cl
}

// The methods below fill Deps.

func (w *world) Image() *metadata.Image {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.img
}

func (w *world) WaitFor(context.Context, int64) error { return nil }

func (w *world) Partition(tp messages.TopicPartition, id messages.TopicID) (Partition, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, t := w.parts[tp], w.img.Topic(tp.Topic)
	switch {
	case t == nil || p == nil:
		return nil, messages.ErrUnknownTopicOrPartition
	case !id.IsZero() && id != t.ID:
		return nil, messages.ErrUnknownTopicID
	case t.Partitions[tp.Partition].Leader != 1:
		return nil, messages.ErrNotLeader
	}
	return p, nil
}

func (w *world) Allowed(who messages.Requester, op Operation, on ResourceKind, name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deny == nil || !w.deny(who, op, Resource{on, name})
}

// Resource is what a test denies.
type Resource struct {
	Kind ResourceKind
	Name string
}

func (w *world) AllowedAny(who messages.Requester, op Operation, on ResourceKind) bool {
	return w.Allowed(who, op, on, "")
}

func (w *world) Submit(_ context.Context, who messages.Requester, cmd messages.Command) messages.Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.who = who
	w.commands = append(w.commands, cmd)
	var out messages.Outcome
	switch c := cmd.(type) {
	case messages.CreateTopics:
		for _, t := range c.Topics {
			out.Items = append(out.Items, w.createLocked(t, c.ValidateOnly))
		}
	case messages.DeleteTopics:
		for _, name := range c.Names {
			r := wire.NewPtrRemoveTopicRecord()
			r.TopicID = w.img.Topic(name).ID
			w.applyLocked(r)
			out.Items = append(out.Items, messages.Item{Name: name})
		}
	case messages.CreatePartitions:
		for _, t := range c.Topics {
			out.Items = append(out.Items, messages.Item{Name: t.Topic, Err: w.growLocked(t)})
		}
	case messages.AlterConfigs:
		for _, r := range c.Resources {
			item := messages.Item{Name: r.Name}
			for _, ch := range r.Changes {
				if !c.ValidateOnly && item.Err == nil {
					item.Err = w.tryLocked(metadata.ConfigRecord(r.Type, r.Name, ch.Name, ch.Value))
				}
			}
			out.Items = append(out.Items, item)
		}
	case messages.CreateMirror:
		for _, ch := range c.Configs {
			w.applyLocked(metadata.ConfigRecord(messages.ResourceClusterMirror, c.Name, ch.Name, ch.Value))
		}
	case messages.DeleteMirror:
		for k := range maps.Clone(w.img.Mirror(c.Name).Configs) {
			w.applyLocked(metadata.ConfigRecord(messages.ResourceClusterMirror, c.Name, k, nil))
		}
	case messages.StartMirrorTopics:
		out.Items = w.desireLocked(c.Topics, c.Mirror)
	case messages.StopMirrorTopics:
		out.Items = w.desireLocked(c.Topics, c.Mirror+".stopped")
	case messages.PauseMirrorTopics:
		out.Items = w.desireLocked(c.Topics, c.Mirror+".paused")
	case messages.ResumeMirrorTopics:
		out.Items = w.desireLocked(c.Topics, c.Mirror)
	case messages.BumpLeaderEpochs:
		out.Items = w.bumpLocked(c)
	case messages.AllocateProducerIDs:
		out.Items = []messages.Item{{FirstProducerID: w.nextPID, Count: c.Count}}
		w.nextPID += int64(c.Count)
	default:
		var ok bool
		if out.Items, ok = w.securityLocked(cmd); ok {
			break
		}
		if out.Items, ok = w.adminLocked(cmd); !ok {
			out.Err = fmt.Errorf("%w: %T", errFake, cmd)
		}
	}
	out.Offset = w.img.Offset()
	return out
}

func (w *world) createLocked(t messages.NewTopic, validateOnly bool) messages.Item {
	if w.img.Topic(t.Name) != nil {
		return messages.Item{Name: t.Name, Err: fmt.Errorf("%w: %q", messages.ErrTopicExists, t.Name)}
	}
	n := max(t.Partitions, 1)
	if n > partitionsMax {
		return messages.Item{Name: t.Name, Err: messages.ErrInvalidPartitions}
	}
	configs := map[string]string{}
	for k, v := range t.Configs {
		if v != nil {
			configs[k] = *v
		}
	}
	item := messages.Item{Name: t.Name, Partitions: n, Replication: 1}
	if !validateOnly {
		item.TopicID = w.topicLocked(t.Name, t.ID, n, configs).ID
	}
	return item
}

func (w *world) growLocked(c messages.PartitionCount) error {
	t := w.img.Topic(c.Topic)
	if t.Mirror != "" && t.Desired != messages.DesiredStopped {
		return fmt.Errorf("%w: topic %s belongs to mirror %s", messages.ErrReadOnlyTopic, t.Name, t.Mirror)
	}
	if c.Count > partitionsMax {
		return messages.ErrInvalidPartitions
	}
	for n := int32(len(t.Partitions)); n < c.Count; n++ {
		w.applyLocked(metadata.PartitionRecord(t.ID, n, metadata.Partition{Leader: 1, Replicas: []messages.NodeID{1}, ISR: []messages.NodeID{1}}))
		w.parts[messages.TopicPartition{Topic: c.Topic, Partition: n}] = w.newPartition(c.Topic, n)
	}
	return nil
}

func (w *world) desireLocked(topics []messages.MirrorTopic, value string) []messages.Item {
	var items []messages.Item
	for _, t := range topics {
		item := messages.Item{Name: t.Name}
		switch {
		case w.img.Topic(t.Name) != nil:
			w.applyLocked(metadata.ConfigRecord(messages.ResourceTopic, t.Name, messages.MirrorNameConfig, &value))
		case w.img.TopicByID(t.ID) != nil || t.NumPartitions > partitionsMax:
			item.Err = messages.ErrTopicExists
		case t.NumPartitions > 0:
			w.topicLocked(t.Name, t.ID, t.NumPartitions, map[string]string{messages.MirrorNameConfig: value})
		default:
			item.Err = messages.ErrUnknownTopicOrPartition
		}
		items = append(items, item)
	}
	return items
}

func (w *world) bumpLocked(c messages.BumpLeaderEpochs) []messages.Item {
	var items []messages.Item
	for _, b := range c.Bumps {
		t := w.img.TopicByID(b.TopicID)
		item := messages.Item{TopicID: b.TopicID, Partition: b.Partition}
		switch {
		case t == nil:
			item.Err = messages.ErrUnknownTopicID
		case b.Partition < 0 || int(b.Partition) >= len(t.Partitions) || b.MinLeaderEpoch == math.MaxInt32:
			item.Err = messages.ErrUnknownTopicOrPartition
		default:
			p := t.Partitions[b.Partition]
			p.LeaderEpoch = max(b.MinLeaderEpoch, p.LeaderEpoch) + 1
			w.applyLocked(metadata.PartitionRecord(t.ID, b.Partition, p))
			item.Name = t.Name
		}
		items = append(items, item)
	}
	return items
}

func (w *world) Describe(_ context.Context, mirror string) ([]MirrorPartition, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []MirrorPartition
	for _, p := range w.described {
		if t := w.img.Topic(p.Topic); t != nil && t.Mirror == mirror {
			out = append(out, p)
		}
	}
	return out, nil
}

func (w *world) PlanStart(context.Context, string, messages.TopicPatterns) ([]messages.PlannedStart, error) {
	return w.planned, w.planErr
}

func (w *world) ReadPage(req metadata.PageRequest) (metadata.Page, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pageAsked = req
	return w.page, w.pageErr
}

func (w *world) State(tp messages.TopicPartition) messages.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s, ok := w.states[tp]; ok {
		return s
	}
	return messages.StateUnknown
}

func (w *world) CheckStart(_ context.Context, _ string, topics []messages.MirrorTopic) ([]error, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	errs := make([]error, len(topics))
	for i, t := range topics {
		errs[i] = w.startErrs[t.Name]
	}
	return errs, nil
}

func (w *world) CheckDelete(context.Context, string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deleteErr
}

func (w *world) Recover(_ context.Context, _ messages.Requester, _ string, topics []string) []messages.Item {
	w.mu.Lock()
	defer w.mu.Unlock()
	var items []messages.Item
	for _, t := range topics {
		items = append(items, messages.Item{Name: t, Err: w.recoverErr[t]})
	}
	return items
}

func (w *world) ReadMirrorStates(_ context.Context, _ string, body []byte) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busErr != nil {
		return nil, w.busErr
	}
	req := wire.NewReadMirrorStatesRequest()
	if err := req.ReadFrom(body); err != nil {
		return nil, err
	}
	resp := wire.NewReadMirrorStatesResponse()
	for _, t := range req.Topics {
		rt := wire.NewReadMirrorStatesResponseTopicStates()
		rt.Name = t.Name
		for _, p := range t.Partitions {
			rp := wire.NewReadMirrorStatesResponsePartitionStateData()
			rp.PartitionIndex, rp.State = p.PartitionIndex, int8(messages.StateMirroring)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp.AppendTo(nil), nil
}

func (w *world) WriteMirrorStates(_ context.Context, _ string, body []byte) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busErr != nil {
		return nil, w.busErr
	}
	req := wire.NewWriteMirrorStatesRequest()
	if err := req.ReadFrom(body); err != nil {
		return nil, err
	}
	resp := wire.NewWriteMirrorStatesResponse()
	for _, t := range req.Topics {
		rt := wire.NewWriteMirrorStatesResponseTopicResult()
		rt.Name = t.Name
		for _, p := range t.Partitions {
			rp := wire.NewWriteMirrorStatesResponsePartitionResult()
			rp.PartitionIndex = p.PartitionIndex
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp.AppendTo(nil), nil
}

func (w *world) lastCommand() messages.Command {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.commands[len(w.commands)-1]
}
