package main

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kagami/messages"
	"kagami/test/kafka/leak"
)

// TestSecretsNodeDown: a node is down while keys come, change and older secrets are forgotten
// by the others. It comes back with the new key, over records that are gone elsewhere: it
// knows what the others know, and its own files forget, too.
func TestSecretsNodeDown(t *testing.T) {
	c := newTestNodes(t, []messages.NodeID{1, 2, 3}, securedClear("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:ANONYMOUS;User:u")...)
	c.start(1, 2, 3)
	writeSecrets(t, c.nodes[1].kafka(), "m")
	_, _, kadmin := c.connect(1)
	c.create(kadmin, "before", 2)
	acl := func(topic string) {
		b := kadm.NewACLs().Topics(topic).Allow("User:a").AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpRead)
		res, err := kadmin.CreateACLs(t.Context(), b)
		require.NoError(t, err)
		for _, r := range res {
			require.NoError(t, r.Err)
		}
	}
	acl("before")
	hunter := secretsHunter(t, c.nodes[1], nil)
	first, second := newSecretsKey(t), newSecretsKey(t)
	await(t, "node 3 to know the ACL", func() error {
		if len(c.nodes[3].store.Image().ACLs()) == 0 {
			return errors.New("none")
		}
		return nil
	})
	c.stop(3)
	for _, lines := range [][]string{{first}, {second, first}} {
		file := keyFile(t, lines...)
		c.own = func(messages.NodeID) []string { return []string{"kagami.secrets.key.file=" + file} }
		c.stop(1)
		c.stop(2)
		c.start(1, 2)
	}
	forgotten := func(id messages.NodeID) {
		t.Helper()
		awaitFor(t, 2*severalPatience, fmt.Sprint("node ", id, " to forget"), func() error {
			img := c.nodes[id].store.Image()
			if counts := img.SecretCounts(); !maps.Equal(counts, map[string]int{secretsID(t, second): 4}) {
				return fmt.Errorf("secrets under %v", counts)
			}
			dir := c.nodes[id].settings.dataDir + "/__cluster_metadata-0"
			if found := hunter.Folder(t, dir); len(found) > 0 {
				return errors.New(leak.Describe(found))
			}
			return nil
		})
	}
	forgotten(1)
	forgotten(2)
	_, _, kadmin = c.connect(1)
	acl("while")
	c.start(3)
	forgotten(3)
	await(t, "the same image", func() error {
		a, b := c.nodes[1].store.Image(), c.nodes[3].store.Image()
		if len(a.ACLs()) != 2 || fmt.Sprint(a.ACLs()) != fmt.Sprint(b.ACLs()) || b.Topic("before") == nil || len(b.Topic("before").Partitions) != 2 {
			return fmt.Errorf("ACLs %v and %v, topic %v", a.ACLs(), b.ACLs(), b.Topic("before"))
		}
		return nil
	})
	values, _ := c.nodes[3].openSecrets(t, "m")
	require.Contains(t, values["sasl.jaas.config"], mirrorPassword)
	requireLogin(t, c.nodes[3].at("SCRAM"), true)
}
