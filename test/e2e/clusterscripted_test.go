package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
	"kagami/test/kafka"
	"kagami/test/kafka/stub"
)

// scripted is a cluster of three nodes whose source is scripted, so that it fails, and
// loses what it had, when a test says so.
type scripted struct {
	*world
	script *stub.Cluster
	fifos  map[int]string // node -> pipe that holds its cuts of data while it exists
}

// Mirrors of scripted: the second's source doesn't tell where to cut.
const (
	scriptMirror = "m"
	failMirror   = "failing"
)

func newScripted(t *testing.T) *scripted {
	t.Helper()
	program, err := FaultServer()
	require.NoError(t, err)
	fifo := func(dir string) string { return filepath.Join(dir, "fifo") }
	nodes := StartCluster(t, ClusterOptions{
		Program: program, Properties: map[string]string{"mirror.failed.retry.initial.backoff.ms": "100"},
		Env: func(dir string) []string {
			return []string{"KAGAMI_FAULT_HOLD=journal.data.Truncate.before=" + fifo(dir)}
		},
	})
	s := &scripted{world: clusterWorldOf(t, nil, nodes), fifos: map[int]string{}}
	for _, id := range nodes.IDs() {
		s.fifos[id] = fifo(filepath.Dir(nodes.Node(id).DataDir()))
	}
	s.script, err = stub.Start(stub.Options{ClusterID: "the-source"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.script.Close()) })
	return s
}

// topics makes topics on the source: name, then number of partitions. Each partition
// has batches of one record of epoch 0.
func (s *scripted) topics(records int, partitions map[string]int) {
	s.script.Update(func(st *stub.State) {
		for name, n := range partitions {
			for _, p := range st.NewTopic(name, messages.NewTopicID(), n).Partitions {
				p.Fill(records)
			}
		}
	})
}

// knows has the source know the mirrors: the epochs to cut to, and an error in place
// of those of failMirror.
func (s *scripted) knows(lmes map[messages.TopicPartition]int32, failing int16) {
	s.script.Update(func(st *stub.State) {
		failed := stub.Mirror(failMirror, messages.StateStopped, nil)
		failed.ErrorCode = failing
		st.Versions = stub.VersionsWithMirrors()
		st.Mirrors = map[int32][]wire.DescribeClusterMirrorsResponseDescribedMirror{0: {stub.Mirror(scriptMirror, messages.StateStopped, lmes), failed}}
	})
}

func (s *scripted) createScripted(mirror string) {
	s.t.Helper()
	s.run("--create", "--mirror", mirror, "--mirror-config", s.mirrorFile("bootstrap.servers="+s.script.Address()))
}

// rows waits until what a node knows of a topic's partitions is right, and returns it.
func (s *scripted) rows(by int, mirror, topic string, right func(r MirrorRow) bool) []MirrorRow {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, healTimeout)
	defer cancel()
	var of []MirrorRow
	require.NoError(s.t, kafka.Poll(ctx, func() error {
		all, err := s.nodes.Node(by).MirrorRows(ctx, mirror)
		if err != nil {
			return err
		}
		of = slices.DeleteFunc(all, func(r MirrorRow) bool { return r.Topic != topic })
		if i := slices.IndexFunc(of, func(r MirrorRow) bool { return !right(r) }); i >= 0 {
			return fmt.Errorf("%+v", of[i])
		}
		if len(of) == 0 {
			return fmt.Errorf("no partition of %s", topic)
		}
		return nil
	}))
	return of
}

func inState(state messages.State) func(r MirrorRow) bool {
	return func(r MirrorRow) bool { return r.State == state.String() }
}

// stays looks for a second whether a topic's partitions leave a state.
func (s *scripted) stays(by int, mirror, topic string, state messages.State) {
	s.t.Helper()
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		rows, err := s.nodes.Node(by).MirrorRows(s.ctx, mirror)
		require.NoError(s.t, err)
		for _, r := range rows {
			require.True(s.t, r.Topic != topic || r.State == state.String(), "%+v, want %s", r, state)
		}
		s.runFor(50 * time.Millisecond)
	}
}

// hold has a node wait in its next cut of data. It returns what waits until the node is
// there, and what lets it go on.
func (s *scripted) hold(id int) (held, release func()) {
	s.t.Helper()
	require.NoError(s.t, syscall.Mkfifo(s.fifos[id], 0o600))
	var pipe *os.File
	held = func() {
		s.t.Helper()
		require.NoError(s.t, kafka.Poll(s.ctx, func() (err error) { // ENXIO while nobody reads
			pipe, err = os.OpenFile(s.fifos[id], os.O_WRONLY|syscall.O_NONBLOCK, 0)
			return err
		}))
	}
	return held, func() { require.NoError(s.t, errors.Join(os.Remove(s.fifos[id]), pipe.Close())) }
}

// asSource: every replica of the topics has the source's batches and nothing else.
func (s *scripted) asSource(topics ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, healTimeout)
	defer cancel()
	for _, topic := range topics {
		var want [][]Batch
		s.script.Read(func(st *stub.State) {
			for _, p := range st.Topics[topic].Partitions {
				of, err := splitBatches(p.Bytes())
				require.NoError(s.t, err)
				want = append(want, of)
			}
		})
		for p, of := range want {
			for _, id := range s.nodes.IDs() {
				require.NoError(s.t, kafka.Poll(ctx, func() error {
					got, err := s.nodes.Node(id).FileBatches(fmt.Sprintf("%s-%d", topic, p))
					if err == nil {
						err = sameBatches(of, got)
					}
					if err != nil {
						return fmt.Errorf("%s-%d on node %d: %w", topic, p, id, err)
					}
					return nil
				}))
			}
		}
	}
}

// setTopic changes a config of a topic of the cluster.
func (s *scripted) setTopic(topic, key, value string) {
	s.t.Helper()
	res, err := s.b.Admin.AlterTopicConfigs(s.ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
	require.NoError(s.t, err)
	_, err = res.On(topic, nil)
	require.NoError(s.t, err)
	require.NoError(s.t, res[0].Err)
}

// restart starts a node that was killed, and waits until it is in sync.
func (s *scripted) restart(id int, topics ...string) {
	s.t.Helper()
	require.NoError(s.t, s.nodes.Start(s.ctx, id))
	s.inSync(topics, s.nodes.IDs()...)
}

// TestClusterScripted: what mirrors do when their leader, their coordinator or a replica
// is lost in the middle of it.
func TestClusterScripted(t *testing.T) {
	s := newScripted(t)
	s.topics(5, map[string]int{"d20": 1, "d21": 1, "u5": 1, "plain": 1, "d17": 12, "unclean": 6, "d3": 1})
	s.knows(map[messages.TopicPartition]int32{{Topic: "d20"}: 0}, 0)
	topics := []string{"d20", "d21", "u5", "plain", "d17", "unclean"}
	s.createScripted(scriptMirror)
	s.start(scriptMirror, topics...)
	s.createScripted(failMirror)
	s.start(failMirror, "d3")
	for _, topic := range topics {
		s.rows(1, scriptMirror, topic, func(r MirrorRow) bool { return r.End == 5 })
	}
	stopped := []string{"d20", "d21", "u5", "plain"}
	s.run("--stop", "--mirror", scriptMirror, "--topics", strings.Join(stopped, ","))
	s.await(scriptMirror, "STOPPED", stopped...)
	s.run("--stop", "--mirror", failMirror, "--topics", "d3")
	s.await(failMirror, "STOPPED", "d3")
	s.setTopic("d21", "min.insync.replicas", "3")
	s.setTopic("u5", "mirror.support.unclean.leader.election", "true")
	s.setTopic("unclean", "mirror.support.unclean.leader.election", "true")

	for _, step := range []struct {
		name string
		f    func(s *scripted)
	}{
		{"D20", (*scripted).laggingFollower},
		{"D3_D21_U5", (*scripted).leaderOfAFailed},
		{"D17_U4", (*scripted).coordinatorInFailover},
	} {
		ok := t.Run(step.name, func(t *testing.T) {
			of := *s.world
			of.t = t
			step.f(&scripted{world: &of, script: s.script, fifos: s.fifos})
		})
		if !ok {
			return // a node may be missing
		}
	}
	s.replicas(3, slices.Concat([]string{messages.MirrorStateTopic}, topics, []string{"d3"})...)
	s.owners()
}

// laggingFollower (D20): a follower that hasn't cut its log yet keeps the partition in
// LOG_TRUNCATION, though the leader has.
func (s *scripted) laggingFollower() {
	require.NoError(s.t, Produce(s.ctx, s.nodes.Bootstrap(), "d20", Records{Count: 20}))
	leader := s.rows(1, scriptMirror, "d20", inState(messages.StateStopped))[0].Leader
	follower := s.nodes.Others(leader)[0]
	held, release := s.hold(follower)
	s.run("--start", "--mirror", scriptMirror, "--topics", "d20")
	held()
	cut := func(r MirrorRow) bool { return r.State == messages.StateLogTruncation.String() && r.End == 5 }
	s.rows(leader, scriptMirror, "d20", cut)
	s.stays(leader, scriptMirror, "d20", messages.StateLogTruncation)
	log, err := s.nodes.Node(follower).FileBatches("d20-0")
	require.NoError(s.t, err)
	require.Greater(s.t, log[len(log)-1].Last, int64(5), "the follower has cut already")
	release()
	s.rows(leader, scriptMirror, "d20", inState(messages.StateMirroring))
	log, err = s.nodes.Node(follower).FileBatches("d20-0")
	require.NoError(s.t, err)
	require.EqualValues(s.t, 4, log[len(log)-1].Last, "MIRRORING before the follower had cut")
	s.asSource("d20")
}

// leaderOfAFailed kills the leader of a partition that fails again and again. The next
// one goes on with the number of attempts (D3). While the node is away, a topic whose min
// ISR counts it stays in LOG_TRUNCATION (D21), and so does one that supports unclean
// elections on its source (U5); others don't.
func (s *scripted) leaderOfAFailed() {
	const unknownServerError = -1
	s.knows(nil, unknownServerError)
	s.run("--start", "--mirror", failMirror, "--topics", "d3")
	s.rows(1, failMirror, "d3", inState(messages.StateFailed))
	fourth := s.rows(1, failMirror, "d3", func(r MirrorRow) bool { return r.State == messages.StateFailed.String() && r.Attempt == 4 })[0]
	require.NoError(s.t, s.nodes.Node(fourth.Leader).Kill9())
	began := time.Now()
	alive := s.nodes.Others(fourth.Leader)
	by := alive[0]
	s.ledAt(alive, "d3", "d21", "u5", "plain", messages.MirrorStateTopic)
	fifth := s.rows(by, failMirror, "d3", func(r MirrorRow) bool {
		require.False(s.t, r.State == messages.StateFailed.String() && r.Attempt < 4, "the count began anew: %+v", r)
		return r.State == messages.StateFailed.String() && r.Attempt == 5
	})[0]
	s.t.Logf("attempt 4 on node %d, 5 on node %d, %v later", fourth.Leader, fifth.Leader, time.Since(began).Round(time.Millisecond))
	require.NotEqual(s.t, fourth.Leader, fifth.Leader)
	s.knows(nil, 0)
	s.rows(by, failMirror, "d3", func(r MirrorRow) bool { return r.State == messages.StateMirroring.String() && r.Attempt <= 0 })

	s.run("--start", "--mirror", scriptMirror, "--topics", "d21,u5,plain")
	s.rows(by, scriptMirror, "plain", inState(messages.StateMirroring))
	for _, topic := range []string{"d21", "u5"} {
		s.rows(by, scriptMirror, topic, inState(messages.StateLogTruncation))
		s.stays(by, scriptMirror, topic, messages.StateLogTruncation)
	}
	s.restart(fourth.Leader, "d21", "u5", "plain", "d3")
	for _, topic := range []string{"d21", "u5", "plain"} {
		s.rows(by, scriptMirror, topic, inState(messages.StateMirroring))
	}
	s.asSource("d3", "d21", "u5", "plain")
}

// coordinatorInFailover kills the mirror's coordinator and stops topics at once: every
// partition gets to STOPPED with its LME, as the next coordinator knows, and takes writes
// (D17). In the same moment the source has an unclean election of which no record that the
// mirror has survives: leaders and followers cut, whoever leads (U4 with node moves).
func (s *scripted) coordinatorInFailover() {
	detail, err := s.b.Topic(s.ctx, messages.MirrorStateTopic)
	require.NoError(s.t, err)
	dead := int(detail.Partitions[messages.CoordinatorShard(scriptMirror, int32(len(detail.Partitions)))].Leader)
	alive := s.nodes.Others(dead)
	by := alive[0]
	s.rows(by, scriptMirror, "unclean", func(r MirrorRow) bool { return r.State == messages.StateMirroring.String() && r.End == 5 })
	require.NoError(s.t, s.nodes.Node(dead).Kill9())
	s.script.Update(func(st *stub.State) {
		for _, p := range st.Topics["unclean"].Partitions {
			p.Truncate(2)
			p.Epoch = 3
			p.Fill(2)
		}
	})
	s.through(alive, func(w *world) {
		require.NoError(s.t, kafka.Poll(s.ctx, func() error { // a controller may have to be found first
			ctx, cancel := context.WithTimeout(s.ctx, askTimeout)
			defer cancel()
			res, err := w.adm.StopMirrorTopics(ctx, scriptMirror, []string{"d17"})
			return errors.Join(err, res.Err())
		}))
	})
	for _, r := range s.rows(by, scriptMirror, "d17", inState(messages.StateStopped)) {
		require.Zero(s.t, r.LME, "%+v", r)
		require.NotEqual(s.t, dead, r.Leader)
	}
	require.NoError(s.t, Produce(s.ctx, s.nodes.BootstrapOf(alive...), "d17", Records{Count: 60}))
	s.rows(by, scriptMirror, "unclean", func(r MirrorRow) bool {
		return r.State == messages.StateMirroring.String() && r.End == 4 && r.Leader != dead
	})
	s.restart(dead, "d17", "unclean")
	s.asSource("unclean")
	for _, id := range s.nodes.IDs() { // whoever coordinates now
		for _, r := range s.rows(id, scriptMirror, "d17", inState(messages.StateStopped)) {
			require.Zero(s.t, r.LME, "%+v", r)
		}
	}
	s.lmeOnce(scriptMirror, "d17")
}

// lmeOnce: the stored history of each partition of a topic is that of one life: started,
// mirrored, stopped, with one LME.
func (s *scripted) lmeOnce(mirror, topic string) {
	s.t.Helper()
	detail, err := s.b.Topic(s.ctx, messages.MirrorStateTopic)
	require.NoError(s.t, err)
	shard := messages.CoordinatorShard(mirror, int32(len(detail.Partitions)))
	for _, id := range s.nodes.IDs() {
		states, err := s.nodes.Node(id).StateHistory(fmt.Sprintf("%s-%d", messages.MirrorStateTopic, shard), topic)
		require.NoError(s.t, err)
		require.NotEmpty(s.t, states)
		for p, of := range states {
			of = slices.Compact(of)
			require.Equal(s.t, "LOG_TRUNCATION MIRRORING STOPPING STOPPED", strings.Join(of, " "), "%s-%d on node %d", topic, p, id)
		}
	}
}

// StateHistory are the states of a topic's partitions as a node's replica of a partition
// of __mirror_state has them, in order.
func (n *Node) StateHistory(folder, topic string) (map[int32][]string, error) {
	out := map[int32][]string{}
	err := n.eachBatch(folder, func(_ Batch, raw []byte) error {
		for r, err := range batch.Records(raw) {
			if err != nil {
				return err
			}
			kind, err := wire.MirrorStateType(r.Key)
			if err != nil {
				return err
			}
			if r.Value == nil || kind == wire.RecordTypeLastMirrorEpochs {
				continue
			}
			v := wire.NewPtrMirrorPartitionStateValue()
			if err := v.ReadFrom(r.Value); err != nil {
				return err
			}
			if v.TopicName == topic {
				out[v.Partition] = append(out[v.Partition], messages.State(v.State).String())
			}
		}
		return nil
	})
	return out, err
}
