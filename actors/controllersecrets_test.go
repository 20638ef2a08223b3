package actors

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/secrets"
	"kagami/messages/secrets/secretstest"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// sealedWorld has a mirror whose secret is sealed by a ring.
func sealedWorld(t *testing.T, ring *secrets.Ring) *world {
	t.Helper()
	w := newWorld(t, 1)
	w.ok(messages.CreateMirror{Name: "m", Configs: set(configs.BootstrapServers, "h:1", "security.protocol", "SSL", "ssl.truststore.location", "/f", "ssl.truststore.password", "hunter-two")})
	records, err := metadata.Seal(ring, w.img.Reseal(ring))
	require.NoError(t, err)
	require.Len(t, records, 1)
	d, err := w.img.Apply(w.img.Offset()+1, records)
	require.NoError(t, err)
	w.img, w.env.secrets = d.New, ring
	return w
}

// TestAlterSealed: what is sealed is compared and checked in clear; the same value again
// changes nothing, and what else changes leaves it as it is.
func TestAlterSealed(t *testing.T) {
	w := sealedWorld(t, secretstest.Ring(t, 1))
	sealed := w.img.Mirror("m").Configs["ssl.truststore.password"]
	alter := func(c ...messages.ConfigChange) decision {
		return decide(w.img, messages.AlterConfigs{Resources: []messages.ResourceChange{{Type: messages.ResourceClusterMirror, Name: "m", Changes: c}}}, w.env)
	}
	require.Empty(t, alter(set("ssl.truststore.password", "hunter-two")...).records)
	require.Len(t, alter(set("ssl.truststore.password", "another")...).records, 1)
	require.Len(t, alter(set("mirror.topics.include", "a")...).records, 1)
	require.Equal(t, sealed, w.img.Mirror("m").Configs["ssl.truststore.password"])
	require.ErrorIs(t, alter(set("ssl.truststore.password", sealed)...).outcome.Items[0].Err, messages.ErrInvalidConfig, "no client writes what is sealed")
	require.Empty(t, decide(w.img, messages.ResealSecrets{}, w.env).records)
	w.env.secrets = secretstest.Ring(t, 2, 1)
	require.Len(t, decide(w.img, messages.ResealSecrets{}, w.env).records, 1)
}

// TestAlterShut: a controller without the key changes what the cluster itself sets, removes
// and replaces secrets, and refuses what would have to know them. It loses none.
func TestAlterShut(t *testing.T) {
	for name, ring := range map[string]*secrets.Ring{"no key": nil, "another key": secretstest.Ring(t, 9)} {
		t.Run(name, func(t *testing.T) {
			w := sealedWorld(t, secretstest.Ring(t, 1))
			w.env.secrets = ring
			sealed := w.img.Mirror("m").Configs["ssl.truststore.password"]
			alter := func(internal, replace bool, c ...messages.ConfigChange) messages.Outcome {
				return w.do(messages.AlterConfigs{Internal: internal, Replace: replace, Resources: []messages.ResourceChange{{Type: messages.ResourceClusterMirror, Name: "m", Changes: c}}})
			}
			wantItems(t, alter(true, false, set(configs.MirrorSourceClusterID, "src")...), nil)
			require.Equal(t, "src", w.img.Mirror("m").Configs[configs.MirrorSourceClusterID])
			require.Equal(t, sealed, w.img.Mirror("m").Configs["ssl.truststore.password"])
			wantItems(t, alter(false, false, set("mirror.topics.include", "a")...), messages.ErrPolicyViolation)
			w.ok(messages.StartMirrorTopics{Mirror: "m", Include: []string{"z"}})
			require.Equal(t, sealed, w.img.Mirror("m").Configs["ssl.truststore.password"])
			require.Empty(t, decide(w.img, messages.ResealSecrets{}, w.env).records)

			wantItems(t, alter(false, false, messages.ConfigChange{Name: "ssl.truststore.password", Op: messages.ConfigDelete}), nil)
			require.NotContains(t, w.img.Mirror("m").Configs, "ssl.truststore.password")

			w = sealedWorld(t, secretstest.Ring(t, 1))
			w.env.secrets = ring
			wantItems(t, alter(false, true, set(configs.BootstrapServers, "h:1")...), nil)
			require.NotContains(t, w.img.Mirror("m").Configs, "ssl.truststore.password")
		})
	}
}

// TestManySecrets: more secrets than one change of the journal may have (here less than the
// nodes') come under a key, in pieces, and what waits beside them is done.
func TestManySecrets(t *testing.T) {
	const most, users = 8 << 20, 20_000
	img := metadata.EmptyImage()
	key := make([]byte, messages.ScramSHA512.KeySize())
	var records []metadata.Record
	for i := range users {
		records = append(records, metadata.ScramRecord(metadata.ScramUser{Name: fmt.Sprint("u", i), Mechanism: messages.ScramSHA512},
			messages.ScramCredential{Salt: key[:32], StoredKey: key, ServerKey: key, Iterations: 4096}))
	}
	d, err := img.Apply(0, records)
	require.NoError(t, err)
	s := &memoryStore{img: d.New}
	s.fail = func(changes []metadata.Change) (bool, error) {
		size := 0
		for _, c := range changes {
			for _, r := range c.Records {
				size += len(wire.AppendMetadataRecord(nil, r))
			}
		}
		if size > most {
			return false, fmt.Errorf("%d bytes: %w", size, messages.ErrInvalidRequest)
		}
		return true, nil
	}
	ring := secretstest.Ring(t, 1)
	c := startController(t, s, func(o *ControllerOptions) { o.Secrets = ring })
	require.NoError(t, c.Submit(t.Context(), alice, newTopic("t")).Err)
	require.Eventually(t, func() bool { return maps.Equal(s.Image().SecretCounts(), map[string]int{ring.Primary(): 2 * users}) }, time.Minute, 10*time.Millisecond)
	require.NotNil(t, s.Image().Topic("t"))
}
