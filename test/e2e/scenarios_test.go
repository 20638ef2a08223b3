package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/client"
	"kagami/test/kafka"
)

// startByAPI starts a topic by the admin API, with what the source knows of it.
func startByAPI(w *world, mirror, topic string) {
	w.t.Helper()
	detail, err := w.a.Topic(w.ctx, topic)
	require.NoError(w.t, err)
	meta := client.TopicMetadata{Partitions: int32(len(detail.Partitions))}
	copy(meta.ID[:], detail.ID[:])
	res, err := w.adm.StartMirrorTopics(w.ctx, mirror, []string{topic}, client.StartOptions{TopicMetadata: map[string]client.TopicMetadata{topic: meta}})
	require.NoError(w.t, err)
	require.NoError(w.t, res.Err())
}

// TestK1CLIWorkflow: create, start, list, describe, stop, delete by the tool.
func TestK1CLIWorkflow(t *testing.T) {
	w := newWorld(t, NodeOptions{})
	w.topic("k1-orders", 3, 1)
	w.topic("k1-payments", 1, 1)
	w.load("k1-orders", Records{Count: 300})
	w.load("k1-payments", Records{Count: 50})

	require.Equal(t, "No mirrors found", w.run("--list"))
	require.Equal(t, "No mirror partitions found", w.run("--describe"))
	w.create("m")
	require.Equal(t, "Started 2 mirror topic(s) in mirror m: [k1-orders, k1-payments]",
		w.run("--start", "--mirror", "m", "--topics", "k1-orders,k1-payments"))
	w.await("m", "MIRRORING", "k1-orders", "k1-payments")
	w.equal("k1-orders", "k1-payments")

	list := strings.Split(w.run("--list"), "\n")
	require.Len(t, list, 2)
	require.Equal(t, []string{"MIRROR", "TOPICS", "CLUSTER-ID", "BOOTSTRAP-SERVER"}, strings.Fields(list[0]))
	row := strings.Fields(list[1])
	require.Len(t, row, 4)
	meta, err := w.a.Admin.BrokerMetadata(w.ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"m", "2", meta.Cluster, w.source.Bootstrap()}, row)

	require.NoError(t, kafka.Poll(w.ctx, func() error {
		describe := strings.Split(w.run("--describe", "--mirror", "m"), "\n")
		want := fmt.Sprintf("m k1-payments 0 %d %d 0 MIRRORING", 50, 50)
		if got := strings.Join(strings.Fields(describe[len(describe)-1]), " "); len(describe) != 5 || got != want {
			return fmt.Errorf("describe: %s", strings.Join(describe, "\n"))
		}
		return nil
	}))
	require.Contains(t, w.run("--describe", "--json"), `"state":"MIRRORING"`)

	require.Equal(t, "Stopped mirroring for 2 topic(s) in mirror m: [k1-orders, k1-payments]", w.run("--stop", "--mirror", "m", "--topics", "k1-.*"))
	w.await("m", "STOPPED", "k1-orders", "k1-payments")
	require.NoError(t, Produce(w.ctx, w.node.Bootstrap(), "k1-orders", Records{Count: 10}), "writable after the stop")
	require.Equal(t, "Deleted mirror m", w.run("--delete", "--mirror", "m"))
	require.Equal(t, "No mirrors found", w.run("--list"))
}

func TestK4PartitionsGrow(t *testing.T) {
	w := newWorld(t, NodeOptions{})
	w.topic("k4", 2, 1)
	w.load("k4", Records{Count: 100})
	w.create("m")
	w.start("m", "k4")
	w.equal("k4")
	res, err := w.a.Admin.CreatePartitions(w.ctx, 3, "k4")
	require.NoError(t, err)
	require.NoError(t, res.Error())
	require.NoError(t, AwaitStates(w.ctx, w.adm, "m", []string{"k4"}, 5, "MIRRORING"))
	w.load("k4", Records{Count: 500})
	w.equal("k4")
}

func TestK7SourceLeaderMoves(t *testing.T) {
	w := newWorld(t, NodeOptions{})
	w.topic("k7", 2, 2)
	w.create("m")
	w.start("m", "k7")
	load, err := StartLoad(w.source.Bootstrap(), LoadOptions{Topics: []string{"k7"}})
	require.NoError(t, err)
	for round := range 4 {
		before := load.Acked()
		require.NoError(t, w.source.ElectLeader(w.ctx, "k7", int32(round%2), 1+(round/2+round)%2))
		require.NoError(t, kafka.Poll(w.ctx, func() error {
			if load.Acked() < before+200 {
				return fmt.Errorf("the load stands still after election %d", round)
			}
			return nil
		}))
	}
	require.NoError(t, load.Stop())
	w.equal("k7")
	w.await("m", "MIRRORING", "k7")
	// DLE >= SLE always: the destination never shows a lower epoch than its data has.
	detail, err := w.b.Topic(w.ctx, "k7")
	require.NoError(t, err)
	for p, e := range map[int32]int32{0: 0, 1: 0} {
		_, e, err = w.source.Leader(w.ctx, "k7", p)
		require.NoError(t, err)
		require.GreaterOrEqual(t, detail.Partitions[p].LeaderEpoch, e)
	}
}

func TestU10NewTopicByPattern(t *testing.T) {
	w := newWorld(t, NodeOptions{})
	w.create("m")
	require.Equal(t, "No matching topics found yet. Patterns saved to mirror m for auto-discovery.",
		w.run("--start", "--mirror", "m", "--topics", "u10-.*", "--exclude", "u10-internal"))
	w.topic("u10-internal", 1, 1)
	w.topic("u10-orders", 2, 1, "retention.ms=3600000000")
	w.load("u10-orders", Records{Count: 100})
	require.NoError(t, AwaitStates(w.ctx, w.adm, "m", []string{"u10-orders"}, 2, "MIRRORING"))
	w.equal("u10-orders")
	_, err := w.b.Topic(w.ctx, "u10-internal")
	require.Error(t, err, "excluded")
}

func TestU11SourceTopicDeleted(t *testing.T) {
	w := newWorld(t, NodeOptions{})
	w.topic("u11", 2, 1)
	w.topic("u11-stays", 1, 1)
	w.load("u11", Records{Count: 100})
	w.create("m")
	w.start("m", "u11", "u11-stays")
	w.equal("u11")
	before, err := w.b.TopicEnds(w.ctx, "u11")
	require.NoError(t, err)
	detail, err := w.b.Topic(w.ctx, "u11")
	require.NoError(t, err)

	_, err = w.a.Admin.DeleteTopic(w.ctx, "u11")
	require.NoError(t, err)
	w.await("m", "STOPPED", "u11")
	w.load("u11-stays", Records{Count: 20})
	w.equal("u11-stays")
	after, err := w.b.TopicEnds(w.ctx, "u11")
	require.NoError(t, err)
	for p, e := range before {
		require.Equal(t, e.Start, after[p].Start)
		require.Greater(t, after[p].End, e.End, "the reset record follows the data")
		_, err := w.b.Batches(w.ctx, detail, p, e.Start, e.End)
		require.NoError(t, err)
	}
}

func TestU13RetentionOvertakesPause(t *testing.T) {
	w := newWorld(t, NodeOptions{})
	w.topic("u13", 1, 1)
	w.load("u13", Records{Count: 50})
	w.create("m")
	w.start("m", "u13")
	w.equal("u13")
	w.run("--pause", "--mirror", "m", "--topics", "u13")
	w.await("m", "PAUSED", "u13")
	w.load("u13", Records{Count: 100})
	w.deleteRecords("u13", 0, 100)
	require.Equal(t, int64(50), w.end(w.b, "u13", 0), "paused")
	w.run("--resume", "--mirror", "m", "--topics", "u13")
	w.await("m", "MIRRORING", "u13")
	w.equal("u13")
	ends, err := w.b.TopicEnds(w.ctx, "u13")
	require.NoError(t, err)
	require.Equal(t, Ends{Start: 100, End: 150}, ends[0])
	require.NoError(t, kafka.Poll(w.ctx, func() error {
		ps, err := Partitions(w.ctx, w.adm, "m")
		if err == nil && (len(ps) != 1 || ps[0].GapAt.IsZero()) {
			err = fmt.Errorf("no gap shown: %+v", ps)
		}
		return err
	}))
}

func TestU14MirrorAltered(t *testing.T) {
	w := newWorld(t, NodeOptions{})
	w.topic("u14", 2, 1)
	w.load("u14", Records{Count: 50})
	file := w.mirrorFile("bootstrap.servers=" + w.source.Addr(1))
	w.run("--create", "--mirror", "m", "--mirror-config", file)
	w.start("m", "u14")
	w.equal("u14")
	load, err := StartLoad(w.source.Bootstrap(), LoadOptions{Topics: []string{"u14"}})
	require.NoError(t, err)
	res, err := w.node.Tool(w.ctx, "kafka-configs", "--entity-type", "cluster-mirrors", "--entity-name", "m", "--alter", "--add-config", "bootstrap.servers="+w.source.Addr(2))
	require.NoError(t, err)
	require.Zero(t, res.Code, res.Stderr)
	require.Equal(t, "Completed updating config for mirror m.", strings.TrimSpace(res.Stdout))
	at := load.Acked()
	require.NoError(t, kafka.Poll(w.ctx, func() error {
		if load.Acked() < at+500 {
			return fmt.Errorf("%d records written", load.Acked())
		}
		return nil
	}))
	require.NoError(t, load.Stop())
	w.await("m", "MIRRORING", "u14")
	w.equal("u14")
	res, err = w.node.Tool(w.ctx, "kafka-configs", "--entity-type", "cluster-mirrors", "--entity-name", "m", "--describe")
	require.NoError(t, err)
	require.Contains(t, res.Stdout, "bootstrap.servers="+w.source.Addr(2))
}
