package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/client"
	"kagami/messages"
	"kagami/persistence/metadata"
)

// sourceACLCount is how many ACLs the source of TestACLsOverNodes has: a cycle needs more
// than one command. KAGAMI_SYNC_ACLS=50000 for more.
func sourceACLCount(t *testing.T) int {
	t.Helper()
	text := os.Getenv("KAGAMI_SYNC_ACLS")
	if text == "" {
		return 6000
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// numberedACL alternates between topics and groups, and between allow and deny.
func numberedACL(i int) messages.ACL {
	a := messages.ACL{
		Type: messages.ACLTopic, Pattern: messages.ACLLiteral, Name: fmt.Sprintf("of-the-source-%06d", i), Principal: fmt.Sprintf("User:CN=user-%d,OU=service", i%97),
		Host: "*", Operation: messages.ACLRead, Permission: messages.ACLAllow,
	}
	if i%2 == 1 {
		a.Type = messages.ACLGroup
	}
	if i%3 == 0 {
		a.Pattern, a.Permission = messages.ACLPrefixed, messages.ACLDeny
	}
	return a
}

func numberedACLs(from, to int) []messages.ACL {
	var out []messages.ACL
	for i := from; i < to; i++ {
		out = append(out, numberedACL(i))
	}
	return out
}

func creations(acls []messages.ACL) []kmsg.CreateACLsRequestCreation {
	var out []kmsg.CreateACLsRequestCreation
	for _, a := range acls {
		out = append(out, kmsg.CreateACLsRequestCreation{
			ResourceType: kmsg.ACLResourceType(a.Type), ResourceName: a.Name, ResourcePatternType: kmsg.ACLResourcePatternType(a.Pattern),
			Principal: a.Principal, Host: a.Host, Operation: kmsg.ACLOperation(a.Operation), PermissionType: kmsg.ACLPermissionType(a.Permission),
		})
	}
	return out
}

// aclGuard looks at every image of every node: entries that must stay never go.
type aclGuard struct {
	mu   sync.Mutex
	kept map[messages.ACL]keptACL
	bad  []string
}

type keptACL struct {
	of   []string // whose it is; nil: anybody's
	from int64    // offset from which on images have it
}

func (g *aclGuard) watch(n *node) {
	n.store.Subscribe(func(d metadata.Delta) {
		g.mu.Lock()
		defer g.mu.Unlock()
		for a, kept := range g.kept {
			now := d.New.ACL(a)
			if d.New.Offset() >= kept.from && len(g.bad) < 10 && (now == nil || kept.of != nil && !slices.Equal(now.Mirrors, kept.of)) {
				g.bad = append(g.bad, fmt.Sprintf("node %d at %d: %s is %v", n.settings.nodeID, d.New.Offset(), a, now))
			}
		}
	})
}

// keep has the entries of an image stay from then on.
func (g *aclGuard) keep(acls []messages.ACL, of []string, in *metadata.Image) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range acls {
		g.kept[a] = keptACL{of, in.Offset()}
	}
}

// TestACLsOverNodes: on three nodes two mirrors with overlapping rules copy thousands of
// ACLs, whose changes go from the nodes of their coordinators to the controller. The
// controller, and a coordinator's node, end in the middle of a cycle. What the operator made,
// and what the source has all the time, is there in every image of every node.
func TestACLsOverNodes(t *testing.T) {
	count := sourceACLCount(t)
	src := startTestNode(t, t.TempDir(), adminACLs, "super.users=User:ANONYMOUS")
	_, srcCl, source := connectTo(t, src.kafka())
	topic(t, srcCl, "t", 1, 5, nil)
	topic(t, srcCl, "u", 1, 5, nil)
	c := newTestNodes(t, []messages.NodeID{1, 2, 3}, adminACLs, "super.users=User:ANONYMOUS", "mirror.metadata.refresh.interval.ms=1000")
	c.start(1, 2, 3)
	adm, dstCl, _ := c.connect(1)

	stay, first, second := numberedACLs(0, count/2), numberedACLs(count/2, count), numberedACLs(count, count+count/2)
	own := []messages.ACL{numberedACL(0), first[1], {Type: messages.ACLTopic, Pattern: messages.ACLLiteral, Name: "here", Principal: "User:op", Host: "*", Operation: messages.ACLWrite, Permission: messages.ACLDeny}}
	give(t, dstCl, creations(own)...)
	guard := &aclGuard{kept: map[messages.ACL]keptACL{}}
	await(t, "the operator's own on node 1", func() error {
		if n := len(c.nodes[1].store.Image().ACLs()); n < len(own) {
			return fmt.Errorf("%d entries", n)
		}
		return nil
	})
	guard.keep(own, []string{}, c.nodes[1].store.Image())
	for id := range c.nodes {
		guard.watch(c.nodes[id])
	}
	giveAll := func(acls []messages.ACL) {
		for part := range slices.Chunk(acls, 2000) {
			give(t, srcCl, creations(part)...)
		}
	}
	takeAll := func(acls []messages.ACL) {
		for part := range slices.Chunk(acls, 500) {
			revoke(t, srcCl, creations(part)...)
		}
	}
	giveAll(append(slices.Clone(stay), first...))
	want := func(sets ...[]messages.ACL) []messages.ACL {
		out := slices.Concat(append(sets, own)...)
		slices.SortFunc(out, messages.ACL.Compare)
		return slices.Compact(out)
	}
	converge := func(what string, want []messages.ACL) {
		t.Helper()
		began := time.Now()
		for id, n := range c.nodes {
			await(t, fmt.Sprintf("%s on node %d", what, id), func() error {
				got := n.store.Image().ACLs()
				if !slices.EqualFunc(got, want, func(s metadata.StoredACL, a messages.ACL) bool { return s.ACL == a }) {
					return fmt.Errorf("%d entries, want %d", len(got), len(want))
				}
				return nil
			})
		}
		t.Logf("%s: after %s", what, time.Since(began).Round(time.Millisecond))
	}

	bootstrap := src.kafka()
	mirror := func(name, topic, rules string) {
		require.NoError(t, adm.CreateClusterMirror(t.Context(), name, map[string]*string{"bootstrap.servers": &bootstrap, "mirror.acl.include": &rules}))
		details, err := source.ListTopics(t.Context(), topic)
		require.NoError(t, err)
		res, err := adm.StartMirrorTopics(t.Context(), name, []string{topic}, client.StartOptions{TopicMetadata: map[string]client.TopicMetadata{topic: {ID: messages.TopicID(details[topic].ID), Partitions: 1}}})
		require.NoError(t, err)
		require.NoError(t, res.Err())
	}
	mirror("some", "t", "TOPIC")
	// The other one's coordinator isn't with the controller.
	all := ""
	await(t, "a mirror whose coordinator isn't with the controller", func() error {
		image := c.nodes[1].store.Image()
		for i := range 100 {
			all = fmt.Sprint("all-", i)
			if id, _ := coordinatorOf(image, all); id != messages.NoNode && id != image.Controller() {
				return nil
			}
		}
		return fmt.Errorf("there is none")
	})
	mirror(all, "u", "*")
	converge("copied", want(stay, first))
	guard.keep(stay[1:], nil, c.nodes[1].store.Image())

	// Half of them change, and a node ends when the first of that has been seen.
	begun := func(set []messages.ACL) func() error {
		return func() error {
			for id := range c.nodes {
				image := c.nodes[id].store.Image()
				if slices.ContainsFunc(set, func(a messages.ACL) bool { return !slices.Contains(own, a) && image.ACL(a) != nil }) {
					return nil
				}
			}
			return fmt.Errorf("nothing has changed")
		}
	}
	change := func(what string, ends func() messages.NodeID, from, to []messages.ACL) {
		t.Helper()
		giveAll(to[:len(to)/2])
		await(t, "the cycle has begun", begun(to))
		id := ends()
		var ending sync.WaitGroup
		ending.Go(func() { c.stop(id) })
		giveAll(to[len(to)/2:])
		takeAll(from)
		ending.Wait()
		converge(what, want(stay, to))
		c.start(id)
		guard.watch(c.nodes[id])
		converge(what+", on all", want(stay, to))
	}
	change("the controller ended", func() messages.NodeID { return c.nodes[1].store.Image().Controller() }, first, second)
	some := func() messages.NodeID {
		for id := range c.nodes {
			at, _ := coordinatorOf(c.nodes[id].store.Image(), all)
			return at
		}
		return messages.NoNode
	}
	change("the coordinator's node ended", some, second, first)

	// Whose they are: of both where the rules of both name them.
	for id := range c.nodes {
		await(t, "owners", func() error {
			for _, s := range c.nodes[id].store.Image().ACLs() {
				want := []string{all}
				switch {
				case slices.Contains(own, s.ACL):
					want = nil
				case s.Type == messages.ACLTopic:
					want = []string{all, "some"}
				}
				got := slices.Sorted(slices.Values(s.Mirrors))
				if !slices.Equal(got, want) {
					return fmt.Errorf("%s is of %v, want %v", s.ACL, got, want)
				}
			}
			return nil
		})
	}
	guard.mu.Lock()
	defer guard.mu.Unlock()
	require.Empty(t, guard.bad)
	require.Empty(t, c.logs.FilterMessage("actor panicked").All())
}
