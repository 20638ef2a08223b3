package actors

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/secrets"
	"kagami/persistence/metadata"
)

func secretsRing(t *testing.T, seeds ...byte) *secrets.Ring {
	t.Helper()
	var lines []string
	for _, s := range seeds {
		lines = append(lines, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{s}, secrets.KeyBytes)))
	}
	r, err := secrets.Parse(strings.Join(lines, "\n"))
	require.NoError(t, err)
	return r
}

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
	w := sealedWorld(t, secretsRing(t, 1))
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
	w.env.secrets = secretsRing(t, 2, 1)
	require.Len(t, decide(w.img, messages.ResealSecrets{}, w.env).records, 1)
}

// TestAlterShut: a controller without the key changes what the cluster itself sets, removes
// and replaces secrets, and refuses what would have to know them. It loses none.
func TestAlterShut(t *testing.T) {
	for name, ring := range map[string]*secrets.Ring{"no key": nil, "another key": secretsRing(t, 9)} {
		t.Run(name, func(t *testing.T) {
			w := sealedWorld(t, secretsRing(t, 1))
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

			w = sealedWorld(t, secretsRing(t, 1))
			w.env.secrets = ring
			wantItems(t, alter(false, true, set(configs.BootstrapServers, "h:1")...), nil)
			require.NotContains(t, w.img.Mirror("m").Configs, "ssl.truststore.password")
		})
	}
}
