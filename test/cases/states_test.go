package cases

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/client"
	"kagami/messages"
	"kagami/test/e2e"
	"kagami/test/kafka/stub"
)

const keyFetch = 1

// refused wants a single topic's refusal.
func (w *world) refused(want error, res client.TopicResults, err error) {
	w.t.Helper()
	require.NoError(w.t, err)
	require.ErrorIs(w.t, res.Err(), want)
}

// TestD7D8D9D10PauseResumeStop walks a topic through its states; each refusal
// leaves everything as it was.
func TestD7D8D9D10PauseResumeStop(t *testing.T) {
	w := shared(t)
	topic := w.topic("t", 2, func(tp *stub.Topic) { tp.Partitions[0].Fill(10) })
	w.mirrored(topic)
	only := []string{topic}

	res, err := w.adm.ResumeMirrorTopics(w.ctx, w.mirror, only)
	w.refused(messages.ErrNotPaused, res, err)
	w.pause(topic)
	res, err = w.adm.PauseMirrorTopics(w.ctx, w.mirror, only)
	w.refused(messages.ErrAlreadyPaused, res, err)
	require.Equal(t, "PAUSED", w.look(topic, 0).State)

	w.part(topic, 0, func(p *stub.Partition) { p.Fill(5) })
	require.Equal(t, int64(10), w.end(topic, 0))
	before := len(w.src.Seen(keyFetch))
	w.resume(topic)
	w.awaitEqual(topic)
	require.Zero(t, w.look(topic, 0).CutRecords, "no truncation")
	for _, s := range w.src.Seen(keyFetch)[before:] {
		for _, ft := range s.Body.(*kmsg.FetchRequest).Topics {
			for _, fp := range ft.Partitions {
				require.True(t, fp.Partition != 0 || fp.FetchOffset >= 10, "fetched from %d", fp.FetchOffset)
			}
		}
	}

	w.stop(topic)
	res, err = w.adm.PauseMirrorTopics(w.ctx, w.mirror, only)
	w.refused(messages.ErrBeingStopped, res, err)
	res, err = w.adm.ResumeMirrorTopics(w.ctx, w.mirror, only)
	w.refused(messages.ErrNotPaused, res, err)
	end := w.end(topic, 0)
	w.stop(topic)
	require.Equal(t, end, w.end(topic, 0), "the second stop changes nothing")

	// Names that are in no mirror, in another one, or nowhere.
	_, err = w.kadm().CreateTopic(w.ctx, 1, 1, nil, topic+"-plain")
	require.NoError(t, err)
	require.NoError(t, w.tryCreate(w.mirror+"-2"))
	for _, row := range []struct {
		mirror, topic string
		want          error
	}{
		{w.mirror, topic + "-none", kerr.UnknownTopicOrPartition},
		{w.mirror, topic + "-plain", messages.ErrUnknownMirror},
		{w.mirror + "-2", topic, messages.ErrTopicNotInMirror},
	} {
		for _, f := range []func() (client.TopicResults, error){
			func() (client.TopicResults, error) {
				return w.adm.PauseMirrorTopics(w.ctx, row.mirror, []string{row.topic})
			},
			func() (client.TopicResults, error) {
				return w.adm.ResumeMirrorTopics(w.ctx, row.mirror, []string{row.topic})
			},
			func() (client.TopicResults, error) {
				return w.adm.StopMirrorTopics(w.ctx, row.mirror, []string{row.topic})
			},
			func() (client.TopicResults, error) {
				return w.adm.RecoverMirrorTopics(w.ctx, row.mirror, []string{row.topic})
			},
		} {
			res, err := f()
			w.refused(row.want, res, err)
		}
	}
}

func TestD11TopicInTwoMirrors(t *testing.T) {
	w := shared(t)
	topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(3) })
	w.mirrored(topic)
	w.mirror += "-2"
	w.create()
	require.ErrorIs(t, w.tryStart(topic), messages.ErrTopicInMirror)
	w.mirror = strings.TrimSuffix(w.mirror, "-2")
	w.stop(topic)
	w.mirror += "-2"
	w.start(topic)
	w.awaitEqual(topic)
	name, _ := w.config(topic, "mirror.name")
	require.Equal(t, w.mirror, name)
}

func TestD12D13DeleteMirror(t *testing.T) {
	w := shared(t)
	topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(3) })
	paused := w.topic("paused", 1, nil)
	w.mirrored(topic, paused)
	require.ErrorIs(t, w.adm.DeleteClusterMirror(w.ctx, w.mirror+"-none"), messages.ErrUnknownMirror)
	require.ErrorIs(t, w.adm.DeleteClusterMirror(w.ctx, w.mirror), messages.ErrMirrorNotEmpty)
	w.stop(topic)
	w.pause(paused)
	require.ErrorIs(t, w.adm.DeleteClusterMirror(w.ctx, w.mirror), messages.ErrMirrorNotEmpty)
	w.stop(paused)
	require.NoError(t, w.adm.DeleteClusterMirror(w.ctx, w.mirror))
	name, set := w.config(topic, "mirror.name")
	require.False(t, set && name != "", "mirror.name %q", name)
	w.write(topic, "x", 4)
	seen := len(w.src.Seen())

	// Both record types have tombstones, so a peer that asks truncates to zero.
	w.await(func() error {
		res, err := w.node.Tool(w.ctx, "kafka-dump-log", "--mirror-state-decoder")
		if err != nil {
			return err
		}
		last := ""
		for line := range strings.Lines(res.Stdout) {
			if strings.Contains(line, w.mirror) {
				last = line
			}
		}
		if !strings.Contains(strings.ToLower(last), "delete") && !strings.Contains(last, "null") {
			return fmt.Errorf("last of the mirror: %s", last)
		}
		return nil
	})
	w.create() // the name is free
	ps, err := e2e.Partitions(w.ctx, w.adm, w.mirror)
	require.NoError(t, err)
	require.Empty(t, ps)
	require.GreaterOrEqual(t, len(w.src.Seen()), seen)
	w.start(topic)
	w.awaitEqual(topic)
}

func TestD14D15D54Create(t *testing.T) {
	w := owned(t) // D54: a new cluster, no switches set
	for _, row := range []struct{ what, name string }{
		{"stopped", "a.stopped"}, {"paused", "a.paused"}, {"empty", ""}, {"long", strings.Repeat("x", 250)}, {"slash", "a/b"},
	} {
		require.ErrorIs(t, w.tryCreate(row.name), messages.ErrInvalidMirrorName, row.what)
	}
	list, err := w.adm.ListClusterMirrors(w.ctx)
	require.NoError(t, err)
	require.Empty(t, list)
	require.NoError(t, w.tryCreate(strings.Repeat("x", 249)))
	w.create()
	require.ErrorIs(t, w.tryCreate(w.mirror), messages.ErrMirrorExists)
	list, err = w.adm.ListClusterMirrors(w.ctx)
	require.NoError(t, err)
	require.Len(t, list, 2)
}

// elect raises a partition's epoch n times, with a record in each.
func (w *world) elect(topic string, n int) {
	for range n {
		w.part(topic, 0, func(p *stub.Partition) {
			p.Epoch++
			p.Fill(1)
		})
	}
}

// TestD18SourceElections: a bump keeps DLE above, by max(min, current) + 1 with
// min = SLE + 10.
func TestD18SourceElections(t *testing.T) {
	w := shared(t)
	topic := w.topic("t", 1, func(tp *stub.Topic) {
		tp.Partitions[0].Epoch = 5
		tp.Partitions[0].Fill(1)
	})
	w.mirrored(topic)
	w.awaitLook(topic, 0, func(p client.DescribedPartition) bool { return p.LeaderEpoch == 16 })
	last := int32(16)
	for range 9 {
		w.elect(topic, 1)
		w.awaitEqual(topic)
		p := w.awaitLook(topic, 0, func(p client.DescribedPartition) bool { return p.State == "MIRRORING" })
		require.GreaterOrEqual(t, p.LeaderEpoch, last, "it never goes down")
		require.Zero(t, p.RetryAttempt, "no FAILED")
		last = p.LeaderEpoch
	}
	// SLE 14 > 16 - 3: max(14 + 10, 16) + 1, and one more if refresh and fetcher
	// both ask, because a request always raises.
	p := w.awaitLook(topic, 0, func(p client.DescribedPartition) bool { return p.LeaderEpoch > 16 })
	require.Contains(t, []int32{25, 26}, p.LeaderEpoch)
	require.NotContains(t, w.node.Process().Log(), `"topic": "`+topic+`", "partition": 0, "from": "MIRRORING", "state": "FAILED"`)
}

// TestD19BatchAboveLeaderEpoch: refused, EPOCH_FENCING, later appended once.
func TestD19BatchAboveLeaderEpoch(t *testing.T) {
	w := shared(t)
	topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(1) })
	w.mirrored(topic)
	w.awaitLook(topic, 0, func(p client.DescribedPartition) bool { return p.LeaderEpoch == 11 })
	w.part(topic, 0, func(p *stub.Partition) {
		p.Epoch = 40
		p.Fill(3)
	})
	w.awaitEqual(topic)
	p := w.awaitLook(topic, 0, func(p client.DescribedPartition) bool { return p.State == "MIRRORING" })
	// max(40 + 10, 11) + 1, and one more for each refresh that asks as well before the
	// new epoch is seen: on a busy machine that may be more than one.
	require.GreaterOrEqual(t, p.LeaderEpoch, int32(51))
	require.LessOrEqual(t, p.LeaderEpoch, int32(54))
	require.Contains(t, w.path(topic), "EPOCH_FENCING")
	require.Len(t, headers(t, w.bytes(topic, 0)), 4)
}

// TestD38D39Patterns: where patterns are kept.
func TestD38D39Patterns(t *testing.T) {
	w := shared(t)
	in := w.topic("orders-1", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(1) })
	out := w.topic("orders-internal", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(1) })
	pre := w.mirror + "-orders-"
	w.create()
	res, err := w.adm.StartMirrorTopics(w.ctx, w.mirror, nil, client.StartOptions{IncludePatterns: []string{pre + ".*"}, ExcludePatterns: []string{out}})
	w.done(res, err)
	w.awaitState("MIRRORING", in)
	w.awaitEqual(in)
	list := func(key string) string { return w.mirrorConfig("mirror.topics." + key) }
	require.Equal(t, pre+".*", list("include"))
	require.Equal(t, "__.*,"+out, list("exclude"))
	w.refreshes(2)
	require.NotContains(t, w.topicsHere(), out)

	// D39: stop with .* and start with .* again.
	res, err = w.adm.StopMirrorTopics(w.ctx, w.mirror, []string{in}, ".*")
	w.done(res, err)
	w.awaitState("STOPPED", in)
	require.Equal(t, pre+".*", list("include"))
	require.Equal(t, "__.*,"+out+",.*", list("exclude"))
	require.ErrorIs(t, w.tryStart(in), kerr.InvalidRequest, "it still matches an exclude entry")
	res, err = w.adm.StartMirrorTopics(w.ctx, w.mirror, []string{in}, client.StartOptions{IncludePatterns: []string{".*"}, TopicMetadata: w.metadata(in)})
	w.done(res, err)
	require.Equal(t, pre+".*,.*", list("include"))
	require.Equal(t, "__.*,"+out, list("exclude"))
	w.awaitState("MIRRORING", in)
	w.stop(in) // or discovery goes on for the other tests' names
}

func (w *world) topicsHere() []string {
	w.t.Helper()
	l, err := w.kadm().ListTopics(w.ctx)
	require.NoError(w.t, err)
	return l.Names()
}

func (w *world) metadata(topics ...string) map[string]client.TopicMetadata {
	out := map[string]client.TopicMetadata{}
	w.src.Read(func(s *stub.State) {
		for _, name := range topics {
			out[name] = client.TopicMetadata{ID: s.Topics[name].ID, Partitions: int32(len(s.Topics[name].Partitions))}
		}
	})
	return out
}

// mirrorConfig is one config of the mirror.
func (w *world) mirrorConfig(key string) string {
	w.t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = resourceMirror, w.mirror
	req.Resources = append(req.Resources, r)
	resp := ask[*kmsg.DescribeConfigsResponse](w, req, 4)
	require.Zero(w.t, resp.Resources[0].ErrorCode)
	for _, c := range resp.Resources[0].Configs {
		if c.Name == key && c.Value != nil {
			return *c.Value
		}
	}
	return ""
}

const resourceMirror kmsg.ConfigResourceType = 64

// TestD41OutageIsNoFailure: longer than all retry delays.
func TestD41OutageIsNoFailure(t *testing.T) {
	w := owned(t, "mirror.failed.retry.max.attempts=2", "mirror.failed.retry.initial.backoff.ms=10")
	topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(3) })
	w.mirrored(topic)
	w.src.Broker(0).Down()
	from := time.Now()
	w.await(func() error {
		require.Equal(t, "MIRRORING", w.look(topic, 0).State)
		if time.Since(from) < 3*time.Second {
			return fmt.Errorf("only %s", time.Since(from))
		}
		return nil
	})
	w.part(topic, 0, func(p *stub.Partition) { p.Fill(4) })
	require.NoError(t, w.src.Broker(0).Up())
	w.awaitEqual(topic)
	require.Zero(t, w.look(topic, 0).RetryAttempt)
	require.NotContains(t, w.node.Process().Log(), `"state": "FAILED"`)
}

// path is the states that a partition went through, from the node's log.
func (w *world) path(topic string) []string {
	var out []string
	for line := range strings.Lines(w.node.Process().Log()) {
		if (strings.Contains(line, "partition moved") || strings.Contains(line, "partition failed")) && strings.Contains(line, `"topic": "`+topic+`"`) {
			_, rest, _ := strings.Cut(line, `"state": "`)
			state, _, _ := strings.Cut(rest, `"`)
			out = append(out, state)
		}
	}
	return out
}

// TestD42PauseOvertakesStart: never PAUSED without alignment.
func TestD42PauseOvertakesStart(t *testing.T) {
	w := shared(t)
	topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(3) })
	w.create()
	require.NoError(t, w.tryStart(topic))
	w.pause(topic)
	require.Equal(t, []string{"LOG_TRUNCATION", "MIRRORING", "PAUSING", "PAUSED"}, w.path(topic))
	w.resume(topic)
	w.awaitEqual(topic)
}

func TestD43List(t *testing.T) {
	w := shared(t)
	a, b, c := w.topic("a", 1, nil), w.topic("b", 2, nil), w.topic("c", 3, nil)
	w.mirrored(a, b, c)
	w.pause(b)
	w.stop(c)
	list, err := w.adm.ListClusterMirrors(w.ctx)
	require.NoError(t, err)
	i := slices.IndexFunc(list, func(m client.ListedMirror) bool { return m.Name == w.mirror })
	require.Equal(t, client.ListedMirror{
		Name: w.mirror, SourceBootstrap: w.src.Address(), SourceClusterID: "source-of-" + w.mirror, TopicCount: 3,
	}, list[i])
}

// corrupt makes the source serve a broken batch at the end of p0.
func (w *world) corrupt(topic string) {
	w.part(topic, 0, func(p *stub.Partition) {
		b := stub.Build(stub.Spec{Base: p.End(), Records: []stub.Record{{Value: []byte("good")}}})
		b[len(b)-1] ^= 1
		p.PutRaw(p.End(), p.End(), 0, b)
	})
}

// repair replaces it.
func (w *world) repair(topic string) {
	w.part(topic, 0, func(p *stub.Partition) {
		p.Batches = p.Batches[:len(p.Batches)-1]
		p.Fill(1)
	})
}

// TestD46PauseWhileFailedInTruncation: aligned first, then paused.
func TestD46PauseWhileFailedInTruncation(t *testing.T) {
	w := shared(t)
	w.src.Update(func(s *stub.State) { s.Versions = stub.VersionsWithMirrors() })
	var fails atomic.Bool
	fails.Store(true)
	w.src.Intercept(keyDescribeMirrors, func(*stub.Request) stub.Reply { return stub.Reply{Close: fails.Load()} })
	topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(3) })
	w.create()
	require.NoError(t, w.tryStart(topic))
	w.failed(topic, 0)
	w.done(w.adm.PauseMirrorTopics(w.ctx, w.mirror, []string{topic}))
	fails.Store(false)
	w.awaitState("PAUSED", topic)
	path := w.path(topic)
	require.Equal(t, []string{"LOG_TRUNCATION", "MIRRORING", "PAUSING", "PAUSED"}, path[len(path)-4:], "%v", path)
}

const keyDescribeMirrors = 2099

// TestD47RecoverPermanentFailure: previous state without truncation, counter 0.
func TestD47RecoverPermanentFailure(t *testing.T) {
	w := owned(t, "mirror.failed.retry.max.attempts=3", "mirror.failed.retry.initial.backoff.ms=10")
	topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(3) })
	w.mirrored(topic)
	w.corrupt(topic)
	w.awaitLook(topic, 0, func(p client.DescribedPartition) bool { return p.State == "FAILED" && p.RetryAttempt == 3 })
	w.repair(topic)
	w.refreshes(2)
	require.Equal(t, "FAILED", w.look(topic, 0).State, "it is permanent")
	res, err := w.adm.RecoverMirrorTopics(w.ctx, w.mirror, []string{topic})
	w.done(res, err)
	w.awaitEqual(topic)
	p := w.awaitLook(topic, 0, func(p client.DescribedPartition) bool { return p.State == "MIRRORING" && p.RetryAttempt == 0 })
	require.Zero(t, p.CutRecords)
	require.NotContains(t, w.path(topic)[2:], "LOG_TRUNCATION")
	res, err = w.adm.RecoverMirrorTopics(w.ctx, w.mirror, []string{topic})
	w.refused(messages.ErrInvalidMirrorStates, res, err)
}

// TestD48DescribeFailed: only the FAILED partition, with RETRY and ERROR.
func TestD48DescribeFailed(t *testing.T) {
	w := shared(t)
	topic := w.topic("t", 2, func(tp *stub.Topic) {
		tp.Partitions[0].Fill(3)
		tp.Partitions[1].Fill(3)
	})
	w.mirrored(topic)
	w.corrupt(topic)
	w.failed(topic, 0)
	w.await(func() error {
		res, err := w.node.Mirrors(w.ctx, "--describe", "--mirror", w.mirror, "--failed")
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(res.Stdout), "\n")
		if res.Code != 0 || len(lines) != 2 {
			return fmt.Errorf("%d: %s%s", res.Code, res.Stdout, res.Stderr)
		}
		for _, want := range []string{"RETRY", "ERROR"} {
			require.Contains(t, lines[0], want)
		}
		require.Contains(t, lines[1], "FAILED")
		require.Contains(t, lines[1], " 0 ")
		require.Contains(t, lines[1], "3", "the offset is in the reason")
		return nil
	})
	require.Equal(t, "MIRRORING", w.look(topic, 1).State)
}

// TestU10Discovery: a matching topic that comes later.
func TestU10Discovery(t *testing.T) {
	w := shared(t)
	w.create()
	res, err := w.adm.StartMirrorTopics(w.ctx, w.mirror, nil, client.StartOptions{IncludePatterns: []string{w.mirror + "-new.*"}})
	w.done(res, err)
	other := w.topic("old", 1, nil)
	topic := w.topic("new1", 3, func(tp *stub.Topic) { tp.Partitions[2].Fill(4) })
	w.await(func() error {
		if !slices.Contains(w.topicsHere(), topic) {
			return fmt.Errorf("not there yet")
		}
		return nil
	})
	w.awaitState("MIRRORING", topic)
	w.awaitEqual(topic)
	l, err := w.kadm().ListTopics(w.ctx, topic)
	require.NoError(t, err)
	require.Equal(t, w.metadata(topic)[topic].ID, messages.TopicID(l[topic].ID))
	require.NotContains(t, w.topicsHere(), other)
}

// TestU11TopicDeletedOnSource: STOPPED, data kept.
func TestU11TopicDeletedOnSource(t *testing.T) {
	w := shared(t)
	topic := w.topic("t", 2, func(tp *stub.Topic) { tp.Partitions[0].Fill(10) })
	w.mirrored(topic)
	w.src.Update(func(s *stub.State) { delete(s.Topics, topic) })
	w.awaitState("STOPPED", topic)
	require.Equal(t, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, offsets(w.consume(topic, 0, 10)))
	w.write(topic, "x", 11)
	name, _ := w.config(topic, "mirror.name")
	require.Equal(t, w.mirror+".stopped", name)
}

// TestU12D49AnotherClusterAnswers: nothing is fetched from it; MIRRORING
// and PAUSED come back by themselves when the first one does.
func TestU12D49AnotherClusterAnswers(t *testing.T) {
	w := shared(t)
	topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(10) })
	paused := w.topic("paused", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(2) })
	w.mirrored(topic, paused)
	w.pause(paused)
	w.src.Update(func(s *stub.State) { s.ClusterID = "somebody-else" })
	for _, name := range []string{topic, paused} {
		w.failed(name, 0, "somebody-else", "source-of-"+w.mirror)
	}
	fetched := len(w.src.Seen(keyFetch))
	w.part(topic, 0, func(p *stub.Partition) { p.Fill(5) })
	w.refreshes(2)
	require.LessOrEqual(t, len(w.src.Seen(keyFetch))-fetched, 1, "one may have been under way")
	require.Equal(t, int64(10), w.end(topic, 0))
	w.src.Update(func(s *stub.State) { s.ClusterID = "source-of-" + w.mirror })
	w.awaitState("MIRRORING", topic)
	w.awaitState("PAUSED", paused)
	w.awaitEqual(topic)
}

// TestU14OtherBrokers: the mirror is altered to another address of the source.
func TestU14OtherBrokers(t *testing.T) {
	w := shared(t)
	w.src = source(t, stub.Options{Brokers: 2, ClusterID: "source-of-" + w.mirror})
	topic := w.topic("t", 1, func(tp *stub.Topic) {
		tp.Partitions[0].Leader = 1
		tp.Partitions[0].Fill(10)
	})
	w.mirrored(topic)
	_, code, msg := w.alter(resourceMirror, w.mirror, "bootstrap.servers", w.src.Broker(1).Address())
	require.Zero(t, code, msg)
	w.part(topic, 0, func(p *stub.Partition) { p.Fill(10) })
	w.awaitEqual(topic)
	w.awaitState("MIRRORING", topic)
	require.Zero(t, w.look(topic, 0).CutRecords)
	w.src.Broker(0).Down()
	w.part(topic, 0, func(p *stub.Partition) { p.Fill(1) })
	w.awaitEqual(topic)
}

// TestC06StopWithBlackHole: stop and shutdown don't wait for the source.
func TestC06StopWithBlackHole(t *testing.T) {
	w := owned(t, "replica.socket.timeout.ms=60000")
	w.src.Update(func(s *stub.State) { s.Versions = stub.VersionsWithMirrors() })
	topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(3) })
	late := w.topic("late", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(3) })
	w.mirrored(topic)
	w.src.Intercept(keyDescribeMirrors, func(*stub.Request) stub.Reply { return stub.Reply{Hang: true} })
	require.NoError(t, w.tryStart(late))
	w.awaitState("LOG_TRUNCATION", late)
	w.src.Broker(0).BlackHole(true)
	step := func(what string, f func()) {
		t.Helper()
		from := time.Now()
		f()
		require.Less(t, time.Since(from), 10*time.Second, what)
	}
	step("stop", func() { w.stop(topic, late) })
	require.Equal(t, int64(4), w.end(topic, 0))
	step("stop again", func() { w.stop(topic, late) })
	require.Equal(t, int64(4), w.end(topic, 0), "a clean no-op")
	step("produce", func() {
		w.write(topic, "x", 4)
		w.write(late, "x", -1)
	})
	step("shutdown", func() { require.NoError(t, w.node.Stop()) })
}

// TestD45OutageOverRestart: permanent FAILED during the outage, re-armed by the
// first good refresh, no truncation.
func TestD45OutageOverRestart(t *testing.T) {
	const limit = 3
	w := owned(t, fmt.Sprintf("mirror.failed.retry.max.attempts=%d", limit), "mirror.failed.retry.initial.backoff.ms=10")
	topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(3) })
	w.mirrored(topic)
	w.src.Broker(0).Down()
	w.restart()
	w.awaitLook(topic, 0, func(p client.DescribedPartition) bool { return p.State == "FAILED" && p.RetryAttempt == limit })
	w.part(topic, 0, func(p *stub.Partition) { p.Fill(2) })
	require.NoError(t, w.src.Broker(0).Up())
	w.awaitEqual(topic)
	p := w.awaitLook(topic, 0, func(p client.DescribedPartition) bool { return p.State == "MIRRORING" && p.RetryAttempt == 0 })
	require.Zero(t, p.CutRecords)
	require.NotContains(t, w.path(topic)[2:], "LOG_TRUNCATION")
}
