package diff

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/compatibility.md anew")

const compatibility = "../../docs/compatibility.md"

// TestCompatibilityPage: the page is what the table says.
func TestCompatibilityPage(t *testing.T) {
	want := render(knownDifferences())
	if *update {
		require.NoError(t, os.WriteFile(compatibility, []byte(want), 0o600))
	}
	have, err := os.ReadFile(compatibility)
	require.NoError(t, err)
	require.Equal(t, want, string(have), "docs/compatibility.md differs from the table: run go test ./test/diff -run TestCompatibilityPage -update")
}

// TestReasons: every known difference has a reason and a place.
func TestReasons(t *testing.T) {
	for _, k := range knownDifferences() {
		require.NotEmpty(t, k.path, "%s %q", apiName(k.key), k.step)
		require.Greater(t, len(k.why), 10, "%s %q has no reason", apiName(k.key), k.step)
	}
}

func TestCompareTellsWhatDiffers(t *testing.T) {
	a := flat{"answer": "an answer", "Topics[\"t\"]": "there", "Topics[\"t\"].ErrorCode": "0", "X": "1"}
	b := flat{"answer": "an answer", "X": "2"}
	require.Equal(t, []difference{
		{path: "Topics[\"t\"]", kafka: "there", kagami: absent},
		{path: "X", kafka: "1", kagami: "2"},
	}, compare(a, b))
	require.Empty(t, compare(a, a))
	require.True(t, known{key: 3, path: "Topics[*]", kagami: absent}.explains(compare(a, b)[0].of(3)))
	require.False(t, known{key: 3, path: "Topics[*]", kagami: "there"}.explains(compare(a, b)[0].of(3)))
	require.False(t, known{key: 4, path: "Topics[*]"}.explains(compare(a, b)[0].of(3)))
}

func (d difference) of(key int16) difference { d.key = key; return d }
