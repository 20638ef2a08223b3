package tool

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/wire"
)

// states answers each DescribeClusterMirrors with the next set of states of topic
// big, the last one for ever; other topics of the mirror don't count.
func (b *bench) states(looks ...[]string) {
	n := 0
	b.Handle(wire.KeyDescribeClusterMirrors, func(int32, kmsg.Request) kmsg.Response {
		now := looks[min(n, len(looks)-1)]
		n++
		m := wire.NewDescribeClusterMirrorsResponseDescribedMirror()
		m.MirrorName = "m"
		big := wire.DescribeClusterMirrorsResponseTopicPartitions{TopicName: "big"}
		for i, s := range now {
			big.Partitions = append(big.Partitions, detail(int32(i), -1, -1, -1, s))
		}
		other := wire.DescribeClusterMirrorsResponseTopicPartitions{TopicName: "other", Partitions: []part{detail(0, 1, 1, 0, "MIRRORING")}}
		m.Topics = []wire.DescribeClusterMirrorsResponseTopicPartitions{big, other}
		resp := wire.NewPtrDescribeClusterMirrorsResponse()
		resp.Mirrors = append(resp.Mirrors, m)
		return resp
	})
}

func TestStopWaits(t *testing.T) {
	b := newBench(t)
	b.acceptTopics(nil, nil)
	const m, g, s, f = "MIRRORING", "STOPPING", "STOPPED", "FAILED"
	b.states([]string{m, m, f}, []string{m, m, f}, []string{g, s, f}, []string{g, s, f}, []string{s, s, g}, []string{s, s, s})
	code, out, errs := b.tool(t, "--stop", "--mirror", "m", "--topics", "big", "--wait")
	require.Zero(t, code, errs)
	require.Equal(t, "Stopped mirroring for 1 topic(s) in mirror m: [big]\n", out)
	require.Equal(t, "STOPPED 0 / 3\nSTOPPED 1 / 3\nSTOPPED 2 / 3\nSTOPPED 3 / 3\n", errs)

	b.states([]string{m, m, f}, []string{s, s, f})
	code, _, errs = b.tool(t, "--stop", "--mirror", "m", "--topics", "big", "--wait")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "STOPPED 2 / 3\n1 partition(s) are FAILED, such as big-2; --describe --failed shows why")

	b.states([]string{m, m, f}) // without --wait nobody looks again
	code, _, errs = b.tool(t, "--stop", "--mirror", "m", "--topics", "big")
	require.Zero(t, code)
	require.Empty(t, errs)
}

func TestStopWaitsForManyPartitions(t *testing.T) {
	b := newBench(t)
	b.acceptTopics(nil, nil)
	const n = 10_000
	var looks [][]string
	for done := 0; done <= n; done += n / 4 {
		states := make([]string, n)
		for i := range states {
			states[i] = "STOPPING"
			if i < done {
				states[i] = "STOPPED"
			}
		}
		looks = append(looks, states, states)
	}
	b.states(looks...)
	code, _, errs := b.tool(t, "--stop", "--mirror", "m", "--topics", "big", "--wait")
	require.Zero(t, code, errs)
	want := ""
	for done := 0; done <= n; done += n / 4 {
		want += fmt.Sprintf("STOPPED %d / %d\n", done, n)
	}
	require.Equal(t, want, errs)
}

func TestStartWaits(t *testing.T) {
	b := newBench(t)
	b.hasConfigs(map[string]*string{"bootstrap.servers": new("a:1")})
	b.source.topics = sourceTopics("big")
	b.acceptTopics(nil, nil)
	b.states([]string{"LOG_TRUNCATION"}, []string{"MIRRORING"})
	code, out, errs := b.tool(t, "--start", "--mirror", "m", "--topics", "big", "--wait")
	require.Zero(t, code, errs)
	require.Contains(t, out, "Started 1 mirror topic(s)")
	require.Equal(t, "MIRRORING 0 / 1\nMIRRORING 1 / 1\n", errs)
}
