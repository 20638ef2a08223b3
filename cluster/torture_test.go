package cluster

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence/faultfs"
	"kagami/persistence/metadata"
)

// tortureSpeed is how much faster the time of the nodes runs.
const tortureSpeed = 20

// fastClock is the nodes' clock.
type fastClock struct{ began time.Time }

func (c fastClock) Now() time.Time { return c.began.Add(time.Since(c.began) * tortureSpeed) }

func (fastClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d/tortureSpeed, f).Stop
}

func (fastClock) Sleep(ctx context.Context, d time.Duration) error {
	return clock.Wall{}.Sleep(ctx, d/tortureSpeed)
}

// sleep is for a time of the nodes.
func (x *torture) sleep(d time.Duration) { time.Sleep(d / tortureSpeed) }

func (x *torture) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d/tortureSpeed, messages.ErrTimedOut)
}

// torture is a cluster of three nodes whose time runs fast: the real engine with real
// segments in a file system that loses what a crash may lose, over streams that
// lose, delay, double and reorder, while everything that changes partitions runs.
// An oracle reads the streams beside it and says what every replica must hold.
type torture struct {
	t             *testing.T
	seed          uint64
	oracle        *tortureOracle
	shared        map[int32]*tortureStream
	nodes         []*tortureNode
	names         int            // of topics so far
	ops, late     sync.WaitGroup // operations, and what the streams still do
	quiet         atomic.Bool    // no more faults
	rewound       atomic.Bool    // a stream was put back
	clock         fastClock
	did           strings.Builder // in a letter each
	acked, copied atomic.Int64
	story         tortureStory

	rndMu sync.Mutex
	rnd   *rand.Rand
}

func (x *torture) intn(n int) int {
	x.rndMu.Lock()
	defer x.rndMu.Unlock()
	return x.rnd.IntN(n)
}

// percent is true in n of 100 cases, and never while the cluster heals.
func (x *torture) percent(n int) bool { return !x.quiet.Load() && x.intn(100) < n }

func (x *torture) errorf(format string, args ...any) {
	x.t.Helper()
	text := fmt.Sprintf(format, args...)
	x.note(storyStep+"%s", text)
	x.t.Errorf("seed %d at %s: %s", x.seed, time.Since(x.clock.began), text)
}

// TestTorture runs random histories; KAGAMI_TORTURE_SEEDS is how many, from
// KAGAMI_TORTURE_FIRST on, KAGAMI_TORTURE_SEED is one to run alone. A seed chooses what is done; what meets
// what is up to the scheduler, so that a failing one may need several runs (-count).
func TestTorture(t *testing.T) {
	first, n := uint64(1), 16
	if s := os.Getenv("KAGAMI_TORTURE_SEEDS"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("KAGAMI_TORTURE_FIRST"); s != "" {
		first, _ = strconv.ParseUint(s, 10, 64)
	}
	if s := os.Getenv("KAGAMI_TORTURE_SEED"); s != "" {
		first, _ = strconv.ParseUint(s, 10, 64)
		n = 1
	}
	for seed := first; seed < first+uint64(n); seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			runTorture(t, seed)
			if t.Failed() {
				t.Logf("again with: KAGAMI_TORTURE_SEED=%d go test -race -count 5 -run TestTorture ./cluster", seed)
			}
		})
	}
}

func runTorture(t *testing.T, seed uint64) {
	t.Helper()
	x := &torture{
		t: t, seed: seed, oracle: newTortureOracle(), shared: map[int32]*tortureStream{}, clock: fastClock{time.Now()},
		rnd: rand.New(rand.NewPCG(seed, 11)),
	}
	for id := MetadataShard; id < severalShards; id++ {
		x.shared[id] = &tortureStream{x: x, first: 1, ids: map[string]uint64{}, moved: make(chan struct{})}
	}
	for id := messages.NodeID(1); id <= 3; id++ {
		n := &tortureNode{x: x, id: id}
		n.disk(faultfs.New())
		x.nodes = append(x.nodes, n)
	}
	x.restartAll()
	for tries := 0; !x.change(func(img *metadata.Image) []metadata.Record {
		if img.ClusterID() != "" {
			return nil // it was written, and nobody knew
		}
		r := wire.NewPtrClusterRecord()
		r.ClusterID = "torture"
		return []metadata.Record{r}
	}); tries++ {
		if x.sleep(200 * time.Millisecond); tries > 200 {
			t.Fatal("no node takes the first record of the metadata")
		}
	}
	for range 3 {
		x.createTopic()
	}
	steps := 60 + x.intn(120)
	for range steps {
		x.step()
		if t.Failed() {
			break
		}
	}
	x.heal()
	if !t.Failed() && x.intn(2) == 0 {
		x.quiet.Store(false)
		for _, n := range x.nodes {
			n.crash()
		}
		x.heal()
	}
	if !t.Failed() && x.intn(3) == 0 {
		x.putBack()
	}
	if t.Failed() {
		x.tell()
	}
	for _, n := range x.nodes {
		n.stop()
	}
	x.late.Wait()
	t.Logf("%s; %d messages, %d appends acknowledged, %d pieces copied", &x.did, x.oracle.messages, x.acked.Load(), x.copied.Load())
}

// step does one random thing.
func (x *torture) step() {
	n := x.nodes[x.intn(len(x.nodes))]
	for k, i := x.intn(100), 0; i < len(tortureSteps); i++ {
		if k -= tortureSteps[i].percent; k < 0 {
			fmt.Fprintf(&x.did, "%s%d ", tortureSteps[i].name, n.id)
			x.note(storyStep+"%s %d", tortureSteps[i].name, n.id)
			tortureSteps[i].do(x, n)
			break
		}
	}
	x.sleep(time.Duration(x.intn(80)) * time.Millisecond)
	x.inspect()
}

var tortureSteps = []struct {
	name    string
	percent int
	do      func(x *torture, n *tortureNode)
}{
	{"op", 46, func(x *torture, _ *tortureNode) {
		for range 1 + x.intn(25) {
			x.operation()
		}
	}},
	{"lead", 6, func(x *torture, _ *tortureNode) { x.moveLeader() }},
	{"replicas", 4, func(x *torture, _ *tortureNode) { x.changeReplicas() }},
	{"create", 2, func(x *torture, _ *tortureNode) { x.createTopic() }},
	{"delete", 3, func(x *torture, _ *tortureNode) { x.deleteTopic() }},
	{"stop", 4, func(_ *torture, n *tortureNode) { n.stop() }},
	{"crash", 5, func(_ *torture, n *tortureNode) { n.crash() }},
	{"cut", 3, func(x *torture, n *tortureNode) { x.cutAndCrash(n) }},
	{"fuse", 2, func(x *torture, n *tortureNode) { n.crashIn(x.intn(40)) }},
	{"full", 2, func(x *torture, n *tortureNode) {
		n.diskFull.Store(int32(x.intn(6)))
		n.hurt = true
	}},
	{"start", 10, func(x *torture, _ *tortureNode) {
		for _, n := range x.nodes {
			if n.run.Load() == nil {
				n.start()
				return
			}
		}
	}},
	{"pause", 3, func(_ *torture, n *tortureNode) { n.pause(!n.paused.Load()) }},
	{"freeze", 3, func(_ *torture, n *tortureNode) { n.freeze(!n.frozen.is()) }},
	{"stall", 2, func(x *torture, _ *tortureNode) {
		st := x.shared[int32(x.intn(severalShards+1))-1]
		st.stall(!st.stalled)
	}},
	{"sleep", 5, func(x *torture, _ *tortureNode) { x.sleep(time.Duration(x.intn(6000)) * time.Millisecond) }},
}

// heal ends all faults, and waits until every replica is what the oracle says.
func (x *torture) heal() {
	x.quiet.Store(true)
	x.note(storyStep + "heal")
	for _, st := range x.shared {
		st.stall(false)
	}
	for _, n := range x.nodes {
		n.freeze(false)
		n.pause(false)
		n.diskFull.Store(0)
		n.fuse.Store(-1)
		if n.dead.Load() {
			n.crash()
		}
		if n.hurt {
			n.stop()
		}
	}
	x.ops.Wait()
	x.restartAll()
	x.sleep(6 * time.Second) // what comes late has come
	var why, last string
	began := time.Now()
	since, applied := began, x.appliedBy()
	for time.Since(began) < healMax {
		if why = x.unhealed(); why == "" {
			x.compare()
			return
		}
		if why != last {
			since, applied, last = time.Now(), x.appliedBy(), why
		} else if time.Since(since) > stuckFor && x.appliedBy() > applied+stuckMessages {
			break
		}
		x.sleep(100 * time.Millisecond)
	}
	x.errorf("not healed: %s", why)
}

// A cluster doesn't heal any more when the same is wrong for stuckFor of the wall's time
// and every node has applied stuckMessages more in every shard: a slow machine does the
// one without the other. (A repair is tried every minute of the nodes at least, that is
// 3 s, and beats come by the ten a second.) healMax is for one that stands still.
const (
	stuckFor      = 20 * time.Second
	stuckMessages = 500
	healMax       = 150 * time.Second
)

// appliedBy is how far the node and shard that is the least so has applied the streams.
func (x *torture) appliedBy() uint64 {
	least := uint64(math.MaxUint64)
	for _, n := range x.nodes {
		if run := n.run.Load(); run != nil {
			for _, s := range run.journal.shards {
				least = min(least, s.applied.Load())
			}
		}
	}
	return least
}

func (x *torture) restartAll() {
	var starting sync.WaitGroup
	for _, n := range x.nodes {
		starting.Go(func() {
			for range 5 {
				if n.start() {
					return
				}
			}
			x.errorf("node %d doesn't start", n.id)
		})
	}
	starting.Wait()
}

// unhealed says what isn't as it must become, empty if everything is.
func (x *torture) unhealed() string {
	for _, n := range x.nodes {
		run := n.run.Load()
		if run == nil {
			return fmt.Sprintf("node %d doesn't run", n.id)
		}
		if why := x.unlike(n, run.meta); why != "" {
			return why
		}
		if why := run.unanswered(); why != "" {
			return fmt.Sprintf("node %d: %s", n.id, why)
		}
		for _, t := range run.store.Image().Topics() {
			for i, p := range t.Partitions {
				if !slices.Contains(p.Replicas, n.id) {
					continue
				}
				r, err := run.replicas.ByID(t.ID, int32(i))
				if err != nil {
					return fmt.Sprintf("node %d: %v", n.id, err)
				}
				if why := x.unlike(n, r); why != "" {
					return why
				}
				if p.Leader == n.id && !r.Leads() {
					return fmt.Sprintf("node %d doesn't lead %s-%d", n.id, t.Name, i)
				}
			}
		}
	}
	return ""
}

func (x *torture) unlike(n *tortureNode, r *Replica) string {
	o := r.order.(*streamed)
	o.mu.Lock()
	defer o.mu.Unlock()
	want := x.oracle.now(r.key)
	got := o.d.state
	if o.behind || got.Generation != want.Generation || got.LogEnd != want.LogEnd || got.Mode != want.Mode ||
		got.LogStart < want.LogStart || got.Epoch != want.Epoch || o.d.log.End() != want.LogEnd {
		x.blame(r.key, r.tp.String())
		return fmt.Sprintf("node %d %s: behind=%t (%v) %+v log %d-%d, want %+v", n.id, r.tp, o.behind, o.cause, got, o.d.log.LogStart(), o.d.log.End(), want)
	}
	return ""
}

// compare compares bytes.
func (x *torture) compare() {
	for _, n := range x.nodes {
		run := n.run.Load()
		run.each(func(r *Replica) {
			if !r.order.(*streamed).isBehind() { // one that no image names any more has nobody to ask
				x.compareOne(n, r)
			}
		})
	}
}

func (x *torture) compareOne(n *tortureNode, r *Replica) {
	log := r.Log()
	start, end := log.LogStart(), log.End()
	var got []byte
	for at := start; at < end; {
		c, err := log.Read(at, 1<<20, end, true)
		if err != nil {
			x.errorf("node %d read %s at %d: %v", n.id, r.tp, at, err)
			return
		}
		b, err := c.ReadAll()
		if err != nil {
			x.errorf("node %d read %s at %d: %v", n.id, r.tp, at, err)
		}
		got = append(got, b...)
		at = c.NextOffset
		c.Release()
	}
	if want := x.oracle.bytes(r.key, start, end); !bytes.Equal(got, want) {
		x.blame(r.key, r.tp.String())
		x.errorf("node %d %s: %d bytes from %d to %d, not those of the journal (%d)", n.id, r.tp, len(got), start, end, len(want))
	}
}

// inspect compares what replicas that aren't behind are right now with what the
// journal says of their position.
func (x *torture) inspect() {
	for _, n := range x.nodes {
		run := n.run.Load()
		if run == nil || n.dead.Load() || n.frozen.is() {
			continue
		}
		run.each(func(r *Replica) {
			o := r.order.(*streamed)
			o.mu.Lock()
			got, end, skip := o.d.state, o.d.log.End(), o.behind || o.ended
			o.mu.Unlock()
			if skip {
				return
			}
			want := x.oracle.at(r.key, got.Sequence)
			if got.LogEnd != want.LogEnd || got.Generation != want.Generation || got.Mode != want.Mode || got.CutAt != want.CutAt || end != got.LogEnd {
				x.blame(r.key, r.tp.String())
				x.errorf("node %d %s: %+v with a log to %d, want %+v", n.id, r.tp, got, end, want)
			}
		})
	}
}
