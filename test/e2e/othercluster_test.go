package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kagami/test/kafka"
	"kagami/test/kafka/proc"
)

// switched is an address that leads to one of several clusters, as a name in DNS does.
type switched struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string
	conns  map[net.Conn]struct{}
}

func newSwitched(t *testing.T) *switched {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	s := &switched{listener: l, conns: map[net.Conn]struct{}{}}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		s.to("")
		s.wg.Wait()
	})
	return s
}

func (s *switched) addr() string { return s.listener.Addr().String() }

// to leads to another cluster from here on; connections end.
func (s *switched) to(target string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.target = target
	for c := range s.conns {
		_ = c.Close()
	}
	clear(s.conns)
}

// add reports whether the connections lead where new ones do.
func (s *switched) add(target string, conns ...net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range conns {
		s.conns[c] = struct{}{}
	}
	return target == s.target
}

func (s *switched) serve(in net.Conn) {
	defer func() { _ = in.Close() }()
	s.mu.Lock()
	target := s.target
	s.mu.Unlock()
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	if !s.add(target, in, out) {
		return
	}
	var half sync.WaitGroup
	half.Go(func() {
		_, _ = io.Copy(out, in)
		_ = out.Close()
	})
	_, _ = io.Copy(in, out)
	_ = in.Close()
	half.Wait()
}

// startBehind starts a Kafka whose listener MIRROR is known by the switched address only.
func startBehind(t *testing.T, s *switched, version kafka.Version, id string) (*kafka.Cluster, string) {
	t.Helper()
	ports, err := proc.Ports(1)
	require.NoError(t, err)
	own := proc.Addr(ports[0])
	return kafka.Start(t, kafka.Options{
		Version: version, ClusterID: id, Listeners: []string{"MIRROR://" + own}, Advertised: map[string]string{"MIRROR": s.addr()},
		Properties: map[string]string{"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,MIRROR:PLAINTEXT"},
	}), own
}

// TestU12D49KafkaSwitched: the source's address leads to another real Kafka, with topics of
// the same names and more. Nothing of it comes, also after a crash; back at the first one all
// goes on by itself, and the paused topic is paused. KAGAMI_OTHER_CLUSTER=old has Kafka 2.8,
// where topics are fetched by name, and 2.1, where they have no ids.
func TestU12D49KafkaSwitched(t *testing.T) {
	t.Parallel() // has a world of its own
	versions := []kafka.Version{kafka.V44}
	if os.Getenv("KAGAMI_OTHER_CLUSTER") != "" {
		versions = append(versions, kafka.V28, kafka.V21)
	}
	for _, v := range versions {
		t.Run(string(v), func(t *testing.T) { clusterSwitched(t, v) })
	}
}

func clusterSwitched(t *testing.T, version kafka.Version) {
	t.Helper()
	kafka.Require(t, version)
	s := newSwitched(t)
	right, rightAddr := startBehind(t, s, version, "")
	other, otherAddr := startBehind(t, s, version, "anotherTestCluster000w")
	s.to(rightAddr)
	w := newWorldOf(t, right, NodeOptions{Properties: quickGroups(nil)})
	o := &world{t: t, ctx: w.ctx, source: other}
	var err error
	o.a, err = NewSide("other", other.Bootstrap())
	require.NoError(t, err)
	t.Cleanup(o.a.Close)
	for _, topic := range []string{"u12", "u12-paused"} {
		w.topic(topic, 2, 1)
		o.topic(topic, 2, 1)
		w.load(topic, Records{Count: 100})
		o.load(topic, Records{Count: 300, Seed: 7})
	}
	o.topic("u12-foreign", 1, 1)
	w.create("m", "bootstrap.servers="+s.addr(), "mirror.topics.include=u12.*")
	require.NoError(t, AwaitStates(w.ctx, w.adm, "m", []string{"u12", "u12-paused"}, 4, "MIRRORING"))
	w.equalOf(version, "u12", "u12-paused")
	w.run("--pause", "--mirror", "m", "--topics", "u12-paused")
	w.await("m", "PAUSED", "u12-paused")
	ends, pausedEnds := w.endsHere("u12"), w.endsHere("u12-paused")

	s.to(otherAddr)
	var offsets kadm.Offsets
	offsets.AddOffset("u12", 0, 3, -1)
	require.NoError(t, kafka.Poll(w.ctx, func() error { return o.a.Admin.CommitAllOffsets(w.ctx, "u12-foreign", offsets) }))
	w.load("u12", Records{Count: 50, From: 100})
	w.load("u12-paused", Records{Count: 50, From: 100})
	ids := func(topics ...string) {
		t.Helper()
		w.await("m", "FAILED", topics...)
		ps, err := Partitions(w.ctx, w.adm, "m")
		require.NoError(t, err)
		for _, side := range []*Side{w.a, o.a} {
			meta, err := side.Admin.BrokerMetadata(w.ctx)
			require.NoError(t, err)
			for _, p := range ps {
				require.Contains(t, p.ErrorText, meta.Cluster, "%s-%d", p.Topic, p.Partition)
			}
		}
	}
	same := func() {
		t.Helper()
		require.Equal(t, ends, w.endsHere("u12"))
		require.Equal(t, pausedEnds, w.endsHere("u12-paused"))
		_, err := w.b.Topic(w.ctx, "u12-foreign")
		require.Error(t, err, "nothing is discovered there")
		require.NoError(t, kafka.Poll(w.ctx, func() error { // a coordinator takes a while to be there
			got, err := committedOn(w.ctx, w.b, "u12-foreign")
			require.Empty(t, got)
			return err
		}))
	}
	ids("u12", "u12-paused")
	same()
	require.NoError(t, w.node.Kill9())
	require.NoError(t, w.node.Start(w.ctx))
	ids("u12", "u12-paused")
	same()

	s.to(rightAddr)
	w.await("m", "MIRRORING", "u12")
	w.await("m", "PAUSED", "u12-paused")
	w.equalOf(version, "u12")
	require.Equal(t, pausedEnds, w.endsHere("u12-paused"))
	w.run("--resume", "--mirror", "m", "--topics", "u12-paused")
	w.equalOf(version, "u12-paused")
	w.manyGroups("u12")
}

// equalOf is equal; old releases have no topic ids to compare.
func (w *world) equalOf(version kafka.Version, topics ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, convergeTimeout)
	defer cancel()
	require.NoError(w.t, AwaitEnds(ctx, w.a, w.b, topics...))
	for _, topic := range topics {
		require.NoError(w.t, Different(ctx, w.a, w.b, topic, version != kafka.V21))
	}
}

func (w *world) endsHere(topic string) map[int32]Ends {
	w.t.Helper()
	ends, err := w.b.TopicEnds(w.ctx, topic)
	require.NoError(w.t, err)
	return ends
}

// manyGroups: offsets of many groups of a real Kafka follow within some cycles.
// KAGAMI_SOURCE_GROUPS is how many.
func (w *world) manyGroups(topic string) {
	w.t.Helper()
	count := 200
	if text := os.Getenv("KAGAMI_SOURCE_GROUPS"); text != "" {
		var err error
		count, err = strconv.Atoi(text)
		require.NoError(w.t, err)
	}
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("many-%05d", i)
	}
	commit := func(at int64) {
		var offsets kadm.Offsets
		offsets.AddOffset(topic, 0, at, -1)
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for k := range errs {
			wg.Go(func() {
				for i := k; i < count && errs[k] == nil; i += len(errs) {
					errs[k] = kafka.Poll(w.ctx, func() error { return w.a.Admin.CommitAllOffsets(w.ctx, names[i], offsets) })
				}
			})
		}
		wg.Wait()
		require.NoError(w.t, errors.Join(errs...))
	}
	for _, at := range []int64{5, 9} {
		began := time.Now()
		commit(at)
		committed := time.Since(began)
		began = time.Now()
		ctx, cancel := context.WithTimeout(w.ctx, 2*convergeTimeout)
		require.NoError(w.t, kafka.Poll(ctx, func() error {
			for name, g := range w.b.Admin.FetchManyOffsets(ctx, names...) {
				if o, _ := g.Fetched.Lookup(topic, 0); g.Err != nil || o.At != at {
					return fmt.Errorf("group %s is at %d, want %d (%w)", name, o.At, at, g.Err)
				}
			}
			return nil
		}))
		cancel()
		w.t.Logf("%d groups committed within %s, all here %s later", count, committed.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	}
}
