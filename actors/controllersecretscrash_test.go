package actors

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/secrets"
	"kagami/messages/secrets/secretstest"
	"kagami/persistence/faultfs"
	"kagami/persistence/metadata"
)

const (
	crashPassword = "hunter-two-4711"
	forgottenTold = "the metadata log's files on this node have no secrets under other keys than now"
)

// secretsBefore is a file system of a node that has kept everything in clear text.
func secretsBefore(t *testing.T) *faultfs.FS {
	t.Helper()
	fsys := faultfs.New()
	require.NoError(t, errors.Join(fsys.MkdirAll("/data"), fsys.SyncDir("/")))
	n := openControllerNode(t.Context(), t, fsys)
	submit := func(cmd messages.Command) {
		t.Helper()
		out := n.c.Submit(t.Context(), alice, cmd)
		require.NoError(t, out.Err)
		for _, item := range out.Items {
			require.NoError(t, item.Err)
		}
	}
	for i := range 6 {
		submit(messages.CreateTopics{Topics: []messages.NewTopic{{Name: fmt.Sprint("t", i), Partitions: 3, ReplicationFactor: 1}}})
		submit(messages.CreateMirror{Name: fmt.Sprint("m", i), Configs: set(
			configs.BootstrapServers, "h:1", "security.protocol", "SSL", "ssl.truststore.location", "/f", "ssl.truststore.password", crashPassword)})
		submit(messages.AlterScram{Changes: []messages.ScramChange{{User: fmt.Sprint("u", i), Mechanism: messages.ScramSHA256, Set: messages.ScramCredential{
			Salt: []byte{1}, StoredKey: []byte("0123456789stored0123456789stored"), ServerKey: []byte("0123456789server0123456789server"), Iterations: 4096}}}})
		submit(messages.CreateACLs{Entries: []messages.ACL{readRight(fmt.Sprint("acl", i))}})
	}
	n.shut()
	return fsys
}

// clearFiles are the files that have a secret, or the text.
func clearFiles(t *testing.T, fsys *faultfs.FS, dir string, texts ...string) []string {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	require.NoError(t, err)
	var out []string
	for _, e := range entries {
		path := dir + "/" + e.Name
		if e.Dir {
			out = append(out, clearFiles(t, fsys, path, texts...)...)
			continue
		}
		b, err := fsys.ReadFile(path)
		if err != nil {
			continue // gone meanwhile
		}
		if slices.ContainsFunc(texts, func(text string) bool { return bytes.Contains(b, []byte(text)) }) {
			out = append(out, path)
		}
	}
	return out
}

// leavePart leaves what a node does that is killed while it writes a snapshot.
func leavePart(t *testing.T, fsys *faultfs.FS) {
	t.Helper()
	const dir = "/data/__cluster_metadata-0/"
	entries, err := fsys.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name, ".checkpoint") {
			continue
		}
		b, err := fsys.ReadFile(dir + e.Name)
		require.NoError(t, err)
		f, err := fsys.OpenFile(dir+"00000000000000000099-0000000001.checkpoint.part", true)
		require.NoError(t, err)
		_, err = f.WriteAt(b, 0)
		require.NoError(t, errors.Join(err, f.Sync(), f.Close(), fsys.SyncDir(dir)))
		return
	}
	t.Fatal("no snapshot")
}

// openedImage is all that an image has, secrets in clear.
func openedImage(t *testing.T, img *metadata.Image, ring *secrets.Ring) map[string]any {
	t.Helper()
	out := make(map[string]any)
	for _, topic := range img.Topics() {
		out["topic "+topic.Name] = fmt.Sprint(topic.ID, len(topic.Partitions))
	}
	for i := range 6 {
		name := fmt.Sprint("m", i)
		m := img.Mirror(name)
		require.NotNil(t, m, name)
		values, err := metadata.OpenConfigs(ring, messages.ResourceClusterMirror, name, m.Configs)
		require.NoError(t, err)
		out["mirror "+name] = values
	}
	for _, u := range img.ScramUsers() {
		c, _ := img.ScramCredential(u)
		c, err := metadata.OpenScram(ring, u, c)
		require.NoError(t, err)
		out["user "+u.Name] = c
	}
	out["acls"] = fmt.Sprint(img.ACLs())
	return out
}

// TestSecretsCrashes: power cuts and kills at every single effect on the disk while secrets
// come under a key, and under another one: nothing is lost, what says that older secrets are
// gone is right, and they go after a restart, whatever the crash left.
func TestSecretsCrashes(t *testing.T) {
	clear := secretsBefore(t)
	first, second := secretstest.Ring(t, 1), secretstest.Ring(t, 2, 1)
	texts := []string{crashPassword, "0123456789stored", "0123456789server"}
	require.NotEmpty(t, clearFiles(t, clear, "/", texts...), "it looks for nothing")
	leavePart(t, clear)
	rng := rand.New(rand.NewPCG(1, 1))
	bare := openControllerNode(t.Context(), t, clear.Restart(faultfs.LoseNothing, rng))
	want := openedImage(t, bare.store.Image(), nil)
	bare.shut()
	sealed := crashSecrets(t, clear, first, want, texts)
	leavePart(t, sealed)
	crashSecrets(t, sealed, second, want, []string{first.Primary()})
}

func crashSecrets(t *testing.T, before *faultfs.FS, ring *secrets.Ring, want map[string]any, texts []string) *faultfs.FS {
	t.Helper()
	for crashAt := 1; ; crashAt++ {
		rng := rand.New(rand.NewPCG(uint64(crashAt), 7))
		fsys := before.Restart(faultfs.LoseNothing, rng)
		fsys.CrashAt = fsys.Effects() + crashAt
		core, told := observer.New(zapcore.InfoLevel)
		said := func() bool { return told.FilterMessage(forgottenTold).Len() > 0 }
		n := &controllerNode{secrets: ring, log: zap.New(core)}
		if err := n.open(t.Context(), fsys); err == nil {
			require.Eventually(t, func() bool { return said() || fsys.Crashed() }, 30*time.Second, time.Millisecond, "nothing is forgotten")
		} else {
			require.True(t, fsys.Crashed(), err)
		}
		n.shut()
		done := !fsys.Crashed()
		for _, loss := range []faultfs.Loss{faultfs.LoseNothing, faultfs.LoseUnsynced, faultfs.LoseSome} {
			name := fmt.Sprintf("crash at effect %d, %s", crashAt, loss)
			after := fsys.Restart(loss, rng)
			if said() {
				require.Empty(t, clearFiles(t, after, "/", texts...), "%s: it said that nothing is left", name)
			}
			again := &controllerNode{secrets: ring}
			require.NoError(t, again.open(t.Context(), after), name)
			require.Empty(t, cmp.Diff(want, openedImage(t, again.store.Image(), ring)), name)
			var left []string
			require.Eventually(t, func() bool { left = clearFiles(t, after, "/", texts...); return len(left) == 0 }, 30*time.Second, time.Millisecond, "%s: %v", name, &left)
			again.shut()
		}
		if done {
			require.Greater(t, crashAt, 10)
			return fsys.Restart(faultfs.LoseNothing, rng)
		}
	}
}
