package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/test/kafka"
)

// settings is a short way to write the settings of a Java job.
func settings(pairs ...string) map[string]string {
	m := map[string]string{}
	for _, pair := range pairs {
		k, v, _ := strings.Cut(pair, "=")
		m[k] = v
	}
	return m
}

// java starts clients of Kafka's Java library that end with the test.
func (w *world) java(jobs ...kafka.JavaJob) *kafka.Java {
	w.t.Helper()
	kafka.RequireJava(w.t)
	j, err := kafka.StartJava(w.ctx, w.t.TempDir(), jobs...)
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("--- java clients:\n%s", j.Tail(15))
		}
		require.NoError(w.t, j.Kill())
	})
	return j
}

// happens waits until a job has had so many events of a kind, and returns all
// that it has had.
func (w *world) happens(j *kafka.Java, job, kind string, count int) []kafka.JavaEvent {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, convergeTimeout)
	defer cancel()
	events, err := j.Await(ctx, job, kind, count)
	require.NoError(w.t, err)
	return events
}

// finished waits for the end of a producing job, which must have been refused nothing.
func (w *world) finished(j *kafka.Java, job string) []kafka.JavaEvent {
	w.t.Helper()
	done := w.happens(j, job, "done", 1)
	require.Zero(w.t, done[0].Int(1), "job %s: failed writes: %v", job, j.Events(job, "failed"))
	return j.Events(job, "acked")
}

// reads waits until a consuming job has read the record at an offset, and returns
// what it has read as partition 0's offsets and values.
func (w *world) reads(j *kafka.Java, job string, offset int64) []placed {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, convergeTimeout)
	defer cancel()
	var got []placed
	require.NoError(w.t, kafka.Poll(ctx, func() error {
		if broken := j.Events(job, "error"); len(broken) > 0 {
			return errors.New(strings.Join(broken[0].Fields, " "))
		}
		got = nil
		for _, e := range j.Events(job, "record") {
			got = append(got, placed{e.Int(2), e.Fields[0]})
		}
		if len(got) == 0 || got[len(got)-1].offset < offset {
			return fmt.Errorf("job %s has read %d records, not the one at %d", job, len(got), offset)
		}
		return nil
	}))
	return got
}

// equalPlaced shows the first record that isn't where it should be.
func (w *world) equalPlaced(what string, want, got []placed) {
	w.t.Helper()
	for i := range min(len(want), len(got)) {
		require.Equal(w.t, want[i], got[i], "%s, record %d of %d (want %d)", what, i, len(got), len(want))
	}
	require.Len(w.t, got, len(want), "%s", what)
}

// calm: a consumer of so many partitions doesn't refresh its metadata in a loop,
// never holds it for too old, and isn't sent elsewhere more than some times.
func (w *world) calm(j *kafka.Java, job string, partitions, moved int) {
	w.t.Helper()
	lines := j.ClientLog(job, refreshed)
	w.t.Logf("job %s has refreshed its metadata %d times", job, len(lines))
	require.LessOrEqual(w.t, len(lines), calmRefreshes, "job %s refreshes its metadata in a loop", job)
	require.Empty(w.t, j.ClientLog(job, tooOld))
	lines = j.ClientLog(job, shaken)
	require.LessOrEqual(w.t, len(lines), partitions+moved, "job %s: %v", job, lines) // one each at the start
}

// producedBatch is a batch as the producer state sees it.
type producedBatch struct {
	base, pid     int64
	pidEpoch      int16
	sequence      int32
	records       int32
	leaderEpoch   int32
	control       bool
	transactional bool
}

// Positions of more fields of the batch header.
const (
	posProducerID    = 43
	posProducerEpoch = 51
	posBaseSequence  = 53
	attrTransaction  = 0x10
	attrControl      = 0x20
)

// producedBatches reads the batches of a partition by raw fetches.
func (w *world) producedBatches(side *Side, topic string, partition int32, from int64) []producedBatch {
	w.t.Helper()
	detail, err := side.Topic(w.ctx, topic)
	require.NoError(w.t, err)
	end := w.end(side, topic, partition)
	var out []producedBatch
	for from < end {
		raw, err := side.fetch(w.ctx, detail, partition, detail.Partitions[partition].Leader, from)
		require.NoError(w.t, err)
		batches, err := splitBatches(raw)
		require.NoError(w.t, err)
		require.NotEmpty(w.t, batches, "%s-%d at %d", topic, partition, from)
		for _, b := range batches {
			header := raw[:b.Size]
			raw = raw[b.Size:]
			out = append(out, producedBatch{
				base: b.Base, leaderEpoch: b.Epoch,
				pid:      int64(binary.BigEndian.Uint64(header[posProducerID:])),
				pidEpoch: int16(binary.BigEndian.Uint16(header[posProducerEpoch:])),
				sequence: int32(binary.BigEndian.Uint32(header[posBaseSequence:])), records: b.Count,
				control: b.Attributes&attrControl != 0, transactional: b.Attributes&attrTransaction != 0,
			})
			from = b.Last + 1
		}
	}
	return out
}

// resetAt is the offset of the reset record that the stop wrote, which is where
// the mirrored part ends when no transaction was open.
func (w *world) resetAt(topic string, partition int32) int64 {
	w.t.Helper()
	for _, b := range w.producedBatches(w.b, topic, partition, 0) {
		if b.control {
			return b.base
		}
	}
	w.t.Fatalf("%s-%d has no control record", topic, partition)
	return -1
}

// TestJavaHarness: the events of a job are told apart, and a job that breaks is
// seen as such.
func TestJavaHarness(t *testing.T) {
	kafka.RequireJava(t)
	source := sourceOf(t)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	w := &world{t: t, ctx: ctx, source: source}
	var err error
	w.a, err = NewSide("A", source.Bootstrap())
	require.NoError(t, err)
	defer w.a.Close()
	w.topic("harness", 1, 1)
	j := w.java(
		kafka.JavaJob{Kind: kafka.JavaProduce, Name: "p", Bootstrap: source.Bootstrap(), Topic: "harness", Settings: settings("count=3", "prefix=v")},
		kafka.JavaJob{Kind: kafka.JavaConsume, Name: "c", Bootstrap: source.Bootstrap(), Topic: "harness", Settings: settings("count=3")},
		kafka.JavaJob{Kind: kafka.JavaConsume, Name: "broken", Bootstrap: source.Bootstrap(), Topic: "harness", Settings: settings("assign=0:99"), Client: settings("auto.offset.reset=none")},
	)
	require.Len(t, w.finished(j, "p"), 3)
	require.Equal(t, []placed{{0, "v-0"}, {1, "v-1"}, {2, "v-2"}}, w.reads(j, "c", 2))
	_, err = j.Await(ctx, "broken", "record", 1)
	require.ErrorContains(t, err, "job broken broke")
	require.NotEmpty(t, j.ClientLog("c", refreshed), "refreshes of metadata are counted")
	<-j.Done()
	require.Error(t, j.Err(), "a job broke")
}

// calmRefreshes is how often a consumer may refresh its metadata in one of these
// tests, restarts of the node included. A loop does it ten times a second.
const calmRefreshes = 25

// Lines of Kafka's consumer that would come again and again if it didn't get on.
const (
	refreshed = `Updated cluster metadata updateVersion`
	tooOld    = `Got metadata for an older epoch`
	shaken    = `Resetting offset for|Truncation detected|out of range`
)
