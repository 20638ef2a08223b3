package e2e

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kagami/client"
	"kagami/messages"
	"kagami/messages/wire"
	"kagami/test/kafka/stub"
)

// scenarioLife is a mirror's whole life: mirror, failover, writes on both sides,
// failback that cuts ours, epochs that the source has raised, a failure, pause,
// resume, failover with open transactions, a start that fails and is stopped, and
// the end of the mirror.
var scenarioLife = crashScenario{
	name:  "life",
	tail:  append([]string{"ABORT of 5", "ABORT of 6"}, append(stoppedTail, "MIRROR_PID_RESET", "kept last")...),
	lmes:  []int{1, 1, 0},
	spare: 1, // a fenced batch and the refresh may both ask, for each of two epochs of the source
	run: func(w *crashWorld) error {
		err := w.steps(
			crashStep{"mirror", w.mirror},
			crashStep{"pause before a failover", w.pauseTopic},
			crashStep{"failover out of a pause", func() error { p, err := w.stopTopic(); return w.saw("first stop", p, err) }},
			crashStep{"first writes", func() error { return errors.Join(w.produce("lost 1", 5, 0), w.produce("lost 2", 5, 1)) }},
			crashStep{"failback", w.failback},
			crashStep{"fencing", func() error {
				w.part(func(p *stub.Partition) { p.Epoch = 30; p.Fill(2) })
				_, err := w.awaitCopied()
				return err
			}},
			crashStep{"failure", w.failure},
			crashStep{"pause", w.pause},
			crashStep{"second failover", w.failoverOpen},
			crashStep{"failover out of a failed start", w.stopUnaligned},
			crashStep{"audit", w.auditAgrees},
		)
		if err == nil {
			err = w.endMirror()
		}
		return err
	},
}

// scenarioAudit is scenarioLife with an audit after every step.
var scenarioAudit = crashScenario{
	name: "audit after each step", audit: true, tail: scenarioLife.tail, lmes: scenarioLife.lmes, spare: scenarioLife.spare, run: scenarioLife.run,
}

// failback: the source knows epoch 0 to the end of what we copied, and went on.
func (w *crashWorld) failback() error {
	w.knowMirror(0)
	w.part(func(p *stub.Partition) { p.Epoch = 1; p.Fill(2) })
	if err := w.start(); err != nil {
		return err
	}
	p, err := w.awaitCut(3, -1) // our two, and the stop's reset
	if err == nil {
		err = w.refused()
	}
	return w.saw("failback", p, err)
}

// failure: the source's partition loses its leader for a while.
func (w *crashWorld) failure() error {
	const notLeader = 6
	w.part(func(p *stub.Partition) { p.Leader, p.Code, p.NoHint = -1, notLeader, true; p.Fill(1) })
	if _, err := w.await("FAILED"); err != nil {
		return err
	}
	w.part(func(p *stub.Partition) { p.Leader, p.Code = 0, 0 })
	// A retry or a crash may have been faster.
	err := w.topics("recover", func(ctx context.Context, m string, t []string) (client.TopicResults, error) {
		res, err := w.adm.RecoverMirrorTopics(ctx, m, t)
		if errors.Is(res.Err(), messages.ErrInvalidMirrorStates) {
			return nil, err
		}
		return res, err
	})
	if err != nil {
		return err
	}
	_, err = w.awaitCopied()
	return err
}

func (w *crashWorld) pause() error {
	if err := w.pauseTopic(); err != nil {
		return err
	}
	w.part(func(p *stub.Partition) { p.Fill(1) })
	if err := w.resumeTopic(); err != nil {
		return err
	}
	_, err := w.awaitCopied()
	return err
}

// failoverOpen stops with two open transactions.
func (w *crashWorld) failoverOpen() error {
	w.part(func(p *stub.Partition) {
		for pid := range int64(2) {
			p.Put(stub.Build(stub.Spec{
				Base: p.End(), Epoch: p.Epoch, Producer: true, ProducerID: 5 + pid, BaseSequence: 3, Transactional: true,
				Records: []stub.Record{{Value: []byte("open")}},
			}))
		}
	})
	if _, err := w.awaitCopied(); err != nil {
		return err
	}
	return w.failover("second stop")
}

// stopUnaligned stops after the source, asked where to cut, gave no answer.
func (w *crashWorld) stopUnaligned() error {
	const unknownServerError = -1
	w.source.Update(func(s *stub.State) { s.Mirrors[0][0].ErrorCode = unknownServerError })
	if err := w.start(); err != nil {
		return err
	}
	if _, err := w.await("FAILED"); err != nil {
		return err
	}
	p, err := w.stopTopic()
	return w.saw("third stop", p, err)
}

// endMirror deletes the mirror; the topic stays and takes writes.
func (w *crashWorld) endMirror() error {
	err := w.try("delete mirror", func(ctx context.Context) error { return w.adm.DeleteClusterMirror(ctx, crashMirror) }, messages.ErrUnknownMirror)
	if err != nil {
		return err
	}
	if err := w.produce("kept last", 5, 11); err != nil {
		return err
	}
	return w.try("wait for tombstones", func(context.Context) error {
		_, live, err := mirrorStates(w.node.DataDir())
		if err == nil && live > 0 {
			err = fmt.Errorf("%d keys of the mirror are left", live)
		}
		return err
	})
}

// scenarioFencing stops while the leader epoch is being raised.
var scenarioFencing = crashScenario{
	name: "stop out of EPOCH_FENCING", hold: "partition.RaiseEpoch.begun,mirror.bump.before",
	tail: stoppedTail, lmes: []int{1}, through: []string{"MIRRORING", "EPOCH_FENCING", "STOPPING", "LME 0", "STOPPED"},
	spare: 30, // the refresh may raise the epoch to the source's before the stop does, or not
	run: func(w *crashWorld) error {
		if err := w.mirror(); err != nil {
			return err
		}
		begin := func() error {
			w.part(func(p *stub.Partition) {
				w.mirroredTo = p.End()
				p.Epoch = 30
				p.Fill(1)
			})
			return nil
		}
		err := w.hold(begin, func() error {
			// A node that died just before it stored EPOCH_FENCING can't fetch as long
			// as its first refresh is held, and fails; the end is the same.
			if _, err := w.await("EPOCH_FENCING", "FAILED"); err != nil {
				return err
			}
			return w.askStopSeen()
		})
		if err != nil {
			return err
		}
		p, err := w.await("STOPPED")
		if err = w.saw("stop", p, err); err != nil {
			return err
		}
		err = errors.Join(w.produce("kept 1", 5, 9), w.produce("kept 2", 5, 10), w.produce("kept other", 6, 0))
		time.Sleep(lateWait)
		return errors.Join(err, w.auditAgrees())
	},
}

// scenarioPausing stops while the fetcher is being removed.
var scenarioPausing = crashScenario{
	name: "stop out of PAUSING", hold: "partition.Unfetch.begun",
	tail: stoppedTail, lmes: []int{1}, through: []string{"MIRRORING", "PAUSING", "STOPPING", "LME 0", "STOPPED"},
	run: func(w *crashWorld) error {
		if err := w.mirror(); err != nil {
			return err
		}
		err := w.hold(w.askPause, func() error {
			if _, err := w.await("PAUSING"); err != nil {
				return err
			}
			return w.askStopSeen()
		})
		if err != nil {
			return err
		}
		p, err := w.await("STOPPED")
		return errors.Join(w.stopped("stop", p, err), w.auditAgrees())
	},
}

// aligning is two scenarios: a failover, and a failback that is stopped in
// LOG_TRUNCATION. No LME is computed, the older one stays (D56).
func aligning(w *crashWorld, stop func() error) error {
	if err := w.mirror(); err != nil {
		return err
	}
	p, err := w.stopTopic()
	if err = w.saw("first stop", p, err); err != nil {
		return err
	}
	if err := errors.Join(w.produce("ours 1", 5, 0), w.produce("ours 2", 5, 1)); err != nil {
		return err
	}
	w.knowMirror(0)
	w.mirroredTo = w.sourceEnd()
	w.part(func(p *stub.Partition) { p.Epoch = 1; p.Fill(2) })
	if err := stop(); err != nil {
		return err
	}
	p, err = w.await("STOPPED")
	if err = w.saw("stop out of LOG_TRUNCATION", p, err); err != nil {
		return err
	}
	err = errors.Join(w.produce("kept 1", 5, 9), w.produce("kept 2", 5, 10), w.produce("kept other", 6, 0))
	time.Sleep(lateWait)
	return errors.Join(err, w.auditAgrees())
}

// scenarioAligning stops while the source is asked where to cut and says nothing.
var scenarioAligning = crashScenario{
	name: "stop out of LOG_TRUNCATION",
	tail: append([]string{"MIRROR_PID_RESET", "ours 1", "ours 2"}, stoppedTail...),
	lmes: []int{1, 0}, through: []string{"STOPPED", "LOG_TRUNCATION", "STOPPING", "STOPPED"},
	run: func(w *crashWorld) error {
		return aligning(w, func() error {
			w.source.Intercept(wire.KeyDescribeClusterMirrors, func(*stub.Request) stub.Reply {
				states, _, _ := mirrorStates(w.node.DataDir()) // the start asks too, before it is one
				return stub.Reply{Hang: len(states) > 0 && states[len(states)-1] == "LOG_TRUNCATION"}
			})
			if err := w.start(); err != nil {
				return err
			}
			if _, err := w.await("LOG_TRUNCATION"); err != nil {
				return err
			}
			return w.askStop()
		})
	},
}

// scenarioCutting stops between the decision to cut the log and the cut.
var scenarioCutting = crashScenario{
	name: "stop in the middle of a cut", hold: "journal.data.Truncate.checkpointed", again: "partition.Align.after",
	tail: stoppedTail, lmes: []int{1, 0}, through: []string{"STOPPED", "LOG_TRUNCATION", "STOPPING", "STOPPED"},
	run: func(w *crashWorld) error {
		return aligning(w, func() error { return w.hold(w.start, w.askStopSeen) })
	},
}

// scenarioCuts is all that changes the log from below or behind its end while it
// is mirrored: an unclean election (the log diverges, C13, U4), a trim (C10), and
// retention that overtakes a paused mirror (C12, U13).
var scenarioCuts = crashScenario{
	name: "cuts while mirroring", tail: stoppedTail, lmes: []int{1},
	run: func(w *crashWorld) error {
		return w.steps(
			crashStep{"mirror", w.mirror},
			crashStep{"divergence", func() error {
				w.part(func(p *stub.Partition) { p.Truncate(2); p.Epoch = 1; p.Fill(4) })
				p, err := w.awaitCut(2, -1)
				return w.saw("divergence", p, err)
			}},
			crashStep{"trim", func() error {
				w.part(func(p *stub.Partition) { p.Trim(3) })
				return w.logStart(3)
			}},
			crashStep{"pause", w.pauseTopic},
			crashStep{"retention", func() error {
				w.part(func(p *stub.Partition) { p.Fill(6); p.Trim(p.End() - 2) })
				if err := w.resumeTopic(); err != nil {
					return err
				}
				p, err := w.awaitCut(2, w.sourceEnd()-2)
				if err == nil {
					err = w.logStart(w.sourceEnd() - 2)
				}
				return w.saw("retention", p, err)
			}},
			crashStep{"failover", func() error { return w.failover("stop") }},
			crashStep{"audit", w.auditAgrees},
		)
	},
}

// scenarioOtherCluster: the addresses lead to another cluster for a while, once
// while MIRRORING and once while PAUSED (row 23, U12, D49).
var scenarioOtherCluster = crashScenario{
	name: "another source cluster", tail: stoppedTail, lmes: []int{1},
	run: func(w *crashWorld) error {
		return w.steps(
			crashStep{"mirror", w.mirror},
			crashStep{"away while MIRRORING", w.away},
			crashStep{"back", func() error {
				p, err := w.awaitCopied()
				return w.saw("mirroring again", p, err)
			}},
			crashStep{"pause", w.pauseTopic},
			crashStep{"away while PAUSED", w.away},
			crashStep{"back", func() error {
				p, err := w.await("PAUSED")
				return w.saw("paused again", p, err)
			}},
			crashStep{"resume", w.resumeTopic},
			crashStep{"copy", func() error { _, err := w.awaitCopied(); return err }},
			crashStep{"failover", func() error { return w.failover("stop") }},
			crashStep{"audit", w.auditAgrees},
		)
	},
}

// away lets another cluster answer until the partition is FAILED, with records
// that must not be fetched; then the source is back, with a new one.
func (w *crashWorld) away() error {
	w.source.Update(func(s *stub.State) { s.ClusterID = "another" })
	was, err := w.await("FAILED")
	if err != nil {
		return err
	}
	end := w.sourceEnd()
	w.part(func(p *stub.Partition) { p.Fill(2) })
	time.Sleep(lateWait)
	now, err := w.await("FAILED")
	if err == nil && now.DestinationOffset != was.DestinationOffset {
		err = fmt.Errorf("%d records were fetched from another cluster", now.DestinationOffset-was.DestinationOffset)
	}
	w.source.Update(func(s *stub.State) {
		s.ClusterID = "the-source"
		p := s.Topics[crashTopic].Partitions[0]
		p.Truncate(end)
		p.Fill(1)
	})
	return err
}

// scenarioFiles has segments of three batches, flushes all the time, many
// producers, and cuts over segment bounds, so that every change of files that
// package persistence makes happens.
var scenarioFiles = crashScenario{
	name: "files",
	props: map[string]string{
		"log.segment.bytes": "300", "log.flush.interval.ms": "20", "log.segment.delete.delay.ms": "0",
		"metadata.log.max.record.bytes.between.snapshots": "1000",
	},
	tail: stoppedTail, lmes: []int{1, 1},
	run: func(w *crashWorld) error {
		fill := func(n int) func() error {
			return func() error {
				for i := range n {
					w.part(func(p *stub.Partition) {
						p.Put(stub.Build(stub.Spec{
							Base: p.End(), Epoch: p.Epoch, Producer: true, ProducerID: int64(100 + i),
							Records: []stub.Record{{Value: []byte("value")}}, Timestamp: time.Now().UnixMilli(),
						}))
					})
					if _, err := w.awaitCopied(); err != nil {
						return err
					}
				}
				return nil
			}
		}
		return w.steps(
			crashStep{"mirror", w.mirror},
			crashStep{"more", fill(8)},
			crashStep{"first stop", func() error { p, err := w.stopTopic(); return w.saw("first stop", p, err) }},
			crashStep{"writes", func() (err error) {
				for i := range int32(2) {
					err = errors.Join(err, w.produce(fmt.Sprintf("lost %d", i), 5, i))
				}
				return err
			}},
			crashStep{"failback", w.failback},
			crashStep{"more", fill(4)},
			crashStep{"divergence", func() error {
				w.part(func(p *stub.Partition) { p.Truncate(6); p.Epoch = 2; p.Fill(16) })
				p, err := w.awaitCut(3+12, -1)
				return w.saw("divergence", p, err)
			}},
			crashStep{"trim", func() error {
				w.part(func(p *stub.Partition) { p.Trim(8) })
				return w.logStart(8)
			}},
			crashStep{"failover", func() error { return w.failover("stop") }},
			crashStep{"audit", w.auditAgrees},
		)
	},
}
