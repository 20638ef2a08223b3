package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kagami/cluster"
	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// sharedLog is one metadata log that several nodes follow, each at its own pace.
type sharedLog struct {
	mu      sync.Mutex
	entries []sharedEntry
	tip     *metadata.Image // as a node that follows all sees it
	node    messages.NodeID // of the last claim in the journal
	epoch   int32
	moved   chan struct{}
}

type sharedEntry struct {
	records []metadata.Record // nil: ignored as stale
}

func newSharedLog() *sharedLog {
	return &sharedLog{tip: metadata.EmptyImage(), moved: make(chan struct{})}
}

// sharedView is the log as one node follows it.
type sharedView struct {
	log     *sharedLog
	node    messages.NodeID
	mu      sync.Mutex
	img     *metadata.Image
	applied int
	paused  bool // what comes isn't applied
	lost    bool // appends land, and the author never learns it
}

func (l *sharedLog) view(node messages.NodeID) *sharedView {
	return &sharedView{log: l, node: node, img: metadata.EmptyImage()}
}

func (v *sharedView) Image() *metadata.Image {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.log.mu.Lock()
	defer v.log.mu.Unlock()
	for !v.paused && v.applied < len(v.log.entries) {
		e := v.log.entries[v.applied]
		v.applied++
		if e.records == nil {
			continue
		}
		d, err := v.img.Apply(v.img.Offset()+1, e.records)
		if err != nil {
			panic(err)
		}
		v.img = d.New
	}
	return v.img
}

// claim is the journal's Claim.
func (v *sharedView) claim(_ context.Context, epoch int32) error {
	v.log.mu.Lock()
	defer v.log.mu.Unlock()
	if epoch < v.log.epoch || epoch == v.log.epoch && v.node != v.log.node {
		return fmt.Errorf("claim epoch %d: %w", epoch, messages.ErrFencedLeaderEpoch)
	}
	v.log.epoch, v.log.node = epoch, v.node
	return nil
}

func (v *sharedView) AppendAll(ctx context.Context, changes []metadata.Change) ([]int64, error) {
	l := v.log
	l.mu.Lock()
	if l.node != v.node {
		l.mu.Unlock()
		return nil, fmt.Errorf("append: %w", messages.ErrNotLeader)
	}
	var offsets []int64
	stale := false
	for _, c := range changes {
		claim := c.Claim
		for _, r := range c.Records {
			if cr, ok := r.(*wire.ControllerClaimRecord); ok {
				claim = cr.Epoch - 1
			}
		}
		if claim < l.tip.ControllerEpoch() {
			l.entries, stale = append(l.entries, sharedEntry{}), true
			continue
		}
		d, err := l.tip.Apply(l.tip.Offset()+1, c.Records)
		if err != nil {
			l.mu.Unlock()
			return nil, err
		}
		l.tip = d.New
		l.entries = append(l.entries, sharedEntry{records: c.Records})
		offsets = append(offsets, l.tip.Offset())
	}
	close(l.moved)
	l.moved = make(chan struct{})
	end := len(l.entries)
	l.mu.Unlock()
	v.mu.Lock()
	lost := v.lost
	v.mu.Unlock()
	if lost {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if err := v.wait(ctx, func() bool { return v.applied >= end }); err != nil {
		return nil, err
	}
	if stale {
		return nil, metadata.ErrStale
	}
	return offsets, nil
}

func (v *sharedView) WaitFor(ctx context.Context, offset int64) error {
	return v.wait(ctx, func() bool { return v.img.Offset() >= offset })
}

func (v *sharedView) wait(ctx context.Context, there func() bool) error {
	for {
		v.Image()
		v.mu.Lock()
		ok := there()
		v.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (v *sharedView) set(f func(*sharedView)) { v.mu.Lock(); defer v.mu.Unlock(); f(v) }

// controllers are the nodes of one cluster; turn says whose turn it is.
type controllers struct {
	t        *testing.T
	log      *sharedLog
	views    map[messages.NodeID]*sharedView
	nodes    map[messages.NodeID]*Controller
	mu       sync.Mutex
	turn     messages.NodeID
	remote   func(to messages.NodeID, out messages.Outcome) messages.Outcome // nil: as it is
	silent   messages.NodeID                                                 // takes commands and never answers
	forwards int
	duty     func(node messages.NodeID, img *metadata.Image) messages.Command
}

func startControllers(t *testing.T, first messages.NodeID, ids ...messages.NodeID) *controllers {
	t.Helper()
	t.Cleanup(func() { time.Sleep(time.Minute) }) // last: a letter to an actor that ended counts for some seconds
	cs := &controllers{t: t, log: newSharedLog(), views: map[messages.NodeID]*sharedView{}, nodes: map[messages.NodeID]*Controller{}, turn: first}
	for _, id := range ids {
		v := cs.log.view(id)
		cs.views[id] = v
		cs.nodes[id] = startController(t, nil, func(o *ControllerOptions) {
			o.Node, o.Store, o.Claim, o.RetryDelay, o.AppendTimeout, o.SubmitTimeout = id, v, v.claim, 100*time.Millisecond, 5*time.Second, 10*time.Second
			o.Live = func() []messages.NodeID { return ids }
			o.Others = &ControllerOthers{
				Candidate: func() bool { return cs.isTurn(id) }, WaitFor: v.WaitFor, Interval: 50 * time.Millisecond,
				Duty: func(img *metadata.Image) messages.Command {
					cs.mu.Lock()
					duty := cs.duty
					cs.mu.Unlock()
					if duty == nil {
						return nil
					}
					return duty(id, img)
				},
				Remote: cs.forward,
			}
		})
	}
	return cs
}

func (cs *controllers) isTurn(id messages.NodeID) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.turn == id
}

func (cs *controllers) give(id messages.NodeID) { cs.mu.Lock(); defer cs.mu.Unlock(); cs.turn = id }

func (cs *controllers) forward(ctx context.Context, to messages.NodeID, f messages.ForwardedCommand) messages.Outcome {
	cs.mu.Lock()
	cs.forwards++
	change, silent := cs.remote, cs.silent == to
	cs.mu.Unlock()
	out := RequestCommand(ctx, func(ctx context.Context, payload []byte) ([]byte, error) {
		if silent {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return cs.nodes[to].HandleCommand(ctx, payload), nil
	}, f)
	if change != nil {
		out = change(to, out)
	}
	return out
}

func (cs *controllers) awaitController(id messages.NodeID) {
	cs.t.Helper()
	for range 400 {
		if cs.views[id].Image().Controller() == id && cs.nodes[id].submitHere(cs.t.Context(), alice, messages.AllocateProducerIDs{}).Err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	cs.t.Fatalf("node %d is no controller; the log's is %d", id, cs.log.tip.Controller())
}

func TestControllerTurn(t *testing.T) {
	live := []messages.NodeID{1, 2, 3}
	first := slices.MinFunc(live, func(a, b messages.NodeID) int {
		if controllerRank(a) < controllerRank(b) {
			return -1
		}
		return 1
	})
	second := live[0]
	if second == first {
		second = live[1]
	}
	const dead = time.Second
	for name, row := range map[string]struct {
		v    ControllerView
		want bool
	}{
		"nobody yet, the founder":                      {ControllerView{Node: second, Founder: second, Incumbent: messages.NoNode, Live: live, DeadAfter: dead}, true},
		"nobody yet, another one, ranks first":         {ControllerView{Node: first, Founder: second, Incumbent: messages.NoNode, Live: live, DeadAfter: dead}, false},
		"nobody yet, the founder is away, unknown why": {ControllerView{Node: first, Founder: second, Incumbent: messages.NoNode, Live: []messages.NodeID{first}, DeadAfter: dead, Silence: time.Hour}, false},
		"all empty, the founder is away for long":      {ControllerView{Node: first, Founder: second, On: cluster.FoundedOnNothing, Incumbent: messages.NoNode, Live: []messages.NodeID{first}, DeadAfter: dead, Silence: 3*dead + 1}, true},
		"all empty, it is away for a moment":           {ControllerView{Node: first, Founder: second, On: cluster.FoundedOnNothing, Incumbent: messages.NoNode, Live: []messages.NodeID{first}, DeadAfter: dead, Silence: 3 * dead}, false},
		"all empty, it is there and takes long":        {ControllerView{Node: first, Founder: second, On: cluster.FoundedOnNothing, Incumbent: messages.NoNode, Live: live, DeadAfter: dead, Silence: time.Hour}, false},
		"all empty, it is away, another ranks first":   {ControllerView{Node: second, Founder: 99, On: cluster.FoundedOnNothing, Incumbent: messages.NoNode, Live: live, DeadAfter: dead, Silence: 3*dead + 1}, false},
		"all empty, and that one doesn't either":       {ControllerView{Node: second, Founder: 99, On: cluster.FoundedOnNothing, Incumbent: messages.NoNode, Live: live, DeadAfter: dead, Silence: 6*dead + 1}, true},
		"founded on data, the founder has it":          {ControllerView{Node: second, Founder: second, On: cluster.FoundedOnData, HasLog: true, Incumbent: messages.NoNode, Live: live, DeadAfter: dead}, true},
		"founded on data, the founder has lost it":     {ControllerView{Node: second, Founder: second, On: cluster.FoundedOnData, Incumbent: messages.NoNode, Live: live, DeadAfter: dead, Silence: time.Hour}, false},
		"founded on data, another one":                 {ControllerView{Node: first, Founder: second, On: cluster.FoundedOnData, HasLog: true, Incumbent: messages.NoNode, Live: []messages.NodeID{first}, DeadAfter: dead, Silence: time.Hour}, false},
		"the incumbent stays":                          {ControllerView{Node: second, Incumbent: second, Live: live, DeadAfter: dead}, true},
		"an isolated incumbent doesn't":                {ControllerView{Node: second, Incumbent: second, Live: live, DeadAfter: dead, Isolated: true}, false},
		"the incumbent's beats come":                   {ControllerView{Node: first, Incumbent: second, Live: live, DeadAfter: dead, Silence: dead - 1}, false},
		"they don't, ranks first":                      {ControllerView{Node: first, Incumbent: second, Live: live, DeadAfter: dead, Silence: dead}, true},
		"they don't, ranks second":                     {ControllerView{Node: second, Incumbent: first, Live: live, DeadAfter: dead, Silence: dead}, false},
		"the best isn't live":                          {ControllerView{Node: second, Incumbent: first, Live: []messages.NodeID{second}, DeadAfter: dead, Silence: dead}, true},
		"who ranks first doesn't take it for long":     {ControllerView{Node: second, Incumbent: first, Live: live, DeadAfter: dead, Silence: 3*dead + 1}, true},
		"isolated, whatever else":                      {ControllerView{Node: first, Founder: first, Incumbent: messages.NoNode, Live: live, DeadAfter: dead, Isolated: true}, false},
		"the incumbent is about to end":                {ControllerView{Node: second, Incumbent: second, Live: []messages.NodeID{first}, DeadAfter: dead, Left: true}, false},
		"it is, ranks first of the others":             {ControllerView{Node: first, Incumbent: second, Live: []messages.NodeID{first}, DeadAfter: dead, Left: true}, true},
		"it is, and no other is there: it stays":       {ControllerView{Node: second, Incumbent: second, DeadAfter: dead, Left: true}, true},
		"about to end itself, the incumbent is dead":   {ControllerView{Node: second, Incumbent: first, Live: []messages.NodeID{first}, DeadAfter: dead, Silence: time.Hour}, false},
		"nobody is live":                               {ControllerView{Node: first, Incumbent: second, DeadAfter: dead, Silence: dead}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := row.v.Turn(); got != row.want {
				t.Fatalf("got %v", got)
			}
		})
	}
}

func TestControllerAmongSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := startControllers(t, 1, 1, 2)
		cs.awaitController(1)
		if e := cs.log.tip.ControllerEpoch(); e != 1 {
			t.Fatalf("epoch %d: the other node claimed as well", e)
		}
		// A command that the other node is given comes back when its image shows it.
		out := cs.nodes[2].Submit(t.Context(), alice, newTopic("a"))
		if out.Err != nil || out.Items[0].Err != nil || cs.views[2].Image().Topic("a") == nil || cs.forwards == 0 {
			t.Fatalf("%+v, %d forwarded", out, cs.forwards)
		}
		// A refusal of an item keeps its meaning on the way.
		if out = cs.nodes[2].Submit(t.Context(), alice, newTopic("a")); out.Err != nil || !errors.Is(out.Items[0].Err, messages.ErrTopicExists) {
			t.Fatalf("%+v", out)
		}
		// The turn goes over: the first one steps down, and forwards from then on.
		cs.give(2)
		cs.awaitController(2)
		if out = cs.nodes[1].Submit(t.Context(), alice, newTopic("b")); out.Err != nil || out.Items[0].Err != nil {
			t.Fatalf("%+v", out)
		}
		time.Sleep(time.Second)
		if c := cs.log.tip; c.Controller() != 2 || c.ControllerEpoch() != 2 {
			t.Fatalf("controller %d, epoch %d", c.Controller(), c.ControllerEpoch())
		}
	})
}

// TestControllerWokenLate: a controller that was stopped (SIGSTOP, or cut off)
// while another one took over can't write anything, and takes no command.
func TestControllerWokenLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := startControllers(t, 1, 1, 2)
		cs.awaitController(1)
		cs.views[2].Image()
		cs.views[1].set(func(v *sharedView) { v.paused = true })
		cs.give(2)
		cs.awaitController(2)
		entries := len(cs.log.entries)
		cs.give(1) // the old one believes that it is in office: its image is old
		out := cs.nodes[1].submitHere(t.Context(), alice, newTopic("late"))
		if out.Err == nil || cs.log.tip.Topic("late") != nil {
			t.Fatalf("%+v", out)
		}
		if n := len(cs.log.entries); n != entries {
			t.Fatalf("%d entries came into the log", n-entries)
		}
		cs.give(2)
		cs.views[1].set(func(v *sharedView) { v.paused = false })
		if out = cs.nodes[1].Submit(t.Context(), alice, newTopic("again")); out.Err != nil || cs.log.tip.Controller() != 2 {
			t.Fatalf("%+v", out)
		}
	})
}

// TestControllerIsolated: commands don't wait at a controller that the order of
// the log doesn't reach, neither while it is idle nor behind an append.
func TestControllerIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := startControllers(t, 1, 1, 2)
		cs.awaitController(1)
		cs.give(messages.NoNode) // as candidate says of an isolated node
		time.Sleep(200 * time.Millisecond)
		start := time.Now()
		if out := cs.nodes[1].submitHere(t.Context(), alice, newTopic("a")); !errors.Is(out.Err, messages.ErrNotController) || time.Since(start) > 0 {
			t.Fatalf("%+v after %s", out, time.Since(start))
		}
		cs.give(1)
		cs.awaitController(1)
		cs.views[1].set(func(v *sharedView) { v.lost = true })
		first := make(chan messages.Outcome, 1)
		go func() { first <- cs.nodes[1].submitHere(t.Context(), alice, newTopic("b")) }()
		synctest.Wait()
		cs.give(messages.NoNode)
		start = time.Now()
		if out := cs.nodes[1].submitHere(t.Context(), alice, newTopic("c")); !errors.Is(out.Err, messages.ErrNotController) || time.Since(start) > time.Second {
			t.Fatalf("%+v after %s", out, time.Since(start))
		}
		if out := <-first; out.Err == nil || errors.Is(out.Err, messages.ErrNotController) {
			t.Fatalf("the outcome of what is on its way isn't known: %+v", out)
		}
	})
}

// TestForwardedCommandIsRetriedOnlyIfRefused: NOT_CONTROLLER says that nothing was
// done; an unknown outcome is the client's to judge.
func TestForwardedCommandIsRetriedOnlyIfRefused(t *testing.T) {
	for name, row := range map[string]struct {
		err      error
		forwards int
		want     error
	}{
		"not controller":  {messages.ErrNotController, 3, nil},
		"unknown outcome": {messages.ErrTimedOut, 1, messages.ErrTimedOut},
		"storage":         {messages.ErrStorage, 1, messages.ErrStorage},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cs := startControllers(t, 1, 1, 2)
				cs.awaitController(1)
				cs.views[2].Image()
				cs.mu.Lock()
				cs.remote = func(_ messages.NodeID, out messages.Outcome) messages.Outcome {
					cs.mu.Lock()
					defer cs.mu.Unlock()
					if cs.forwards < 3 {
						return messages.Outcome{Err: fmt.Errorf("injected: %w", row.err), Offset: messages.NoOffset}
					}
					return out
				}
				cs.mu.Unlock()
				out := cs.nodes[2].Submit(t.Context(), alice, messages.AllocateProducerIDs{})
				if !errors.Is(out.Err, row.want) || cs.forwards != row.forwards {
					t.Fatalf("%+v after %d forwards", out, cs.forwards)
				}
			})
		})
	}
}

// TestForwardedCommandWithoutController ends at the deadline, not before, and says
// what was missing.
func TestForwardedCommandWithoutController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := startControllers(t, messages.NoNode, 1, 2)
		start := time.Now()
		out := cs.nodes[2].Submit(t.Context(), alice, newTopic("a"))
		if !errors.Is(out.Err, messages.ErrTimedOut) || !errors.Is(out.Err, messages.ErrNotController) || time.Since(start) != 10*time.Second {
			t.Fatalf("%+v after %s", out, time.Since(start))
		}
		done := make(chan messages.Outcome, 1)
		go func() { done <- cs.nodes[2].Submit(t.Context(), alice, newTopic("a")) }()
		time.Sleep(time.Second)
		cs.give(1)
		if out := <-done; out.Err != nil {
			t.Fatalf("%+v", out)
		}
	})
}

func TestRequestCommandErrors(t *testing.T) {
	f := messages.ForwardedCommand{From: 2, Who: alice, Command: newTopic("a")}
	for name, row := range map[string]struct {
		answer []byte
		err    error
		want   error
		not    error
	}{
		"nobody was there":  {nil, fmt.Errorf("no responders: %w", messages.ErrNotController), messages.ErrNotController, messages.ErrTimedOut},
		"no answer in time": {nil, messages.ErrTimedOut, messages.ErrTimedOut, messages.ErrNotController},
		"connection lost":   {nil, errors.New("broken pipe"), messages.ErrTimedOut, messages.ErrNotController},
		"an answer of mud":  {[]byte("{"), nil, messages.ErrTimedOut, messages.ErrNotController},
		"an empty answer":   {nil, nil, messages.ErrTimedOut, messages.ErrNotController},
	} {
		t.Run(name, func(t *testing.T) {
			out := RequestCommand(t.Context(), func(context.Context, []byte) ([]byte, error) { return row.answer, row.err }, f)
			if !errors.Is(out.Err, row.want) || errors.Is(out.Err, row.not) || out.Offset != messages.NoOffset {
				t.Fatalf("%+v", out)
			}
		})
	}
}

// TestControllerDuties: what the controller gives itself is done, and asked for
// again until nothing is left.
func TestControllerDuties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := startControllers(t, 1, 1, 2)
		cs.awaitController(1)
		for _, id := range []messages.NodeID{1, 2} {
			if out := cs.nodes[1].Submit(t.Context(), alice, messages.RegisterNode{Node: messages.Node{ID: id, Endpoints: []messages.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "h", Port: 9094}}}}); out.Err != nil {
				t.Fatal(out.Err)
			}
		}
		out := cs.nodes[1].Submit(t.Context(), alice, messages.CreateTopics{Topics: []messages.NewTopic{{Name: "t", Partitions: 10, ReplicationFactor: 2}}})
		if out.Err != nil || out.Items[0].Err != nil {
			t.Fatalf("%+v", out)
		}
		led := leadersOf(cs.views[1].Image())
		if led[1] == 0 || led[2] == 0 {
			t.Fatalf("leaders aren't spread: %v", led)
		}
		entries := len(cs.log.entries)
		cs.mu.Lock()
		cs.duty = func(node messages.NodeID, img *metadata.Image) messages.Command {
			cmd := messages.PlaceLeaders{Live: []messages.NodeID{1}, Max: 2}
			if !PlacementDue(img, cmd, node, nil) {
				return nil
			}
			return cmd
		}
		cs.mu.Unlock()
		time.Sleep(2 * time.Second)
		if after := leadersOf(cs.views[1].Image()); after[1] != 10 {
			t.Fatalf("%v", after)
		}
		if n := len(cs.log.entries) - entries; n != (led[2]+1)/2 {
			t.Fatalf("%d commands moved %d leaders, 2 at a time", n, led[2])
		}
		if who := cs.log.tip.Controller(); who != 1 {
			t.Fatal(who)
		}
	})
}

func leadersOf(img *metadata.Image) map[messages.NodeID]int {
	out := map[messages.NodeID]int{}
	for _, t := range img.Topics() {
		for _, p := range t.Partitions {
			out[p.Leader]++
		}
	}
	return out
}
