package broker

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

func startRequest(mirror string, topics ...string) *wire.StartMirrorTopicsRequest {
	req := wire.NewPtrStartMirrorTopicsRequest()
	req.MirrorName = mirror
	for _, t := range topics {
		d := wire.NewStartMirrorTopicsRequestTopicData()
		d.TopicName, d.NumPartitions = t, 2
		req.Topics = append(req.Topics, d)
	}
	return req
}

func TestCreateMirrorRequest(t *testing.T) {
	w := newWorld(t)
	w.mirrorOf("there", nil)
	w.deny = func(_ messages.Requester, op Operation, on Resource) bool { return on.Name == "denied" }
	c := w.dial()
	for _, row := range []struct {
		name string
		want int16
	}{{"new", 0}, {"new", 2136}, {"there", 2136}, {"x.stopped", 2135}, {"x.paused", 2135}, {"..", 2135}, {"a b", 2135}, {"denied", 2144}} {
		req := wire.NewPtrCreateClusterMirrorRequest()
		req.MirrorName = row.name
		req.Config = []wire.CreateClusterMirrorRequestClusterMirrorConfig{{Name: "bootstrap.servers", Value: new("h:1")}}
		require.Equal(t, row.want, c.call(req).(*wire.CreateClusterMirrorResponse).ErrorCode, row.name)
	}
	require.Equal(t, "h:1", w.Image().Mirror("new").Configs["bootstrap.servers"])
}

// TestStartMirrorTopicsRequest: topics that may not start are refused alone
// (OP-33), with their texts at the top.
func TestStartMirrorTopicsRequest(t *testing.T) {
	w := newWorld(t)
	w.mirrorOf("m", nil)
	w.topic("active", 1, map[string]string{"mirror.name": "other"})
	w.topic("paused", 1, map[string]string{"mirror.name": "m.paused"})
	w.topic("stopped", 2, map[string]string{"mirror.name": "m.stopped"})
	w.topic("busy", 1, map[string]string{"mirror.name": "m.stopped"})
	w.startErrs = map[string]error{
		"busy": fmt.Errorf("%w: partition 0 is STOPPING", messages.ErrInvalidMirrorStates),
		"loop": fmt.Errorf("%w: the source mirrors it from here", messages.ErrInvalidRequest),
	}
	c := w.dial()
	req := startRequest("m", "active", "paused", "stopped", "busy", "loop", "fresh")
	req.IncludePatterns = []string{"fresh.*"}
	resp := c.call(req).(*wire.StartMirrorTopicsResponse)
	require.Zero(t, resp.ErrorCode)
	require.Equal(t, "m", resp.MirrorName)
	got := map[string]int16{}
	for _, rt := range resp.Topics {
		got[rt.Name] = rt.ErrorCode
	}
	require.Equal(t, map[string]int16{"active": 2138, "paused": 2138, "stopped": 0, "busy": 2145, "loop": 42, "fresh": 0}, got)
	require.Contains(t, *resp.ErrorMessage, "busy: invalid cluster mirror states: partition 0 is STOPPING\nloop: ")
	cmd := w.lastCommand().(messages.StartMirrorTopics)
	require.Equal(t, []string{"fresh.*"}, cmd.Include)
	require.Len(t, cmd.Topics, 2)
	require.Equal(t, messages.DesiredActive, w.Image().Topic("fresh").Desired)

	require.Equal(t, int16(2137), c.call(startRequest("nope", "x")).(*wire.StartMirrorTopicsResponse).ErrorCode)
	require.Equal(t, int16(42), c.call(startRequest("m", "x", "x")).(*wire.StartMirrorTopicsResponse).ErrorCode)
	w.deny = func(_ messages.Requester, op Operation, on Resource) bool {
		return op == OpAlterConfigs && on.Name == "x"
	}
	require.Equal(t, int16(29), c.call(startRequest("m", "x")).(*wire.StartMirrorTopicsResponse).ErrorCode)
	w.deny = func(_ messages.Requester, op Operation, on Resource) bool {
		return op == OpAlter && on.Kind == KindClusterMirror
	}
	require.Equal(t, int16(2144), c.call(startRequest("m", "y")).(*wire.StartMirrorTopicsResponse).ErrorCode)
}

func TestStopPauseResumeRequests(t *testing.T) {
	w := newWorld(t)
	w.mirrorOf("m", nil)
	w.topic("t", 1, map[string]string{"mirror.name": "m"})
	c := w.dial()
	for _, row := range []struct {
		req  kmsg.Request
		want messages.Desired
	}{
		{&wire.PauseMirrorTopicsRequest{MirrorName: "m", Topics: []wire.PauseMirrorTopicsRequestTopicData{{TopicName: "t"}, {TopicName: "nope"}}}, messages.DesiredPaused},
		{&wire.ResumeMirrorTopicsRequest{MirrorName: "m", Topics: []wire.ResumeMirrorTopicsRequestTopicData{{TopicName: "t"}, {TopicName: "nope"}}}, messages.DesiredActive},
		{&wire.StopMirrorTopicsRequest{MirrorName: "m", Patterns: []string{".*"}, Topics: []wire.StopMirrorTopicsRequestTopicData{{TopicName: "t"}, {TopicName: "nope"}}}, messages.DesiredStopped},
	} {
		body := c.call(row.req).(interface{ AppendTo([]byte) []byte }).AppendTo(nil)
		same := wire.NewStartMirrorTopicsResponse() // one shape for all
		require.NoError(t, same.ReadFrom(body))
		require.Zero(t, same.ErrorCode)
		require.Equal(t, []int16{0, 3}, []int16{same.Topics[0].ErrorCode, same.Topics[1].ErrorCode})
		require.Equal(t, "nope: unknown topic or partition", *same.ErrorMessage)
		require.Equal(t, row.want, w.Image().Topic("t").Desired)
	}
	require.Equal(t, []string{".*"}, w.lastCommand().(messages.StopMirrorTopics).Patterns)
}

func TestDeleteMirrorRequest(t *testing.T) {
	w := newWorld(t)
	w.mirrorOf("m", nil)
	w.topic("t", 1, map[string]string{"mirror.name": "m.paused"})
	c := w.dial()
	del := func(name string) int16 {
		return c.call(&wire.DeleteClusterMirrorRequest{MirrorName: name}).(*wire.DeleteClusterMirrorResponse).ErrorCode
	}
	require.Equal(t, int16(2137), del("nope"))
	require.Equal(t, int16(2143), del("m"))
	stopped := "m.stopped"
	w.apply(metadata.ConfigRecord(messages.ResourceTopic, "t", messages.MirrorNameConfig, &stopped))
	for _, row := range []struct {
		err  error
		want int16
	}{{messages.ErrInvalidMirrorStates, 2145}, {messages.ErrCoordinatorLoading, 14}, {messages.ErrTimedOut, 7}} {
		w.deleteErr = row.err
		require.Equal(t, row.want, del("m"))
	}
	w.deleteErr = nil
	require.Zero(t, del("m"))
	require.Nil(t, w.Image().Mirror("m"))
}

func TestRecoverMirrorTopicsRequest(t *testing.T) {
	w := newWorld(t)
	w.mirrorOf("m", nil)
	topic := w.topic("t", 1, map[string]string{"mirror.name": "m"})
	w.topic("fine", 1, map[string]string{"mirror.name": "m"})
	w.topic("other", 1, map[string]string{"mirror.name": "n"})
	w.topic("free", 1, nil)
	w.recoverErr = map[string]error{"fine": fmt.Errorf("%w: no partition is FAILED", messages.ErrInvalidMirrorStates)}
	req := wire.NewPtrRecoverMirrorTopicsRequest()
	req.MirrorName = "m"
	for _, n := range []string{"nope", "t", "free", "other", "fine"} {
		req.Topics = append(req.Topics, wire.RecoverMirrorTopicsRequestTopicData{TopicName: n})
	}
	c := w.dial()
	resp := c.call(req).(*wire.RecoverMirrorTopicsResponse)
	var codes []int16
	for _, rt := range resp.Topics {
		codes = append(codes, rt.ErrorCode)
	}
	require.Equal(t, []int16{3, 0, 2137, 2139, 2145}, codes)
	req.Topics = []wire.RecoverMirrorTopicsRequestTopicData{{TopicName: "t", TopicID: messages.NewTopicID()}}
	require.Equal(t, int16(103), c.call(req).(*wire.RecoverMirrorTopicsResponse).Topics[0].ErrorCode)
	req.Topics[0].TopicID = topic.ID
	require.Zero(t, c.call(req).(*wire.RecoverMirrorTopicsResponse).Topics[0].ErrorCode)
}

// TestListAndDescribeMirrors: OP-18 counts, OP-37 private fields, the answers for
// unknown and forbidden mirrors.
func TestListAndDescribeMirrors(t *testing.T) {
	w := newWorld(t)
	w.mirrorOf("m", map[string]string{"bootstrap.servers": "h:1,h:2", "mirror.source.cluster.id": "src"})
	w.mirrorOf("empty", nil)
	w.mirrorOf("secret", nil)
	w.topic("a", 2, map[string]string{"mirror.name": "m"})
	w.topic("b", 1, map[string]string{"mirror.name": "m.stopped"})
	failed := messages.UnknownPartitionState()
	failed.State, failed.Error, failed.RetryAttempt, failed.GapFrom, failed.GapTo, failed.GapAtMillis = messages.StateFailed, "no such host", 3, 50, 100, 7
	stopped := messages.UnknownPartitionState()
	stopped.State, stopped.LME = messages.StateStopped, 4
	w.described = []MirrorPartition{
		{Topic: "b", Partition: 0, SourceOffset: -1, DestinationOffset: -1, Lag: -1, State: stopped},
		{Topic: "a", Partition: 1, SourceOffset: 10, DestinationOffset: 7, Lag: 3, State: failed},
		{Topic: "a", Partition: 0, SourceOffset: 9, DestinationOffset: 9, State: messages.PartitionState{State: messages.StateMirroring, LME: -1}},
	}
	w.deny = func(_ messages.Requester, _ Operation, on Resource) bool { return on.Name == "secret" }
	c := w.dial()
	list := c.call(wire.NewPtrListClusterMirrorsRequest()).(*wire.ListClusterMirrorsResponse)
	require.Equal(t, []wire.ListClusterMirrorsResponseListedMirror{
		{MirrorName: "empty", SourceBootstrap: "127.0.0.1:1"},
		{MirrorName: "m", SourceBootstrap: "h:1,h:2", SourceClusterID: "src", TopicCount: 2},
	}, list.Mirrors)

	all := c.call(wire.NewPtrDescribeClusterMirrorsRequest()).(*wire.DescribeClusterMirrorsResponse)
	require.Len(t, all.Mirrors, 2)
	m := all.Mirrors[1]
	require.Equal(t, int32(noOperations), m.AuthorizedOperations)
	require.Equal(t, []string{"a", "b"}, []string{m.Topics[0].TopicName, m.Topics[1].TopicName})
	p := m.Topics[0].Partitions[1]
	require.Equal(t, []int64{10, 7, 3, -1}, []int64{p.SourceOffset, p.DestinationOffset, p.Lag, int64(p.LastMirrorEpoch)})
	require.Equal(t, []any{"FAILED", "no such host", int16(3), int64(50), int64(100), int64(7)}, []any{p.State, p.ErrorText, p.RetryAttempt, p.GapFrom, p.GapTo, p.GapAtMs})
	require.Equal(t, int32(4), m.Topics[1].Partitions[0].LastMirrorEpoch)

	req := wire.NewPtrDescribeClusterMirrorsRequest()
	req.MirrorNames, req.IncludeAuthorizedOperations = []string{"secret", "nope", "m"}, true
	named := c.call(req).(*wire.DescribeClusterMirrorsResponse)
	require.Equal(t, []any{"m", int16(0), "nope", int16(2137), "secret", int16(2144)},
		[]any{named.Mirrors[0].MirrorName, named.Mirrors[0].ErrorCode, named.Mirrors[1].MirrorName, named.Mirrors[1].ErrorCode, named.Mirrors[2].MirrorName, named.Mirrors[2].ErrorCode})
	require.Positive(t, named.Mirrors[0].AuthorizedOperations)
}

func TestInternalMirrorRequests(t *testing.T) {
	w := newWorld(t)
	w.mirrorOf("m", nil)
	topic := w.topic("t", 2, nil)
	c := w.dial()
	read := mirrorSample(wire.KeyReadMirrorStates).(*wire.ReadMirrorStatesRequest)
	write := mirrorSample(wire.KeyWriteMirrorStates).(*wire.WriteMirrorStatesRequest)
	require.Equal(t, int8(messages.StateMirroring), c.call(read).(*wire.ReadMirrorStatesResponse).Topics[0].Partitions[0].State)
	require.Zero(t, c.call(write).(*wire.WriteMirrorStatesResponse).Topics[0].Partitions[0].ErrorCode)
	w.busErr = messages.ErrCoordinatorNotAvailable
	got := c.call(read).(*wire.ReadMirrorStatesResponse).Topics[0]
	require.Equal(t, []any{"copy", int16(15), int8(16)}, []any{got.Name, got.Partitions[0].ErrorCode, got.Partitions[0].State})
	require.Equal(t, int16(15), c.call(write).(*wire.WriteMirrorStatesResponse).Topics[0].Partitions[0].ErrorCode)

	bump := wire.NewPtrBumpLeaderEpochsRequest()
	bump.Topics = []wire.BumpLeaderEpochsRequestTopicBump{
		{TopicID: messages.NewTopicID(), Partitions: []wire.BumpLeaderEpochsRequestPartitionBump{{PartitionIndex: 0, MinLeaderEpoch: 3}}},
		{TopicID: topic.ID, Partitions: []wire.BumpLeaderEpochsRequestPartitionBump{{PartitionIndex: 1, MinLeaderEpoch: 40}, {PartitionIndex: 7, MinLeaderEpoch: -1}}},
	}
	resp := c.call(bump).(*wire.BumpLeaderEpochsResponse)
	require.Equal(t, []any{"", int16(100)}, []any{resp.Topics[0].TopicName, resp.Topics[0].Partitions[0].ErrorCode})
	require.Equal(t, []any{"t", int16(0), int16(3)}, []any{resp.Topics[1].TopicName, resp.Topics[1].Partitions[0].ErrorCode, resp.Topics[1].Partitions[1].ErrorCode})
	require.Equal(t, int32(41), w.Image().Topic("t").Partitions[1].LeaderEpoch)

	w.deny = func(_ messages.Requester, op Operation, _ Resource) bool { return op == OpClusterAction }
	require.Equal(t, int16(31), c.call(read).(*wire.ReadMirrorStatesResponse).ErrorCode)
	require.Equal(t, int16(31), c.call(write).(*wire.WriteMirrorStatesResponse).ErrorCode)
	require.Equal(t, int16(31), c.call(bump).(*wire.BumpLeaderEpochsResponse).ErrorCode)
}

// TestMirrorVersionZero: every mirror request answers 35 while the feature is off.
func TestMirrorVersionZero(t *testing.T) {
	w := newWorld(t)
	w.mirrorOf("m", nil)
	off := wire.NewPtrFeatureLevelRecord()
	off.Name = metadata.MirrorVersionFeature
	w.apply(off)
	c := w.dial()
	for _, key := range wire.Keys() {
		t.Run(wire.KeyName(key), func(t *testing.T) {
			c.t = t
			code := kerrCode(t, c.call(mirrorSample(key)))
			require.Equal(t, int16(35), code)
		})
	}
}

// kerrCode is the top-level code: the first field after the throttle time.
func kerrCode(t *testing.T, resp kmsg.Response) int16 {
	t.Helper()
	b := resp.AppendTo(nil)
	require.Greater(t, len(b), 5)
	return int16(b[4])<<8 | int16(b[5])
}

// TestMirrorRequestsWithClient: kgo finds the KIP's keys among the advertised ones.
func TestMirrorRequestsWithClient(t *testing.T) {
	w := newWorld(t)
	cl := w.client()
	create := wire.NewPtrCreateClusterMirrorRequest()
	create.MirrorName = "m"
	create.Config = []wire.CreateClusterMirrorRequestClusterMirrorConfig{{Name: "bootstrap.servers", Value: new("h:1")}}
	resp, err := cl.Request(t.Context(), create)
	require.NoError(t, err)
	require.Zero(t, resp.(*wire.CreateClusterMirrorResponse).ErrorCode)
	resp, err = cl.Request(t.Context(), wire.NewPtrListClusterMirrorsRequest())
	require.NoError(t, err)
	require.Equal(t, "m", resp.(*wire.ListClusterMirrorsResponse).Mirrors[0].MirrorName)
	w.mu.Lock()
	defer w.mu.Unlock()
	require.NotEmpty(t, w.who.RequestID)
	require.Equal(t, []string{"User:ANONYMOUS", "kgo", "127.0.0.1"}, []string{w.who.Principal, w.who.ClientID, w.who.Host})
}
