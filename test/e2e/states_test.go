package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/test/kafka"
)

// mirrored is a world with a mirror m and one topic in state MIRRORING.
func mirrored(t *testing.T, topic string) *world {
	t.Helper()
	w := newWorld(t, NodeOptions{})
	w.topic(topic, 2, 1)
	w.load(topic, Records{Count: 100})
	w.create("m")
	w.start("m", topic)
	w.equal(topic)
	return w
}

// TestD7D8D9D10PauseResumeStop walks one topic through its states by the tool;
// each refusal has its code and leaves everything as it was.
func TestD7D8D9D10PauseResumeStop(t *testing.T) {
	const topic = "d7"
	w := mirrored(t, topic)
	only := []string{topic}

	// D9: resume of an active topic.
	res, err := w.adm.ResumeMirrorTopics(w.ctx, "m", only)
	require.NoError(t, err)
	require.ErrorIs(t, res.Err(), messages.ErrNotPaused)
	w.fails(topic+": ", "--resume", "--mirror", "m", "--topics", topic)

	// D7: pause, and again.
	require.Equal(t, "Paused mirroring for 1 topic(s) in mirror m: [d7]", w.run("--pause", "--mirror", "m", "--topics", topic))
	w.await("m", "PAUSED", topic)
	res, err = w.adm.PauseMirrorTopics(w.ctx, "m", only)
	require.NoError(t, err)
	require.ErrorIs(t, res.Err(), messages.ErrAlreadyPaused)
	w.fails(topic+": ", "--pause", "--mirror", "m", "--topics", topic)
	w.await("m", "PAUSED", topic)
	require.Error(t, Produce(w.ctx, w.node.Bootstrap(), topic, Records{Count: 1}), "a paused topic is read-only")

	// D8: resume goes on from the log end: nothing is cut, nothing is missing.
	before := w.end(w.b, topic, 0)
	w.load(topic, Records{Count: 100})
	require.Equal(t, before, w.end(w.b, topic, 0))
	require.Equal(t, "Resumed mirroring for 1 topic(s) in mirror m: [d7]", w.run("--resume", "--mirror", "m", "--topics", topic))
	w.await("m", "MIRRORING", topic)
	w.equal(topic)
	ps, err := Partitions(w.ctx, w.adm, "m")
	require.NoError(t, err)
	for _, p := range ps {
		require.Zero(t, p.CutRecords)
	}

	// D10: after a stop, pause is refused and stop is a success.
	require.Equal(t, "Stopped mirroring for 1 topic(s) in mirror m: [d7]", w.run("--stop", "--mirror", "m", "--topics", topic))
	w.await("m", "STOPPED", topic)
	res, err = w.adm.PauseMirrorTopics(w.ctx, "m", only)
	require.NoError(t, err)
	require.ErrorIs(t, res.Err(), messages.ErrBeingStopped)
	end := w.end(w.b, topic, 0)
	require.Equal(t, "Stopped mirroring for 1 topic(s) in mirror m: [d7]", w.run("--stop", "--mirror", "m", "--topics", topic))
	require.Equal(t, end, w.end(w.b, topic, 0), "the second stop changes nothing")
	require.NoError(t, Produce(w.ctx, w.node.Bootstrap(), topic, Records{Count: 5}))
	ps, err = Partitions(w.ctx, w.adm, "m")
	require.NoError(t, err)
	for _, p := range ps {
		require.GreaterOrEqual(t, p.LastMirrorEpoch, int32(0), "%s-%d has an LME", p.Topic, p.Partition)
	}
}

func TestD11TopicInTwoMirrors(t *testing.T) {
	w := mirrored(t, "d11")
	w.create("m2")
	w.fails("d11: ", "--start", "--mirror", "m2", "--topics", "d11")
	detail, err := w.a.Topic(w.ctx, "d11")
	require.NoError(t, err)
	require.NotZero(t, detail.ID)
	w.run("--stop", "--mirror", "m", "--topics", "d11")
	w.await("m", "STOPPED", "d11")
	w.start("m2", "d11")
	w.equal("d11")
	name, _ := w.config(w.b, "d11", "mirror.name")
	require.Equal(t, "m2", name)
}

func TestD12D13DeleteMirror(t *testing.T) {
	const topic = "d13"
	w := mirrored(t, topic)
	require.ErrorIs(t, w.adm.DeleteClusterMirror(w.ctx, "m"), messages.ErrMirrorNotEmpty)
	w.fails("", "--delete", "--mirror", "m")
	require.ErrorIs(t, w.adm.DeleteClusterMirror(w.ctx, "none"), messages.ErrUnknownMirror)
	name, _ := w.config(w.b, topic, "mirror.name")
	require.Equal(t, "m", name)

	w.run("--stop", "--mirror", "m", "--topics", topic)
	w.await("m", "STOPPED", topic)
	name, _ = w.config(w.b, topic, "mirror.name")
	require.Equal(t, "m.stopped", name)
	require.Equal(t, "Deleted mirror m", w.run("--delete", "--mirror", "m"))
	require.NoError(t, kafka.Poll(w.ctx, func() error {
		if name, set := w.config(w.b, topic, "mirror.name"); set && name != "" {
			return fmt.Errorf("mirror.name is still %q", name)
		}
		return nil
	}))
	// Tombstones for both record types are the last word in __mirror_state.
	require.NoError(t, kafka.Poll(w.ctx, func() error {
		res, err := w.node.Tool(w.ctx, "kafka-dump-log", "--mirror-state-decoder")
		if err != nil {
			return err
		}
		if res.Code != 0 {
			return fmt.Errorf("kafka-dump-log: %s", res.Stderr)
		}
		if n := strings.Count(strings.ToLower(res.Stdout), "payload: <delete>") + strings.Count(res.Stdout, "payload: null"); n < 2 {
			return fmt.Errorf("%d tombstones:\n%s", n, res.Stdout)
		}
		return nil
	}))
	w.create("m") // the name is free again
	require.NoError(t, Produce(w.ctx, w.node.Bootstrap(), topic, Records{Count: 5}), "an ordinary topic now")
}

func TestD14InvalidNames(t *testing.T) {
	w := newWorld(t, NodeOptions{})
	boot := w.source.Bootstrap()
	file := w.mirrorFile("bootstrap.servers=" + boot)
	for _, row := range []struct{ what, name string }{
		{"stopped", "a.stopped"}, {"paused", "a.paused"}, {"empty", ""}, {"long", strings.Repeat("x", 250)}, {"slash", "a/b"},
	} {
		t.Run(row.what, func(t *testing.T) {
			err := w.adm.CreateClusterMirror(w.ctx, row.name, map[string]*string{"bootstrap.servers": &boot})
			require.ErrorIs(t, err, messages.ErrInvalidMirrorName)
			if row.name != "" {
				sub := *w
				sub.t = t
				sub.fails("", "--create", "--mirror", row.name, "--mirror-config", file)
			}
		})
	}
	require.Equal(t, "No mirrors found", w.run("--list"))
}

func TestD15CreateTwice(t *testing.T) {
	w := newWorld(t, NodeOptions{})
	w.create("m")
	boot := w.source.Bootstrap()
	require.ErrorIs(t, w.adm.CreateClusterMirror(w.ctx, "m", map[string]*string{"bootstrap.servers": &boot}), messages.ErrMirrorExists)
	w.fails("", "--create", "--mirror", "m", "--mirror-config", w.mirrorFile("bootstrap.servers="+boot))
	require.Len(t, strings.Split(w.run("--list"), "\n"), 2)
}
