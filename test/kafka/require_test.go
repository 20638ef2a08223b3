package kafka

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// probe makes TestRequireProbe do something; TestRequireRule sets it.
const probe = "KAGAMI_REQUIRE_PROBE"

func TestRequireProbe(t *testing.T) {
	if os.Getenv(probe) == "" {
		return // TestRequireRule runs it, in processes of their own
	}
	t.Run("one", func(t *testing.T) { RequireJava(t); t.Error("not reached without Java") })
	t.Run("two", func(t *testing.T) { RequireProgram(t, "javac"); t.Error("not reached without Java") })
}

// TestRequireRule: where there is no Java the tests are skipped and counted, and
// the same in CI is a failure.
func TestRequireRule(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	run := func(ci string) (string, error) {
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestRequireProbe$", "-test.v")
		// An empty folder as PATH: not even the tools of the machine are found.
		cmd.Env = []string{"PATH=" + t.TempDir(), "HOME=" + t.TempDir(), probe + "=1", "CI=" + ci}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run("")
	require.NoError(t, err, out)
	require.Contains(t, out, "--- SKIP: TestRequireProbe/one", out)
	require.Contains(t, out, "skip 2 for lack of a real Kafka: javac is not installed", out)
	require.Contains(t, out, "skipped 2 tests that need a JDK 17, Maven and kcat", out)
	require.NotContains(t, out, "not reached")

	out, err = run("true")
	require.Error(t, err, out)
	require.Contains(t, out, "--- FAIL: TestRequireProbe/one", out)
	require.Contains(t, out, "needed in CI: java is not installed", out)
	require.NotContains(t, out, "not reached")
}
