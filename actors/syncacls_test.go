package actors

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/persistence/metadata"
	"kagami/test/kafka/stub"
)

func denied(a messages.ACL) messages.ACL {
	a.Permission = messages.ACLDeny
	return a
}

func TestPlanACLs(t *testing.T) {
	of := func(a messages.ACL, mirrors ...string) metadata.StoredACL {
		return metadata.StoredACL{ACL: a, Mirrors: mirrors}
	}
	odd, group := readRight("odd"), readRight("g")
	odd.Operation, group.Type = 99, messages.ACLGroup
	for _, tc := range []struct {
		name   string
		rules  string // default *
		here   []metadata.StoredACL
		source []messages.ACL
		want   []string // +entry or -entry
		notes  int
	}{
		{name: "nothing"},
		{name: "K6 missing", source: []messages.ACL{readRight("t"), readRight("t")}, want: []string{"+t"}},
		{name: "there", here: []metadata.StoredACL{of(readRight("t"), "m")}, source: []messages.ACL{readRight("t")}},
		{name: "an operator's", here: []metadata.StoredACL{of(readRight("t"))}, source: []messages.ACL{readRight("t")}},
		{name: "another mirror's", here: []metadata.StoredACL{of(readRight("t"), "m0")}, source: []messages.ACL{readRight("t")}, want: []string{"+t"}},
		{name: "D53 only what it made goes", want: []string{"-m", "-two"}, here: []metadata.StoredACL{
			of(readRight("m"), "m"), of(readRight("op")), of(readRight("other"), "m0"), of(readRight("two"), "m0", "m"),
		}},
		{name: "D30 of cluster mirrors", source: []messages.ACL{mirrorRight("there")}, here: []metadata.StoredACL{of(mirrorRight("here")), of(mirrorRight("odd"), "m")}},
		{name: "rules", rules: "topic;a.*;read, GROUP;*;*;deny", source: []messages.ACL{readRight("ab"), readRight("b"), group, denied(group)}, want: []string{"+DENY g", "+ab"}},
		{name: "out of the rules by now", rules: "TOPIC;a.*", here: []metadata.StoredACL{of(readRight("a"), "m"), of(readRight("b"), "m")}, want: []string{"-a"}},
		{name: "another pattern or host is another entry", here: []metadata.StoredACL{of(readRight("t"), "m")},
			source: []messages.ACL{{Type: messages.ACLTopic, Pattern: messages.ACLPrefixed, Name: "t", Principal: "User:a", Host: "*", Operation: messages.ACLRead, Permission: messages.ACLAllow}}, want: []string{"-t", "+t"}},
		{name: "of a newer Kafka", source: []messages.ACL{odd, readRight("t")}, want: []string{"+t"}, notes: 1},
		{name: "doors are closed first", here: []metadata.StoredACL{of(readRight("a"), "m"), of(denied(readRight("b")), "m")},
			source: []messages.ACL{readRight("c"), denied(readRight("d"))}, want: []string{"-a", "+DENY d", "-DENY b", "+c"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.rules == "" {
				tc.rules = "*"
			}
			rules, err := configs.CompileACLRules(messages.ParseList(tc.rules))
			require.NoError(t, err)
			plan := planACLs("m", rules, tc.here, tc.source)
			var got []string
			for _, c := range plan.changes {
				text := "+"
				if c.Gone {
					text = "-"
				}
				if c.Permission == messages.ACLDeny {
					text += "DENY "
				}
				got = append(got, text+c.Name)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
			require.Len(t, plan.notes, tc.notes)
		})
	}
	plan := aclPlan{changes: []messages.ACLChange{{ACL: readRight("a"), Gone: true}, {ACL: readRight("b"), Gone: true}, {ACL: readRight("c")}}}
	plan.keep([]messages.ACL{readRight("b"), readRight("c")})
	require.Equal(t, []messages.ACLChange{{ACL: readRight("a"), Gone: true}, {ACL: readRight("c")}}, plan.changes)
	s := &syncer{view: &SourceView{}}
	require.ErrorIs(t, s.confirm(t.Context(), &plan), errACLsStay, "nobody has said so")
	require.Equal(t, []messages.ACLChange{{ACL: readRight("c")}}, plan.changes)
	require.NoError(t, s.confirm(t.Context(), &plan))
}

// setACLs is what the source has from here on.
func setACLs(src *stub.Cluster, acls ...messages.ACL) {
	src.Update(func(s *stub.State) {
		s.ACLs = nil
		for _, a := range acls {
			r := kmsg.NewDescribeACLsResponseResource()
			r.ResourceType, r.ResourceName, r.ResourcePatternType = kmsg.ACLResourceType(a.Type), a.Name, kmsg.ACLResourcePatternType(a.Pattern)
			e := kmsg.NewDescribeACLsResponseResourceACL()
			e.Principal, e.Host, e.Operation, e.PermissionType = a.Principal, a.Host, kmsg.ACLOperation(a.Operation), kmsg.ACLPermissionType(a.Permission)
			r.ACLs = append(r.ACLs, e)
			s.ACLs = append(s.ACLs, r)
		}
	})
}

// acls is nil if the node has these entries and no others.
func (n *mirrorNode) acls(want ...messages.ACL) func() error {
	slices.SortFunc(want, messages.ACL.Compare)
	return func() error {
		var got []messages.ACL
		for _, s := range n.store.Image().ACLs() {
			got = append(got, s.ACL)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	}
}

const withAuthorizer = configs.AuthorizerClass + "=" + configs.StandardAuthorizer

// K6, D30, D53: ACLs follow the source, with what it has; the operator's own stay; a
// source that can't be read, or not be asked, takes nothing away.
func TestK6D30D53ACLs(t *testing.T) {
	src := stubSource(t, 2, 1)
	dir := t.TempDir()
	n := startMirrorNode(t, dir, withAuthorizer)
	own, copied, later := readRight("own"), readRight("copied"), denied(readRight("later"))
	n.submit(messages.CreateACLs{Entries: []messages.ACL{own, mirrorRight("m")}})
	setACLs(src, copied, mirrorRight("of the source"))
	n.create(src)
	n.begin(src, "t")
	n.await("copied", n.acls(own, mirrorRight("m"), copied))
	require.Equal(t, []string{"m"}, n.store.Image().ACL(copied).Mirrors)
	setACLs(src, copied, later, own)
	n.await("copied as well", n.acls(own, mirrorRight("m"), copied, later))

	// Whose they are is known over a restart; the source can't be read now.
	require.NoError(t, n.stop())
	setACLs(src, own)
	var code atomic.Int32
	code.Store(31) // CLUSTER_AUTHORIZATION_FAILED
	src.Edit(29, func(_ *stub.Request, resp kmsg.Response) {
		if c := int16(code.Load()); c != 0 {
			resp.(*kmsg.DescribeACLsResponse).ErrorCode, resp.(*kmsg.DescribeACLsResponse).Resources = c, nil
		}
	})
	n = startMirrorNode(t, dir, withAuthorizer)
	n.await("counted", func() error {
		if n.Mirrors.SyncErrors(SyncACLs) == 0 {
			return fmt.Errorf("no error is counted")
		}
		return nil
	})
	require.NoError(t, n.acls(own, mirrorRight("m"), copied, later)())
	code.Store(54) // SECURITY_DISABLED
	n.refreshTwice()
	failed := n.Mirrors.SyncErrors(SyncACLs)
	n.refreshTwice()
	require.Equal(t, failed, n.Mirrors.SyncErrors(SyncACLs), "that is no error")
	require.NoError(t, n.acls(own, mirrorRight("m"), copied, later)())

	// Out of the rules nothing goes, nor with the topics paused.
	n.alter(messages.ResourceClusterMirror, "m", configs.MirrorACLInclude, "TOPIC;copied")
	n.submit(messages.PauseMirrorTopics{Mirror: "m", Topics: []messages.MirrorTopic{{Name: "t"}}})
	n.awaitIn(messages.StatePaused, tpOf("t", 0))
	require.NoError(t, n.refresh())
	code.Store(0)
	require.NoError(t, n.refresh())
	require.NoError(t, n.refresh())
	require.NoError(t, n.acls(own, mirrorRight("m"), copied, later)())
	n.submit(messages.ResumeMirrorTopics{Mirror: "m", Topics: []messages.MirrorTopic{{Name: "t"}}})
	n.await("removed", n.acls(own, mirrorRight("m"), later))
	n.alter(messages.ResourceClusterMirror, "m", configs.MirrorACLInclude, "")
	n.refreshTwice()
	require.NoError(t, n.acls(own, mirrorRight("m"), later)())
	n.alter(messages.ResourceClusterMirror, "m", configs.MirrorACLInclude, "*")
	n.await("removed as well", n.acls(own, mirrorRight("m")))
	var told []string
	for _, e := range n.logs.FilterMessage("ACLs follow the source").All() {
		told = append(told, fmt.Sprint(slices.Collect(maps.Values(e.ContextMap()))))
	}
	require.Contains(t, strings.Join(told, "\n"), copied.String())
}

// A broker of the source that lags doesn't know an entry yet, or doesn't answer: nothing
// goes until all of them say so. What is new is copied meanwhile.
func TestACLsOfALaggingBroker(t *testing.T) {
	src := stubSource(t, 2, 1)
	n := startMirrorNode(t, t.TempDir(), withAuthorizer)
	first, second := denied(readRight("t")), denied(readRight("u"))
	setACLs(src, first)
	n.create(src)
	n.begin(src, "t")
	n.await("copied", n.acls(first))
	before := n.store.Image().ACL(first).ID
	var mode atomic.Int32
	src.Edit(29, func(r *stub.Request, resp kmsg.Response) {
		a := resp.(*kmsg.DescribeACLsResponse)
		switch {
		case mode.Load() == 0 && r.Broker == 0:
			a.Resources = nil
		case mode.Load() == 1 && r.Broker == 1:
			a.ErrorCode, a.Resources = 41, nil
		}
	})
	asked := func(broker int32, more int) func() error {
		count := func() (c int) {
			for _, s := range src.Seen(29) {
				if s.Broker == broker {
					c++
				}
			}
			return c
		}
		at := count() + more
		return func() error {
			if is := count(); is < at {
				return fmt.Errorf("%d of %d", is, at)
			}
			return nil
		}
	}
	n.await("the lagging one was asked", asked(0, 3))
	n.refreshTwice()
	require.NotNil(t, n.store.Image().ACL(first))
	require.Equal(t, before, n.store.Image().ACL(first).ID, "it never went")
	require.Zero(t, n.Mirrors.SyncErrors(SyncACLs))

	mode.Store(1)
	setACLs(src, second)
	n.await("what is new", n.acls(first, second))
	n.await("the other one was asked", asked(1, 3))
	n.refreshTwice()
	require.NoError(t, n.acls(first, second)())
	require.Positive(t, n.Mirrors.SyncErrors(SyncACLs))
	mode.Store(2)
	n.await("gone", n.acls(second))
}

// Without an authorizer here ACLs mean nothing, and the source isn't even asked.
func TestACLsWithoutAuthorizer(t *testing.T) {
	src := stubSource(t, 1, 1)
	n := startMirrorNode(t, t.TempDir())
	setACLs(src, readRight("t"))
	src.Edit(29, func(_ *stub.Request, _ kmsg.Response) { t.Error("the source was asked for its ACLs") })
	n.create(src)
	n.begin(src, "t")
	n.refreshTwice()
	require.NoError(t, n.acls()())
	require.Zero(t, n.Mirrors.SyncErrors(SyncACLs))
}
