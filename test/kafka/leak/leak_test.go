package leak

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFind: each form is found in the middle of something, and nothing in what is like it.
func TestFind(t *testing.T) {
	const secret = `pa"ss=w/ö&rd-4711`
	h := New(t, map[string]string{"a password": secret})
	for form, b := range forms(secret) {
		require.NotEmpty(t, h.Find(append(append([]byte("in front "), b...), " behind"...)), form)
		require.Empty(t, h.Find(append([]byte("in front "), b[1:]...)), form)
	}
	for i := range 6 {
		text := base64.StdEncoding.EncodeToString([]byte("abcdef"[:i] + secret + "behind"[i:]))
		require.NotEmpty(t, h.Find([]byte(text)), i)
	}
	b, err := json.Marshal(map[string]string{"x": secret})
	require.NoError(t, err)
	require.NotEmpty(t, h.Find(b))
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a", "b", "c"), []byte("x"+secret), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "d"), []byte("x"), 0o600))
	require.Len(t, h.Folder(t, dir), 1)
}
