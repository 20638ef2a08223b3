package actors

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/test/kafka/stub"
)

// A source that never answers about configs keeps neither refreshes of its own mirror
// nor the syncs of another one waiting, and its own later tasks only for so long.
func TestSyncOfAHangingSource(t *testing.T) {
	src := stubSource(t, 1, 1)
	other := anotherSource(t, stub.Options{Brokers: 1, ClusterID: "other"}, 1)
	other.Update(func(s *stub.State) {
		s.Topics["u"] = s.Topics["t"]
		s.Topics["u"].Name, s.Topics["u"].ID = "u", messages.TopicID{8}
		delete(s.Topics, "t")
		s.Topics["u"].Configs = map[string]string{"retention.ms": "5"}
	})
	n := startMirrorNode(t, t.TempDir(), configs.ReplicaSocketTimeout+"=1000")
	src.Intercept(32, func(*stub.Request) stub.Reply { return stub.Reply{Hang: true} })
	commitOnSource(src, "g", tpOf("t", 0), 5)
	n.create(src)
	n.begin(src, "t")
	address := other.Address()
	n.submit(messages.CreateMirror{Name: "m2", Configs: []messages.ConfigChange{{Name: configs.BootstrapServers, Op: messages.ConfigSet, Value: &address}}})
	n.submit(messages.StartMirrorTopics{Mirror: "m2", Topics: []messages.MirrorTopic{{Name: "u", ID: messages.TopicID{8}, NumPartitions: 1}}})
	n.await("u has its configs", func() error {
		if v := n.store.Image().Topic("u").Configs["retention.ms"]; v != "5" {
			return fmt.Errorf("retention.ms is %q", v)
		}
		return nil
	})
	require.NoError(t, n.refresh(), "a refresh doesn't wait for the sync")
	n.awaitPosition("g", tpOf("t", 0), 5)
	require.Positive(t, n.Mirrors.SyncErrors(SyncTopicConfigs))
	require.Zero(t, n.Mirrors.SyncErrors(SyncGroups))
}
