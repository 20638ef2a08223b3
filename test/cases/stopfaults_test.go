package cases

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/client"
	"kagami/messages/wire"
	"kagami/test/chaos"
	"kagami/test/e2e"
	"kagami/test/kafka/stub"
)

// spoil makes the source serve a broken batch.
func spoil(c *stopCell) {
	c.part(c.name, 0, func(p *stub.Partition) {
		b := stub.Build(stub.Spec{Base: p.End(), Epoch: stopEpoch, Records: []stub.Record{{Value: []byte("good")}}})
		b[len(b)-1] ^= 1
		p.PutRaw(p.End(), p.End(), stopEpoch, b)
	})
}

const (
	stopEpoch  int32 = 3  // of what the source wrote
	aheadEpoch int32 = 40 // of a batch that needs a raised epoch here
	// linksMax is how many connections one mirror of one topic has to one broker:
	// those of its metadata, of its syncs and of its fetcher, and one of each that is
	// being replaced.
	linksMax = 6
)

// stopCell is one partition in one state behind one source that fails.
type stopCell struct {
	*world
	proxy *chaos.Proxy
	name  string // topic
	hang  map[int16]*hangs
}

// hangs holds answers to one key once it is on.
type hangs struct {
	mu   sync.Mutex
	on   bool
	pass int // requests that are answered before
}

func (h *hangs) begin(pass int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.on, h.pass = true, pass
}

// reply lets questions for all mirrors pass.
func (h *hangs) reply(r *stub.Request) stub.Reply {
	h.mu.Lock()
	defer h.mu.Unlock()
	if all, ok := r.Body.(*wire.DescribeClusterMirrorsRequest); !h.on || ok && len(all.MirrorNames) == 0 {
		return stub.Reply{}
	}
	h.pass--
	return stub.Reply{Hang: h.pass < 0}
}

// sourceFault is what becomes of a source.
type sourceFault struct {
	name string
	tls  bool
	do   func(c *stopCell)
}

func sourceFaults() []sourceFault {
	fault := func(f chaos.Fault) func(*stopCell) { return func(c *stopCell) { c.proxy.Set(f) } }
	return []sourceFault{
		{"refused", false, func(c *stopCell) {
			c.proxy.StopListening()
			c.proxy.Set(chaos.Reset)
		}},
		{"black hole", false, fault(chaos.BlackHole)},
		{"SYN dropped", false, func(c *stopCell) {
			c.proxy.StopListening()
			c.proxy.Set(chaos.BlackHole)
			fullBacklog(c.t, c.proxy.Addr())
		}},
		{"half an answer", false, fault(chaos.HalfAnswer)},
		{"drip", false, fault(chaos.Drip)},
		{"TLS handshake hangs", true, func(c *stopCell) {
			c.proxy.Set(chaos.Reset)
			c.proxy.Set(chaos.BlackHole)
		}},
		{"silent after TLS handshake", true, func(c *stopCell) {
			c.src.Broker(0).BlackHole(true)
			c.proxy.Set(chaos.Reset)
			c.proxy.Set(chaos.Open)
		}},
	}
}

// stopState is a state to stop from.
type stopState struct {
	name string
	// state is waited for before the source fails.
	state string
	// permanent: on the node whose first failure is the last.
	permanent bool
	// reach goes there from MIRRORING, with everything copied; nil = stay.
	reach func(c *stopCell)
	// late comes between the fault and the stop.
	late func(c *stopCell)
	// twice: several stops at once.
	twice bool
}

// from lists the states that the stop may be logged from.
func (s stopState) from() []string {
	switch {
	case s.late != nil: // a fetcher goes at once, whatever it waits for
		return []string{"PAUSING", "PAUSED"}
	case s.state == "STOPPED":
		return []string{"MIRRORING"}
	case s.state == "LOG_TRUNCATION", s.state == "EPOCH_FENCING": // a reset ends its question
		return []string{s.state, "FAILED"}
	default:
		return []string{s.state}
	}
}

func stopStates() []stopState {
	return []stopState{
		{name: "LOG_TRUNCATION", state: "LOG_TRUNCATION", reach: func(c *stopCell) {
			c.done(c.adm.StopMirrorTopics(c.ctx, c.mirror, []string{c.name}))
			c.awaitState("STOPPED", c.name)
			c.hang[keyDescribeMirrors].begin(1) // the start itself looks for loops, and would wait
			require.NoError(c.t, c.tryStart(c.name))
		}},
		{name: "EPOCH_FENCING", state: "EPOCH_FENCING", reach: func(c *stopCell) {
			c.hang[keyMetadata].begin(0)
			c.part(c.name, 0, func(p *stub.Partition) {
				p.Put(stub.Build(stub.Spec{Base: p.End(), Epoch: aheadEpoch, Records: []stub.Record{{Value: []byte("ahead")}}}))
			})
		}},
		{name: "MIRRORING", state: "MIRRORING"},
		{name: "PAUSING", state: "MIRRORING", late: func(c *stopCell) {
			c.done(c.adm.PauseMirrorTopics(c.ctx, c.mirror, []string{c.name}))
		}},
		{name: "PAUSED", state: "PAUSED", reach: func(c *stopCell) {
			c.done(c.adm.PauseMirrorTopics(c.ctx, c.mirror, []string{c.name}))
		}},
		{name: "FAILED, to be retried", state: "FAILED", reach: spoil},
		{name: "FAILED for good", state: "FAILED", permanent: true, reach: spoil},
		{name: "STOPPING", state: "MIRRORING", twice: true},
		{name: "STOPPED", state: "STOPPED", reach: func(c *stopCell) {
			c.done(c.adm.StopMirrorTopics(c.ctx, c.mirror, []string{c.name}))
		}},
	}
}

// TestC06StopFromEveryState: from every state, whatever the source does to its
// connections, a stop ends, the topic takes writes, and nothing is left behind
// that holds on to the source. Requests to the source may take a minute.
func TestC06StopFromEveryState(t *testing.T) {
	t.Parallel()
	patient, strict := stopNode(t, "5"), stopNode(t, "1")
	t.Run("faults", func(t *testing.T) {
		for _, f := range sourceFaults() {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				stopAll(t, f, patient, strict)
			})
		}
	})
	noClients(t, patient)
	noClients(t, strict)
}

// noClients wants nothing that talks to a source to be left in a node whose
// mirrors are deleted, and ends it.
func noClients(t *testing.T, n *e2e.Node) {
	t.Helper()
	w := newWorld(t, n)
	w.await(func() error {
		dump, err := n.Get(w.ctx, "/debug/pprof/goroutine?debug=2")
		if err == nil && bytes.Contains(dump, []byte("franz-go/pkg/kgo")) {
			err = fmt.Errorf("clients of sources are left:\n%s", dump)
		}
		return err
	})
	require.NoError(t, n.Stop())
	require.NoError(t, sane(n))
}

// TestC06StopOfAStart: the source fails before it was ever reached.
func TestC06StopOfAStart(t *testing.T) {
	t.Parallel()
	n := stopNode(t, "0")
	faults := sourceFaults()
	cells := make([]*stopCell, len(faults))
	var all sync.WaitGroup
	for i, f := range faults {
		c := newStopCell(t, f, stopState{name: "start"}, n)
		f.do(c)
		cells[i] = c
	}
	errs := make([]error, len(faults))
	for i, c := range cells {
		all.Go(func() { errs[i] = c.tryStart(c.name) }) // it looks for loops a few seconds long
	}
	all.Wait()
	for i, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			require.NoError(t, errs[i])
			c := *cells[i]
			c.world = c.sub(t)
			c.stopAndWrite(1, func(client.DescribedPartition) {
				require.Equal(t, int64(1), c.end(c.name, 0), "the reset record")
			})
		})
	}
	noClients(t, n)
}

// TestC06StopAfterRestart: the node shuts down while its sources fail in every
// way, starts again without them, and stops what it mirrored.
func TestC06StopAfterRestart(t *testing.T) {
	t.Parallel()
	n := stopNode(t, "0")
	faults := sourceFaults()
	cells := make([]*stopCell, len(faults))
	for i, f := range faults {
		cells[i] = newStopCell(t, f, stopState{name: "restart"}, n)
		require.NoError(t, cells[i].tryStart(cells[i].name))
	}
	for i, c := range cells {
		c.awaitState("MIRRORING", c.name)
		c.awaitEqual(c.name)
		faults[i].do(c)
	}
	begun := time.Now()
	require.NoError(t, n.Stop(), "it ends by itself")
	t.Logf("shut down after %v", time.Since(begun).Round(time.Millisecond))
	require.NoError(t, n.Start(cells[0].ctx))
	for i, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			c := *cells[i]
			c.world = c.sub(t)
			c.stopAndWrite(1, func(p client.DescribedPartition) {
				require.Equal(t, stopEpoch, p.LastMirrorEpoch)
				require.Equal(t, int64(6), c.end(c.name, 0), "five records and the reset")
			})
		})
	}
	noClients(t, n)
}

func stopNode(t *testing.T, attempts string) *e2e.Node {
	t.Helper()
	all := nodeProperties()
	maps.Copy(all, map[string]string{
		"replica.socket.timeout.ms":              "60000",
		"mirror.failed.retry.initial.backoff.ms": "100000",
		"mirror.failed.retry.max.backoff.ms":     "300000",
		"mirror.failed.retry.max.attempts":       attempts,
		"kagami.pprof.enable":                    "true",
	})
	return e2e.StartNode(t, e2e.NodeOptions{Properties: all})
}

// stopAll goes through all states with one fault. They are reached together.
func stopAll(t *testing.T, f sourceFault, patient, strict *e2e.Node) {
	t.Helper()
	states := stopStates()
	cells := make([]*stopCell, len(states))
	for i, s := range states {
		n := patient
		if s.permanent {
			n = strict
		}
		cells[i] = newStopCell(t, f, s, n)
		require.NoError(t, cells[i].tryStart(cells[i].name))
	}
	for _, c := range cells {
		c.awaitState("MIRRORING", c.name)
		c.awaitEqual(c.name)
	}
	for i, s := range states {
		if s.reach != nil {
			s.reach(cells[i])
		}
	}
	for i, s := range states {
		cells[i].awaitState(s.state, cells[i].name)
	}
	for i, s := range states {
		t.Run(s.name, func(t *testing.T) {
			c := *cells[i]
			c.world = c.sub(t)
			c.check(f, s)
		})
	}
}

func newStopCell(t *testing.T, f sourceFault, s stopState, n *e2e.Node) *stopCell {
	t.Helper()
	w := newWorld(t, n)
	w.mirror = strings.NewReplacer("/", "-", " ", "_", ",", "").Replace(f.name + "-" + s.name)
	c := &stopCell{world: w, hang: map[int16]*hangs{keyDescribeMirrors: {}, keyMetadata: {}}}
	var configs []string
	if f.tls {
		settings, trust := tlsPeer(t)
		c.src = source(t, stub.Options{ClusterID: w.mirror, TLS: settings})
		configs = append(configs, "security.protocol=SSL", "ssl.truststore.type=PEM", "ssl.truststore.certificates="+trust)
	}
	var err error
	c.proxy, err = chaos.NewProxy("127.0.0.1:0", c.src.Address())
	require.NoError(t, err)
	t.Cleanup(c.proxy.Close)
	c.src.Broker(0).Advertise(c.proxy.Addr())
	for key, h := range c.hang {
		c.src.Intercept(key, h.reply)
	}
	c.src.Update(func(s *stub.State) { s.Versions = stub.VersionsWithMirrors() })
	c.name = c.topic("t", 1, func(tp *stub.Topic) {
		tp.Partitions[0].Epoch = stopEpoch
		tp.Partitions[0].Fill(5)
	})
	c.create(append(configs, "bootstrap.servers="+c.proxy.Addr())...)
	return c
}

// check makes the source fail and stops.
func (c *stopCell) check(f sourceFault, s stopState) {
	before := c.look(c.name, 0)
	end := c.end(c.name, 0)
	f.do(c)
	if s.late != nil {
		s.late(c)
	}
	times := 1
	if s.twice {
		times = 4
	}
	if s.name == "MIRRORING" { // once per fault, by the tools too
		c.tools()
	}
	c.stopAndWrite(times, func(p client.DescribedPartition) {
		require.Equal(c.t, stopEpoch, p.LastMirrorEpoch)
		path := slices.DeleteFunc(c.path(c.name), func(s string) bool { return s == "" })
		require.Contains(c.t, s.from(), path[max(0, len(path)-3)], "the stop was out of it: %v", path)
		c.rightEnd(s, before, p, end)
	})
}

// stopAndWrite stops several times at once, has the result checked, writes to the
// topic, and deletes the mirror; nothing that holds on to the source is left.
func (c *stopCell) stopAndWrite(times int, check func(client.DescribedPartition)) {
	t := c.t
	t.Helper()
	begun := time.Now()
	var all sync.WaitGroup
	errs := make([]error, times)
	for i := range times {
		all.Go(func() {
			res, err := c.adm.StopMirrorTopics(c.ctx, c.mirror, []string{c.name})
			errs[i] = errors.Join(err, res.Err())
		})
	}
	answered := c.answers()
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	c.awaitState("STOPPED", c.name)
	stopped := time.Since(begun)
	p := c.look(c.name, 0)
	require.Zero(t, p.RetryAttempt)
	check(p)
	end := c.end(c.name, 0)
	c.write(c.name, "first", end)
	rs := c.consume(c.name, end, 1)
	require.Equal(t, []int64{end}, offsets(rs))
	require.Equal(t, "first", string(rs[0].Value))
	c.done(c.adm.StopMirrorTopics(c.ctx, c.mirror, []string{c.name}))
	require.Equal(t, end+1, c.end(c.name, 0), "one more stop changes nothing")
	links := c.links()
	require.LessOrEqual(t, len(links), linksMax, "connections to the source: %v", links)
	require.NoError(t, c.adm.DeleteClusterMirror(c.ctx, c.mirror))
	c.await(func() error {
		if left := c.links(); len(left) > 0 {
			return fmt.Errorf("the mirror is deleted, connections to its source are left: %v", left)
		}
		return nil
	})
	t.Logf("stopped after %v; asked meanwhile, all was answered in %v; written, and the mirror deleted, after %v; %d connections while stopped",
		stopped.Round(time.Millisecond), answered.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond), len(links))
}

// rightEnd compares the log with what was copied.
func (c *stopCell) rightEnd(s stopState, before, after client.DescribedPartition, end int64) {
	t := c.t
	t.Helper()
	got := c.bytes(c.name, 0)
	hs := headers(t, got)
	var copied []byte
	c.src.Read(func(st *stub.State) {
		for _, b := range st.Topics[c.name].Partitions[0].Batches[:5] {
			copied = append(copied, b.Bytes...)
		}
	})
	require.Equal(t, copied, got[:len(copied)], "what was copied stays")
	last := hs[len(hs)-1]
	require.True(t, last.control(), "the reset record")
	require.Greater(t, last.epoch, stopEpoch)
	switch s.name {
	case "STOPPED":
		require.Equal(t, before.LeaderEpoch, after.LeaderEpoch)
		require.Len(t, hs, 6, "a second stop changes nothing")
		require.Equal(t, end, c.end(c.name, 0))
	case "LOG_TRUNCATION": // of the second start: the first one's reset is there
		require.GreaterOrEqual(t, after.LeaderEpoch, last.epoch)
	default:
		require.Greater(t, after.LeaderEpoch, before.LeaderEpoch)
		require.Equal(t, after.LeaderEpoch, last.epoch)
		require.Len(t, hs, 6, "five batches and one reset")
	}
}

// tools runs the programs that show a mirror.
func (c *stopCell) tools() {
	c.t.Helper()
	res, err := c.node.Mirrors(c.ctx, "--describe", "--mirror", c.mirror)
	require.NoError(c.t, err)
	require.Zero(c.t, res.Code, res.Stderr)
	require.Contains(c.t, res.Stdout, c.name)
	res, err = e2e.Run(c.ctx, "kagami", "query", "partitions", "--topic", c.name, "--admin", c.node.AdminAddr())
	require.NoError(c.t, err)
	require.Zero(c.t, res.Code, res.Stderr)
	require.Contains(c.t, res.Stdout, c.name)
}

// answers asks for everything that must not wait for the source, and returns how
// long that took.
func (c *stopCell) answers() time.Duration {
	c.t.Helper()
	begun := time.Now()
	c.look(c.name, 0)
	require.Equal(c.t, c.name, c.detail(c.name, 0)["topic"])
	rows, err := c.node.Query(c.ctx, "mirrors")
	require.NoError(c.t, err)
	require.True(c.t, slices.ContainsFunc(rows, func(r map[string]any) bool { return r["mirror"] == c.mirror || r["name"] == c.mirror }), "%v", rows)
	list, err := c.adm.ListClusterMirrors(c.ctx)
	require.NoError(c.t, err)
	require.True(c.t, slices.ContainsFunc(list, func(m client.ListedMirror) bool { return m.Name == c.mirror }))
	return time.Since(begun)
}
