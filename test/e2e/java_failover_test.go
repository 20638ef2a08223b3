package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/client"
	"kagami/test/kafka"
)

// javaFailover is A under load by Java clients, until it is killed.
type javaFailover struct {
	source *kafka.Cluster
	load   *kafka.Java // load and reader on k10, idem on u7
	killed time.Time
	shown  map[string]map[string]client.DescribedPartition // node -> partition, before the kill
}

// TestK10U7JavaFailover: producers and consumers of Kafka's Java library work on A
// when it dies. They are switched to one Kagami node that was in step, and to
// another that had fallen behind and is killed and restarted after the stop.
func TestK10U7JavaFailover(t *testing.T) {
	kafka.RequireJava(t)
	f := &javaFailover{source: kafka.Start(t, kafka.Options{}), shown: map[string]map[string]client.DescribedPartition{}}
	inStep := newWorldOf(t, f.source, NodeOptions{})
	behind := newWorldOf(t, f.source, NodeOptions{})
	inStep.topic("k10", 3, 1)
	inStep.topic("u7", 1, 1)
	for _, w := range []*world{inStep, behind} {
		w.create("m")
		w.start("m", "k10", "u7")
	}
	at := f.source.Bootstrap()
	f.load = inStep.java(
		kafka.JavaJob{Kind: kafka.JavaProduce, Name: "load", Bootstrap: at, Topic: "k10", Settings: settings("rate=400")},
		kafka.JavaJob{Kind: kafka.JavaProduce, Name: "idem", Bootstrap: at, Topic: "u7", Settings: settings("rate=200")},
		kafka.JavaJob{Kind: kafka.JavaConsume, Name: "reader", Bootstrap: at, Topic: "k10", Settings: settings("assign=0:0,1:0,2:0")},
	)
	inStep.happens(f.load, "load", "acked", 800)
	require.NoError(t, behind.node.Process().Signal(syscall.SIGSTOP))
	acked := len(f.load.Events("load", "acked"))
	inStep.happens(f.load, "load", "acked", acked+400)
	inStep.happens(f.load, "reader", "record", acked+300) // it has read what one node lacks
	f.shown["in step"] = inStep.described()
	require.NoError(t, f.source.Kill(1))
	f.killed = time.Now()
	require.NoError(t, f.load.Kill()) // the application is switched, not left to time out
	require.NoError(t, behind.node.Process().Signal(syscall.SIGCONT))
	f.shown["behind"] = behind.described()

	for _, row := range []struct {
		name    string
		w       *world
		restart bool
	}{{"in step", inStep, false}, {"behind", behind, true}} {
		t.Run(row.name, func(t *testing.T) {
			w := *row.w
			w.t = t
			lost := f.switchOver(&w, row.name, row.restart)
			if row.restart {
				require.Positive(t, lost, "this node was behind")
			}
			w.sameProducerID()
			w.killedWhileProducing()
		})
	}
}

func (w *world) described() map[string]client.DescribedPartition {
	w.t.Helper()
	ps, err := Partitions(w.ctx, w.adm, "m")
	require.NoError(w.t, err)
	out := map[string]client.DescribedPartition{}
	for _, p := range ps {
		out[fmt.Sprintf("%s-%d", p.Topic, p.Partition)] = p
	}
	return out
}

// switchOver stops the mirror while a Java producer already tries to write, lets a
// consumer go on where it was on A, and measures. It returns how many records that
// A had acknowledged are lost.
func (f *javaFailover) switchOver(w *world, name string, restart bool) int {
	w.t.Helper()
	var assign []string
	next := map[int64]string{0: "0:0", 1: "1:0", 2: "2:0"} // a partition may have got no record yet
	for _, e := range f.load.Events("reader", "record") {
		next[e.Int(1)] = fmt.Sprintf("%d:%d:%d", e.Int(1), e.Int(2)+1, e.Int(3))
	}
	for _, p := range slices.Sorted(maps.Keys(next)) {
		assign = append(assign, next[p])
	}
	at := w.node.Bootstrap()
	const writes = 600
	begun := time.Now()
	j := w.java(
		kafka.JavaJob{Kind: kafka.JavaProduce, Name: "k10-b", Bootstrap: at, Topic: "k10", Settings: settings("await=true", fmt.Sprintf("count=%d", writes), "rate=1000")},
		kafka.JavaJob{Kind: kafka.JavaConsume, Name: "reader-b", Bootstrap: at, Topic: "k10", Settings: settings("assign=" + strings.Join(assign, ",")), Client: settings("auto.offset.reset=earliest")},
	)
	refused := w.happens(j, "k10-b", "refused", 1)
	require.Contains(w.t, strings.Join(refused[0].Fields, " "), "READ_ONLY_TOPIC: ")
	stop := time.Now()
	w.run("--stop", "--mirror", "m", "--topics", "k10,u7")
	w.await("m", "STOPPED", "k10", "u7")
	stopped := time.Now()
	acked := w.happens(j, "k10-b", "acked", 1)
	if restart {
		require.NoError(w.t, w.node.Kill9())
		require.NoError(w.t, w.node.Start(w.ctx))
	}
	written := w.finished(j, "k10-b")
	require.Len(w.t, written, writes)
	records := f.consumed(w, j, writes)
	lost := f.lost(w, name)
	w.t.Logf("K10 %s: from the kill of A: stop called after %v (of it %v for the switched clients to start), STOPPED on 4 partitions after %v more; "+
		"first accepted produce %v after the stop was called; the consumer read its first record of B %v after the kill, %v after the stop; "+
		"lost %d of %d records acknowledged by A",
		name, stop.Sub(f.killed).Round(time.Millisecond), refused[0].At.Sub(begun).Round(time.Millisecond), stopped.Sub(stop).Round(time.Millisecond),
		acked[0].At.Sub(stop).Round(time.Millisecond), records[0].At.Sub(f.killed).Round(time.Millisecond), records[0].At.Sub(stop).Round(time.Millisecond),
		lost, len(f.load.Events("load", "acked"))+len(f.load.Events("idem", "acked")))
	w.calm(j, "reader-b", 3, 6) // at most one cut and one reset each
	if restart {
		require.NotEmpty(w.t, j.ClientLog("reader-b", "Truncation detected"), "it had read on A what B doesn't have")
	}
	return lost
}

// consumed waits until the switched consumer has read every record written on B,
// each once and in order.
func (f *javaFailover) consumed(w *world, j *kafka.Java, count int) []kafka.JavaEvent {
	w.t.Helper()
	mine := func() []kafka.JavaEvent {
		return slices.DeleteFunc(j.Events("reader-b", "record"), func(e kafka.JavaEvent) bool { return !strings.HasPrefix(e.Fields[0], "k10-b-") })
	}
	ctx, cancel := context.WithTimeout(w.ctx, convergeTimeout)
	defer cancel()
	require.NoError(w.t, kafka.Poll(ctx, func() error {
		if broken := j.Events("reader-b", "error"); len(broken) > 0 {
			w.t.Fatalf("the consumer broke: %v", broken[0].Fields)
		}
		if n := len(mine()); n < count {
			return fmt.Errorf("the consumer has read %d of %d records: %v", n, count, j.ClientLog("reader-b", shaken))
		}
		return nil
	}))
	seen := map[string]bool{}
	last := map[int64]int64{}
	for _, e := range mine() {
		require.False(w.t, seen[e.Fields[0]], "read twice: %s", e.Fields[0])
		seen[e.Fields[0]] = true
		require.Greater(w.t, e.Int(2), last[e.Int(1)])
		last[e.Int(1)] = e.Int(2)
	}
	return j.Events("reader-b", "record")
}

// lost counts what A had acknowledged and B doesn't have. All of it is a tail: B
// holds the rest where A had it. And it is no more than the lag that B showed and
// what it had never heard of.
func (f *javaFailover) lost(w *world, name string) int {
	w.t.Helper()
	total := 0
	for topic, job := range map[string]string{"k10": "load", "u7": "idem"} {
		acked := map[int32]map[int64]string{}
		for _, e := range f.load.Events(job, "acked") {
			p := int32(e.Int(1))
			if acked[p] == nil {
				acked[p] = map[int64]string{}
			}
			acked[p][e.Int(2)] = e.Fields[0]
		}
		for p, values := range acked {
			end := w.resetAt(topic, p)
			held := w.values(w.node.Bootstrap(), topic, p, Ends{End: end})
			lost := 0
			for offset, value := range values {
				if offset >= end {
					lost++
					continue
				}
				require.Equal(w.t, placed{offset, value}, held[offset], "%s-%d", topic, p)
			}
			shown := f.shown[name][fmt.Sprintf("%s-%d", topic, p)]
			unheard := max(0, slices.Max(slices.Collect(maps.Keys(values)))+1-shown.SourceOffset)
			require.LessOrEqual(w.t, int64(lost), shown.Lag+unheard, "%s-%d: shown before the kill: %+v", topic, p, shown)
			total += lost
		}
	}
	return total
}

// sameProducerID: U7 and C01. A Java producer on B has the id of the one that wrote
// on A, and its first write, sequence 0, is stored where it was acknowledged. B
// hands out ids far away from A's, so the id is forced on it.
func (w *world) sameProducerID() {
	w.t.Helper()
	mirrored := w.producedBatches(w.b, "u7", 0, 0)
	pid := mirrored[0].pid
	require.GreaterOrEqual(w.t, pid, int64(0))
	end := w.end(w.b, "u7", 0)
	at := w.node.Bootstrap()
	j := w.java(
		kafka.JavaJob{Kind: kafka.JavaProduce, Name: "first", Bootstrap: at, Topic: "u7", Settings: settings("count=1", "prefix=b", fmt.Sprintf("pid=%d", pid))},
		kafka.JavaJob{Kind: kafka.JavaConsume, Name: "reader", Bootstrap: at, Topic: "u7", Settings: settings("count=1", fmt.Sprintf("assign=0:%d", end))},
	)
	acked := w.finished(j, "first")
	require.Equal(w.t, end, acked[0].Int(2), "acknowledged at the log end")
	require.Equal(w.t, end+1, w.end(w.b, "u7", 0))
	stored := w.producedBatches(w.b, "u7", 0, end)
	require.Len(w.t, stored, 1)
	require.Equal(w.t, producedBatch{base: end, pid: pid, records: 1, leaderEpoch: stored[0].leaderEpoch}, stored[0], "the producer of A again, from sequence 0")
	require.Greater(w.t, stored[0].leaderEpoch, mirrored[0].leaderEpoch)
	require.Equal(w.t, []placed{{end, "b-0"}}, w.reads(j, "reader", end))
}

// killedWhileProducing: the same program goes on writing, while the node is killed
// and restarted three times. Everything is there once and in order.
func (w *world) killedWhileProducing() {
	w.t.Helper()
	const count = 6000
	at, from := w.node.Bootstrap(), w.end(w.b, "u7", 0)
	j := w.java(
		kafka.JavaJob{Kind: kafka.JavaProduce, Name: "again", Bootstrap: at, Topic: "u7", Settings: settings("from=1", fmt.Sprintf("count=%d", count), "prefix=b", "rate=2000")},
		kafka.JavaJob{Kind: kafka.JavaConsume, Name: "reader", Bootstrap: at, Topic: "u7", Settings: settings(fmt.Sprintf("assign=0:%d", from)), Client: settings("auto.offset.reset=none")},
	)
	for _, killAfter := range []int{500, 2000, 3500} {
		w.happens(j, "again", "acked", killAfter)
		require.NoError(w.t, w.node.Kill9())
		require.NoError(w.t, w.node.Start(w.ctx))
	}
	var want []placed
	for i := range count {
		want = append(want, placed{from + int64(i), fmt.Sprintf("b-%d", i+1)})
	}
	acked := w.finished(j, "again")
	require.Len(w.t, acked, count)
	for _, e := range acked {
		i := e.Int(2) - from
		require.True(w.t, i >= 0 && i < count && want[i].value == e.Fields[0], "acknowledged %s at %d", e.Fields[0], e.Int(2))
	}
	w.equalPlaced("the stored log", want, w.values(at, "u7", 0, Ends{Start: from, End: w.end(w.b, "u7", 0)}))
	w.equalPlaced("Java's consumer", want, w.reads(j, "reader", from+count-1))
	w.calm(j, "reader", 1, 0)
}
