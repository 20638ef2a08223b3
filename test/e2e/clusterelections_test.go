package e2e

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestK8K9ClusterElections: a series of leader elections on A and on B under load. A node
// of B that leads is stopped and started again, and A elects leaders before, meanwhile,
// and after. Fetching goes on through other leaders, the node is in sync again, every
// replica holds what A holds, with A's epochs, and B's leader epochs are never below A's
// and never fall. KAGAMI_CLUSTER_ELECTIONS says how often, default once.
func TestK8K9ClusterElections(t *testing.T) {
	times := 1
	if text := os.Getenv("KAGAMI_CLUSTER_ELECTIONS"); text != "" {
		var err error
		times, err = strconv.Atoi(text)
		require.NoError(t, err, "KAGAMI_CLUSTER_ELECTIONS")
	}
	w := newClusterWorld(t, ClusterOptions{})
	const topic, partitions = "k9", 3
	w.topic(topic, partitions, 2, "segment.bytes=1048576")
	w.create("m")
	w.start("m", topic)
	load, err := StartLoad(w.source.Bootstrap(), LoadOptions{Topics: []string{topic}, Size: 300, Pause: 20 * time.Millisecond, Burst: 6})
	require.NoError(t, err)
	epochs := w.watchClusterEpochs("m", topic)
	defer epochs.stop()
	elect := func() {
		t.Helper()
		for p := range int32(partitions) {
			leader, _, err := w.source.Leader(w.ctx, topic, p)
			require.NoError(t, err)
			require.NoError(t, w.source.ElectLeader(w.ctx, topic, p, 3-leader)) // of brokers 1 and 2
		}
	}
	for range times {
		w.fetching("m", topic)
		elect()
		w.fetching("m", topic)
		id := w.holder("leader", "m", topic)
		require.NoError(t, w.nodes.Node(id).Stop())
		elect()
		alive := w.nodes.Others(id)
		w.ledAt(alive, topic)
		w.growing("m", alive, topic)
		elect()
		require.NoError(t, w.nodes.Start(w.ctx, id))
		w.inSync([]string{topic}, w.nodes.IDs()...)
		elect()
		w.growing("m", w.nodes.IDs(), topic)
	}
	require.NoError(t, load.Stop())
	w.describes("m", "MIRRORING", 0, topic)
	w.equal(topic)
	w.replicas(3, topic)
	epochs.check(t)
	w.owners()
	_, sle, err := w.source.Leader(w.ctx, topic, 0)
	require.NoError(t, err)
	require.GreaterOrEqual(t, int(sle), 4*times, "A has elected so often")
}
