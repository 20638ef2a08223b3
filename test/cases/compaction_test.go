package cases

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
	"kagami/test/e2e"
	"kagami/test/kafka/stub"
)

// cleaned are properties of a node that cleans all the time, in small pieces.
func cleaned(more ...string) []string {
	return append([]string{
		"log.cleaner.backoff.ms=100", "log.cleaner.min.cleanable.ratio=0.01", "log.segment.bytes=4000", "mirror.state.topic.num.partitions=1",
	}, more...)
}

// stateRecords are the times of all records of __mirror_state by offset, and whether a
// later record about the same thing is there.
func (w *world) stateRecords() (times map[int64]time.Time, superseded map[int64]bool) {
	w.t.Helper()
	times, superseded = map[int64]time.Time{}, map[int64]bool{}
	last := map[string]int64{}
	for b := w.bytes(messages.MirrorStateTopic, 0); len(b) > 0; {
		_, whole, rest, err := batch.Next(b)
		require.NoError(w.t, err)
		for r, err := range batch.Records(whole) {
			require.NoError(w.t, err)
			times[r.Offset] = time.UnixMilli(r.Timestamp)
			about := string(r.Key)
			if kind, err := wire.MirrorStateType(r.Key); err == nil && kind != wire.RecordTypeLastMirrorEpochs && r.Value != nil {
				v := wire.NewPtrMirrorPartitionStateValue()
				require.NoError(w.t, v.ReadFrom(r.Value))
				about += fmt.Sprint(" ", v.TopicName, v.Partition)
			}
			if before, ok := last[about]; ok {
				superseded[before] = true
			}
			last[about] = r.Offset
		}
		b = rest
	}
	return times, superseded
}

// TestD26CompactionOfMirrorStates (OP-1): the states of one mirror's partitions share a
// key, and the cleaner keeps each; the node knows all of them, and all LMEs, after a
// restart and after a crash.
func TestD26CompactionOfMirrorStates(t *testing.T) {
	const partitions = 100
	w := owned(t, cleaned("mirror.state.audit.retention.ms=0")...)
	topic := w.topic("t", partitions, func(tp *stub.Topic) {
		for _, p := range tp.Partitions {
			p.Epoch = 5
			p.Fill(2)
		}
	})
	w.mirrored(topic)
	w.stop(topic)
	w.await(func() error {
		if times, _ := w.stateRecords(); len(times) > 2*partitions { // of four transitions each, and the LMEs
			return fmt.Errorf("%d records are left", len(times))
		}
		return nil
	})
	known := func() {
		t.Helper()
		w.awaitState("STOPPED", topic)
		ps, err := e2e.Partitions(w.ctx, w.adm, w.mirror)
		require.NoError(t, err)
		require.Len(t, ps, partitions)
		for _, p := range ps {
			require.Equal(t, "STOPPED", p.State)
			require.Equal(t, int32(5), p.LastMirrorEpoch, "partition %d", p.Partition)
		}
	}
	known()
	w.restart()
	known()
	w.kill()
	known()
}

// TestD50AuditRetention (OP-27): of what is superseded the cleaner removes what is older
// than the audit retention, and nothing else.
func TestD50AuditRetention(t *testing.T) {
	const audit = 3 * time.Second
	w := owned(t, cleaned(fmt.Sprint("mirror.state.audit.retention.ms=", audit.Milliseconds()))...)
	topic := w.topic("t", 20, nil)
	w.create()
	w.start(topic)
	first, _ := w.stateRecords()
	require.NotEmpty(t, first)
	seen := map[int64]time.Time{}
	for round := 0; ; round++ {
		w.pause(topic)
		w.resume(topic)
		now, _ := w.stateRecords()
		read := time.Now()
		for offset, at := range seen {
			if _, ok := now[offset]; !ok {
				require.Greater(t, read.Sub(at), audit, "the record at %d is gone after %s", offset, read.Sub(at))
			}
		}
		maps.Copy(seen, now)
		gone := 0
		for offset := range first {
			if _, ok := now[offset]; !ok {
				gone++
			}
		}
		if gone > len(first)/2 { // the newest of them may stand in the active segment still
			return
		}
		require.NoError(t, w.ctx.Err(), "after %d rounds %d of the first %d records are gone", round, gone, len(first))
	}
}

// TestOP40CompactionOfMirrorTopics: local compaction and retention run on mirror topics.
// Offsets stay equal, and what is left is what the source has there.
func TestOP40CompactionOfMirrorTopics(t *testing.T) {
	w := owned(t, cleaned("log.cleanup.policy=compact")...)
	const n = 400
	topic := w.topic("t", 1, func(tp *stub.Topic) {
		for i := range n {
			b := batch.Single(time.Now().UnixMilli(), fmt.Appendf(nil, "key %d", i%5), fmt.Appendf(nil, "value %d", i))
			batch.SetOffsetAndEpoch(b, int64(i), 0)
			tp.Partitions[0].Put(b)
		}
	})
	w.create()
	w.start(topic)
	w.awaitEnd(topic, 0, n)
	var rs []int64
	w.await(func() error {
		rs = nil
		for _, h := range headers(t, w.bytes(topic, 0)) {
			for r, err := range batch.Records(h.raw) {
				require.NoError(t, err)
				require.Equal(t, fmt.Sprintf("value %d", r.Offset), string(r.Value))
				rs = append(rs, r.Offset)
			}
		}
		if len(rs) > n/2 {
			return fmt.Errorf("%d records are left", len(rs))
		}
		return nil
	})
	require.Equal(t, int64(n), w.end(topic, 0))
	require.Equal(t, []int64{395, 396, 397, 398, 399}, rs[len(rs)-5:])
	require.Equal(t, int64(0), w.begin(topic, 0))
	w.kill()
	w.awaitState("MIRRORING", topic)
	require.Equal(t, int64(n), w.end(topic, 0))
	w.part(topic, 0, func(p *stub.Partition) { p.Fill(3) })
	w.awaitEnd(topic, 0, n+3)
}
