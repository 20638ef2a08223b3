package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/test/kafka"
)

// TestC04U6JavaTransactions: a Java producer has a transaction open on A when the
// mirror is stopped, after it had committed one and aborted one. A Java consumer of
// committed records stands at the open one, goes on by the stop, also after a
// kill -9, and never sees what was aborted. Then Kafka's own tools write, read and
// dump the stopped topic.
func TestC04U6JavaTransactions(t *testing.T) {
	kafka.RequireJava(t)
	w := newWorld(t, NodeOptions{})
	const topic = "u6j"
	w.topic(topic, 1, 1)
	w.create("m")
	w.start("m", topic)
	at := w.node.Bootstrap()
	reader := func(name, protocol, isolation string) kafka.JavaJob {
		return kafka.JavaJob{
			Kind: kafka.JavaConsume, Name: name, Bootstrap: at, Topic: topic,
			Client: settings("isolation.level="+isolation, "auto.offset.reset=none", "group.protocol="+protocol),
		}
	}
	source := w.java(kafka.JavaJob{
		Kind: kafka.JavaTransact, Name: "tx", Bootstrap: w.source.Bootstrap(), Topic: topic,
		Settings: settings("steps=commit:5,abort:5,open:5"), Client: settings("transactional.id="+topic, "transaction.timeout.ms=600000"),
	})
	readers := w.java(reader("classic", "classic", committed), reader("async", "consumer", committed), reader("all", "classic", uncommitted))
	stable := []string{"classic", "async"} // the readers of committed records
	w.happens(source, "tx", "open", 1)
	w.equal(topic)
	const mirrored = 17 // 5 and COMMIT, 5 and ABORT, 5
	require.Equal(t, int64(mirrored), w.end(w.b, topic, 0))
	var want []placed
	for i := range 5 {
		want = append(want, placed{int64(i), fmt.Sprintf("commit-0-%d", i)})
	}
	w.reads(readers, "all", mirrored-1)
	for _, name := range stable {
		w.equalPlaced(name, want, w.reads(readers, name, 4))
		w.position(readers, name, 12) // the first record of the open transaction
		w.equalPlaced(name, want, w.reads(readers, name, 4))
	}

	w.run("--stop", "--mirror", "m", "--topics", topic)
	w.await("m", "STOPPED", topic)
	require.Equal(t, int64(mirrored+2), w.end(w.b, topic, 0), "one ABORT marker, one reset")
	require.NoError(t, w.b.lsoAtEnd(w.ctx, topic))
	stopBatches := w.producedBatches(w.b, topic, 0, mirrored)
	open := w.producedBatches(w.b, topic, 0, 12)[0]
	require.Equal(t, []bool{true, true}, []bool{stopBatches[0].control, stopBatches[0].transactional})
	require.Equal(t, []int64{open.pid, int64(open.pidEpoch)}, []int64{stopBatches[0].pid, int64(stopBatches[0].pidEpoch)}, "of the open transaction")
	require.Greater(t, stopBatches[0].leaderEpoch, open.leaderEpoch)
	for _, name := range stable {
		w.position(readers, name, mirrored+2)
	}
	own := func(job string, count int, more ...kafka.JavaJob) *kafka.Java {
		t.Helper()
		j := w.java(append(more, kafka.JavaJob{Kind: kafka.JavaProduce, Name: job, Bootstrap: at, Topic: topic, Settings: settings(fmt.Sprintf("count=%d", count))})...)
		for _, e := range w.finished(j, job) {
			want = append(want, placed{e.Int(2), e.Fields[0]})
		}
		for _, name := range stable {
			w.equalPlaced(name, want, w.reads(readers, name, want[len(want)-1].offset))
		}
		return j
	}
	own("after", 20)
	require.NoError(t, w.node.Kill9())
	require.NoError(t, w.node.Start(w.ctx))
	fresh := own("restarted", 20, reader("fresh", "classic", committed))
	w.equalPlaced("a consumer that starts now", want, w.reads(fresh, "fresh", want[len(want)-1].offset))
	for _, name := range append(stable, "all") {
		w.calm(readers, name, 1, 0)
	}
	w.toolsOnStopped(topic, len(want))
}

// position waits until a consuming job stands at an offset.
func (w *world) position(j *kafka.Java, job string, offset int64) {
	w.t.Helper()
	require.NoError(w.t, kafka.Poll(w.ctx, func() error {
		events := j.Events(job, "position")
		if len(events) == 0 || events[len(events)-1].Int(1) != offset {
			return fmt.Errorf("job %s doesn't stand at %d: %v", job, offset, events)
		}
		return nil
	}))
}

// toolsOnStopped: Kafka's own tools, with the settings that users give them, on a
// topic whose log has an ABORT marker and a reset record of the stop. count records
// are committed. The node is down at the end.
func (w *world) toolsOnStopped(topic string, count int) {
	w.t.Helper()
	at := w.node.Bootstrap()
	_, err := kafka.ToolInput(w.ctx, strings.NewReader("key-a:console-1\nkey-b:console-2\n"), kafka.ConsoleProducer,
		"--bootstrap-server", at, "--topic", topic, "--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
	require.NoError(w.t, err)
	res, err := w.node.JavaTool(w.ctx, kafka.VerifiableProducer, "--topic", topic, "--max-messages", "500", "--acks", "-1")
	require.NoError(w.t, err)
	require.Equal(w.t, 500, strings.Count(res.Stdout, `"name":"producer_send_success"`), "%.2000s", res.Stdout)
	lines := w.console(at, topic, 0, committed, count+2+500)
	for _, line := range lines {
		require.NotContains(w.t, line, "abort-")
		require.NotContains(w.t, line, "open-")
	}
	require.Contains(w.t, lines[count], "console-1")

	require.NoError(w.t, w.node.Stop())
	files := partitionFiles(w.t, w.node.DataDir(), topic+"-0", ".log")
	dump := w.dumpBatches(files)
	markers := slices.DeleteFunc(slices.Clone(dump), func(line string) bool {
		return !strings.Contains(line, "endTxnMarker:") && !strings.Contains(line, "controlType:")
	})
	w.t.Logf("control records as kafka-dump-log shows them: %s", strings.Join(markers, " ; "))
	require.Len(w.t, markers, 4, "COMMIT, ABORT, the ABORT of the stop, the reset")
	require.Contains(w.t, markers[0], "endTxnMarker: COMMIT")
	require.Contains(w.t, markers[1], "endTxnMarker: ABORT")
	require.Contains(w.t, markers[2], "offset: 17 ")
	require.Contains(w.t, markers[2], "endTxnMarker: ABORT")
	require.Contains(w.t, markers[3], "offset: 18 ")
	w.dumpSideFiles(topic + "-0")
}
