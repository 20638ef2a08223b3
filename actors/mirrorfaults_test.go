package actors

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/wire"
	"kagami/test/kafka/stub"
)

// held is nil when the partition waits for people: FAILED with a reason, without
// a retry.
func (n *mirrorNode) held(tp messages.TopicPartition, reason string) error {
	if err := n.in(messages.StateFailed, tp); err != nil {
		return err
	}
	st := n.Partitions.Get(tp).Status()
	if !st.NextRetry.IsZero() || !st.Cause.Held() || !strings.Contains(st.Error, reason) {
		return fmt.Errorf("%s: cause %s, retry at %v, error %q", tp, st.Cause, st.NextRetry, st.Error)
	}
	return nil
}

func loopOf(state messages.State) func(*stub.State) {
	return func(s *stub.State) {
		s.Versions = stub.VersionsWithMirrors()
		s.Mirrors[0] = []wire.DescribeClusterMirrorsResponseDescribedMirror{
			stub.Mirror("back", state, map[messages.TopicPartition]int32{tpOf("t", 0): messages.NoEpoch}),
		}
	}
}

// A partition that a loop holds goes on by itself when the loop ends, also if the
// node ended and began again meanwhile (OP-35).
func TestOP35LoopEnds(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%t", restart), func(t *testing.T) {
			dir := t.TempDir()
			src := stubSource(t, 1, 1)
			src.Update(loopOf(messages.StateMirroring))
			n := startMirrorNode(t, dir)
			n.create(src)
			n.submit(messages.StartMirrorTopics{Mirror: "m", Topics: []messages.MirrorTopic{{Name: "t", ID: messages.TopicID{1, 2, 3}, NumPartitions: 1}}})
			held := func() error { return n.held(tpOf("t", 0), "mirror back") }
			n.await("held", held)
			if restart {
				require.NoError(t, n.stop())
				n = startMirrorNode(t, dir)
				n.await("held again", held)
			}
			require.NoError(t, n.refresh())
			require.NoError(t, n.refresh())
			n.await("still held", held)
			src.Update(loopOf(messages.StateStopped))
			n.await("goes on", func() error { return n.equal(src, "t") })
			require.Zero(t, n.Partitions.Get(tpOf("t", 0)).Status().RetryAttempt)
		})
	}
}

// While the source doesn't say, the loop isn't taken for ended.
func TestOP35LoopUnknown(t *testing.T) {
	src := stubSource(t, 1, 1)
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t")
	r := refresher{mirror: "m", log: n.config.Log, loops: []string{"t"}}
	config, err := fetch.ParseConfig(map[string]string{configs.BootstrapServers: src.Address()})
	require.NoError(t, err)
	r.source, err = fetch.NewSource(fetch.SourceConfig{Source: config, Mirror: "m", Log: n.config.Log})
	require.NoError(t, err)
	require.NoError(t, r.source.Close())
	result := refreshResult{view: &SourceView{}, healthy: []string{"t", "u"}}
	r.judgeLoops(t.Context(), "dest", &result)
	require.Equal(t, []string{"u"}, result.healthy)
	require.Empty(t, result.faults)
}

// What held a partition is judged again after a restart: a topic that was made
// anew is held at once, whatever the stored counter says, and goes on when the old
// id is back.
func TestC11HeldOverARestart(t *testing.T) {
	dir := t.TempDir()
	src := stubSource(t, 1, 1)
	n := startMirrorNode(t, dir)
	n.create(src)
	n.begin(src, "t")
	old, anew := messages.TopicID{1, 2, 3}, messages.TopicID{9, 9}
	src.Update(func(s *stub.State) { s.Topics["t"].ID = anew })
	held := func() error { return n.held(tpOf("t", 0), anew.String()) }
	n.await("held", held)
	require.NoError(t, n.stop())
	n = startMirrorNode(t, dir, configs.MirrorFailedRetryInitial+"=600000", configs.MirrorFailedRetryMax+"=600000")
	n.await("held again", held)
	src.Update(func(s *stub.State) { s.Topics["t"].ID = old })
	grow(src, 3)
	n.await("well again", func() error { return n.equal(src, "t") })
}

// The answer of the old source doesn't become the id of the new one, even when
// the alter comes between the look at the settings and the write (OP-36).
func TestOP36AlterDuringRefresh(t *testing.T) {
	src := stubSource(t, 1, 1)
	n := startMirrorNode(t, t.TempDir(), configs.MirrorRefreshInterval+"=600000")
	n.create(src)
	n.await("id learned", func() error { return n.remembers("source") })
	mi := n.store.Image().Mirror("m")
	before := connectionConfigs(mi.Configs)
	n.alter(messages.ResourceClusterMirror, "m", configs.BootstrapServers, "127.0.0.1:1")
	require.NoError(t, n.remembers(""))
	r := refresher{mirror: "m", outside: nodeOutside{n.Node}, connection: before, log: n.config.Log}
	_, err := r.checkClusterID(t.Context(), n.store.Image().Mirror("m"), "source", "dest")
	require.ErrorIs(t, err, messages.ErrSettingsChanged)
	require.NoError(t, n.remembers(""))
	r.connection = connectionConfigs(n.store.Image().Mirror("m").Configs)
	_, err = r.checkClusterID(t.Context(), n.store.Image().Mirror("m"), "other", "dest")
	require.NoError(t, err)
	require.NoError(t, n.remembers("other"))
}
