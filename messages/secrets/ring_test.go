package secrets

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ring is one of keys made of these bytes.
func ring(t *testing.T, seeds ...byte) *Ring {
	t.Helper()
	var lines []string
	for _, s := range seeds {
		lines = append(lines, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{s}, KeyBytes)))
	}
	r, err := Parse(strings.Join(lines, "\n"))
	require.NoError(t, err)
	return r
}

// TestRoundTrip: whatever the bytes and the place, what is sealed opens to the same, there
// and with the ring's order changed; never twice to the same text.
func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(n int) string {
		b := make([]byte, rng.IntN(n))
		for i := range b {
			b[i] = byte(rng.IntN(256))
		}
		return string(b)
	}
	a, turned := ring(t, 1, 2), ring(t, 2, 1)
	for range 2000 {
		value, at := random(200), Place{random(20), random(20), random(5)}
		sealed, err := a.Seal(value, at)
		require.NoError(t, err)
		again, err := a.Seal(value, at)
		require.NoError(t, err)
		require.NotEqual(t, sealed, again)
		if len(value) > 3 {
			require.NotContains(t, sealed, value)
		}
		id, ok := Sealed(sealed)
		require.True(t, ok)
		require.Equal(t, a.Primary(), id)
		got, err := turned.Open(sealed, at)
		require.NoError(t, err)
		require.Equal(t, value, got)
	}
}

func TestRefusals(t *testing.T) {
	r, at := ring(t, 1), Place{"config", "8", "m", "sasl.jaas.config"}
	sealed, err := r.Seal("hunter2", at)
	require.NoError(t, err)
	for name, other := range map[string]Place{
		"another mirror": {"config", "8", "n", "sasl.jaas.config"}, "another name": {"config", "8", "m", "ssl.keystore.key"},
		"parts moved": {"config8", "", "m", "sasl.jaas.config"}, "one less": {"config", "8", "m"}, "none": nil,
	} {
		_, err := r.Open(sealed, other)
		require.ErrorIs(t, err, ErrDamaged, name)
	}
	_, err = ring(t, 2).Open(sealed, at)
	require.ErrorIs(t, err, ErrNoKey)
	require.ErrorContains(t, err, r.Primary())
	_, err = (*Ring)(nil).Open(sealed, at)
	require.ErrorIs(t, err, ErrNoKey)
	for i := range len(sealed) { // no byte can be changed unseen
		b := []byte(sealed)
		b[i] ^= 1
		got, err := r.Open(string(b), at)
		require.Truef(t, err != nil || got == string(b), "byte %d: %q", i, got)
		if i >= len(prefix) {
			require.Truef(t, errors.Is(err, ErrDamaged) || errors.Is(err, ErrNoKey), "byte %d: %v", i, err)
		}
	}
	for i := range len(sealed) - len(prefix) {
		_, err := r.Open(sealed[:len(prefix)+i], at)
		require.Error(t, err, i)
	}
}

// TestClear: no ring and "clear" leave values as they are; the latter opens sealed ones.
func TestClear(t *testing.T) {
	r := ring(t, 1)
	sealed, err := r.Seal("v", nil)
	require.NoError(t, err)
	key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, KeyBytes))
	off, err := Parse("# off\nclear\n\n" + key + "\n")
	require.NoError(t, err)
	for _, r := range []*Ring{nil, off} {
		got, err := r.Seal("v", nil)
		require.NoError(t, err)
		require.Equal(t, "v", got)
		require.Empty(t, r.Primary())
		got, err = r.Open("v", nil)
		require.NoError(t, err)
		require.Equal(t, "v", got)
	}
	got, err := off.Open(sealed, nil)
	require.NoError(t, err)
	require.Equal(t, "v", got)
}

func TestParse(t *testing.T) {
	key, err := NewKey()
	require.NoError(t, err)
	for name, text := range map[string]string{
		"empty": "", "comments": "# a\n", "short": "aGFsbG8=", "no base64": key + "\nhunter2", "twice": key + "\n\n" + key,
		"clear alone": "clear", "clear later": key + "\nclear", "clear twice": "clear\nclear\n" + key, "two on a line": key + " " + key,
	} {
		_, err := Parse(text)
		require.ErrorIs(t, err, ErrKeys, name)
		require.NotContains(t, err.Error(), key, name)
		require.NotContains(t, err.Error(), "hunter2", name)
	}
}

// TestFormat: no way of printing shows a key.
func TestFormat(t *testing.T) {
	r := ring(t, 'k')
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x", "%q"} {
		text := fmt.Sprintf(verb, r)
		require.Equal(t, "secrets keys ["+r.Primary()+"]", text, verb)
	}
}
