package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/test/kafka"
)

// kills is how often the node is killed: 5 times, or as KAGAMI_KILLS says.
func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("KAGAMI_KILLS")
	if text == "" {
		return 5
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, "KAGAMI_KILLS")
	return n
}

// killSeed makes the moments of the kills; KAGAMI_KILL_SEED repeats a run's, as
// far as moments of a real machine can be repeated.
func killSeed(t *testing.T) uint64 {
	t.Helper()
	if text := os.Getenv("KAGAMI_KILL_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "KAGAMI_KILL_SEED")
		return n
	}
	return uint64(time.Now().UnixNano())
}

// TestKill9 kills the node at random moments while it mirrors loaded topics. After
// it all: equal bytes, nothing that a reader could see is gone, and every
// partition is in the state it was in.
func TestKill9(t *testing.T) {
	n, seed := kills(t), killSeed(t)
	t.Logf("repeat with KAGAMI_KILLS=%d KAGAMI_KILL_SEED=%d go test -run TestKill9 ./test/e2e", n, seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t, NodeOptions{})
	topics := []string{"kill-a", "kill-b"}
	for _, topic := range topics {
		w.topic(topic, 3, 1, "segment.bytes=1048576")
	}
	w.topic("kill-paused", 1, 1)
	w.load("kill-paused", Records{Count: 20})
	w.create("m")
	w.start("m", append(topics, "kill-paused")...)
	w.equal("kill-paused")
	w.run("--pause", "--mirror", "m", "--topics", "kill-paused")
	w.await("m", "PAUSED", "kill-paused")

	load, err := StartLoad(w.source.Bootstrap(), LoadOptions{Topics: topics, Size: 500, Pause: 6 * time.Millisecond})
	require.NoError(t, err)
	for kill := range n {
		w.runFor(time.Duration(200+rng.IntN(1300)) * time.Millisecond)
		seen := w.allEnds(topics)
		require.NoError(t, w.node.Kill9())
		require.NoError(t, w.node.Start(w.ctx), "after kill %d", kill+1)
		for topic, ends := range w.allEnds(topics) {
			for p, e := range ends {
				require.GreaterOrEqual(t, e.End, seen[topic][p].End, "kill %d: %s-%d lost what a reader had seen", kill+1, topic, p)
			}
		}
	}
	require.NoError(t, load.Stop())
	w.await("m", "MIRRORING", topics...)
	w.equal(topics...)
	w.await("m", "PAUSED", "kill-paused")
	w.load("kill-paused", Records{Count: 20, Seed: 1})
	require.Equal(t, int64(20), w.end(w.b, "kill-paused", 0), "still paused")
	w.run("--resume", "--mirror", "m", "--topics", "kill-paused")
	w.equal("kill-paused")
	require.NoError(t, w.node.Stop())
	for _, topic := range topics {
		w.dumpAgrees(topic, 0)
	}
}

// TestKill9AcknowledgedWrites kills the node at random moments while an idempotent
// producer writes to a topic of its own. No acknowledged record is missing,
// elsewhere, or there twice.
func TestKill9AcknowledgedWrites(t *testing.T) {
	n, seed := kills(t), killSeed(t)
	t.Logf("repeat with KAGAMI_KILLS=%d KAGAMI_KILL_SEED=%d go test -run TestKill9AcknowledgedWrites ./test/e2e", n, seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t, NodeOptions{})
	_, err := w.b.Admin.CreateTopic(w.ctx, 3, 1, nil, "own")
	require.NoError(t, err)
	load, err := StartLoad(w.node.Bootstrap(), LoadOptions{Topics: []string{"own"}, KeepOffsets: true})
	require.NoError(t, err)
	for kill := range n {
		w.runFor(time.Duration(200+rng.IntN(800)) * time.Millisecond)
		require.NoError(t, w.node.Kill9())
		require.NoError(t, w.node.Start(w.ctx), "after kill %d", kill+1)
	}
	require.NoError(t, load.Stop())
	w.storedOnce("own", load)
	require.NoError(t, w.node.Stop())
	for p := range 3 {
		folder := fmt.Sprintf("own-%d", p)
		w.dumpBatches(partitionFiles(t, w.node.DataDir(), folder, ".log"))
		w.dumpSideFiles(folder)
	}
}

// runFor lets the processes run for a random time. It is the input of the test,
// not a way to wait for something.
func (w *world) runFor(d time.Duration) {
	w.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
		w.t.Fatal("out of time")
	}
}

func (w *world) allEnds(topics []string) map[string]map[int32]Ends {
	w.t.Helper()
	out := map[string]map[int32]Ends{}
	for _, topic := range topics {
		require.NoError(w.t, kafka.Poll(w.ctx, func() (err error) {
			out[topic], err = w.b.TopicEnds(w.ctx, topic)
			return err
		}))
	}
	return out
}

// storedOnce: every acknowledged record of the load is in the topic once, at the
// offset that was acknowledged.
func (w *world) storedOnce(topic string, load *Load) {
	w.t.Helper()
	places := map[string][]string{}
	ends, err := w.b.TopicEnds(w.ctx, topic)
	require.NoError(w.t, err)
	for p := range ends {
		for _, r := range w.values(w.node.Bootstrap(), topic, p, ends[p]) {
			places[r.value] = append(places[r.value], fmt.Sprintf("%d:%d", p, r.offset))
		}
	}
	require.NotEmpty(w.t, load.Stored())
	for value, acked := range load.Stored() {
		require.Len(w.t, acked, 1)
		require.Equal(w.t, acked, places[value], "record %.40q: acknowledged at, stored at", value)
	}
}
