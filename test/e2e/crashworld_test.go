package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"kagami/client"
	"kagami/messages"
	"kagami/test/kafka/stub"
)

// crashScenario is what a node goes through, with kill -9 or without.
type crashScenario struct {
	name  string
	props map[string]string // of the node
	hold  string            // points for crashNode.hold, see crashNodeOptions
	again string            // crashNodeOptions.holdAgain
	audit bool              // after each step the replay of the files is compared
	run   func(w *crashWorld) error

	// What the undisturbed run must come to: the log behind the source's batches,
	// the number of LME records of each stop, and states that it must have gone
	// through, one after the other.
	tail    []string
	lmes    []int
	through []string
	// spare is by how many leader epochs two runs may differ beside one for a crash.
	spare int32
}

// crashWorld is one run of a scenario: a scripted source, and a node that kills
// itself at a fault point and is started again.
type crashWorld struct {
	*crashNode
	source *stub.Cluster
	id     messages.TopicID
	end    crashEnd
	// mirroredTo is where our own records begin: the source's end at the last stop.
	mirroredTo int64
	audit      bool
}

// runCrash runs a scenario once.
func runCrash(t *testing.T, s *crashScenario, envs ...[]string) (w *crashWorld, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), crashRunTimeout, errors.New("the run takes too long"))
	defer cancel()
	w = &crashWorld{id: messages.NewTopicID(), audit: s.audit}
	if w.source, err = stub.Start(stub.Options{ClusterID: "the-source"}); err != nil {
		return nil, err
	}
	w.source.Update(func(st *stub.State) { st.NewTopic(crashTopic, w.id, 1) })
	w.crashNode, err = newCrashNode(ctx, crashNodeOptions{dir: t.TempDir(), hold: s.hold, holdAgain: s.again, props: s.props, envs: envs})
	if err != nil {
		return nil, errors.Join(err, w.source.Close())
	}
	if err = s.run(w); err == nil {
		w.end.DLE, err = w.dle()
	}
	if err = errors.Join(err, w.close(), w.source.Close()); err == nil {
		err = w.read()
	}
	if err != nil && w.node.process != nil {
		err = fmt.Errorf("%w\n--- kagami:\n%s", err, w.node.process.Tail(60))
	}
	return w, err
}

// steps runs named steps.
func (w *crashWorld) steps(all ...crashStep) error {
	for _, s := range all {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if w.audit {
			if err := w.auditAgrees(); err != nil {
				return fmt.Errorf("after %s: %w", s.name, err)
			}
		}
	}
	return nil
}

type crashStep struct {
	name string
	do   func() error
}

// saw keeps a description for the comparison.
func (w *crashWorld) saw(name string, p client.DescribedPartition, err error) error {
	w.end.Looks = append(w.end.Looks, crashLook{name, p})
	return err
}

// part changes the partition on the source.
func (w *crashWorld) part(f func(p *stub.Partition)) {
	w.source.Update(func(s *stub.State) { f(s.Topics[crashTopic].Partitions[0]) })
}

func (w *crashWorld) sourceEnd() (end int64) {
	w.source.Read(func(s *stub.State) { end = s.Topics[crashTopic].Partitions[0].End() })
	return end
}

// awaitCopied waits until all of the source is here.
func (w *crashWorld) awaitCopied() (client.DescribedPartition, error) {
	return w.awaitEnd(w.sourceEnd())
}

// awaitCut is awaitCopied, and waits until the description tells of what was cut
// so far, and of a gap up to an offset (-1: of none): it may come later than the
// records do.
func (w *crashWorld) awaitCut(records, gapTo int64) (client.DescribedPartition, error) {
	if p, err := w.awaitCopied(); err != nil {
		return p, err
	}
	return w.look(func(p client.DescribedPartition) error {
		if p.CutRecords != records || p.GapTo != gapTo {
			return fmt.Errorf("%d records were cut and the gap goes to %d, want %d and %d", p.CutRecords, p.GapTo, records, gapTo)
		}
		return nil
	})
}

// mirror creates the mirror of a source with four records and waits for them.
func (w *crashWorld) mirror() error {
	w.part(func(p *stub.Partition) { p.Fill(4) })
	err := w.createMirror(w.source.Address())
	if err == nil {
		err = w.start()
	}
	if err == nil {
		_, err = w.awaitCopied()
	}
	return err
}

func (w *crashWorld) start() error { return w.startTopic(w.id, 1) }

// knowMirror makes the source answer for the mirror: where to cut is the end of
// an epoch.
func (w *crashWorld) knowMirror(lme int32) {
	w.source.Update(func(s *stub.State) {
		s.Versions = stub.VersionsWithMirrors()
		s.Mirrors[0] = append(s.Mirrors[0], stub.Mirror(crashMirror, messages.StateStopped,
			map[messages.TopicPartition]int32{{Topic: crashTopic}: lme}))
	})
}

// failover stops, see stopped.
func (w *crashWorld) failover(name string) error {
	p, err := w.stopTopic()
	return w.stopped(name, p, err)
}

// stopped is what follows a stop: the source goes on, which must not be fetched,
// and producers write, one in the middle of its sequence and one from its
// beginning; the first one's records of the source are in the log.
func (w *crashWorld) stopped(name string, p client.DescribedPartition, err error) error {
	if err := w.saw(name, p, err); err != nil {
		return err
	}
	w.mirroredTo = w.sourceEnd()
	w.part(func(p *stub.Partition) { p.Fill(1) })
	if err := errors.Join(w.produce("kept 1", 5, 9), w.produce("kept 2", 5, 10), w.produce("kept other", 6, 0)); err != nil {
		return err
	}
	time.Sleep(lateWait)
	_, err = w.await("STOPPED")
	return err
}

// stoppedTail is what stopped leaves in the log.
var stoppedTail = []string{"MIRROR_PID_RESET", "kept 1", "kept 2", "kept other"}
