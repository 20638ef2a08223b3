package main

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
)

// TestUncleanStopRenewsEpochs: after a crash a writable partition gets a new leader
// epoch before anybody writes to it, for offsets that power loss took may have been
// copied. A clean stop changes nothing.
func TestUncleanStopRenewsEpochs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	epoch := func(c *child) (out int32) {
		t.Helper()
		_, cl, adm := connectTo(t, c.kafka)
		defer cl.Close()
		await(t, "metadata", func() error {
			list, err := adm.ListTopics(t.Context(), "t")
			if err != nil || list["t"].Err != nil {
				return fmt.Errorf("%w, %w", err, list["t"].Err)
			}
			out = list["t"].Partitions[0].LeaderEpoch
			return nil
		})
		produce(t, cl, "t", 3)
		o, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), "t")
		require.NoError(t, err)
		end, _ := o.Lookup("t", 0)
		require.Equal(t, out, end.LeaderEpoch, "the epoch of the last batch")
		return out
	}
	c := startChild(t, dir)
	_, cl, _ := connectTo(t, c.kafka)
	topic(t, cl, "t", 1, 3, nil)
	cl.Close()
	want := epoch(c)
	for round, crash := range []bool{true, false, true, true, false} {
		sig := syscall.SIGTERM
		if crash {
			sig, want = syscall.SIGKILL, want+1
		}
		require.NoError(t, c.cmd.Process.Signal(sig))
		c.ended <- <-c.ended
		c = startChild(t, dir)
		require.Equal(t, want, epoch(c), "round %d", round)
	}
}
