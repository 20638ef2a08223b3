package metadata

import (
	"bytes"
	"io"
	"maps"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/secrets"
	"kagami/messages/secrets/secretstest"
	"kagami/messages/wire"
)

const jaasText = `Login required password="hunter-two-4711";`

func secretRecords() []Record {
	jaas, plain := jaasText, "h:1"
	return []Record{
		ConfigRecord(messages.ResourceClusterMirror, "m", "sasl.jaas.config", &jaas),
		ConfigRecord(messages.ResourceClusterMirror, "m", "bootstrap.servers", &plain),
		ConfigRecord(messages.ResourceClusterMirror, "n", "sasl.jaas.config", nil),
		ScramRecord(ScramUser{"u", messages.ScramSHA256}, messages.ScramCredential{
			Salt: []byte("salt"), StoredKey: bytes.Repeat([]byte("s"), 32), ServerKey: bytes.Repeat([]byte("k"), 32), Iterations: 4096,
		}),
	}
}

func applied(t *testing.T, img *Image, records []Record) Delta {
	t.Helper()
	d, err := img.Apply(img.Offset()+1, records)
	require.NoError(t, err)
	return d
}

// TestSealRecords: secrets of records are sealed, nothing else is; what is given stays.
func TestSealRecords(t *testing.T) {
	ring, given := secretstest.Ring(t, 1, 2), secretRecords()
	sealed, err := Seal(ring, given)
	require.NoError(t, err)
	require.Equal(t, secretRecords(), given)
	require.Equal(t, given[1:3], sealed[1:3])
	img := applied(t, EmptyImage(), sealed).New
	require.Equal(t, map[string]int{ring.Primary(): 3}, img.SecretCounts())
	require.Empty(t, img.Unopened(secretstest.Ring(t, 2, 1)))
	require.Len(t, img.Unopened(nil), 2)

	values, err := OpenConfigs(ring, messages.ResourceClusterMirror, "m", img.Mirror("m").Configs)
	require.NoError(t, err)
	require.Equal(t, jaasText, values["sasl.jaas.config"])
	require.NotContains(t, img.Mirror("m").Configs["sasl.jaas.config"], "hunter", "the image keeps what the log has")
	values, err = OpenConfigs(secretstest.Ring(t, 3), messages.ResourceClusterMirror, "m", img.Mirror("m").Configs)
	require.ErrorIs(t, err, secrets.ErrNoKey)
	require.ErrorContains(t, err, "sasl.jaas.config")
	require.Equal(t, map[string]string{"bootstrap.servers": "h:1"}, values)

	var snapshot bytes.Buffer
	require.NoError(t, encodeSnapshot(&snapshot, img, 1, 1))
	require.NotContains(t, snapshot.String(), "hunter")
	require.NotContains(t, snapshot.String(), strings.Repeat("s", 32))
}

// TestMovedSecrets: what is put at another mirror, setting, user or number of iterations
// doesn't open there.
func TestMovedSecrets(t *testing.T) {
	ring := secretstest.Ring(t, 1)
	sealed, err := Seal(ring, secretRecords())
	require.NoError(t, err)
	config, scram := *sealed[0].(*wire.ConfigRecord), *sealed[3].(*wire.UserScramCredentialRecord)
	for name, move := range map[string]func(c *wire.ConfigRecord, s *wire.UserScramCredentialRecord){
		"mirror":     func(c *wire.ConfigRecord, _ *wire.UserScramCredentialRecord) { c.ResourceName = "other" },
		"setting":    func(c *wire.ConfigRecord, _ *wire.UserScramCredentialRecord) { c.Name = "ssl.keystore.key" },
		"user":       func(_ *wire.ConfigRecord, s *wire.UserScramCredentialRecord) { s.Name = "root" },
		"mechanism":  func(_ *wire.ConfigRecord, s *wire.UserScramCredentialRecord) { s.Mechanism = 2 },
		"salt":       func(_ *wire.ConfigRecord, s *wire.UserScramCredentialRecord) { s.Salt = []byte("other") },
		"iterations": func(_ *wire.ConfigRecord, s *wire.UserScramCredentialRecord) { s.Iterations = 4097 },
		"keys": func(_ *wire.ConfigRecord, s *wire.UserScramCredentialRecord) {
			s.StoredKey, s.ServerKey = s.ServerKey, s.StoredKey
		},
	} {
		c, s := config, scram
		move(&c, &s)
		faults := applied(t, EmptyImage(), []Record{&c, &s}).New.Unopened(ring)
		require.Len(t, faults, 1, name)
		require.ErrorIs(t, faults[0], secrets.ErrDamaged, name)
	}
}

// TestReseal: clear text and older keys come under the first key in one go, and nothing is
// done twice.
func TestReseal(t *testing.T) {
	img := applied(t, EmptyImage(), secretRecords()).New
	require.Equal(t, map[string]int{"": 3}, img.SecretCounts())
	require.Empty(t, img.Reseal(nil))
	for _, ring := range []*secrets.Ring{secretstest.Ring(t, 1), secretstest.Ring(t, 2, 1)} {
		records := img.Reseal(ring)
		require.Len(t, records, 2)
		records, err := Seal(ring, records)
		require.NoError(t, err)
		d := applied(t, img, records)
		require.True(t, d.Rekeyed)
		require.Equal(t, map[string]int{ring.Primary(): 3}, d.New.SecretCounts())
		require.Empty(t, d.New.Reseal(ring))
		img = d.New
		again := applied(t, img, records)
		require.False(t, again.Rekeyed)
		require.True(t, again.Secrets)
	}
	require.Empty(t, img.Reseal(secretstest.Ring(t, 3)), "what doesn't open is left")
}

// TestOldSecretsGo: when clear text comes under a key, no file of the folder has it, nor
// does a snapshot; a store that is opened again over files that still have it goes on.
func TestOldSecretsGo(t *testing.T) {
	ring, dir := secretstest.Ring(t, 1), t.TempDir()
	p := newFakePartition()
	core, told := observer.New(zapcore.InfoLevel)
	forgotten := func(times int) {
		t.Helper()
		require.Eventually(t, func() bool { return told.FilterMessage(forgottenTold).Len() == times }, 30*time.Second, time.Millisecond)
	}
	s := openStore(t, p, func(o *Options) { o.Dir, o.Logger = dir, zap.New(core) })
	mustAppend(t, s, secretRecords()...)
	require.NoError(t, s.writeSnapshot(t.Context(), s.Image(), 1, false))
	sealed, err := Seal(ring, s.Image().Reseal(ring))
	require.NoError(t, err)
	mustAppend(t, s, sealed...)
	forgotten(1)
	names, err := listSnapshots(s.opts.FS, dir)
	require.NoError(t, err)
	require.Len(t, names, 1)
	old, err := s.oldSecrets()
	require.NoError(t, err)
	require.False(t, old)

	// a crash between the snapshot and the removal of the older one
	clear := applied(t, EmptyImage(), secretRecords()).New
	require.NoError(t, writeSnapshotFile(s.opts.FS, dir+"/"+snapshotName(clear.Offset()+1, 1), clear, 1, 1))
	require.NoError(t, s.Close())
	again := openStore(t, p, func(o *Options) { o.Dir, o.SecretsKey, o.Logger = dir, ring.Primary(), zap.New(core) })
	mustAppend(t, again, claim(1, 1))
	forgotten(2)
}

const forgottenTold = "the metadata log's files on this node have no secrets under other keys than now"

// TestKeysChangeWhileForgetting: keys change again while older secrets are going, and just
// when they are gone, and nothing else is ever changed: the last ones go, too.
func TestKeysChangeWhileForgetting(t *testing.T) {
	rings := []*secrets.Ring{secretstest.Ring(t, 1), secretstest.Ring(t, 2, 1), secretstest.Ring(t, 3, 2)}
	p := newFakePartition()
	var s *Store
	rekey := func(i int) {
		sealed, err := Seal(rings[i], s.Image().Reseal(rings[i]))
		require.NoError(t, err)
		mustAppend(t, s, sealed...)
	}
	var rolls, lines atomic.Int64
	p.onRoll = func() {
		if rolls.Add(1) == 1 {
			rekey(1)
		}
	}
	core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(io.Discard), zapcore.InfoLevel)
	log := zap.New(core, zap.Hooks(func(e zapcore.Entry) error {
		if e.Message == forgottenTold && lines.Add(1) == 1 {
			rekey(2)
		}
		return nil
	}))
	s = openStore(t, p, func(o *Options) { o.Logger = log })
	mustAppend(t, s, secretRecords()...)
	rekey(0)
	want := map[string]int{rings[2].Primary(): 3}
	require.Eventually(t, func() bool {
		names, err := listSnapshots(s.opts.FS, s.opts.Dir)
		if err != nil || len(names) != 1 {
			return false
		}
		img, err := readSnapshotFile(s.opts.FS, filepath.Join(s.opts.Dir, names[0]))
		return err == nil && maps.Equal(img.SecretCounts(), want)
	}, 30*time.Second, time.Millisecond)
}

// TestOnlyMirrorsHaveSecrets: a setting of another kind of resource that is a password and
// could be set would be sealed, and nobody would open it.
func TestOnlyMirrorsHaveSecrets(t *testing.T) {
	for _, kind := range []messages.ResourceType{messages.ResourceTopic, messages.ResourceBroker, messages.ResourceGroup, messages.ResourceClientMetrics} {
		set := configSet(kind)
		for _, name := range set.Names() {
			if set.Lookup(name).Sensitive() {
				require.ErrorIs(t, set.Settable(name), messages.ErrInvalidConfig, "%d %s", kind, name)
			}
		}
	}
	require.True(t, configs.Mirror().Lookup("sasl.jaas.config").Sensitive())
}
