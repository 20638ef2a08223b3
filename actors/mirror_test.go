package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/configs"
	"kagami/test/kafka/stub"
)

func lastOffset(t *testing.T, b []byte) int64 {
	t.Helper()
	last := int64(-1)
	for len(b) > 0 {
		h, _, rest, err := batch.Next(b)
		require.NoError(t, err)
		last, b = h.LastOffset(), rest
	}
	return last
}

func TestU10Discovery(t *testing.T) {
	src := stubSource(t, 2, 2)
	n := startMirrorNode(t, t.TempDir())
	n.create(src, configs.MirrorTopicsInclude+"=t.*")
	n.await("t discovered", func() error { return n.equal(src, "t") })
	id := messages.TopicID{7}
	src.Update(func(s *stub.State) {
		for i, p := range s.NewTopic("t-new", id, 3).Partitions {
			p.Leader = int32(i % 2)
			p.Fill(3)
		}
		s.NewTopic("other", messages.TopicID{8}, 1)
	})
	n.await("t-new discovered", func() error { return n.equal(src, "t-new") })
	require.Equal(t, id, n.store.Image().Topic("t-new").ID)
	require.Nil(t, n.store.Image().Topic("other"))
	n.neverFailed()
}

func TestK4Growth(t *testing.T) {
	src := stubSource(t, 1, 1)
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t")
	src.Update(func(s *stub.State) {
		topic := s.Topics["t"]
		p := &stub.Partition{Leader: 0, Epoch: 4}
		p.Fill(5)
		topic.Partitions = append(topic.Partitions, p, &stub.Partition{Leader: 0, Epoch: 1})
	})
	n.await("three partitions", func() error { return n.equal(src, "t") })
	n.neverFailed()
}

func TestU11TopicDeletedOnSource(t *testing.T) {
	src := stubSource(t, 1, 2)
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t")
	src.Update(func(s *stub.State) { delete(s.Topics, "t") })
	n.awaitIn(messages.StateStopped, tpOf("t", 0), tpOf("t", 1))
	require.Equal(t, messages.DesiredStopped, n.store.Image().Topic("t").Desired)
	r, err := n.replicas.Get(tpOf("t", 0))
	require.NoError(t, err)
	require.GreaterOrEqual(t, r.State().End, int64(20), "data is kept")
}

func TestC11TopicRecreatedOnSource(t *testing.T) {
	src := stubSource(t, 1, 1)
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t")
	old, anew := messages.TopicID{1, 2, 3}, messages.TopicID{9, 9}
	src.Update(func(s *stub.State) { s.Topics["t"].ID = anew })
	n.await("fault with both ids", func() error {
		if err := n.in(messages.StateFailed, tpOf("t", 0)); err != nil {
			return err
		}
		st := n.Partitions.Get(tpOf("t", 0)).Status()
		if !strings.Contains(st.Error, old.String()) || !strings.Contains(st.Error, anew.String()) || !st.NextRetry.IsZero() {
			return fmt.Errorf("%q, retry at %v", st.Error, st.NextRetry)
		}
		return nil
	})
	src.Update(func(s *stub.State) { s.Topics["t"].ID = old })
	grow(src, 3)
	n.await("well again", func() error { return n.equal(src, "t") })
}

// Another cluster answers at the same address (U12, D49); then the right one again.
func TestU12ForeignClusterAnswers(t *testing.T) {
	src := stubSource(t, 1, 2)
	n := startMirrorNode(t, t.TempDir())
	n.create(src, configs.MirrorTopicsInclude+"=t.*")
	n.begin(src, "t")
	src.Update(func(s *stub.State) {
		s.ClusterID = "impostor"
		s.NewTopic("t-impostor", messages.TopicID{5}, 1)
	})
	held := func() error {
		for p := range int32(2) {
			if err := n.in(messages.StateFailed, tpOf("t", p)); err != nil {
				return err
			}
			st := n.Partitions.Get(tpOf("t", p)).Status()
			if !strings.Contains(st.Error, "impostor") || !strings.Contains(st.Error, "source") || !st.NextRetry.IsZero() {
				return fmt.Errorf("%q, retry at %v", st.Error, st.NextRetry)
			}
		}
		return nil
	}
	n.await("held", held)
	grow(src, 3)
	require.ErrorIs(t, n.refresh(), errForeignSource)
	require.Nil(t, n.store.Image().Topic("t-impostor"), "no discovery")
	n.Recover(t.Context(), messages.Requester{}, "m", []string{"t"})
	n.await("held again after recover", held)
	r, err := n.replicas.Get(tpOf("t", 0))
	require.NoError(t, err)
	require.Equal(t, int64(20), r.State().End, "nothing of the impostor was copied")
	require.Equal(t, "source", n.store.Image().Mirror("m").Configs[configs.MirrorSourceClusterID])
	src.Update(func(s *stub.State) { s.ClusterID = "source"; delete(s.Topics, "t-impostor") })
	n.await("mirroring again", func() error { return n.equal(src, "t") })
}

// A start that meets a foreign cluster must not take "no LME" for an answer: it
// would cut the copy to zero.
func TestOP26ForeignClusterCutsNothing(t *testing.T) {
	src := stubSource(t, 1, 1)
	n := startMirrorNode(t, t.TempDir(), configs.MirrorRefreshInterval+"=600000")
	n.create(src)
	n.begin(src, "t")
	n.halt("t")
	n.awaitIn(messages.StateStopped, tpOf("t", 0))
	src.Update(func(s *stub.State) { s.ClusterID = "impostor" })
	topics := []messages.MirrorTopic{{Name: "t", ID: messages.TopicID{1, 2, 3}, NumPartitions: 1}}
	refused, err := n.CheckStart(t.Context(), "m", topics)
	require.NoError(t, err)
	require.ErrorIs(t, refused[0], errForeignSource)
	n.submit(messages.StartMirrorTopics{Mirror: "m", Topics: topics}) // it may change after the check
	n.awaitIn(messages.StateFailed, tpOf("t", 0))
	r, err := n.replicas.Get(tpOf("t", 0))
	require.NoError(t, err)
	require.GreaterOrEqual(t, r.State().End, int64(20))
}

func TestU14AlterBootstrap(t *testing.T) {
	src := stubSource(t, 2, 4)
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t")
	old := n.actors("fetcher-")
	n.alter(messages.ResourceClusterMirror, "m", configs.BootstrapServers, src.Broker(1).Address())
	n.await("other fetchers", func() error {
		now := n.actors("fetcher-")
		if len(now) == 0 || slices.ContainsFunc(now, func(a *actor.PID) bool { return a.Id == old[0].Id }) {
			return fmt.Errorf("fetchers %v", now)
		}
		return nil
	})
	grow(src, 5)
	n.await("goes on", func() error { return n.equal(src, "t") })
	n.await("id learned", func() error { return n.remembers("source") })
	n.neverFailed()
}

func (n *mirrorNode) remembers(id string) error {
	if got := n.store.Image().Mirror("m").Configs[configs.MirrorSourceClusterID]; got != id {
		return fmt.Errorf("remembered id is %q, want %q", got, id)
	}
	return nil
}

// After an alter of the connection the id is learned anew (OP-36).
func TestOP36AlterToAnotherCluster(t *testing.T) {
	src := stubSource(t, 1, 1)
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t")
	other := anotherSource(t, stub.Options{ClusterID: "other"}, 1)
	n.alter(messages.ResourceClusterMirror, "m", configs.BootstrapServers, other.Address())
	n.await("new id", func() error { return n.remembers("other") })
	grow(other, 4)
	n.await("goes on with the other", func() error { return n.equal(other, "t") })
}

// The number of fetchers changes while data flows: no partition is lost, none is
// with two.
func TestRespread(t *testing.T) {
	src := stubSource(t, 2, 8)
	src.Update(func(s *stub.State) {
		for i, p := range s.Topics["t"].Partitions {
			p.Leader = int32(i % 2)
		}
	})
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t")
	for _, count := range []string{"4", "1", "3"} {
		n.alter(messages.ResourceBroker, "", configs.MirrorNumReplicaFetchers, count)
		grow(src, 10)
		n.await("copied by "+count, func() error { return n.equal(src, "t") })
		want := map[string]bool{}
		for p := range int32(8) {
			number := messages.FetcherNumber(tpOf("t", p), int32(count[0]-'0'))
			want[fetcherKey{broker: messages.NodeID(p % 2), number: number}.String()] = true
		}
		n.await("fetchers for "+count, func() error {
			got := n.Mirrors.Fetchers("m")
			if len(got) != len(want) || slices.ContainsFunc(got, func(f string) bool { return !want[f] }) {
				return fmt.Errorf("fetchers %v, want %v", got, want)
			}
			return n.oneSession(src, 8)
		})
	}
	n.neverFailed()
}

// oneSession is nil when every partition stands in the session of one worker.
func (n *mirrorNode) oneSession(src *stub.Cluster, partitions int) error {
	s, err := n.Mirrors.Status(n.t.Context(), "m")
	if err != nil {
		return err
	}
	if s.Fetching != partitions {
		return fmt.Errorf("%d partitions in the books, want %d", s.Fetching, partitions)
	}
	return nil
}

func TestSourceLeaderMoves(t *testing.T) {
	for name, noHint := range map[string]bool{"with hint": false, "without hint": true} {
		t.Run(name, func(t *testing.T) {
			src := stubSource(t, 2, 3)
			n := startMirrorNode(t, t.TempDir())
			n.create(src)
			n.begin(src, "t")
			for round := range 4 {
				src.Update(func(s *stub.State) {
					for _, p := range s.Topics["t"].Partitions {
						p.Leader, p.Epoch, p.NoHint = 1-p.Leader, p.Epoch+1, noHint
						p.Fill(4)
					}
				})
				n.await(fmt.Sprintf("round %d", round), func() error { return n.equal(src, "t") })
			}
			if !noHint {
				n.neverFailed()
			}
		})
	}
}

// A broker comes back at another address.
func TestSourceBrokerMoves(t *testing.T) {
	src := stubSource(t, 2, 4)
	n := startMirrorNode(t, t.TempDir())
	src.Update(func(s *stub.State) {
		for _, p := range s.Topics["t"].Partitions {
			p.Leader = 1
		}
	})
	n.create(src)
	n.begin(src, "t")
	old := src.Broker(1).Address()
	src.Broker(1).Advertise("127.0.0.1:1") // nobody listens there
	n.await("moved to where nobody is", func() error {
		grow(src, 1)
		if l := n.Partitions.Get(tpOf("t", 0)).Lag().Snapshot().LastError; l == nil {
			return errors.New("no error yet")
		}
		return nil
	})
	require.NoError(t, n.in(messages.StateMirroring, tpOf("t", 0)))
	src.Broker(1).Advertise(old)
	n.await("copied", func() error { return n.equal(src, "t") })
	n.await("books", func() error { return n.oneSession(src, 4) })
	n.neverFailed()
}

func TestSourceDownAndUp(t *testing.T) {
	src := stubSource(t, 1, 2)
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t")
	src.Broker(0).Down()
	grow(src, 5)
	n.await("refresh fails", func() error {
		if n.refresh() == nil {
			return errors.New("the refresh succeeded")
		}
		return nil
	})
	require.NoError(t, n.in(messages.StateMirroring, tpOf("t", 0)))
	require.NoError(t, src.Broker(0).Up())
	n.await("caught up", func() error { return n.equal(src, "t") })
	n.neverFailed()
}

// The source takes requests and answers nothing, and a request may take a minute:
// pause, stop and the end of the node don't wait for it (C06).
func TestC06HangingSource(t *testing.T) {
	src := stubSource(t, 1, 8)
	n := startMirrorNode(t, t.TempDir(), configs.ReplicaSocketTimeout+"=60000")
	n.create(src)
	src.Update(func(s *stub.State) { s.NewTopic("u", messages.TopicID{4}, 1).Partitions[0].Fill(1) })
	n.begin(src, "t", "u")
	src.Broker(0).BlackHole(true)
	within := func(what string, f func()) {
		t.Helper()
		from := time.Now()
		f()
		if took := time.Since(from); took > 10*time.Second {
			t.Errorf("%s took %s", what, took)
		}
	}
	within("pause and resume", func() {
		n.submit(messages.PauseMirrorTopics{Mirror: "m", Topics: []messages.MirrorTopic{{Name: "u"}}})
		n.awaitIn(messages.StatePaused, tpOf("u", 0))
		n.submit(messages.ResumeMirrorTopics{Mirror: "m", Topics: []messages.MirrorTopic{{Name: "u"}}})
		n.await("resumed or failed", func() error {
			if n.in(messages.StateMirroring, tpOf("u", 0)) == nil {
				return nil
			}
			return n.in(messages.StateFailed, tpOf("u", 0))
		})
	})
	within("stop", func() {
		n.halt("t")
		for p := range int32(8) {
			n.awaitIn(messages.StateStopped, tpOf("t", p))
		}
	})
	within("alter", func() {
		n.alter(messages.ResourceClusterMirror, "m", "security.protocol", "PLAINTEXT")
	})
	within("shutdown", func() { require.NoError(t, n.stop()) })
}

// A mirror goes while partitions of it are busy, and comes again.
func TestMirrorDeletedAndMadeAgain(t *testing.T) {
	src := stubSource(t, 1, 3)
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t")
	n.halt("t")
	for p := range int32(3) {
		n.awaitIn(messages.StateStopped, tpOf("t", p))
	}
	require.NoError(t, n.CheckDelete(t.Context(), "m"))
	n.submit(messages.DeleteMirror{Name: "m"})
	n.await("all gone", func() error {
		if n.Mirrors.PID("m") != nil || n.Partitions.Get(tpOf("t", 0)) != nil {
			return errors.New("an actor is left")
		}
		return nil
	})
	if _, err := n.Mirrors.Status(t.Context(), "m"); !errors.Is(err, messages.ErrUnknownMirror) {
		t.Errorf("status of a mirror that is gone: %v", err)
	}
	n.create(src)
	n.begin(src, "t")
}

// Actors begin another life: what they had comes back.
func TestLivesOfActors(t *testing.T) {
	src := stubSource(t, 2, 6)
	src.Update(func(s *stub.State) {
		for i, p := range s.Topics["t"].Partitions {
			p.Leader = int32(i % 2)
		}
	})
	n := startMirrorNode(t, t.TempDir(), configs.MirrorNumReplicaFetchers+"=2")
	n.create(src)
	n.begin(src, "t")
	for _, who := range []string{"fetcher-", "mirror-m", "mirrors"} {
		n.restart(who)
		grow(src, 5)
		n.await("copied after the end of "+who, func() error { return n.equal(src, "t") })
		n.await("books after the end of "+who, func() error { return n.oneSession(src, 6) })
	}
	n.neverFailed()
}

// What a mirror is asked while it ends is answered, and soon.
func TestMirrorAnswersWhenItEnds(t *testing.T) {
	src := stubSource(t, 1, 1)
	n := startMirrorNode(t, t.TempDir(), configs.ReplicaSocketTimeout+"=60000")
	n.create(src)
	n.await("reachable", n.refresh)
	src.Broker(0).BlackHole(true)
	answers := make(chan error, 3)
	for _, q := range []any{mirrorAwaitRefresh{}, mirrorAwaitEpochs{}, mirrorFetch{tp: tpOf("nothing", 0)}} {
		go func() {
			a, err := n.Mirrors.Link().ask(context.Background(), "m", q)
			switch a := a.(type) {
			case refreshSeen:
				err = a.err
			case epochsSeen:
				err = a.err
			case fetcherAnswer:
				err = a.err
			}
			answers <- err
		}()
	}
	n.submit(messages.DeleteMirror{Name: "m"})
	for range cap(answers) {
		select {
		case err := <-answers:
			require.Error(t, err)
		case <-time.After(10 * time.Second):
			t.Fatal("no answer")
		}
	}
}

// The node ends and begins again in its folder, without a detour over FAILED.
func TestNodeRestarts(t *testing.T) {
	dir := t.TempDir()
	src := stubSource(t, 1, 4)
	n := startMirrorNode(t, dir)
	n.create(src)
	n.begin(src, "t")
	require.NoError(t, n.stop())
	require.NoError(t, n.stop())
	grow(src, 5)
	again := startMirrorNode(t, dir)
	again.await("goes on", func() error { return again.equal(src, "t") })
	again.neverFailed()
}

func TestThrottledReplicasChange(t *testing.T) {
	src := stubSource(t, 1, 1)
	n := startMirrorNode(t, t.TempDir(), configs.MirrorThrottledRate+"=1")
	n.create(src)
	n.begin(src, "t")
	n.alter(messages.ResourceTopic, "t", configs.MirrorThrottledReplicas, "*")
	grow(src, 400) // more than the first second's allowance
	n.await("throttled", func() error {
		if n.throttle.Exceeded() {
			return nil
		}
		grow(src, 10)
		return errors.New("the rate is below its limit")
	})
	n.alter(messages.ResourceTopic, "t", configs.MirrorThrottledReplicas, "")
	n.await("free again", func() error { return n.equal(src, "t") })
}

// A source without topic ids: a topic that was made anew shows by its lower epoch
// only, and the copy must not wait for the old one for ever (C41).
func TestC41RecreatedWithoutIDs(t *testing.T) {
	src := stubSource(t, 1, 1)
	src.Update(func(s *stub.State) {
		s.Versions = stub.Versions21()
		s.Topics["t"].ID = messages.TopicID{}
		s.Topics["t"].Partitions[0].Epoch = 4
	})
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t")
	src.Update(func(s *stub.State) { s.NewTopic("t", messages.TopicID{}, 1).Partitions[0].Fill(5) })
	n.awaitIn(messages.StateFailed, tpOf("t", 0))
	r, err := n.replicas.Get(tpOf("t", 0))
	require.NoError(t, err)
	require.Equal(t, int64(20), r.State().End)
}
