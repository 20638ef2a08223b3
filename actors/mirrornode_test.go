package actors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"kagami/cluster"
	"kagami/fetch"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/persistence"
	"kagami/persistence/metadata"
	"kagami/test/kafka/stub"
)

// patience is generous for a busy machine; the usual wait takes a second.
const patience = 30 * time.Second

// mirrorNode is the mirroring side of a node as cmd puts it together, over real
// logs, metadata, bus and controller, with scripted sources.
type mirrorNode struct {
	*Node
	t          *testing.T
	dir        string
	static     map[string]string
	system     *System
	store      *metadata.Store
	replicas   *cluster.Replicas
	controller *Controller
	groups     *Groups
	shares     *ShareGroups
	groupsDown atomic.Bool // coordinators of groups don't answer other nodes
	logs       *observer.ObservedLogs
	undo       []func() error
}

// startMirrorNode starts a node in a folder; static are key=value of its file.
func startMirrorNode(t *testing.T, dir string, static ...string) *mirrorNode {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	n := &mirrorNode{t: t, dir: dir, logs: logs, static: map[string]string{
		configs.MirrorStateTopicPartitions: "3", configs.MirrorFailedRetryInitial: "50", configs.MirrorFetchBackoff: "50",
		configs.ReplicaFetchWaitMax: "50", configs.MirrorRefreshInterval: "200", configs.OffsetsTopicPartitions: "3", configs.ShareStateTopicPartitions: "4",
	}}
	for _, s := range static {
		k, v, _ := strings.Cut(s, "=")
		n.static[k] = v
	}
	n.start(zap.New(core))
	t.Cleanup(func() { require.NoError(t, n.stop()) })
	return n
}

func (n *mirrorNode) start(log *zap.Logger) {
	t, ctx, wall := n.t, n.t.Context(), clock.Wall{}
	t.Helper()
	defers := func(f func() error) { n.undo = append(n.undo, f) }
	manager, err := persistence.Open(ctx, n.dir, persistence.Options{ClusterID: "dest", NodeID: 1, Clock: wall, Logger: log})
	require.NoError(t, err)
	defers(manager.Close)
	points, err := cluster.OpenCheckpoints(persistence.OSFS{}, n.dir, log)
	require.NoError(t, err)
	defers(points.Close)
	meta, err := cluster.OpenMetadataReplica(ctx, 1, manager, points, log)
	require.NoError(t, err)
	defers(meta.Close)
	n.store, err = metadata.Open(ctx, metadata.Options{
		Journal: meta, Source: meta, Dir: filepath.Join(n.dir, meta.TopicPartition().String()),
		Now: func() int64 { return time.Now().UnixMilli() }, Logger: log,
	})
	require.NoError(t, err)
	defers(n.store.Close)
	bus, err := cluster.OpenBus(ctx, cluster.BusOptions{ClusterID: "dest", Node: 1, Clock: wall, Logger: log})
	require.NoError(t, err)
	defers(bus.Close)
	n.replicas = cluster.NewReplicas(ctx, cluster.ReplicasOptions{Node: 1, Logs: manager, Checkpoints: points, Static: n.static, Clock: wall, Logger: log})
	defers(n.replicas.Close)
	cancel := n.store.Subscribe(n.replicas.Apply)
	defers(func() error { cancel(); return nil })
	n.system = NewSystem(zap.NewNop())
	defers(func() error { n.system.Shutdown(); return nil })
	n.controller, err = NewController(ctx, n.system, ControllerOptions{
		Node: 1, ClusterID: "dest", Store: n.store, Claim: meta.Claim, Live: func() []messages.NodeID { return []messages.NodeID{1} },
		Static: n.static, Clock: wall, Logger: log,
	})
	require.NoError(t, err)
	defers(n.controller.Close)
	stop, err := n.controller.ServeBumps(bus, bus.ControllerBump(1))
	require.NoError(t, err)
	defers(func() error { stop(); return nil })
	require.NoError(t, n.controller.WaitClaimed(ctx))
	n.Node = NewNode(ctx, NodeConfig{
		System: n.system, Node: 1, Store: n.store, Replicas: n.replicas, Bus: bus, Controller: n.controller, Static: n.static,
		Budget: fetch.NewBudget(64 << 20), Random: func() float64 { return 0.5 }, RefreshPause: 200 * time.Millisecond, Clock: wall, Log: log,
	})
	defers(n.Node.Close)
	n.startGroups(bus, log, defers)
	n.submit(messages.RegisterNode{Node: messages.Node{ID: 1, Endpoints: []messages.Endpoint{{Listener: "PLAINTEXT", Host: "127.0.0.1", Port: 9094}}}})
}

// startGroups starts the coordinators of groups, as cmd does.
func (n *mirrorNode) startGroups(bus *cluster.Bus, log *zap.Logger, defers func(func() error)) {
	t, ctx, wall := n.t, n.t.Context(), clock.Wall{}
	t.Helper()
	replica := func(tp messages.TopicPartition) (StateReplica, error) {
		r, err := n.replicas.Get(tp)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
	n.groups = NewGroups(ctx, GroupsConfig{System: n.system, Node: 1, Static: n.static, Clock: wall, Log: log, Replica: replica})
	defers(n.groups.Close)
	n.groups.Settle(n.store.Image())
	n.shares = NewShareGroups(ctx, ShareGroupsConfig{
		System: n.system, Node: 1, Groups: n.groups, Bus: bus, Image: n.store.Image, Submit: n.controller.Submit, Replica: replica, Clock: wall, Log: log,
	})
	defers(n.shares.Close)
	applied := n.replicas.Subscribe(func(a cluster.AppliedImage) {
		n.groups.Apply(a.Image, a.Topics)
		n.shares.Apply(a.Image, a.Topics)
	})
	defers(func() error { applied(); return nil })
	rpc := cluster.NewActorRPC(bus)
	defers(func() error { rpc.Close(); return nil })
	require.NoError(t, rpc.RegisterActorHandler(func(ctx context.Context, name string, msg []byte) ([]byte, error) {
		switch name {
		case GroupsActor:
			if n.groupsDown.Load() {
				return nil, messages.ErrTimedOut
			}
			return n.groups.HandleQuery(ctx, msg)
		case SharesActor:
			return n.shares.HandleQuery(ctx, msg)
		default:
			return n.HandleQuery(ctx, name, msg)
		}
	}))
}

// stop ends the parts, last first. It may be called twice.
func (n *mirrorNode) stop() error {
	var errs []error
	for _, f := range slices.Backward(n.undo) {
		errs = append(errs, f())
	}
	n.undo = nil
	return errors.Join(errs...)
}

func (n *mirrorNode) try(cmd messages.Command) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return outcomeError(n.controller.Submit(ctx, messages.Requester{Principal: "User:test"}, cmd))
}

func (n *mirrorNode) submit(cmd messages.Command) {
	n.t.Helper()
	require.NoError(n.t, n.try(cmd))
}

// create makes mirror m of a source; settings are key=value.
func (n *mirrorNode) create(src *stub.Cluster, settings ...string) {
	n.t.Helper()
	address := src.Address()
	all := []messages.ConfigChange{{Name: configs.BootstrapServers, Op: messages.ConfigSet, Value: &address}}
	for _, s := range settings {
		k, v, _ := strings.Cut(s, "=")
		all = append(all, messages.ConfigChange{Name: k, Op: messages.ConfigSet, Value: &v})
	}
	n.submit(messages.CreateMirror{Name: "m", Configs: all})
}

func (n *mirrorNode) alter(kind messages.ResourceType, name, key, value string) {
	n.t.Helper()
	n.submit(messages.AlterConfigs{Resources: []messages.ResourceChange{{
		Type: kind, Name: name, Changes: []messages.ConfigChange{{Name: key, Op: messages.ConfigSet, Value: &value}},
	}}})
}

// begin starts topics of the source and waits until they are copied.
func (n *mirrorNode) begin(src *stub.Cluster, topics ...string) {
	n.t.Helper()
	var start []messages.MirrorTopic
	src.Read(func(s *stub.State) {
		for _, name := range topics {
			start = append(start, messages.MirrorTopic{Name: name, ID: s.Topics[name].ID, NumPartitions: int32(len(s.Topics[name].Partitions))})
		}
	})
	n.submit(messages.StartMirrorTopics{Mirror: "m", Topics: start})
	for _, name := range topics {
		n.await("all of "+name, func() error { return n.equal(src, name) })
	}
}

func (n *mirrorNode) halt(topics ...string) {
	n.t.Helper()
	var stop []messages.MirrorTopic
	for _, name := range topics {
		stop = append(stop, messages.MirrorTopic{Name: name})
	}
	n.submit(messages.StopMirrorTopics{Mirror: "m", Topics: stop})
}

// equal is nil when the topic has all partitions of the source, all of them
// MIRRORING, with the source's bytes.
func (n *mirrorNode) equal(src *stub.Cluster, topic string) error {
	type part struct {
		end   int64
		bytes []byte
	}
	var want []part
	src.Read(func(s *stub.State) {
		for _, p := range s.Topics[topic].Partitions {
			want = append(want, part{end: p.End(), bytes: slices.Clone(p.Bytes())})
		}
	})
	here := n.store.Image().Topic(topic)
	if here == nil || len(here.Partitions) != len(want) {
		return fmt.Errorf("topic %s isn't here with %d partitions", topic, len(want))
	}
	for i, w := range want {
		tp := messages.TopicPartition{Topic: topic, Partition: int32(i)}
		if err := n.in(messages.StateMirroring, tp); err != nil {
			return err
		}
		r, err := n.replicas.Get(tp)
		if err != nil {
			return err
		}
		if end := r.State().End; end != w.end {
			return fmt.Errorf("%s ends at %d, want %d", tp, end, w.end)
		}
		if got := readAll(n.t, r); !bytes.Equal(got, w.bytes) {
			return fmt.Errorf("%s: %d bytes differ from the source's %d", tp, len(got), len(w.bytes))
		}
	}
	return nil
}

func readAll(t *testing.T, r *cluster.Replica) []byte {
	t.Helper()
	var out bytes.Buffer
	log := r.Log()
	for at := log.LogStart(); at < log.End(); {
		chunk, err := log.Read(at, 1<<20, log.End(), true)
		require.NoError(t, err)
		b, err := chunk.ReadAll()
		require.NoError(t, err)
		out.Write(b)
		at = lastOffset(t, b) + 1
		chunk.Release()
	}
	return out.Bytes()
}

// in is nil when the partition is in the state.
func (n *mirrorNode) in(state messages.State, tp messages.TopicPartition) error {
	h := n.Partitions.Get(tp)
	if h == nil {
		return fmt.Errorf("%s has no actor", tp)
	}
	if s := h.Status(); s.State != state {
		return fmt.Errorf("%s is %s (%s), want %s", tp, s.State, s.Error, state)
	}
	return nil
}

func (n *mirrorNode) awaitIn(state messages.State, tps ...messages.TopicPartition) {
	n.t.Helper()
	for _, tp := range tps {
		n.await(state.String(), func() error { return n.in(state, tp) })
	}
}

// await asks again until f returns nil.
func (n *mirrorNode) await(what string, f func() error) {
	n.t.Helper()
	awaitNil(n.t, what, f)
}

func awaitNil(t *testing.T, what string, f func() error) {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// refresh asks for a refresh and waits for one that began after it.
func (n *mirrorNode) refresh() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a, err := n.Mirrors.Link().ask(ctx, "m", mirrorAwaitRefresh{})
	if err != nil {
		return err
	}
	seen, _ := a.(refreshSeen)
	return seen.err
}

// refreshTwice waits until a cycle has begun and ended after the call.
func (n *mirrorNode) refreshTwice() {
	n.t.Helper()
	at := n.Mirrors.syncs.cycles.Load()
	n.await("two cycles", func() error {
		if now := n.Mirrors.syncs.cycles.Load(); now < at+2 {
			return fmt.Errorf("%d of %d", now, at+2)
		}
		return nil
	})
}

// never fails the test when a partition was in FAILED at any time.
func (n *mirrorNode) neverFailed() {
	n.t.Helper()
	if l := n.logs.FilterMessage("partition failed").All(); len(l) > 0 {
		n.t.Errorf("a partition failed on the way: %v", l[0].ContextMap())
	}
}

// actors are the running actors whose last name begins so.
func (n *mirrorNode) actors(name string) []*actor.PID {
	var out []*actor.PID
	for _, shard := range n.system.ProcessRegistry.LocalPIDs.LocalPIDs {
		for _, id := range shard.Keys() {
			if last := id[strings.LastIndex(id, "/")+1:]; strings.HasPrefix(last, name) {
				out = append(out, actor.NewPID(n.system.Address(), id))
			}
		}
	}
	return out
}

// restart makes actors begin another life, as a panic does, and waits until the
// fetchers of before are gone.
func (n *mirrorNode) restart(name string) {
	n.t.Helper()
	fetchers, who := n.actors("fetcher-"), n.actors(name)
	require.NotEmpty(n.t, who, name)
	for _, pid := range who {
		if p, ok := n.system.ProcessRegistry.Get(pid); ok {
			p.SendSystemMessage(pid, &actor.Restart{})
		}
	}
	n.await("fetchers gone", func() error {
		for _, now := range n.actors("fetcher-") {
			if slices.ContainsFunc(fetchers, func(old *actor.PID) bool { return old.Id == now.Id }) {
				return fmt.Errorf("%s is still there", now.Id)
			}
		}
		return nil
	})
}

// stubSource is a source with topic t of n partitions, 20 batches in each.
func stubSource(t *testing.T, brokers, partitions int) *stub.Cluster {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	// protoactor counts dead letters for a second.
	throttle := goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1")
	t.Cleanup(func() { goleak.VerifyNone(t, leaks, throttle) })
	return anotherSource(t, stub.Options{Brokers: brokers, ClusterID: "source"}, partitions)
}

func anotherSource(t *testing.T, o stub.Options, partitions int) *stub.Cluster {
	t.Helper()
	c, err := stub.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	c.Update(func(s *stub.State) {
		for _, p := range s.NewTopic("t", messages.TopicID{1, 2, 3}, partitions).Partitions {
			p.Fill(20)
		}
	})
	return c
}

// grow writes more into all partitions of topic t.
func grow(c *stub.Cluster, batches int) {
	c.Update(func(s *stub.State) {
		for _, p := range s.Topics["t"].Partitions {
			p.Fill(batches)
		}
	})
}

func tpOf(topic string, partition int32) messages.TopicPartition {
	return messages.TopicPartition{Topic: topic, Partition: partition}
}
