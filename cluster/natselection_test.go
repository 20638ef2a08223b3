package cluster

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// electionEnv gives all servers of a test process an election timeout: it is the
// process's, so that tests with one run in a process of their own.
const electionEnv = "KAGAMI_TEST_ELECTION_TIMEOUT"

func electionOfTest(tb testing.TB) time.Duration {
	tb.Helper()
	text := os.Getenv(electionEnv)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	require.NoError(tb, err)
	return d
}

// TestElectionTimersAreTheServers: what is linked to are the variables that the
// server reads. A server that has other ones gets no option.
func TestElectionTimersAreTheServers(t *testing.T) {
	want := []time.Duration{electionMinDefault, electionMaxDefault, heartbeatDefault}
	if d := electionOfTest(t); d > 0 {
		c := newTestCluster(t, 2, nil)
		c.start(1)
		want = []time.Duration{d, 2 * d, d / 4}
	}
	require.Equal(t, want, []time.Duration{natsElectionMin, natsElectionMax, natsHeartbeat})
}

// TestElectionTimeoutOfProcess: a second value in a process is refused, for the first
// is in use.
func TestElectionTimeoutOfProcess(t *testing.T) {
	o := newTestCluster(t, 2, nil).options(1)
	require.NoError(t, setElectionTimeout(electionOfTest(t)))
	o.Cluster.ElectionTimeout = 3 * time.Second
	_, err := OpenServer(t.Context(), o)
	require.ErrorIs(t, err, ErrBadOption)
	require.ErrorContains(t, err, "3s")
	for _, bad := range []time.Duration{-time.Second, 100 * time.Millisecond, time.Minute} {
		o.Cluster.ElectionTimeout = bad
		require.ErrorIs(t, o.Cluster.Validate(1), ErrBadOption, bad)
	}
}

// TestShortElections: with the option the streams lose nothing when their leaders are
// killed and stopped, and copies and elections come to an end.
func TestShortElections(t *testing.T) {
	if electionOfTest(t) > 0 {
		t.Skip("it is what runs this test")
	}
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.v", "-test.timeout=4m",
		"-test.run=^(TestElectionTimersAreTheServers|TestElectionTimeoutOfProcess|TestStreamSurvivesKills|TestStreamScale)$")
	cmd.Env = append(os.Environ(), electionEnv+"=1s")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: TestStreamSurvivesKills")
}
