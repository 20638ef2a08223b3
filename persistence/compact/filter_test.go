package compact

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/batch"
)

// logOf is a log for tests: batches and the aborted transactions in them.
type logOf struct {
	batches [][]byte
	aborted []Aborted
	end     int64
	now     int64
}

func (l *logOf) add(p batch.Props, records ...batch.Record) *logOf {
	p.BaseOffset = l.end
	for i := range records {
		if records[i].Timestamp == 0 {
			records[i].Timestamp = l.now
		}
	}
	return l.raw(batch.Append(nil, p, records...))
}

func (l *logOf) raw(b []byte) *logOf {
	batch.SetOffsetAndEpoch(b, l.end, 0)
	h, err := batch.ParseHeader(b)
	if err != nil {
		panic(err)
	}
	l.batches, l.end = append(l.batches, b), h.LastOffset()+1
	return l
}

func rec(key, value string) batch.Record {
	r := batch.Record{Key: []byte(key), Value: []byte(value)}
	if value == "" {
		r.Value = nil
	}
	return r
}

func producer(id int64, seq int32, txn bool) batch.Props {
	p := batch.Plain()
	p.ProducerID, p.ProducerEpoch, p.BaseSequence = id, 0, seq
	if txn {
		p.Attributes |= batch.AttrTransactional
	}
	return p
}

// run cleans the log in one pass, in place.
func (l *logOf) run(tb testing.TB, o Options) *Pass {
	tb.Helper()
	if o.Rule.Identity == nil {
		o.Rule = ByKey()
	}
	p := NewPass(o)
	p.Aborted(0, l.aborted)
	for _, b := range l.batches {
		h, err := batch.ParseHeader(b)
		require.NoError(tb, err)
		full, err := p.Collect(h, b, 0)
		require.NoError(tb, err)
		require.True(tb, full)
	}
	require.Equal(tb, l.end, p.End())
	p.Filtering()
	p.Aborted(0, l.aborted)
	var kept [][]byte
	for i, b := range l.batches {
		h, err := batch.ParseHeader(b)
		require.NoError(tb, err)
		out, err := p.Filter(h, b, i == len(l.batches)-1)
		require.NoError(tb, err)
		if out != nil {
			require.NoError(tb, batch.CheckCRC(out))
			kept = append(kept, out)
		}
	}
	l.batches, l.aborted = kept, p.TakeAborted()
	return p
}

// show is the log as text: a batch is its offsets, its delete horizon and its records.
func (l *logOf) show(tb testing.TB) string {
	tb.Helper()
	var out []string
	for _, b := range l.batches {
		h, err := batch.ParseHeader(b)
		require.NoError(tb, err)
		s := fmt.Sprintf("%d-%d", h.BaseOffset, h.LastOffset())
		if at, ok := h.DeleteHorizon(); ok {
			s += fmt.Sprintf(" until %d", at)
		}
		if c, err := batch.ParseControl(b); err == nil {
			out = append(out, s+" "+c.Type.String())
			continue
		}
		for r, err := range batch.Records(b) {
			require.NoError(tb, err)
			s += fmt.Sprintf(" %d:%s=%s", r.Offset, r.Key, r.Value)
		}
		out = append(out, s)
	}
	return strings.Join(out, " | ")
}

// TestTombstones: a tombstone stays until delete.retention.ms after the pass that
// found it the last word (KIP-534), and its key is gone by then.
func TestTombstones(t *testing.T) {
	l := (&logOf{now: 5}).add(batch.Plain(), rec("a", "1"), rec("b", "1")).add(batch.Plain(), rec("a", ""), rec("c", "1")).add(batch.Plain(), rec("end", "1"))
	p := l.run(t, Options{NowMillis: 1000, DeleteRetentionMillis: 100})
	require.Equal(t, "0-1 1:b=1 | 2-3 until 1100 2:a= 3:c=1 | 4-4 4:end=1", l.show(t))
	require.Equal(t, messages.NoOffset, p.Purged())
	p = l.run(t, Options{NowMillis: 1099, DeleteRetentionMillis: 100})
	require.Equal(t, "0-1 1:b=1 | 2-3 until 1100 2:a= 3:c=1 | 4-4 4:end=1", l.show(t), "the horizon is set once")
	require.Equal(t, messages.NoOffset, p.Purged())
	p = l.run(t, Options{NowMillis: 1100, DeleteRetentionMillis: 100})
	require.Equal(t, "0-1 1:b=1 | 2-3 until 1100 3:c=1 | 4-4 4:end=1", l.show(t))
	require.Equal(t, int64(3), p.Purged())
	for _, b := range l.batches { // the horizon didn't move the records' times
		for r := range batch.Records(b) {
			require.Equal(t, int64(5), r.Timestamp)
		}
	}
}

// TestMarkers: a marker stays as long as anything of its transaction does, and then
// until its horizon; the index tells of an aborted one as long as the marker stands.
func TestMarkers(t *testing.T) {
	l := &logOf{now: 5}
	l.add(producer(7, 0, true), rec("a", "aborted")).raw(batch.AbortMarker(7, 0, 1, 5))
	l.aborted = []Aborted{{ProducerID: 7, FirstOffset: 0, LastOffset: 1, LastStableOffset: 2}}
	l.add(producer(8, 0, true), rec("a", "1")).raw(batch.CommitMarker(8, 0, 1, 5))
	l.add(batch.Plain(), rec("end", "1"))
	l.run(t, Options{NowMillis: 1000, DeleteRetentionMillis: 100})
	require.Equal(t, "1-1 ABORT | 2-2 2:a=1 | 3-3 COMMIT | 4-4 4:end=1", l.show(t))
	require.Len(t, l.aborted, 1, "its records were met in this pass")
	l.add(batch.Plain(), rec("a", "2"))
	l.run(t, Options{NowMillis: 1000, DeleteRetentionMillis: 100})
	require.Equal(t, "1-1 until 1100 ABORT | 3-3 COMMIT | 4-4 4:end=1 | 5-5 5:a=2", l.show(t))
	require.Empty(t, l.aborted)
	l.run(t, Options{NowMillis: 1050, DeleteRetentionMillis: 100})
	require.Equal(t, "1-1 until 1100 ABORT | 3-3 until 1150 COMMIT | 4-4 4:end=1 | 5-5 5:a=2", l.show(t))
	p := l.run(t, Options{NowMillis: 1149, DeleteRetentionMillis: 100})
	require.Equal(t, "3-3 until 1150 COMMIT | 4-4 4:end=1 | 5-5 5:a=2", l.show(t))
	require.Equal(t, int64(2), p.Purged())
	l.run(t, Options{NowMillis: 1150, DeleteRetentionMillis: 100})
	require.Equal(t, "4-4 4:end=1 | 5-5 5:a=2", l.show(t))
}

// TestLastSequences: the batch with an active producer's last sequence stays without
// records, and so does the last marker of one of which nothing else is known.
func TestLastSequences(t *testing.T) {
	l := &logOf{now: 5}
	l.add(producer(7, 0, false), rec("a", "1")).add(producer(7, 1, false), rec("a", "2")).add(producer(8, 4, false), rec("a", "3"))
	l.raw(batch.CommitMarker(9, 0, 1, 5)).add(batch.Plain(), rec("a", "4"))
	active := map[int64]Active{7: {LastOffset: 1}, 9: {LastOffset: messages.NoOffset, Epoch: 0}}
	l.run(t, Options{NowMillis: 1000, Producers: active})
	l.run(t, Options{NowMillis: 1000, Producers: active})
	require.Equal(t, "1-1 | 3-3 | 4-4 4:a=4", l.show(t))
	h, err := batch.ParseHeader(l.batches[0])
	require.NoError(t, err)
	require.Equal(t, []int64{7, 1}, []int64{h.ProducerID, int64(h.LastSequence())})
}

// TestEndStays: the last batch of what is cleaned stays, so that a log that loses what
// is behind it ends where it did.
func TestEndStays(t *testing.T) {
	l := (&logOf{now: 5}).add(batch.Plain(), rec("a", "1")).add(batch.Plain(), rec("b", ""))
	l.run(t, Options{NowMillis: 1000})
	l.run(t, Options{NowMillis: 1000})
	require.Equal(t, "0-0 0:a=1 | 1-1", l.show(t))
}

// TestKeyless: records without a key don't stay in a compacted topic; of a reset of
// producers (MIRROR_PID_RESET) nothing ever goes.
func TestKeyless(t *testing.T) {
	l := (&logOf{now: 5}).add(batch.Plain(), batch.Record{Value: []byte("x")}, rec("a", "1")).raw(batch.MirrorPIDReset(0, 5, "source")).add(batch.Plain(), rec("b", "1"))
	for range 3 {
		l.run(t, Options{NowMillis: 1000})
	}
	require.Equal(t, "0-1 1:a=1 | 2-2 MIRROR_PID_RESET | 3-3 3:b=1", l.show(t))
}

// TestResetEndsTransactions: what a reset of producers found open counts as aborted.
func TestResetEndsTransactions(t *testing.T) {
	l := &logOf{now: 5}
	l.add(producer(7, 0, true), rec("a", "open")).raw(batch.MirrorPIDReset(0, 5, "source"))
	l.aborted = []Aborted{{ProducerID: 7, FirstOffset: 0, LastOffset: 1, LastStableOffset: 2}}
	l.add(producer(7, 0, true), rec("a", "new")).raw(batch.CommitMarker(7, 0, 1, 5)).add(batch.Plain(), rec("end", "1"))
	l.run(t, Options{NowMillis: 1000})
	require.Equal(t, "1-1 MIRROR_PID_RESET | 2-2 2:a=new | 3-3 COMMIT | 4-4 4:end=1", l.show(t))
	require.Len(t, l.aborted, 1)
}

// TestMapLimit: a full map ends the pass early, and what is beyond it stays.
func TestMapLimit(t *testing.T) {
	l := &logOf{now: 5}
	const keys = 2000
	for i := range keys {
		l.add(batch.Plain(), rec("again", fmt.Sprint(i)), rec(fmt.Sprint("key ", i), "x"))
	}
	p := NewPass(Options{Rule: ByKey(), NowMillis: 1000, MapBytes: 1})
	read := 0
	for _, b := range l.batches {
		h, _ := batch.ParseHeader(b)
		fits, err := p.Collect(h, b, 0)
		require.NoError(t, err)
		if !fits {
			break
		}
		read++
	}
	require.Greater(t, read, 500)
	require.Less(t, read, slotsMin)
	require.Equal(t, int64(2*read)+1, p.End(), "the key that came again still fitted")
	p.Filtering()
	kept := int64(0)
	for _, b := range l.batches {
		h, _ := batch.ParseHeader(b)
		_, err := p.Filter(h, b, false)
		require.NoError(t, err)
	}
	kept = p.Stats().RecordsKept
	require.Equal(t, int64(2*keys-read), kept)

	big := NewMap(1 << 20)
	for i := range 20_000 {
		require.True(t, big.Put(fmt.Append(nil, i), int64(i)))
	}
	for i := range 20_000 {
		at, ok := big.Latest(fmt.Append(nil, i))
		require.True(t, ok)
		require.Equal(t, int64(i), at)
	}
	require.Equal(t, 20_000, big.Len())
	require.LessOrEqual(t, len(big.slots)*slotBytes, 1<<20)
	_, ok := big.Latest([]byte("nothing"))
	require.False(t, ok)
}

func mirrorKey(kind int16, mirror string) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(kind))
	return append(binary.BigEndian.AppendUint16(b, uint16(len(mirror))), mirror...)
}

func mirrorState(topic string, partition int32, state int8) []byte {
	b := binary.AppendUvarint([]byte{0, 0}, uint64(len(topic)+1))
	b = binary.BigEndian.AppendUint32(append(b, topic...), uint32(partition))
	return append(b, byte(state), 16, 0, 0, 0)
}

// TestMirrorStateRule: topic and partition belong to the identity of a state (OP-1), a
// tombstone stands for all states of the mirror, and history stays until the audit
// retention has passed (OP-27, D50).
func TestMirrorStateRule(t *testing.T) {
	l := &logOf{}
	state := func(at int64, mirror, topic string, partition int32, s int8) {
		l.add(batch.Plain(), batch.Record{Timestamp: at, Key: mirrorKey(2, mirror), Value: mirrorState(topic, partition, s)})
	}
	state(10, "m", "t", 0, 1)
	state(20, "m", "t", 1, 1)
	state(30, "m", "t", 0, 2)
	state(40, "gone", "t", 0, 1)
	l.add(batch.Plain(), batch.Record{Timestamp: 50, Key: mirrorKey(1, "m"), Value: []byte("lme 1")})
	l.add(batch.Plain(), batch.Record{Timestamp: 60, Key: mirrorKey(1, "m"), Value: []byte("lme 2")})
	l.add(batch.Plain(), batch.Record{Timestamp: 70, Key: mirrorKey(2, "gone")})
	l.add(batch.Plain(), batch.Record{Timestamp: 75, Key: []byte{9}, Value: []byte("who knows")})
	state(80, "m", "t", 0, 3)
	offsets := func() (out []int64) {
		for _, b := range l.batches {
			for r := range batch.Records(b) {
				out = append(out, r.Offset)
			}
		}
		return out
	}
	run := func(audit, now int64) *Pass { return l.run(t, Options{Rule: MirrorState(audit), NowMillis: now}) }
	require.Zero(t, run(-1, 1000).NextDue())
	require.Equal(t, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8}, offsets(), "-1 keeps everything")
	require.Equal(t, int64(1030), run(1000, 1029).NextDue())
	require.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7, 8}, offsets())
	run(1000, 1045)
	require.Equal(t, []int64{1, 4, 5, 6, 7, 8}, offsets(), "the tombstone is too young")
	run(1000, 1060)
	require.Equal(t, []int64{1, 5, 6, 7, 8}, offsets())
	run(1000, 5000)
	require.Equal(t, []int64{1, 5, 7, 8}, offsets(), "nothing is left that the tombstone hides")
}

// TestMirrorStateTombstoneWaits: a tombstone stays as long as a state that it hides
// does, whatever their times are.
func TestMirrorStateTombstoneWaits(t *testing.T) {
	l := &logOf{}
	l.add(batch.Plain(), batch.Record{Timestamp: 900, Key: mirrorKey(2, "m"), Value: mirrorState("t", 0, 1)}) // a clock ran ahead
	l.add(batch.Plain(), batch.Record{Timestamp: 70, Key: mirrorKey(2, "m")}).add(batch.Plain(), batch.Record{Timestamp: 71, Key: mirrorKey(1, "x"), Value: []byte("x")})
	l.run(t, Options{Rule: MirrorState(100), NowMillis: 500})
	l.run(t, Options{Rule: MirrorState(100), NowMillis: 600})
	require.Equal(t, 3, len(l.batches))
	l.run(t, Options{Rule: MirrorState(100), NowMillis: 1000})
	require.Equal(t, 1, len(l.batches))
}
