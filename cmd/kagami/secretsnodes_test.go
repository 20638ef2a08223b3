package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"kagami/messages"
	"kagami/test/kafka/leak"
)

// secretsLong in the environment has the key change, too, and waits until JetStream has given up
// what was purged: its Raft logs take 20 to 190 s for that, however much is written.
const secretsLong = "KAGAMI_SECRETS_LONG"

// TestSecretsOfSeveralNodes: keys come to a running cluster node by node, as the runbook
// has it, and nothing is a secret in any folder then, with secretsLong the journal's
// included; a node without the key stays outside; the key changes in the same way.
func TestSecretsOfSeveralNodes(t *testing.T) {
	c := newTestNodes(t, []messages.NodeID{1, 2, 3}, securedClear()...)
	core, told := observer.New(zapcore.DebugLevel)
	c.log = zap.New(core)
	c.start(1, 2, 3)
	writeSecrets(t, c.nodes[1].kafka(), "m")
	adm, _, _ := connectTo(t, c.nodes[1].kafka())
	require.NoError(t, adm.CreateClusterMirror(t.Context(), "fill", map[string]*string{"bootstrap.servers": new("127.0.0.1:1")}))
	first, second := newSecretsKey(t), newSecretsKey(t)
	hunter := secretsHunter(t, c.nodes[1], map[string]string{"first key": first, "second key": second})
	require.NotEmpty(t, hunter.Folder(t, c.dir), "it looks for nothing")

	roll := func(lines ...string) {
		file := keyFile(t, lines...)
		c.own = func(messages.NodeID) []string { return []string{"kagami.secrets.key.file=" + file} }
		for _, id := range []messages.NodeID{1, 2, 3} {
			c.stop(id)
			c.start(id)
			for other := range c.nodes { // nobody is in the dark at any time
				requireLogin(t, c.nodes[other].at("SCRAM"), true)
			}
		}
	}
	long := os.Getenv(secretsLong) != ""
	lie := func(hunter *leak.Hunter) map[string][]string {
		found := hunter.Folder(t, c.dir)
		if !long {
			maps.DeleteFunc(found, func(path string, _ []string) bool { return strings.Contains(path, "/"+journalFolder+"/") })
		}
		return found
	}
	fills, filling := 0, 0
	if long {
		filling = 8
	}
	clean := func(what string, hunter *leak.Hunter, key string) {
		t.Helper()
		_, cl, _ := connectTo(t, c.nodes[1].kafka())
		awaitFor(t, 4*severalPatience, what, func() error {
			// JetStream gives up the space of what was purged when 2 MiB have been written.
			// The nodes' beats alone come to that, but not soon.
			for range filling {
				fills++
				alter := alterMirror(t, cl, "fill", map[string]*string{"ssl.truststore.location": new(fmt.Sprint("/", strings.Repeat("x", 30<<10), fills))})
				if alter.ErrorCode != 0 { // no controller for a moment
					return fmt.Errorf("alter the mirror: error %d", alter.ErrorCode)
				}
			}
			for id := range c.nodes {
				counts := c.nodes[id].store.Image().SecretCounts()
				if len(counts) != 1 || counts[secretsID(t, key)] == 0 {
					return fmt.Errorf("node %d has secrets under %v", id, counts)
				}
				if found := lie(hunter); len(found) > 0 {
					return errors.New(leak.Describe(found))
				}
			}
			return nil
		})
	}
	roll("clear", first) // all can open it before anybody writes with it
	require.Contains(t, c.nodes[1].store.Image().SecretCounts(), "")
	roll(first)
	clean("clear text to go", hunter, first)
	writeSecrets(t, c.nodes[2].kafka(), "m2")
	require.Empty(t, lie(hunter))

	for _, e := range told.All() { // requests go from node to node with their passwords
		require.Empty(t, hunter.Find(fmt.Append(nil, e.Message, e.ContextMap())))
	}
	require.NotEmpty(t, told.FilterLevelExact(zapcore.DebugLevel).All())
	for id := range c.nodes {
		requirePrivate(t, c.folder(id))
	}
	c.stop(3)
	err := c.try(3, "kagami.secrets.key.file=")
	require.ErrorIs(t, err, errSecretsKey)
	require.ErrorContains(t, err, secretsID(t, first))
	c.start(3)

	if !long {
		return
	}
	roll(first, second)
	roll(second, first)
	clean("the first key to go", hunter, second)
	roll(second)
	for id := range c.nodes {
		values, _ := c.nodes[id].openSecrets(t, "m2")
		require.Equal(t, storePassword, values["ssl.truststore.password"])
	}
}

// awaitFor is await with more patience.
func awaitFor(t *testing.T, patience time.Duration, what string, f func() error) {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("waiting for %s: %v", what, err)
		}
	}
}
