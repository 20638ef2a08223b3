package metadata

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kagami/messages"
)

// TestSecurityInSnapshots: entries and credentials are in a snapshot as in the log, and
// contradictions are refused.
func TestSecurityInSnapshots(t *testing.T) {
	a := StoredACL{ID: messages.TopicID{1}, Mirrors: []string{"m"}, ACL: messages.ACL{
		Type: messages.ACLClusterMirror, Pattern: messages.ACLPrefixed, Name: "m", Principal: "User:a", Host: "::1", Operation: messages.ACLAll, Permission: messages.ACLDeny,
	}}
	b := StoredACL{ID: messages.TopicID{2}, ACL: messages.ACL{
		Type: messages.ACLTopic, Pattern: messages.ACLLiteral, Name: "*", Principal: "User:*", Host: "*", Operation: messages.ACLRead, Permission: messages.ACLAllow,
	}}
	u := ScramUser{Name: "u", Mechanism: messages.ScramSHA256}
	secret := []byte("a key of s3cret bytes, 32 of them")
	c := messages.ScramCredential{Salt: []byte("salt"), StoredKey: secret, ServerKey: secret, Iterations: 4096}
	d, err := EmptyImage().Apply(0, []Record{ACLRecord(a), ACLRecord(b), ScramRecord(u, c)})
	require.NoError(t, err)
	require.True(t, d.ACLs)
	img := d.New
	require.Equal(t, []StoredACL{b, a}, img.ACLs(), "in order")
	var snapshot bytes.Buffer
	require.NoError(t, encodeSnapshot(&snapshot, img, 1, 1700000000000))
	again, err := replaySnapshot("test", snapshot.Bytes(), img.Offset()+1)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(img.ACLs()[1].ACL, again.ACLs()[1].ACL))
	require.Equal(t, a.Mirrors, again.ACL(a.ACL).Mirrors)
	got, ok := again.ScramCredential(u)
	require.True(t, ok)
	require.Equal(t, c, got)

	hidden, err := hideSecrets(snapshot.Bytes())
	require.NoError(t, err)
	require.NotContains(t, string(hidden), "s3cret")
	require.Contains(t, snapshot.String(), "s3cret")
	require.NotContains(t, c.String()+c.GoString(), "s3cret")

	other := a
	other.ID = messages.TopicID{9}
	for name, r := range map[string]Record{
		"an entry twice": ACLRecord(other), "no entry": RemoveACLRecord(messages.TopicID{9}),
		"no credentials": RemoveScramRecord(ScramUser{Name: "u", Mechanism: messages.ScramSHA512}),
	} {
		_, err := img.Apply(100, []Record{r})
		require.ErrorIs(t, err, ErrBadRecord, name)
	}
	d, err = img.Apply(100, []Record{RemoveACLRecord(a.ID), RemoveScramRecord(u)})
	require.NoError(t, err)
	require.Len(t, d.New.ACLs(), 1)
	require.Empty(t, d.New.ScramUsers())
	require.Len(t, img.ACLs(), 2, "an image never changes")
	require.Len(t, img.ScramUsers(), 1)
}
