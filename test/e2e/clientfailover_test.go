package e2e

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/kafka"
)

// TestClientFailover: clients that wrote and read on a cluster go on at its mirror after
// the stop, with nothing changed but the address: idempotent and transactional
// producers, and a group.
func TestClientFailover(t *testing.T) {
	kafka.RequireProgram(t, "kcat")
	w := newWorld(t, NodeOptions{Properties: quickGroups(map[string]string{"transaction.state.log.num.partitions": "5"})})
	m := &clientMatrix{node: w.node, side: w.b}
	uses := []*failoverUse{}
	for _, c := range append(javaClients(t, ""), goClients(t, t.TempDir())...) {
		if c.version == string(kafka.V44) || c.name == "franz-go" {
			uses = append(uses, &failoverUse{matrixUse: matrixUse{clientMatrix: m, ctx: w.ctx, c: c, prefix: "over-" + plainName(c)}, w: w})
		}
	}
	require.Len(t, uses, 2)
	var topics []string
	for _, u := range uses {
		topics = append(topics, u.before(t)...)
	}
	w.create("m")
	w.start("m", topics...)
	w.equal(topics...)
	w.run("--stop", "--mirror", "m", "--topics", strings.Join(topics, ","))
	w.await("m", "STOPPED", topics...)
	for _, u := range uses {
		t.Run(u.c.name, u.after)
	}
}

// failoverUse is one client before and after the failover.
type failoverUse struct {
	matrixUse
	w    *world
	told map[string]seenRecord // by A
}

// groupParts is how many partitions the topic of the group has.
const groupParts = 4

func (u *failoverUse) names() (produce, transact, input, group string) {
	return u.prefix + "-produce", u.prefix + "-transact", u.prefix + "-input", u.prefix + "-group"
}

// before is what the client does on A; it returns its topics.
func (u *failoverUse) before(t *testing.T) []string {
	t.Helper()
	produce, transact, input, group := u.names()
	a := u.w.source.Bootstrap()
	for topic, partitions := range map[string]int32{produce: 2, transact: 1, input: 1, group: groupParts} {
		u.w.topic(topic, partitions, 1)
	}
	cl, err := u.w.source.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer cl.Close()
	for i := range 100 {
		topic, partition := input, 0
		if i >= 20 {
			topic, partition = group, i%groupParts
		}
		require.NoError(t, cl.ProduceSync(u.ctx, &kgo.Record{Topic: topic, Partition: int32(partition), Value: fmt.Appendf(nil, "v%d", i)}).FirstErr())
	}
	u.told = acked(t, u.c.job(u.ctx, t, "produce", u.args("bootstrap="+a, "topic="+produce, "mode=idempotent", "codec=none", "count=40")...))
	u.transactions(t, a, "a")
	return []string{produce, transact, input, group}
}

// transactions runs them on one side. The group is that side's: offsets of a transaction
// aren't a topic's.
func (u *failoverUse) transactions(t *testing.T, bootstrap, side string) {
	t.Helper()
	_, transact, input, _ := u.names()
	out := u.c.job(u.ctx, t, "transact", u.args("bootstrap="+bootstrap, "topic="+transact, "input="+input, "group="+u.prefix+"-copy-"+side, "id="+u.prefix)...)
	require.Contains(t, strings.Join(out, "\n"), "\nfenced ")
}

// after is what the client does on B.
func (u *failoverUse) after(t *testing.T) {
	produce, transact, _, group := u.names()
	told := acked(t, u.c.job(u.ctx, t, "produce", u.args("topic="+produce, "mode=idempotent", "codec=none", "from=40", "count=40")...))
	maps.Copy(told, u.told)
	u.produced(t, produce, 80, told)

	u.transactions(t, u.address(), "b")
	require.NoError(t, kafka.Poll(u.ctx, func() error { return u.side.lsoAtEnd(u.ctx, transact) }))
	var seen []string
	for _, r := range u.readBack(t, transact, committed) {
		seen = append(seen, r.value)
	}
	once := []string{"c0", "c1", "c2", "c3", "c4", "pv0", "pv1", "pv2", "pv3", "pv4", "c5"}
	require.Equal(t, append(append([]string{}, once...), once...), seen)

	m, _ := u.comeAndGo(t, group, u.prefix+"-members", "classic", groupParts)
	records, _, err := m.since(0)
	require.NoError(t, err)
	read := map[seenRecord]bool{}
	for _, r := range records {
		read[seenRecord{partition: r.partition, offset: r.offset, value: r.value}] = true
	}
	stored := u.readBack(t, group, uncommitted)
	for _, r := range stored {
		require.True(t, read[seenRecord{partition: r.partition, offset: r.offset, value: r.value}], "left out: %v", r)
	}
	require.Len(t, read, len(stored))
}
