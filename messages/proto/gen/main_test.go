package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	files, err := generate(t.Context(), "..")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err, "run go generate ./messages/proto")
		if d := cmp.Diff(string(want), string(got)); d != "" {
			t.Errorf("%s is not what go generate ./messages/proto makes (-want +got):\n%s", name, d)
		}
	}
}
