package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/client"
	"kagami/cmd/internal/tool"
	"kagami/messages"
)

// plannedRow is a row of --start --dry-run, and what describe --json says of the
// cuts after the start.
type plannedRow struct{ cutTo, records, bytes int64 }

// mirrorTool runs kafka-cluster-mirrors against a node.
func mirrorTool(t *testing.T, n *node, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = tool.ClusterMirrors(t.Context(), append([]string{"--bootstrap-server", n.kafka(), "--mirror", "m"}, args...), tool.Streams{Out: &out, Err: &errs})
	return code, out.String(), errs.String()
}

func dryRun(t *testing.T, n *node) map[string]plannedRow {
	t.Helper()
	code, out, errs := mirrorTool(t, n, "--start", "--topics", "t", "--dry-run")
	require.Equal(t, exitOK, code, out+errs)
	rows := map[string]plannedRow{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 5 && f[0] == "t" {
			var nums [3]int64
			for i := range nums {
				var err error
				nums[i], err = strconv.ParseInt(f[3+i], 10, 64)
				require.NoError(t, err, line)
			}
			rows["t-"+f[1]] = plannedRow{nums[0], nums[1], nums[2]}
		}
	}
	require.Contains(t, out, "Dry run: nothing was changed.")
	t.Log(out)
	return rows
}

func cutRows(t *testing.T, n *node) (map[string]plannedRow, error) {
	t.Helper()
	code, out, errs := mirrorTool(t, n, "--describe", "--json")
	require.Equal(t, exitOK, code, errs)
	var described []struct {
		Topic                         string
		Partition                     int32
		State                         string
		Lag                           int64
		CutRecords, CutBytes, CutFrom int64
	}
	require.NoError(t, json.Unmarshal([]byte(out), &described))
	rows := map[string]plannedRow{}
	for _, d := range described {
		if d.State != "MIRRORING" || d.Lag != 0 {
			return nil, fmt.Errorf("%s-%d is %s, lag %d", d.Topic, d.Partition, d.State, d.Lag)
		}
		rows[fmt.Sprintf("%s-%d", d.Topic, d.Partition)] = plannedRow{d.CutFrom, d.CutRecords, d.CutBytes}
	}
	return rows, nil
}

// contents of topic t, by partition.
func contents(t *testing.T, cl *kgo.Client) map[string]string {
	t.Helper()
	out := map[string]string{}
	ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), "t")
	require.NoError(t, err)
	ends.Each(func(o kadm.ListedOffset) { out[fmt.Sprintf("t-%d", o.Partition)] = fmt.Sprint(o.Offset) })
	return out
}

// stopT fails topic t over and waits until it is writable.
func stopT(t *testing.T, adm *client.Client) {
	t.Helper()
	ask(t, func(ctx context.Context, m string, topics []string) (client.TopicResults, error) {
		return adm.StopMirrorTopics(ctx, m, topics)
	}, "t")
	await(t, "t is stopped", func() error {
		d, err := adm.DescribeClusterMirrors(t.Context(), []string{"m"}, client.DescribeOptions{})
		require.NoError(t, err)
		for _, p := range d.Mirrors["m"].Partitions {
			if p.Topic == "t" && p.State != "STOPPED" {
				return errors.New(p.State)
			}
		}
		return nil
	})
}

// TestDryRunIsWhatStartCuts: after the start the cuts are what the dry run said,
// and the dry run changed nothing. U1 and C03: the old source has records that
// never reached the copy, in the last common epoch, or under an epoch whose number
// the new source uses for another history.
func TestDryRunIsWhatStartCuts(t *testing.T) {
	for _, sameNumber := range []bool{false, true} {
		t.Run(fmt.Sprintf("U1_C03_number_of_two_histories=%t", sameNumber), func(t *testing.T) {
			p := startPair(t)
			stopT(t, p.adm)
			produce(t, p.srcCl, "t", 7) // in the last common epoch
			if sameNumber {
				d, err := p.adm.DescribeClusterMirrors(t.Context(), []string{"m"}, client.DescribeOptions{})
				require.NoError(t, err)
				raise(t, p.src, d.Mirrors["m"].Partitions)
				produce(t, p.srcCl, "t", 5)
			}
			produce(t, p.dstCl, "t", 3)

			back, _, _ := connectTo(t, p.src.kafka())
			bootstrap := p.dst.kafka()
			require.NoError(t, back.CreateClusterMirror(t.Context(), "m", map[string]*string{"bootstrap.servers": &bootstrap}))
			await(t, "the source's id is learned", func() error {
				if m := p.src.store.Image().Mirror("m"); m == nil || m.Configs["mirror.source.cluster.id"] == "" {
					return errors.New("not yet")
				}
				return nil
			})
			changes := func() string {
				ends, err := kadm.NewClient(p.srcCl).ListEndOffsets(t.Context(), messages.MirrorStateTopic, "t")
				require.NoError(t, err)
				all := []string{fmt.Sprint(p.src.store.Image().Offset())}
				for _, o := range ends.Offsets().Sorted() {
					all = append(all, fmt.Sprintf("%s-%d ends at %d", o.Topic, o.Partition, o.At))
				}
				return strings.Join(all, "\n")
			}
			before := changes()
			planned := dryRun(t, p.src)
			require.Equal(t, planned, dryRun(t, p.src))
			require.Equal(t, before, changes(), "the dry run has written something")
			want := int64(7)
			if sameNumber {
				want += 5
			}
			require.Equal(t, want, planned["t-0"].records+planned["t-1"].records)

			code, out, errs := mirrorTool(t, p.src, "--start", "--topics", "t")
			require.Equal(t, exitOK, code, out+errs)
			var got map[string]plannedRow
			await(t, "the copy is complete", func() (err error) {
				if got, err = cutRows(t, p.src); err == nil && fmt.Sprint(contents(t, p.srcCl)) != fmt.Sprint(contents(t, p.dstCl)) {
					err = errors.New("the logs differ")
				}
				return err
			})
			for tp, plan := range planned {
				if plan.records == 0 {
					plan = plannedRow{} // no cut is described
				}
				require.Equal(t, plan, got[tp], tp)
			}
		})
	}
}

// raise brings the leader epochs of t to those of another cluster.
func raise(t *testing.T, n *node, like []client.DescribedPartition) {
	t.Helper()
	topic := n.store.Image().Topic("t")
	var cmd messages.BumpLeaderEpochs
	for _, p := range like {
		if p.Topic == "t" {
			cmd.Bumps = append(cmd.Bumps, messages.EpochBump{TopicID: topic.ID, Partition: p.Partition, MinLeaderEpoch: p.LeaderEpoch - 1})
		}
	}
	out := n.controller.Submit(t.Context(), messages.Requester{Principal: "User:test"}, cmd)
	require.NoError(t, out.Err)
	for _, i := range out.Items {
		require.NoError(t, i.Err)
	}
	for _, p := range like {
		if p.Topic == "t" {
			require.Equal(t, p.LeaderEpoch, n.store.Image().Topic("t").Partitions[p.Partition].LeaderEpoch)
		}
	}
}

// TestDryRunWithoutASource: what isn't known is said, with the reason; the stop
// says how old its figures are.
func TestDryRunWithoutASource(t *testing.T) {
	p := startPair(t)
	stopT(t, p.adm)
	stopTestNode(t, p.src)
	code, out, errs := mirrorTool(t, p.dst, "--start", "--topics", "t", "--dry-run")
	require.Equal(t, exitFailed, code)
	require.Equal(t, 2, strings.Count(out, "unknown: "), out)
	require.Contains(t, out, p.src.kafka(), "why")
	require.Contains(t, errs, "isn't known of 2 partition(s)")
	code, out, errs = mirrorTool(t, p.dst, "--stop", "--topics", "c", "--dry-run")
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "Would lose 0 records by the source's last answers, the oldest ")
	require.Regexp(t, `(?m)^c +0 +MIRRORING +0 +\d+m?s +0 *$`, out)
}
