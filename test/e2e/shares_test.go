package e2e

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kagami/messages"
	"kagami/test/kafka"
)

// shareStarts is where a share group begins on one side.
func shareStarts(ctx context.Context, side *Side, group string) (map[string]int64, error) {
	described, err := side.Admin.DescribeShareGroupOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for _, g := range described {
		if g.Err != nil {
			return nil, g.Err
		}
		for _, partitions := range g.Offsets {
			for _, o := range partitions {
				if o.Err == nil && o.StartOffset >= 0 {
					out[fmt.Sprintf("%s-%d", o.Topic, o.Partition)] = o.StartOffset
				}
			}
		}
	}
	return out, nil
}

// setShare moves a share group; a coordinator of Kafka's takes a while to be there.
func (w *world) setShare(side *Side, group, topic string, starts ...int64) {
	w.t.Helper()
	var offsets kadm.Offsets
	for p, o := range starts {
		offsets.AddOffset(topic, int32(p), o, -1)
	}
	ctx, cancel := context.WithTimeout(w.ctx, convergeTimeout)
	defer cancel()
	require.NoError(w.t, kafka.Poll(ctx, func() error {
		res, err := side.Admin.AlterShareGroupOffsets(ctx, group, offsets)
		if err == nil {
			err = res.Error()
		}
		return err
	}))
}

func (w *world) awaitShare(group string, want map[string]int64) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, convergeTimeout)
	defer cancel()
	require.NoError(w.t, kafka.Poll(ctx, func() error {
		got, err := shareStarts(ctx, w.b, group)
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("share group %s begins at %v, want %v", group, got, want)
		}
		return err
	}))
}

// TestU8ShareGroups: start offsets of share groups of real Kafka follow; Kafka's tools
// read them here, from the node and from its files; they survive a crash.
func TestU8ShareGroups(t *testing.T) {
	w := newWorld(t, NodeOptions{Properties: quickGroups(map[string]string{
		"mirror.metadata.refresh.interval.ms": "1000", "share.coordinator.state.topic.num.partitions": "3",
	})})
	w.topic("u8", 2, 1)
	w.load("u8", Records{Count: 100})
	w.create("m", "mirror.groups.include=u8-.*")
	w.start("m", "u8")
	w.equal("u8")
	end := w.end(w.a, "u8", 1)
	w.setShare(w.a, "u8-shares", "u8", 7, 0)
	w.setShare(w.a, "other", "u8", 1, 1)
	w.awaitShare("u8-shares", map[string]int64{"u8-0": 7, "u8-1": 0})
	w.setShare(w.a, "u8-shares", "u8", 3, end)
	want := map[string]int64{"u8-0": 3, "u8-1": end}
	w.awaitShare("u8-shares", want)

	shares := func(args ...string) string {
		res, err := w.node.JavaTool(w.ctx, kafka.ShareGroups, args...)
		require.NoError(t, err)
		require.Zero(t, res.Code, "%s%s", res.Stdout, res.Stderr)
		return res.Stdout
	}
	require.Equal(t, "u8-shares", strings.TrimSpace(shares("--list")))
	require.Contains(t, shares("--describe", "--group", "u8-shares", "--state"), "Empty")
	offsets := strings.Fields(shares("--describe", "--group", "u8-shares", "--offsets"))
	require.Contains(t, strings.Join(offsets, " "), "u8-shares u8 0 3")
	require.NoError(t, w.node.Kill9())
	require.NoError(t, w.node.Start(w.ctx))
	w.awaitShare("u8-shares", want)

	w.run("--stop", "--mirror", "m", "--topics", "u8")
	w.await("m", "STOPPED", "u8")
	w.setShare(w.b, "u8-shares", "u8", 20, 21)
	want = map[string]int64{"u8-0": 20, "u8-1": 21}
	w.awaitShare("u8-shares", want)
	var files []string
	for p := range 3 {
		files = append(files, partitionFiles(t, w.node.DataDir(), fmt.Sprintf("%s-%d", messages.ShareGroupStateTopic, p), ".log")...)
	}
	res, err := kafka.Tool(w.ctx, kafka.DumpLog, "--share-group-state-decoder", "--files", strings.Join(files, ","))
	require.NoError(t, err)
	require.Contains(t, res.Stdout, `"groupId":"u8-shares"`)
	require.Contains(t, res.Stdout, `"startOffset":21`)
	require.NotContains(t, strings.ToLower(res.Stdout+res.Stderr), "could not be decoded")
	shard := messages.CoordinatorShard("u8-shares", 5)
	files = partitionFiles(t, w.node.DataDir(), fmt.Sprintf("%s-%d", messages.ConsumerOffsetsTopic, shard), ".log")
	res, err = kafka.Tool(w.ctx, kafka.DumpLog, "--offsets-decoder", "--files", strings.Join(files, ","))
	require.NoError(t, err)
	require.Contains(t, res.Stdout, "initializedTopics")
	require.NotContains(t, strings.ToLower(res.Stdout+res.Stderr), "could not be decoded")

	shares("--delete", "--group", "u8-shares")
	require.Empty(t, strings.TrimSpace(shares("--list")))
}
