package cases

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/client"
	"kagami/messages"
	"kagami/messages/wire"
	"kagami/test/kafka/stub"
)

// TestD2D3StorageErrorStays: an append that fails for good. Delays grow to their
// cap, counter and previous state are stored and survive kill -9, the last failure
// is permanent, also over a restart, and recover leads back without a cut.
// Neighbours on the same fetcher lose nothing by it. (Exact delays, by a clock of
// its own: TestD02RetryDelays.)
func TestD2D3StorageErrorStays(t *testing.T) {
	const limit, initial, most = 6, 100 * time.Millisecond, 700 * time.Millisecond
	w := limited(t, fmt.Sprintf("mirror.failed.retry.max.attempts=%d", limit), "mirror.failed.retry.initial.backoff.ms=100", "mirror.failed.retry.max.backoff.ms=700")
	bad := w.topic("bad", 1, func(tp *stub.Topic) { nearlyFull(tp.Partitions[0], 1000) })
	good := w.topic("good", 3, func(tp *stub.Topic) { tp.Partitions[0].Fill(3) })
	sent := w.count()
	w.mirrored(bad, good)
	end := w.end(bad, 0)
	w.part(bad, 0, func(p *stub.Partition) { p.Put(bulky(p, bulk)) })

	// Its neighbours go on from failure to failure.
	for n := int16(1); n <= 3; n++ {
		p := w.awaitLook(bad, 0, func(p client.DescribedPartition) bool { return p.RetryAttempt >= n })
		require.Contains(t, p.ErrorText, "file too large")
		for i := range int32(3) {
			w.part(good, i, func(p *stub.Partition) { p.Fill(5) })
		}
		w.awaitEqual(good)
	}
	size := 0
	for i := range int32(3) {
		require.Zero(t, w.look(good, i).RetryAttempt)
		size += len(w.sourceBytes(good, i))
	}
	require.Equal(t, size, sent.of(w.metadata(good)[good].ID), "neighbours are fetched once, whatever the bad one does")
	require.Equal(t, end, w.end(bad, 0))

	before := w.awaitLook(bad, 0, func(p client.DescribedPartition) bool { return p.State == "FAILED" && p.RetryAttempt >= 3 }).RetryAttempt
	w.kill()
	require.GreaterOrEqual(t, w.awaitLook(bad, 0, func(p client.DescribedPartition) bool { return p.State != "UNKNOWN" }).RetryAttempt, before)
	w.awaitStored(bad, fmt.Sprintf("FAILED/MIRRORING/%d", limit))
	all := w.storedStates(bad, 0)
	counts, waits := attempts(all)
	require.Equal(t, []int16{1, 2, 3, 4, 5, 6}, counts, "%v", all)
	for i, wait := range waits {
		least := min(most, initial<<(i+1)) * 8 / 10
		t.Logf("failure %d was retried after %v, want %v or more", i+1, wait, least)
		require.GreaterOrEqual(t, wait, least, "a retry never comes early")
	}

	// It is permanent, whatever happens to its cause.
	require.NotContains(t, w.detail(bad, 0), "nextRetry")
	require.NotZero(t, w.produce(bad, plain("x")).ErrorCode)
	w.restart()
	w.lift()
	w.awaitState("FAILED", bad)
	w.refreshes(1)
	w.awaitStored(bad, fmt.Sprintf("FAILED/MIRRORING/%d", limit))
	w.done(w.adm.RecoverMirrorTopics(w.ctx, w.mirror, []string{bad}))
	w.awaitEqual(bad)
	w.awaitStored(bad, "MIRRORING/MIRRORING/0")
	require.Zero(t, w.look(bad, 0).CutRecords)
	require.NotContains(t, states(w.storedStates(bad, 0))[1:], messages.StateLogTruncation)
	w.awaitEqual(good)
}

// TestD4StorageErrorEnds: the next retry succeeds, and clears what was counted.
func TestD4StorageErrorEnds(t *testing.T) {
	w := limited(t, "mirror.failed.retry.initial.backoff.ms=100")
	topic := w.topic("t", 1, func(tp *stub.Topic) { nearlyFull(tp.Partitions[0], 1000) })
	w.mirrored(topic)
	for range 2 {
		w.part(topic, 0, func(p *stub.Partition) { p.Put(bulky(p, bulk)) })
		w.awaitLook(topic, 0, func(p client.DescribedPartition) bool { return p.RetryAttempt >= 2 })
		w.await(func() error {
			if next, ok := w.detail(topic, 0)["nextRetry"].(string); !ok || !strings.HasPrefix(next, "20") {
				return fmt.Errorf("no next retry: %q", next)
			}
			return nil
		})
		w.lift()
		w.awaitEqual(topic)
		w.awaitStored(topic, "MIRRORING/UNKNOWN/0")
		w.limit(new(uint64(len(w.sourceBytes(topic, 0)) + 1000)))
	}
	counts, _ := attempts(w.storedStates(topic, 0))
	require.Contains(t, counts[1:], int16(1), "the second series begins at 1: %v", counts)
	require.Zero(t, w.look(topic, 0).CutRecords)
}

// TestD5StopAndStartAfterPermanentFailure.
func TestD5StopAndStartAfterPermanentFailure(t *testing.T) {
	w := limited(t, "mirror.failed.retry.max.attempts=1")
	topic := w.topic("t", 1, func(tp *stub.Topic) {
		tp.Partitions[0].Epoch = 3
		nearlyFull(tp.Partitions[0], 1000)
	})
	w.mirrored(topic)
	w.part(topic, 0, func(p *stub.Partition) { p.Put(bulky(p, bulk)) })
	w.awaitStored(topic, "FAILED/MIRRORING/1")
	before := w.end(topic, 0)
	w.stop(topic)
	w.awaitStored(topic, "STOPPED/UNKNOWN/0")
	require.Equal(t, int32(3), w.look(topic, 0).LastMirrorEpoch)
	w.write(topic, "mine", before+1)
	w.lift()
	from := len(w.storedStates(topic, 0))
	w.start(topic)
	w.awaitEqual(topic)
	require.Equal(t, []messages.State{messages.StateLogTruncation, messages.StateMirroring}, states(w.storedStates(topic, 0)[from:]))
}

// TestD6FailedThenStop: the retry that was due later is forgotten, the LME is
// stored, the disk's limit costs only what needs more.
func TestD6FailedThenStop(t *testing.T) {
	w := limited(t, "mirror.failed.retry.initial.backoff.ms=1000", "mirror.failed.retry.max.backoff.ms=300000")
	topic := w.topic("t", 1, func(tp *stub.Topic) {
		tp.Partitions[0].Epoch = 3
		nearlyFull(tp.Partitions[0], 1000)
	})
	w.mirrored(topic)
	w.part(topic, 0, func(p *stub.Partition) { p.Put(bulky(p, bulk)) })
	w.awaitStored(topic, "FAILED/MIRRORING/1")
	end := w.end(topic, 0)
	w.stop(topic)
	require.Equal(t, "STOPPED/UNKNOWN/0", last(w.storedStates(topic, 0)).String())
	require.Equal(t, int32(3), w.look(topic, 0).LastMirrorEpoch)
	w.write(topic, "mine", end+1)
	w.refreshes(3) // longer than the retry's delay
	require.Equal(t, "STOPPED", w.look(topic, 0).State)
	require.Equal(t, end+2, w.end(topic, 0))
	w.restart()
	w.awaitState("STOPPED", topic)
	require.Equal(t, int32(3), w.look(topic, 0).LastMirrorEpoch)
}

func last(all []storedState) storedState { return all[len(all)-1] }

// TestD57StopStepFailsForGood: there is no room for the ABORT of an open
// transaction. The stop is retried as any failure is, is permanent after the
// limit, also over a restart, and recover resumes it with the LME that was stored
// first.
func TestD57StopStepFailsForGood(t *testing.T) {
	const limit = 3
	w := limited(t, fmt.Sprintf("mirror.failed.retry.max.attempts=%d", limit), "mirror.failed.retry.initial.backoff.ms=100")
	topic := w.topic("t", 1, func(tp *stub.Topic) {
		p := tp.Partitions[0]
		p.Epoch = 3
		p.Put(stub.Build(stub.Spec{
			Epoch: 3, Producer: true, ProducerID: 7, Transactional: true, Timestamp: time.Now().UnixMilli(), Records: []stub.Record{{Value: []byte("open")}},
		}))
		nearlyFull(p, 10)
	})
	other := w.topic("other", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(3) })
	w.mirrored(topic, other)
	end := w.end(topic, 0)
	stop := func() {
		t.Helper()
		w.done(w.adm.StopMirrorTopics(w.ctx, w.mirror, []string{topic}))
	}
	stop()
	w.awaitStored(topic, fmt.Sprintf("FAILED/STOPPING/%d", limit))
	counts, waits := attempts(w.storedStates(topic, 0))
	require.Equal(t, []int16{1, 2, 3}, counts)
	for i, wait := range waits {
		require.GreaterOrEqual(t, wait, 160*time.Millisecond<<i, "not at once")
	}
	require.Equal(t, int32(3), w.look(topic, 0).LastMirrorEpoch)
	stop() // again: nothing new
	w.restart()
	w.awaitState("FAILED", topic)
	require.Equal(t, codePolicyViolation, w.produce(topic, plain("x")).ErrorCode, "it was never opened")
	require.Equal(t, end, w.end(topic, 0))
	w.lift()
	w.refreshes(1)
	w.awaitStored(topic, fmt.Sprintf("FAILED/STOPPING/%d", limit))
	w.part(other, 0, func(p *stub.Partition) { p.Fill(5) })
	w.awaitEqual(other)
	w.done(w.adm.RecoverMirrorTopics(w.ctx, w.mirror, []string{topic}))
	w.awaitStored(topic, "STOPPED/UNKNOWN/0")
	require.Equal(t, int32(3), w.look(topic, 0).LastMirrorEpoch)
	w.write(topic, "mine", end+2) // after the ABORT and the reset record
	require.Equal(t, end+3, w.listOffset(topic, 0, latest, 1).Offset, "no transaction is open")
}

// TestStopWithoutRoomForReset: the last step of a stop is repeated without end
// (workflows.md), over a restart too; it is no failure, and takes no operator.
func TestStopWithoutRoomForReset(t *testing.T) {
	w := limited(t, "mirror.failed.retry.max.attempts=1")
	topic := w.topic("t", 1, func(tp *stub.Topic) {
		tp.Partitions[0].Epoch = 3
		nearlyFull(tp.Partitions[0], 10)
	})
	w.mirrored(topic)
	end := w.end(topic, 0)
	w.done(w.adm.StopMirrorTopics(w.ctx, w.mirror, []string{topic}))
	for range 2 {
		w.await(func() error {
			if !strings.Contains(w.node.Process().Log(), "append MIRROR_PID_RESET") {
				return fmt.Errorf("no attempt is logged")
			}
			return nil
		})
		require.Equal(t, "STOPPING", w.look(topic, 0).State)
		require.Equal(t, codePolicyViolation, w.produce(topic, plain("x")).ErrorCode)
		require.Equal(t, end, w.end(topic, 0))
		w.restart()
	}
	w.lift()
	w.awaitState("STOPPED", topic)
	require.Equal(t, int32(3), w.look(topic, 0).LastMirrorEpoch)
	w.write(topic, "mine", end+1)
}

// TestD2LookUpErrorStays: the source can't tell where to cut. The previous state
// is LOG_TRUNCATION, over a restart too, nothing is cut, and topics that are
// MIRRORING already don't notice.
func TestD2LookUpErrorStays(t *testing.T) {
	const limit, unknownServerError = 3, -1
	w := owned(t, fmt.Sprintf("mirror.failed.retry.max.attempts=%d", limit), "mirror.failed.retry.initial.backoff.ms=50", "mirror.state.topic.num.partitions=1")
	topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(5) })
	other := w.topic("other", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(3) })
	w.mirrored(topic, other)
	w.stop(topic)
	w.write(topic, "mine", 6)
	fails := func(code int16) {
		w.src.Update(func(s *stub.State) {
			s.Versions = stub.VersionsWithMirrors()
			s.Mirrors[0] = []wire.DescribeClusterMirrorsResponseDescribedMirror{stub.Mirror(w.mirror, messages.StateStopped, map[messages.TopicPartition]int32{{Topic: topic}: 0})}
			s.Mirrors[0][0].ErrorCode = code
		})
	}
	fails(unknownServerError)
	require.NoError(t, w.tryStart(topic))
	for range 2 { // and after a restart
		w.awaitStored(topic, fmt.Sprintf("FAILED/LOG_TRUNCATION/%d", limit))
		w.part(other, 0, func(p *stub.Partition) { p.Fill(4) })
		w.awaitEqual(other)
		require.Zero(t, w.look(other, 0).RetryAttempt)
		require.Equal(t, int64(7), w.end(topic, 0), "nothing is cut")
		w.restart()
		w.awaitState("MIRRORING", other)
	}
	counts, _ := attempts(w.storedStates(topic, 0))
	require.Equal(t, []int16{1, 2, 3}, counts)
	fails(0)
	w.refreshes(1)
	require.Equal(t, "FAILED", w.look(topic, 0).State)
	w.done(w.adm.RecoverMirrorTopics(w.ctx, w.mirror, []string{topic}))
	w.awaitEqual(topic)
	w.awaitStored(topic, "MIRRORING/LOG_TRUNCATION/0")
	require.Equal(t, int64(2), w.look(topic, 0).CutRecords, "the reset record and our own")
}

// TestD19BumpBlocked: the batch is refused as long as the epoch can't be raised,
// FAILED comes back to EPOCH_FENCING, neighbours go on, and then it is appended
// once.
func TestD19BumpBlocked(t *testing.T) {
	w := owned(t, "mirror.failed.retry.initial.backoff.ms=50", "mirror.state.topic.num.partitions=1", "replica.socket.timeout.ms=1000")
	topic := w.topic("t", 2, func(tp *stub.Topic) { tp.Partitions[0].Fill(3) })
	w.mirrored(topic)
	var blocked hangs
	w.src.Intercept(keyMetadata, func(*stub.Request) stub.Reply {
		blocked.mu.Lock()
		defer blocked.mu.Unlock()
		return stub.Reply{Close: blocked.on}
	})
	blocked.begin(0)
	w.refreshes(1) // none that began before is answered from now on
	w.part(topic, 0, func(p *stub.Partition) {
		p.Put(stub.Build(stub.Spec{Base: p.End(), Epoch: aheadEpoch, Records: []stub.Record{{Value: []byte("ahead")}}}))
	})
	w.awaitLook(topic, 0, func(p client.DescribedPartition) bool { return p.RetryAttempt >= 3 })
	w.part(topic, 1, func(p *stub.Partition) { p.Fill(5) })
	w.await(func() error { return w.equal(topic, 1) })
	require.Equal(t, int64(3), w.end(topic, 0))
	require.Less(t, w.look(topic, 0).LeaderEpoch, aheadEpoch)
	w.part(topic, 0, func(p *stub.Partition) { p.Epoch = aheadEpoch })
	blocked.mu.Lock()
	blocked.on = false
	blocked.mu.Unlock()
	w.awaitEqual(topic)
	w.awaitStored(topic, "MIRRORING/UNKNOWN/0")
	require.Len(t, headers(t, w.bytes(topic, 0)), 4, "appended once")
	require.Greater(t, w.look(topic, 0).LeaderEpoch, aheadEpoch)
	for _, s := range w.storedStates(topic, 0) {
		if s.State == messages.StateFailed {
			require.Equal(t, messages.StateEpochFencing, s.Previous)
		}
	}
	require.NotContains(t, states(w.storedStates(topic, 0))[1:], messages.StateLogTruncation)
}
