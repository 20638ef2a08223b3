package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/test/kafka/stub"
)

// TestClusterNamespaces: TestClusterFaults' cuts with a network that loses packets, to
// clients as well, in every role in turn. KAGAMI_CLUSTER_NAMESPACES=1 runs it, as root.
func TestClusterNamespaces(t *testing.T) {
	if os.Getenv("KAGAMI_CLUSTER_NAMESPACES") == "" {
		t.Skip("set KAGAMI_CLUSTER_NAMESPACES=1 to cut the network of three namespaces; it needs root and ip(8)")
	}
	network, err := NewNamespaces(t.TempDir(), 1, 2, 3)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, network.Close()) })
	nodes := StartCluster(t, ClusterOptions{Net: network})
	s := &scripted{world: clusterWorldOf(t, nil, nodes)}
	s.script, err = stub.Start(stub.Options{ClusterID: "the-source", Host: network.Host()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.script.Close()) })

	mirrored, written := []string{"ns-a", "ns-b"}, []string{"ns-stopped"}
	s.topics(5, map[string]int{"ns-a": 3, "ns-b": 3})
	s.topics(0, map[string]int{"ns-stopped": 3}) // what is there is the history's alone
	s.createScripted(scriptMirror)
	s.start(scriptMirror, "ns-a", "ns-b", "ns-stopped")
	s.run("--stop", "--mirror", scriptMirror, "--topics", written[0])
	s.await(scriptMirror, "STOPPED", written...)
	load := s.fill(mirrored...)
	detail, err := s.b.Topic(s.ctx, written[0])
	require.NoError(t, err)
	history, err := StartHistory(nodes, detail)
	require.NoError(t, err)
	defer history.Stop()
	for i, role := range clusterRoles {
		id := s.holder(role, scriptMirror, mirrored[0])
		t.Logf("round %d: cut of the %s, node %d", i+1, role, id)
		history.Gap()
		t.Logf("round %d: %v, a producer waited for %v; %s", i+1, s.hit("cut", id, scriptMirror, mirrored, written), history.Gap(), history.Counts())
		s.owners()
		healing := time.Now()
		s.journalWhole()
		t.Logf("round %d: every copy of the journal is whole %v later", i+1, time.Since(healing).Round(time.Millisecond))
	}
	load()
	s.describes(scriptMirror, "MIRRORING", 0, mirrored...)
	s.asSource(mirrored...)
	require.NoError(t, history.Check(s.ctx, s.b))
	s.replicas(3, messages.MirrorStateTopic, written[0])
	s.owners()
}

// fill adds records to topics of the source until it is stopped.
func (s *scripted) fill(topics ...string) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			s.script.Update(func(st *stub.State) {
				for _, topic := range topics {
					for _, p := range st.Topics[topic].Partitions {
						p.Fill(1)
					}
				}
			})
		}
	}()
	return func() { close(end); <-ended }
}

// journalWhole waits until every copy of every journal stream has all of it: until then
// the loss of another node leaves no quorum.
func (w *world) journalWhole() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, healTimeout)
	defer cancel()
	require.NoError(w.t, w.poll(ctx, func() error {
		rows, err := w.nodes.Node(w.nodes.Running()[0]).Query(ctx, "journal")
		if err != nil {
			return err
		}
		for _, row := range rows {
			if whole, _ := row["current"].([]any); len(whole) != len(w.nodes.IDs()) {
				return fmt.Errorf("journal %v is whole on nodes %v: %v", row["shard"], whole, row["error"])
			}
		}
		return nil
	}))
}
