package sasl

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
)

// users are some in order of their names, u0, u1 and so on.
type users []messages.ScramCredential

func (u users) Credential(user string) (messages.ScramCredential, bool) {
	for i, c := range u {
		if user == fmt.Sprint("u", i) {
			return c, true
		}
	}
	return messages.ScramCredential{}, false
}

func (u users) Credentials() []messages.ScramCredential { return u }

// seenOf is salt and iterations, which anybody is told who names a user.
func seenOf(t *testing.T, m Mechanism, user string) (salt, iterations string) {
	t.Helper()
	answer, done, err := m.Start().Next(t.Context(), []byte("n,,n="+user+",r=abc"))
	require.NoError(t, err)
	require.False(t, done)
	parts := strings.Split(string(answer), ",")
	require.Len(t, parts, 3)
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(parts[1], "s="))
	require.NoError(t, err)
	return string(raw), parts[2]
}

// TestScramTellsNoUsers: who names a user that isn't there sees what he would see of one that is, the
// same on all nodes and after a restart.
func TestScramTellsNoUsers(t *testing.T) {
	credential := func(salt string, iterations int32) messages.ScramCredential {
		key := make([]byte, messages.ScramSHA256.KeySize())
		copy(key, salt)
		return messages.ScramCredential{Salt: []byte(salt), StoredKey: key, ServerKey: key, Iterations: iterations}
	}
	some := users{
		credential("1a2b3c4d5e6f7g8h9i0jklmnop", 4096), credential("qrstuvwxyz0123456789abcdef", 4096), // Java's tools
		credential(strings.Repeat("\x80", 32), 8192), // our own
	}
	for name, all := range map[string]users{"Java's": some[:2], "ours": some[2:], "both": some, "none": nil} {
		nodes := make([]Mechanism, 2)
		for i := range nodes {
			var err error
			nodes[i], err = NewScram(messages.ScramSHA256, all)
			require.NoError(t, err)
		}
		looks := map[shape]bool{}
		for _, c := range all {
			looks[shapeOf(c)] = true
		}
		seen, salts := map[shape]bool{}, map[string]bool{}
		for i := range 200 {
			user := fmt.Sprint("nobody", i)
			salt, iterations := seenOf(t, nodes[0], user)
			var n int32
			_, err := fmt.Sscanf(iterations, "i=%d", &n)
			require.NoError(t, err)
			seen[shapeOf(messages.ScramCredential{Salt: []byte(salt), Iterations: n})] = true
			salts[salt] = true
			if len(all) > 0 {
				again, _ := seenOf(t, nodes[1], user)
				require.Equal(t, salt, again, "%s: another node", name)
			}
		}
		require.Len(t, salts, 200, name)
		if len(all) > 0 {
			require.Equal(t, looks, seen, name)
		}
	}
}

// TestScramNonceTwice: clients by librdkafka before 2.6.1 put their nonce in front of that of both
// sides. They are refused, as by Kafka 4, and told why; any other nonce looks like a wrong password.
func TestScramNonceTwice(t *testing.T) {
	one, err := NewCredential(messages.ScramSHA256, "u0", "4711", messages.ScramIterationsMin)
	require.NoError(t, err)
	m, err := NewScram(messages.ScramSHA256, users{one})
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		nonce func(sent string) string
		told  bool
	}{
		"twice":                     {func(sent string) string { return "abc" + sent }, true},
		"another":                   {func(sent string) string { return "abd" + sent }, false},
		"the client's":              {func(string) string { return "abc" }, false},
		"right, with another proof": {func(sent string) string { return sent }, false},
	} {
		e := m.Start()
		answer, _, err := e.Next(t.Context(), []byte("n,,n=u0,r=abc"))
		require.NoError(t, err, name)
		sent, _, _ := strings.Cut(strings.TrimPrefix(string(answer), "r="), ",")
		_, done, err := e.Next(t.Context(), []byte("c=biws,r="+tc.nonce(sent)+",p="+base64.StdEncoding.EncodeToString(make([]byte, 32))))
		require.False(t, done, name)
		require.ErrorIs(t, err, ErrRefused, name)
		require.Equal(t, tc.told, strings.Contains(err.Error(), "librdkafka before 2.6.1"), "%s: %v", name, err)
	}
}
