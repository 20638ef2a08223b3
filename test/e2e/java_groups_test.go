package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/kafka"
)

// groupWorld is members of one group, a JVM each, so that one can be killed.
type groupWorld struct {
	t         *testing.T
	ctx       context.Context
	bootstrap string
	group     string
	cl        *kgo.Client
	adm       *kadm.Client
	members   map[string]*kafka.Java
	values    int
}

func newGroupWorld(t *testing.T, bootstrap string) *groupWorld {
	t.Helper()
	kafka.RequireJava(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return &groupWorld{t: t, ctx: ctx, bootstrap: bootstrap, group: "java", cl: cl, adm: kadm.NewClient(cl), members: map[string]*kafka.Java{}}
}

func (w *groupWorld) topic(name string, partitions int32) {
	w.t.Helper()
	resp, err := w.adm.CreateTopic(w.ctx, partitions, -1, nil, name)
	require.NoError(w.t, err)
	require.NoError(w.t, resp.Err)
}

// produce writes records over a topic's partitions.
func (w *groupWorld) produce(topic string, partitions, count int) {
	w.t.Helper()
	records := make([]*kgo.Record, 0, count)
	for range count {
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(w.values % partitions), Value: fmt.Appendf(nil, "v%06d", w.values)})
		w.values++
	}
	require.NoError(w.t, w.cl.ProduceSync(w.ctx, records...).FirstErr())
}

// join starts a member; settings as for a Java job of kind "group", those that
// begin with "set." are the client's.
func (w *groupWorld) join(name string, pairs ...string) {
	w.t.Helper()
	job := kafka.JavaJob{
		Kind: kafka.JavaGroup, Name: name, Bootstrap: w.bootstrap, Settings: map[string]string{},
		Client: settings("group.id="+w.group, "auto.offset.reset=earliest", "enable.auto.commit=false", "metadata.max.age.ms=1000"),
	}
	for _, pair := range pairs {
		k, v, _ := strings.Cut(pair, "=")
		if key, ok := strings.CutPrefix(k, "set."); ok {
			job.Client[key] = v
		} else {
			job.Settings[k] = v
		}
	}
	j, err := kafka.StartJava(w.ctx, w.t.TempDir(), job)
	require.NoError(w.t, err)
	w.members[name] = j
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("--- member %s:\n%s\n%s", name, j.Tail(15), strings.Join(j.ClientLog(name, "INFO|WARN|ERROR"), "\n"))
		}
		_ = j.Kill()
	})
}

// owns is what a member has by its last events.
func (w *groupWorld) owns(name string) []string {
	has := map[string]bool{}
	for _, e := range w.members[name].Events(name, "given", "revoked", "lost") {
		for _, p := range e.Fields {
			if has[p] = e.Kind == "given"; !has[p] {
				delete(has, p)
			}
		}
	}
	out := make([]string, 0, len(has))
	for p := range has {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// shared waits until the members named have so many partitions together, each once,
// and each as many as want says, in any order.
func (w *groupWorld) shared(want []int, names ...string) {
	w.t.Helper()
	w.await("partitions are shared", func() error {
		var all []string
		var counts []int
		for _, name := range names {
			if broken := w.members[name].Events(name, "error"); len(broken) > 0 {
				return fmt.Errorf("member %s broke: %v", name, broken[0].Fields)
			}
			owns := w.owns(name)
			all = append(all, owns...)
			counts = append(counts, len(owns))
		}
		slices.Sort(counts)
		if n := len(all); n != len(slices.Compact(slices.Sorted(slices.Values(all)))) {
			return fmt.Errorf("a partition twice: %v", all)
		}
		if !slices.Equal(counts, want) {
			return fmt.Errorf("members have %v, want %v: %v", counts, want, all)
		}
		return nil
	})
}

func (w *groupWorld) await(what string, f func() error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, convergeTimeout)
	defer cancel()
	require.NoError(w.t, kafka.Poll(ctx, f), what)
}

// leave has a member go in order.
func (w *groupWorld) leave(name string) {
	w.t.Helper()
	require.NoError(w.t, w.members[name].Signal(syscall.SIGTERM))
	w.await("member "+name+" ends", func() error {
		if w.members[name].Running() {
			return fmt.Errorf("it runs")
		}
		return nil
	})
}

// crash kills a member.
func (w *groupWorld) crash(name string) {
	w.t.Helper()
	require.NoError(w.t, w.members[name].Kill())
}

// allRead waits until every value that was produced has been read, and all of it is
// committed.
func (w *groupWorld) allRead(topics ...string) {
	w.t.Helper()
	w.await("everything is read", func() error {
		got := map[string]bool{}
		for name, j := range w.members {
			for _, e := range j.Events(name, "record") {
				got[e.Fields[0]] = true
			}
		}
		if len(got) < w.values {
			return fmt.Errorf("%d of %d values are read", len(got), w.values)
		}
		return nil
	})
	w.await("everything is committed", func() error {
		ends, err := w.adm.ListEndOffsets(w.ctx, topics...)
		if err != nil {
			return err
		}
		committed, err := w.adm.FetchOffsets(w.ctx, w.group)
		if err != nil {
			return err
		}
		var open error
		ends.Each(func(o kadm.ListedOffset) {
			if c, ok := committed.Lookup(o.Topic, o.Partition); o.Offset > 0 && (!ok || c.At != o.Offset) {
				open = fmt.Errorf("%s-%d: %d of %d is committed", o.Topic, o.Partition, c.At, o.Offset)
			}
		})
		return open
	})
}

// neverTwice fails where a member was given a partition before another one, which
// lives, had given it up.
func (w *groupWorld) neverTwice(dead ...string) {
	w.t.Helper()
	type change struct {
		kafka.JavaEvent
		partition string
	}
	var all []change
	for name, j := range w.members {
		for _, e := range j.Events(name, "given", "revoked", "lost") {
			for _, p := range e.Fields {
				all = append(all, change{e, p})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b change) int {
		if c := a.At.Compare(b.At); c != 0 {
			return c
		}
		return strings.Compare(b.Kind, a.Kind) // within a millisecond: revoked before given
	})
	owner := map[string]string{}
	for _, c := range all {
		if c.Kind != "given" {
			if owner[c.partition] == c.Job {
				delete(owner, c.partition)
			}
			continue
		}
		if o := owner[c.partition]; o != "" && o != c.Job && !slices.Contains(dead, o) {
			w.t.Errorf("%s is given to %s at %s while %s has it", c.partition, c.Job, c.At, o)
		}
		owner[c.partition] = c.Job
	}
}

// tool is kafka-consumer-groups.sh.
func (w *groupWorld) tool(args ...string) string {
	w.t.Helper()
	res, err := kafka.Tool(w.ctx, kafka.ConsumerGroups, append([]string{"--bootstrap-server", w.bootstrap}, args...)...)
	require.NoError(w.t, err)
	require.Zero(w.t, res.Code, "%s%s", res.Stdout, res.Stderr)
	return res.Stdout
}

const newProtocol = "set.group.protocol=consumer"

// TestGroupsConsumerProtocol: Kafka's Java consumer with group.protocol=consumer
// (KIP-848): members come, leave and are killed, one subscribes by a regular
// expression; everything is read and committed, and Kafka's tool shows the group.
func TestGroupsConsumerProtocol(t *testing.T) {
	n := StartNode(t, NodeOptions{Properties: quickGroups(nil)})
	w := newGroupWorld(t, n.Bootstrap())
	w.topic("g", 6)
	w.produce("g", 6, 60)
	w.join("a", "topics=g", newProtocol)
	w.join("b", "topics=g", newProtocol)
	w.shared([]int{3, 3}, "a", "b")
	w.produce("g", 6, 60)
	w.join("c", "regex=g.*", newProtocol)
	w.shared([]int{2, 2, 2}, "a", "b", "c")
	w.allRead("g")

	require.Contains(t, w.tool("--list", "--type", "consumer"), "java")
	state := w.tool("--describe", "--group", "java", "--state", "--verbose")
	require.Contains(t, state, "Stable")
	require.Contains(t, state, "uniform")
	members := w.tool("--describe", "--group", "java", "--members", "--verbose")
	require.Contains(t, members, "g:")
	require.Len(t, described(w.tool("--describe", "--group", "java")), 6)

	w.topic("g2", 2) // the regular expression has it, the names haven't
	w.produce("g2", 2, 20)
	w.await("the new topic is c's", func() error {
		if owns := w.owns("c"); !slices.Contains(owns, "g2-0") || !slices.Contains(owns, "g2-1") {
			return fmt.Errorf("it has %v", owns)
		}
		return nil
	})
	w.crash("a")
	w.produce("g", 6, 60)
	w.shared([]int{4, 4}, "b", "c")
	w.allRead("g", "g2")
	require.NoError(t, n.Restart(w.ctx))
	w.produce("g", 6, 60)
	w.allRead("g", "g2")
	w.leave("b")
	w.shared([]int{8}, "c")
	w.produce("g", 6, 60)
	w.allRead("g", "g2")
	w.neverTwice("a")
	w.leave("c")
	require.Contains(t, w.tool("--describe", "--group", "java", "--state"), "Empty")
	require.Contains(t, w.tool("--delete", "--group", "java"), "successful")
	require.NotContains(t, w.tool("--list"), "java")
}

// longGroups: KAGAMI_GROUPS_LONG=1 adds the longer tests of groups.
func longGroups() bool { return os.Getenv("KAGAMI_GROUPS_LONG") != "" }

// TestGroupsClassicAssignors: Kafka's Java consumer of the classic protocol, with each
// of its assignors in the long run; members come, leave, are killed, and come back as static ones.
func TestGroupsClassicAssignors(t *testing.T) {
	n := StartNode(t, NodeOptions{Properties: quickGroups(map[string]string{"group.min.session.timeout.ms": "3000"})})
	w := newGroupWorld(t, n.Bootstrap())
	w.topic("g", 6)
	const assignors = "org.apache.kafka.clients.consumer."
	classic := []string{"topics=g", "set.group.protocol=classic", "set.session.timeout.ms=3000", "set.heartbeat.interval.ms=200"}
	names := []string{"CooperativeStickyAssignor"}
	if longGroups() {
		names = append(names, "RangeAssignor", "StickyAssignor")
	}
	for _, assignor := range names {
		t.Run(assignor, func(t *testing.T) {
			w.t, w.group, w.members = t, assignor, map[string]*kafka.Java{}
			settings := append([]string{"set.partition.assignment.strategy=" + assignors + assignor}, classic...)
			name := func(s string) string { return assignor + "-" + s }
			w.join(name("a"), settings...)
			w.join(name("b"), append([]string{"set.group.instance.id=i"}, settings...)...)
			w.shared([]int{3, 3}, name("a"), name("b"))
			w.produce("g", 6, 30)
			w.allRead("g")
			w.join(name("c"), settings...)
			w.shared([]int{2, 2, 2}, name("a"), name("b"), name("c"))
			before := w.owns(name("b"))
			w.crash(name("b")) // a static one: it has its session's time to come back
			w.join(name("b2"), append([]string{"set.group.instance.id=i"}, settings...)...)
			w.shared([]int{2, 2, 2}, name("a"), name("b2"), name("c"))
			require.Equal(t, before, w.owns(name("b2")), "what it had")
			w.crash(name("c"))
			w.shared([]int{3, 3}, name("a"), name("b2"))
			w.produce("g", 6, 30)
			w.allRead("g")
			members := w.tool("--describe", "--group", assignor, "--members", "--verbose")
			require.Contains(t, members, "g:")
			w.leave(name("a"))
			w.shared([]int{6}, name("b2"))
			w.neverTwice(name("b"), name("c"))
			w.crash(name("b2"))
		})
	}
}

// TestGroupsUpgrade: members of the classic protocol are replaced by members of the
// consumer protocol one by one, and back again, while records come; nothing is read
// by two at once, and what was committed counts throughout.
func TestGroupsUpgrade(t *testing.T) {
	n := StartNode(t, NodeOptions{Properties: quickGroups(nil)})
	w := newGroupWorld(t, n.Bootstrap())
	w.topic("g", 4)
	kind := func() string {
		for line := range strings.Lines(w.tool("--list", "--type")) {
			if f := strings.Fields(line); len(f) >= 2 && f[0] == "java" {
				return f[1]
			}
		}
		return ""
	}
	old := []string{"topics=g", "set.group.protocol=classic", "set.session.timeout.ms=6000", "set.heartbeat.interval.ms=200", "set.partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor"}
	next := []string{"topics=g", newProtocol}
	w.join("old1", old...)
	w.join("old2", old...)
	w.shared([]int{2, 2}, "old1", "old2")
	w.produce("g", 4, 40)
	w.join("new1", next...)
	w.shared([]int{1, 1, 2}, "old1", "old2", "new1")
	require.Equal(t, "Consumer", kind())
	require.Contains(t, w.tool("--describe", "--group", "java", "--members", "--verbose"), "g:")
	w.produce("g", 4, 40)
	w.leave("old1")
	w.join("new2", next...)
	w.shared([]int{1, 1, 2}, "old2", "new1", "new2")
	w.allRead("g")
	w.leave("old2")
	w.shared([]int{2, 2}, "new1", "new2")
	w.produce("g", 4, 40)
	w.join("old3", old...)
	w.shared([]int{1, 1, 2}, "new1", "new2", "old3")
	w.leave("new1")
	w.leave("new2")
	w.shared([]int{4}, "old3")
	require.Equal(t, "Classic", kind())
	w.produce("g", 4, 40)
	w.allRead("g")
	w.neverTwice()
	w.leave("old3")
}

// TestGroupsConsumerProtocolOverNodes: on three nodes the one that coordinates the group
// is killed while members read; they go on, and a further one joins.
func TestGroupsConsumerProtocolOverNodes(t *testing.T) {
	if !longGroups() {
		t.Skip("long: set KAGAMI_GROUPS_LONG=1; TestConsumerGroupOverNodes of cmd/kagami is the short one")
	}
	kafka.RequireJava(t)
	c := StartCluster(t, ClusterOptions{Properties: quickGroups(map[string]string{"group.consumer.session.timeout.ms": "20000"})})
	w := newGroupWorld(t, c.Bootstrap())
	w.topic("g", 6)
	w.produce("g", 6, 60)
	w.join("a", "topics=g", newProtocol)
	w.join("b", "regex=g", newProtocol)
	w.shared([]int{3, 3}, "a", "b")
	w.allRead("g")
	coordinators := w.adm.FindGroupCoordinators(w.ctx, w.group)
	require.NoError(t, coordinators.Error())
	dead := int(coordinators[w.group].NodeID)
	require.NoError(t, c.Node(dead).Kill9())
	w.await("another coordinator", func() error {
		now := w.adm.FindGroupCoordinators(w.ctx, w.group)
		if err := now.Error(); err != nil {
			return err
		}
		if int(now[w.group].NodeID) == dead {
			return fmt.Errorf("it is %d still", dead)
		}
		return nil
	})
	w.produce("g", 6, 60)
	w.join("c", "topics=g", newProtocol)
	w.shared([]int{2, 2, 2}, "a", "b", "c")
	w.allRead("g")
	w.crash("a")
	w.shared([]int{3, 3}, "b", "c")
	w.neverTwice("a")
	require.NoError(t, c.Start(w.ctx, dead))
	w.leave("b")
	w.shared([]int{6}, "c")
	w.leave("c")
}
