package cluster

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/messages"
	"kagami/persistence"
)

func TestDecideFormation(t *testing.T) {
	node := func(id messages.NodeID, stored, configured string) formStatus {
		return formStatus{Node: id, Stored: stored, Configured: configured}
	}
	empty := func(ids ...messages.NodeID) map[messages.NodeID]formStatus {
		out := map[messages.NodeID]formStatus{}
		for _, id := range ids {
			out[id] = node(id, "", "")
		}
		return out
	}
	with := func(s formStatus) map[messages.NodeID]formStatus {
		out := empty(2, 3)
		out[s.Node] = s
		return out
	}
	for _, tc := range []struct {
		name   string
		self   formStatus
		heard  map[messages.NodeID]formStatus
		known  bool
		stream string
		want   formAction
		id     string
		says   []string // parts of the reason or of the error
	}{
		{"alone, no quorum", node(1, "", ""), nil, false, "", formWait, "", []string{"quorum", "nodes 2, 3"}},
		{"all there, no leader yet", node(1, "", ""), empty(2, 3), false, "", formWait, "", []string{"no leader"}},
		{"empty, one missing", node(1, "", ""), empty(2), true, "", formWait, "", []string{"node 3"}},
		{"all empty, lowest", node(1, "", ""), empty(2, 3), true, "", formFound, "", nil},
		{"all empty, not lowest", node(2, "", ""), empty(1, 3), true, "", formWait, "", []string{"node 1 founds"}},
		{"all empty, a stranger is lower", node(1, "", ""), empty(0, 2, 3), true, "", formFound, "", nil},
		{"all empty, id configured", node(1, "", "C"), empty(2, 3), true, "", formFound, "C", nil},
		{"all empty, id configured elsewhere", node(1, "", ""), with(node(3, "", "C")), true, "", formFound, "C", nil},
		{"all empty, two ids configured", node(1, "", "C"), with(node(3, "", "D")), true, "", 0, "", []string{"C", "D", "node 3"}},
		{"data here", node(3, "A", ""), empty(1), true, "", formFound, "A", nil},
		{"data here, no quorum", node(3, "A", ""), nil, false, "", formWait, "", []string{"nodes 1, 2"}},
		{"data there", node(1, "", ""), with(node(3, "A", "")), true, "", formWait, "", []string{"node 3 has data"}},
		{"data there, other id configured", node(1, "", "B"), with(node(3, "A", "")), true, "", 0, "", []string{"A", "B"}},
		{"data of two clusters", node(1, "B", ""), with(node(3, "A", "")), true, "", 0, "", []string{"A", "B", "node 1", "node 3"}},
		{"data of one cluster on two", node(1, "A", ""), with(node(3, "A", "")), true, "", formFound, "A", nil},
		{"formed, empty", node(3, "", ""), nil, true, "A", formJoin, "A", nil},
		{"formed, known", node(3, "A", ""), nil, true, "A", formJoin, "A", nil},
		{"formed, right id configured", node(3, "", "A"), nil, true, "A", formJoin, "A", nil},
		{"formed, other data", node(3, "B", ""), nil, true, "A", 0, "", []string{"A", "B", "node 3"}},
		{"formed, other id configured", node(3, "", "B"), nil, true, "A", 0, "", []string{"A", "B", "configured"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := formView{self: tc.self, heard: tc.heard, streamKnown: tc.known, streamID: tc.stream}
			for _, id := range []messages.NodeID{1, 2, 3} {
				if id != tc.self.Node {
					v.peers = append(v.peers, id)
				}
			}
			d, err := decideFormation(v)
			text := d.why
			if tc.want == 0 {
				require.ErrorIs(t, err, ErrForeignCluster)
				text = err.Error()
			} else {
				require.NoError(t, err)
				require.Equal(t, tc.want, d.action)
				require.Equal(t, tc.id, d.id)
			}
			for _, s := range tc.says {
				require.Contains(t, text, s)
			}
		})
	}
}

// formNode is a node of a test that looks for its cluster.
type formNode struct {
	out    Formation
	err    error
	waits  chan string
	ended  chan struct{}
	cancel context.CancelCauseFunc
}

func form(tb testing.TB, srv *Server, stored, configured string) *formNode {
	tb.Helper()
	s := openTestStreams(tb, srv, nil)
	ctx, cancel := context.WithCancelCause(testContext(tb))
	n := &formNode{waits: make(chan string, 100), ended: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(n.ended)
		n.out, n.err = Form(ctx, FormationOptions{
			Streams: s, Stored: stored, Configured: configured, Interval: 20 * time.Millisecond,
			OnWait: func(why string) { n.waits <- why }, Logger: zap.NewNop(),
		})
	}()
	tb.Cleanup(func() { cancel(nil); <-n.ended })
	return n
}

func (n *formNode) result(tb testing.TB) (Formation, error) {
	tb.Helper()
	<-n.ended // its context ends in time
	return n.out, n.err
}

// waitsFor reads reasons until one has that text.
func (n *formNode) waitsFor(tb testing.TB, text string) {
	tb.Helper()
	for {
		select {
		case why := <-n.waits:
			if strings.Contains(why, text) {
				return
			}
		case <-n.ended:
			tb.Fatalf("it doesn't wait for %q any more: %+v, %v", text, n.out, n.err)
		}
	}
}

func joined(tb testing.TB, nodes ...*formNode) (clusterID string, founders int) {
	tb.Helper()
	for _, n := range nodes {
		out, err := n.result(tb)
		require.NoError(tb, err)
		if clusterID == "" {
			clusterID = out.ClusterID
		}
		require.Equal(tb, clusterID, out.ClusterID)
		require.Equal(tb, nodes[0].out.Founder, out.Founder)
		if out.Founded {
			founders++
		}
	}
	require.NotEmpty(tb, clusterID)
	return clusterID, founders
}

// TestFormationOfEmptyNodes: nobody founds before all three are there; then all
// have one id, and still have it after restarts in any order.
func TestFormationOfEmptyNodes(t *testing.T) {
	c := newTestCluster(t, 3, nil)
	first := form(t, c.start(1), "", "")
	first.waitsFor(t, "nodes 2, 3")
	second := form(t, c.start(2), "", "")
	first.waitsFor(t, "nothing was heard of node 3")
	second.waitsFor(t, "nothing was heard of node 3")
	third := form(t, c.start(3), "", "")
	id, founders := joined(t, first, second, third)
	require.Equal(t, 1, founders)
	require.True(t, first.out.Founded)
	require.Equal(t, messages.NodeID(1), third.out.Founder)
	require.Equal(t, FoundedOnNothing, first.out.On)
	require.Equal(t, FoundedOnNothing, third.out.On)

	for _, order := range [][]messages.NodeID{{3, 2, 1}, {2, 3, 1}} {
		for _, id := range order {
			c.stop(id)
		}
		one := form(t, c.start(order[0]), id, "")
		one.waitsFor(t, "quorum")
		two := form(t, c.start(order[1]), id, "")
		same, founders := joined(t, one, two)
		require.Equal(t, id, same)
		require.Zero(t, founders)
		// The last has lost its folder, or was never there.
		same, founders = joined(t, form(t, c.start(order[2]), "", ""))
		require.Equal(t, id, same)
		require.Zero(t, founders)
	}
}

// TestFormationGrows: a node that was alone takes its id into the cluster.
func TestFormationGrows(t *testing.T) {
	c := startTestCluster(t, 3, nil)
	empty := form(t, c.servers[1], "", "")
	old := form(t, c.servers[3], "old-id", "")
	late := form(t, c.servers[2], "", "old-id")
	id, founders := joined(t, empty, old, late)
	require.Equal(t, "old-id", id)
	require.Equal(t, 1, founders)
	require.True(t, old.out.Founded)
	require.Equal(t, FoundedOnData, old.out.On)
	require.Equal(t, FoundedOnData, empty.out.On)

	_, err := form(t, c.servers[2], "foreign", "").result(t)
	require.ErrorIs(t, err, ErrForeignCluster)
	require.ErrorContains(t, err, "foreign")
	require.ErrorContains(t, err, "old-id")
	_, err = form(t, c.servers[2], "a", "b").result(t)
	require.ErrorIs(t, err, ErrForeignCluster)
	require.ErrorIs(t, err, persistence.ErrForeignFolder)
}

// TestFormationOfTwoAtOnce: two nodes with different ids that see nothing of one
// another's status. JetStream orders them; one is refused or, if it takes any id,
// joins.
func TestFormationOfTwoAtOnce(t *testing.T) {
	c := startTestCluster(t, 3, nil)
	var founders [2]*forming
	for i := range founders {
		s := openTestStreams(t, c.servers[messages.NodeID(i+1)], nil)
		founders[i] = newForming(FormationOptions{Streams: s, Logger: zap.NewNop()})
	}
	eventually(t, "three servers", func() bool {
		v, _, err := founders[0].view(testContext(t))
		return err == nil && v.streamKnown && len(c.servers[1].Connected()) == 2
	})
	ids := []string{"one", "two"}
	var got [2]string
	var founding sync.WaitGroup
	for i, f := range founders {
		founding.Go(func() {
			for range 100 { // until one of them has
				id, _, err := f.found(testContext(t), ids[i])
				if err != nil {
					t.Error(err)
					return
				}
				got[i] = id
				if v, _, err := f.view(testContext(t)); id != "" || err == nil && v.streamID != "" {
					return
				}
			}
		})
	}
	founding.Wait()
	v, there, err := founders[0].view(testContext(t))
	require.NoError(t, err)
	winner := int(there.Founder) - 1
	require.Equal(t, ids[winner], v.streamID)
	require.Empty(t, got[1-winner], "the other one didn't found")

	_, err = form(t, c.servers[3], ids[1-winner], "").result(t)
	require.ErrorIs(t, err, ErrForeignCluster)
	id, _ := joined(t, form(t, c.servers[3], "", ""))
	require.Equal(t, ids[winner], id)
}

// TestFormationFounderDies: before its step nothing has happened; after it the
// others join without it, and it finds its own cluster when it is back.
func TestFormationFounderDies(t *testing.T) {
	t.Run("before", func(t *testing.T) {
		c := startTestCluster(t, 3, nil)
		second, third := form(t, c.servers[2], "", ""), form(t, c.servers[3], "", "")
		second.waitsFor(t, "nothing was heard of node 1")
		c.stop(1) // it has never got to say a word
		first := form(t, c.start(1), "", "")
		_, founders := joined(t, first, second, third)
		require.Equal(t, 1, founders)
	})
	t.Run("after", func(t *testing.T) {
		c := startTestCluster(t, 3, nil)
		founder := newForming(FormationOptions{Streams: openTestStreams(t, c.servers[1], nil), Logger: zap.NewNop()})
		eventually(t, "the founding step", func() bool {
			id, _, err := founder.found(testContext(t), "new")
			return err == nil && id != ""
		})
		c.stop(1) // it has stored nothing
		id, founders := joined(t, form(t, c.servers[2], "", ""), form(t, c.servers[3], "", ""))
		require.Equal(t, "new", id)
		require.Zero(t, founders)
		back, _ := joined(t, form(t, c.start(1), "", ""))
		require.Equal(t, "new", back)
	})
}

func TestFormationGivesUp(t *testing.T) {
	c := startTestCluster(t, 2, nil)
	n := form(t, c.servers[1], "", "")
	n.waitsFor(t, "node 2")
	stop := errors.New("stop")
	n.cancel(stop)
	_, err := n.result(t)
	require.ErrorIs(t, err, stop)
	require.ErrorContains(t, err, "node 2")
}

// TestFormationNodeIDTaken: two processes of one id look for their cluster.
func TestFormationNodeIDTaken(t *testing.T) {
	c := startTestCluster(t, 2, nil)
	n, other := form(t, c.servers[1], "", ""), form(t, c.servers[1], "", "")
	select {
	case <-n.ended:
	case <-other.ended:
		n = other
	}
	_, err := n.result(t)
	require.ErrorIs(t, err, ErrNodeIDTaken)
	require.ErrorContains(t, err, "node 1")
}
