package client

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/wire"
	"kagami/messages/wire/wiretest"
)

// TestRepeatedRequestMeetsItself: the first answer is lost with its connection,
// and the second one says that it is so already. That is a success, unless
// somebody else has done it.
func TestRepeatedRequestMeetsItself(t *testing.T) {
	start := func(ctx context.Context, c *Client) (TopicResults, error) {
		return c.StartMirrorTopics(ctx, "m", []string{"a", "b", "c"}, StartOptions{})
	}
	pause := func(ctx context.Context, c *Client) (TopicResults, error) {
		return c.PauseMirrorTopics(ctx, "m", []string{"a", "b", "c"})
	}
	resume := func(ctx context.Context, c *Client) (TopicResults, error) {
		return c.ResumeMirrorTopics(ctx, "m", []string{"a", "b", "c"})
	}
	for _, tc := range []struct {
		name string
		key  int16
		code int16
		now  map[string]string // mirror.name
		lost int               // answers
		do   func(context.Context, *Client) (TopicResults, error)
		want []string // accepted
	}{
		{"start", wire.KeyStartMirrorTopics, wire.CodeTopicAlreadyInClusterMirror, map[string]string{"a": "m", "b": "n", "c": "m.paused"}, 1, start, []string{"a"}},
		{"start, three answers lost", wire.KeyStartMirrorTopics, wire.CodeTopicAlreadyInClusterMirror, map[string]string{"a": "m", "b": "m", "c": "m"}, 3, start, []string{"a", "b", "c"}},
		{"pause", wire.KeyPauseMirrorTopics, wire.CodeMirrorTopicAlreadyPaused, map[string]string{"a": "m.paused", "b": "m", "c": ""}, 1, pause, []string{"a"}},
		{"resume", wire.KeyResumeMirrorTopics, wire.CodeMirrorTopicNotPaused, map[string]string{"a": "m", "b": "m.stopped", "c": ""}, 1, resume, []string{"a"}},
		{"nothing was lost", wire.KeyStartMirrorTopics, wire.CodeTopicAlreadyInClusterMirror, map[string]string{"a": "m", "b": "m", "c": "m"}, 0, start, nil},
		{"another refusal", wire.KeyStartMirrorTopics, 42, map[string]string{"a": "m", "b": "m", "c": "m"}, 1, start, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cluster, cl := newTest(t, 1)
			cl.clock = &noWait{}
			for _, name := range []string{"a", "b", "c"} {
				cluster.SetTopic(name, wiretest.Topic{Leaders: []int32{0}})
			}
			cluster.Handle(32, func(_ int32, req kmsg.Request) kmsg.Response {
				resp := kmsg.NewPtrDescribeConfigsResponse()
				for _, r := range req.(*kmsg.DescribeConfigsRequest).Resources {
					res := kmsg.NewDescribeConfigsResponseResource()
					cfg := kmsg.NewDescribeConfigsResponseResourceConfig()
					value := tc.now[r.ResourceName]
					res.ResourceName, cfg.Name, cfg.Value = r.ResourceName, r.ConfigNames[0], &value
					res.Configs = append(res.Configs, cfg)
					resp.Resources = append(resp.Resources, res)
				}
				return resp
			})
			cluster.Handle(tc.key, func(int32, kmsg.Request) kmsg.Response {
				if len(cluster.Requests(tc.key)) <= tc.lost {
					return nil
				}
				var topics []wire.StartMirrorTopicsResponseTopicResult
				for _, name := range []string{"a", "b", "c"} {
					topics = append(topics, wire.StartMirrorTopicsResponseTopicResult{Name: name, ErrorCode: tc.code})
				}
				switch tc.key {
				case wire.KeyPauseMirrorTopics:
					resp := wire.NewPtrPauseMirrorTopicsResponse()
					for _, r := range topics {
						resp.Topics = append(resp.Topics, wire.PauseMirrorTopicsResponseTopicResult{Name: r.Name, ErrorCode: r.ErrorCode})
					}
					return resp
				case wire.KeyResumeMirrorTopics:
					resp := wire.NewPtrResumeMirrorTopicsResponse()
					for _, r := range topics {
						resp.Topics = append(resp.Topics, wire.ResumeMirrorTopicsResponseTopicResult{Name: r.Name, ErrorCode: r.ErrorCode})
					}
					return resp
				}
				resp := wire.NewPtrStartMirrorTopicsResponse()
				resp.Topics = topics
				return resp
			})
			results, err := tc.do(t.Context(), cl)
			require.NoError(t, err)
			require.Equal(t, tc.want, results.Accepted())
			require.Len(t, cluster.Requests(tc.key), tc.lost+1)
		})
	}
}

// TestRequestGoesToTheNextNode: a node that nobody listens at isn't the end.
func TestRequestGoesToTheNextNode(t *testing.T) {
	cluster, _ := newTest(t, 1)
	cl, err := New(kgo.SeedBrokers("127.0.0.1:1", cluster.Addr(0)))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	cl.clock = &noWait{}
	cluster.Handle(wire.KeyStopMirrorTopics, func(int32, kmsg.Request) kmsg.Response {
		resp := wire.NewPtrStopMirrorTopicsResponse()
		resp.Topics = []wire.StopMirrorTopicsResponseTopicResult{{Name: "a"}}
		return resp
	})
	results, err := cl.StopMirrorTopics(t.Context(), "m", []string{"a"})
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, results.Accepted())
	none, err := New(kgo.SeedBrokers("127.0.0.1:1"))
	require.NoError(t, err)
	t.Cleanup(none.Close)
	none.clock = &noWait{}
	_, err = none.StopMirrorTopics(t.Context(), "m", []string{"a"})
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.False(t, reached(err))
	require.True(t, reached(messages.ErrTimedOut))
}
