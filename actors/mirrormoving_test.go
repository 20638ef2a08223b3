package actors

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/wire"
	"kagami/test/kafka/stub"
)

// While a source of several nodes moves the leader of a partition that it mirrors
// itself, none of them lists it. A start that took this for "never mirrored there"
// would cut the log to nothing.
func TestFailbackWhileTheSourceMovesALeader(t *testing.T) {
	src := stubSource(t, 1, 1)
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t")
	n.halt("t")
	n.awaitIn(messages.StateStopped, tpOf("t", 0))
	r, err := n.config.Replicas.Get(tpOf("t", 0))
	require.NoError(t, err)
	end := r.Log().End()
	listing := func(lmes map[messages.TopicPartition]int32) func(*stub.State) {
		return func(s *stub.State) {
			s.Versions = stub.VersionsWithMirrors()
			s.Topics["t"].Configs[messages.MirrorNameConfig] = "m.stopped"
			s.Mirrors[0] = []wire.DescribeClusterMirrorsResponseDescribedMirror{stub.Mirror("m", messages.StateStopped, lmes)}
		}
	}
	src.Update(listing(nil))
	n.submit(messages.StartMirrorTopics{Mirror: "m", Topics: []messages.MirrorTopic{{Name: "t", NumPartitions: 1}}})
	n.await("failed once, to be tried again", func() error {
		if h := n.Partitions.Get(tpOf("t", 0)); h == nil || h.Status().RetryAttempt == 0 || h.Status().Permanent {
			return errors.New("not yet")
		}
		return nil
	})
	require.Equal(t, end, r.Log().End())
	lme := int32(0)
	src.Read(func(s *stub.State) { lme = s.Topics["t"].Partitions[0].Epoch })
	src.Update(listing(map[messages.TopicPartition]int32{tpOf("t", 0): lme}))
	n.await("goes on", func() error { return n.equal(src, "t") })
	cut := n.Partitions.Get(tpOf("t", 0)).Status().CutRecords
	require.LessOrEqual(t, cut, int64(1), fmt.Sprint("only the MIRROR_PID_RESET of the stop goes, not ", cut, " records"))
}
