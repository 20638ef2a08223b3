package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/wire"
	"kagami/messages/wire/wiretest"
)

func newTest(t *testing.T, nodes int) (*wiretest.Cluster, *Client) {
	t.Helper()
	cluster, err := wiretest.NewCluster(nodes)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	cl, err := New(kgo.SeedBrokers(cluster.Addr(0)))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cluster, cl
}

func TestCreateSendsConfigsSorted(t *testing.T) {
	cluster, cl := newTest(t, 1)
	cluster.Handle(wire.KeyCreateClusterMirror, func(int32, kmsg.Request) kmsg.Response {
		return wire.NewPtrCreateClusterMirrorResponse()
	})
	servers := "a:9092"
	require.NoError(t, cl.CreateClusterMirror(t.Context(), "m", map[string]*string{"b": nil, "bootstrap.servers": &servers}))
	req := cluster.Requests(wire.KeyCreateClusterMirror)[0].(*wire.CreateClusterMirrorRequest)
	require.Equal(t, "m", req.MirrorName)
	require.Equal(t, "b", req.Config[0].Name)
	require.Nil(t, req.Config[0].Value)
	require.Equal(t, "a:9092", *req.Config[1].Value)
}

func TestErrorsCarryCodeAndText(t *testing.T) {
	cluster, cl := newTest(t, 1)
	cluster.Handle(wire.KeyDeleteClusterMirror, func(int32, kmsg.Request) kmsg.Response {
		resp := wire.NewPtrDeleteClusterMirrorResponse()
		resp.ErrorCode = wire.CodeClusterMirrorNotEmpty
		resp.ErrorMessage = new("mirror m still has topic t")
		return resp
	})
	err := cl.DeleteClusterMirror(t.Context(), "m")
	require.ErrorIs(t, err, messages.ErrMirrorNotEmpty)
	require.EqualError(t, err, "mirror m still has topic t")
	var e *wire.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "CLUSTER_MIRROR_NOT_EMPTY", e.Name)
}

func TestTopicResultsTakeTextFromTheMessage(t *testing.T) {
	cluster, cl := newTest(t, 1)
	cluster.Handle(wire.KeyStartMirrorTopics, func(int32, kmsg.Request) kmsg.Response {
		resp := wire.NewPtrStartMirrorTopicsResponse()
		resp.ErrorMessage = new("b: matches the exclude entry b.*\nc: other")
		resp.Topics = []wire.StartMirrorTopicsResponseTopicResult{{Name: "a"}, {Name: "b", ErrorCode: 42}, {Name: "d", ErrorCode: 2138}}
		return resp
	})
	rs, err := cl.StartMirrorTopics(t.Context(), "m", []string{"a", "b", "d"}, StartOptions{
		IncludePatterns: []string{"a"}, ExcludePatterns: []string{"x"},
		TopicMetadata: map[string]TopicMetadata{"a": {ID: messages.TopicID{1}, Partitions: 3}},
	})
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, rs.Accepted())
	require.EqualError(t, rs.Err(), "b: matches the exclude entry b.*\nd: The topic is already in a cluster mirror.")
	require.ErrorIs(t, rs.Failed()[1].Err, messages.ErrTopicInMirror)
	req := cluster.Requests(wire.KeyStartMirrorTopics)[0].(*wire.StartMirrorTopicsRequest)
	require.Equal(t, int32(3), req.Topics[0].NumPartitions)
	require.Equal(t, messages.TopicID{1}, req.Topics[0].TopicID)
	require.Zero(t, req.Topics[1].NumPartitions)
	require.Equal(t, []string{"x"}, req.ExcludePatterns)
}

// noWait is a clock that counts pauses and doesn't make them.
type noWait struct{ pauses int }

func (*noWait) Now() time.Time                               { return time.Unix(0, 0) }
func (*noWait) AfterFunc(time.Duration, func()) func() bool  { return func() bool { return true } }
func (n *noWait) Sleep(context.Context, time.Duration) error { n.pauses++; return nil }

func TestMovingCoordinatorIsAskedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		bad    int // answers with 15 before the good one
		pauses int
		err    bool
	}{
		"twice":    {2, 2, false},
		"for ever": {1000, attemptsMax - 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, cl := newTest(t, 1)
			clk := &noWait{}
			cl.clock = clk
			n := 0
			cluster.Handle(wire.KeyDeleteClusterMirror, func(int32, kmsg.Request) kmsg.Response {
				resp := wire.NewPtrDeleteClusterMirrorResponse()
				if n++; n <= tc.bad {
					resp.ErrorCode = 15
				}
				return resp
			})
			err := cl.DeleteClusterMirror(t.Context(), "m")
			require.Equal(t, tc.err, err != nil, err)
			require.Equal(t, tc.pauses, clk.pauses)
		})
	}
}

func detail(partition int32, state string, epoch int32) wire.DescribeClusterMirrorsResponsePartitionDetail {
	p := wire.NewDescribeClusterMirrorsResponsePartitionDetail()
	p.PartitionIndex, p.State, p.LeaderEpoch = partition, state, epoch
	return p
}

func describeResponse(mirror, topic string, ps ...wire.DescribeClusterMirrorsResponsePartitionDetail) *wire.DescribeClusterMirrorsResponse {
	resp := wire.NewPtrDescribeClusterMirrorsResponse()
	m := wire.NewDescribeClusterMirrorsResponseDescribedMirror()
	m.MirrorName = mirror
	m.Topics = []wire.DescribeClusterMirrorsResponseTopicPartitions{{TopicName: topic, Partitions: ps}}
	resp.Mirrors = append(resp.Mirrors, m)
	return resp
}

func TestDescribeMergesNodes(t *testing.T) {
	cluster, cl := newTest(t, 2)
	cluster.Handle(wire.KeyDescribeClusterMirrors, func(node int32, _ kmsg.Request) kmsg.Response {
		if node == 0 {
			return describeResponse("m", "t", detail(2, "MIRRORING", 4), detail(1, "STOPPING", 3))
		}
		return describeResponse("m", "t", detail(0, "PAUSED", 9), detail(1, "STOPPED", 5))
	})
	d, err := cl.DescribeClusterMirrors(t.Context(), []string{"m"}, DescribeOptions{IncludeAuthorizedOperations: true})
	require.NoError(t, err)
	require.Empty(t, d.Unanswered)
	require.Equal(t, []string{"m"}, d.Names())
	var got []string
	for _, p := range d.Mirrors["m"].Partitions {
		got = append(got, p.State)
	}
	require.Equal(t, []string{"PAUSED", "STOPPED", "MIRRORING"}, got)
	req := cluster.Requests(wire.KeyDescribeClusterMirrors)[0].(*wire.DescribeClusterMirrorsRequest)
	require.True(t, req.IncludeAuthorizedOperations)
}

// OP-38: a node that doesn't answer costs its partitions' states, not the call.
func TestDescribeNamesNodesThatDontAnswer(t *testing.T) {
	cluster, cl := newTest(t, 2)
	cluster.SetTopic("t", wiretest.Topic{Leaders: []int32{0, 1, -1}})
	oneMirrorTopic(cluster)
	cluster.Down(1)
	d, err := cl.DescribeClusterMirrors(t.Context(), nil, DescribeOptions{})
	require.NoError(t, err)
	require.Len(t, d.Unanswered, 1)
	require.Equal(t, int32(1), d.Unanswered[0].Node)
	require.Error(t, d.Unanswered[0].Err)
	ps := d.Mirrors["m"].Partitions
	require.Len(t, ps, 3)
	require.Equal(t, []string{"MIRRORING", "-", "-"}, []string{ps[0].State, ps[1].State, ps[2].State})
	require.Equal(t, []int32{0, 1, -1}, []int32{ps[0].Node, ps[1].Node, ps[2].Node})
}

// TestDescribeShowsPartitionsThatMove: while a leadership goes from one node to
// another, neither of them reports the partition. It is shown all the same.
func TestDescribeShowsPartitionsThatMove(t *testing.T) {
	cluster, cl := newTest(t, 2)
	cluster.SetTopic("t", wiretest.Topic{Leaders: []int32{0, 1}})
	oneMirrorTopic(cluster)
	d, err := cl.DescribeClusterMirrors(t.Context(), nil, DescribeOptions{})
	require.NoError(t, err)
	require.Empty(t, d.Unanswered)
	ps := d.Mirrors["m"].Partitions
	require.Len(t, ps, 2)
	require.Equal(t, []string{"MIRRORING", "-"}, []string{ps[0].State, ps[1].State})
}

// oneMirrorTopic: of the topics t and other, t is in mirror m, and only its partition
// 0 is reported.
func oneMirrorTopic(cluster *wiretest.Cluster) {
	cluster.SetTopic("other", wiretest.Topic{Leaders: []int32{1}})
	cluster.Handle(wire.KeyDescribeClusterMirrors, func(int32, kmsg.Request) kmsg.Response {
		return describeResponse("m", "t", detail(0, "MIRRORING", 4))
	})
	cluster.Handle(32, func(_ int32, req kmsg.Request) kmsg.Response {
		resp := kmsg.NewPtrDescribeConfigsResponse()
		for _, r := range req.(*kmsg.DescribeConfigsRequest).Resources {
			res := kmsg.NewDescribeConfigsResponseResource()
			res.ResourceType, res.ResourceName = r.ResourceType, r.ResourceName
			if r.ResourceName == "t" {
				cfg := kmsg.NewDescribeConfigsResponseResourceConfig()
				cfg.Name, cfg.Value = "mirror.name", new("m.paused")
				res.Configs = append(res.Configs, cfg)
			}
			resp.Resources = append(resp.Resources, res)
		}
		return resp
	})
}

func TestDescribeWithoutAnyNode(t *testing.T) {
	cluster, cl := newTest(t, 1)
	cluster.Handle(wire.KeyDescribeClusterMirrors, func(int32, kmsg.Request) kmsg.Response { return nil })
	_, err := cl.DescribeClusterMirrors(t.Context(), nil, DescribeOptions{})
	require.ErrorContains(t, err, "no node answered")
}

func TestDescribeTopLevelError(t *testing.T) {
	cluster, cl := newTest(t, 1)
	cluster.Handle(wire.KeyDescribeClusterMirrors, func(int32, kmsg.Request) kmsg.Response {
		resp := wire.NewPtrDescribeClusterMirrorsResponse()
		resp.ErrorCode = 35
		return resp
	})
	_, err := cl.DescribeClusterMirrors(t.Context(), nil, DescribeOptions{})
	var e *wire.Error
	require.True(t, errors.As(err, &e))
	require.Equal(t, "UNSUPPORTED_VERSION", e.Name)
}

func TestMirrorTopics(t *testing.T) {
	_, none := newTest(t, 1)
	rs, err := none.MirrorTopics(t.Context())
	require.NoError(t, err)
	require.Empty(t, rs)
	cluster, cl := newTest(t, 1)
	for _, name := range []string{"a", "b", "c", "d", "__mirror_state"} {
		cluster.SetTopic(name, wiretest.Topic{Leaders: []int32{0}})
	}
	values := map[string]string{"a": "m", "b": "m.stopped", "c": "n.paused", "__mirror_state": "never asked"}
	cluster.Handle(32, func(_ int32, req kmsg.Request) kmsg.Response {
		resp := kmsg.NewPtrDescribeConfigsResponse()
		for _, r := range req.(*kmsg.DescribeConfigsRequest).Resources {
			res := kmsg.NewDescribeConfigsResponseResource()
			res.ResourceType, res.ResourceName = r.ResourceType, r.ResourceName
			if v, ok := values[r.ResourceName]; ok {
				cfg := kmsg.NewDescribeConfigsResponseResourceConfig()
				cfg.Name, cfg.Value = r.ConfigNames[0], &v
				res.Configs = append(res.Configs, cfg)
			} else {
				res.ErrorCode = 29
			}
			resp.Resources = append(resp.Resources, res)
		}
		return resp
	})
	rs, err = cl.MirrorTopics(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]Membership{
		"a": {"m", messages.DesiredActive}, "b": {"m", messages.DesiredStopped}, "c": {"n", messages.DesiredPaused},
	}, rs)
}
