package fsm

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kagami/messages"
)

func tp(n int32) messages.TopicPartition { return messages.TopicPartition{Topic: "t", Partition: n} }

func write(n int32, s messages.State) Write {
	w := NewWrite("m", tp(n))
	w.State = s
	return w
}

func lme(n, epoch int32) Write {
	w := NewWrite("m", tp(n))
	w.LME = epoch
	return w
}

// do plans and commits one group, and returns the plan.
func do(t *testing.T, s *Shard, writes ...Write) Plan {
	t.Helper()
	p := s.Plan(writes)
	require.Len(t, p.Answers, len(writes))
	s.Commit(p)
	return p
}

func stored(s *Shard, n int32) string {
	st := s.Get("m", tp(n), messages.NoOffset)
	return fmt.Sprintf("%s prev=%d attempt=%d lme=%d", st.State, st.Previous, st.RetryAttempt, st.LME)
}

// TestWritingAState are the coordinator's rules, one sequence per row.
func TestWritingAState(t *testing.T) {
	tests := []struct {
		name   string
		writes []Write
		want   string
		record int // records written by the last write
	}{
		{"first", []Write{write(0, sTruncation)}, "LOG_TRUNCATION prev=16 attempt=0 lme=-1", 1},
		{"same state again", []Write{write(0, sTruncation), write(0, sTruncation)}, "LOG_TRUNCATION prev=16 attempt=0 lme=-1", 0},
		{"first failure (OP-12)", []Write{write(0, sTruncation), write(0, sFailed)}, "FAILED prev=0 attempt=1 lme=-1", 1},
		{"failed over failed", []Write{write(0, sTruncation), write(0, sFailed), write(0, sFailed)}, "FAILED prev=0 attempt=2 lme=-1", 1},
		{
			"retry keeps the counter", []Write{write(0, sTruncation), write(0, sFailed), write(0, sTruncation), write(0, sMirroring)},
			"MIRRORING prev=0 attempt=1 lme=-1", 1,
		},
		{
			"fails again elsewhere", []Write{write(0, sTruncation), write(0, sFailed), write(0, sTruncation), write(0, sMirroring), write(0, sFailed)},
			"FAILED prev=2 attempt=2 lme=-1", 1,
		},
		{
			"D4 health write", []Write{write(0, sTruncation), write(0, sFailed), write(0, sTruncation), write(0, sMirroring), write(0, sMirroring)},
			"MIRRORING prev=16 attempt=0 lme=-1", 1,
		},
		{"reset write", []Write{write(0, sTruncation), write(0, sFailed), write(0, sFailed), write(0, sUnknown)}, "FAILED prev=0 attempt=0 lme=-1", 1},
		{"reset of a healthy one", []Write{write(0, sTruncation), write(0, sUnknown)}, "LOG_TRUNCATION prev=16 attempt=0 lme=-1", 0},
		{
			"paused clears", []Write{write(0, sTruncation), write(0, sFailed), write(0, sTruncation), write(0, sMirroring), write(0, sPausing), write(0, sPaused)},
			"PAUSED prev=16 attempt=0 lme=-1", 1,
		},
		{"stop from mirroring", []Write{write(0, sTruncation), write(0, sMirroring), write(0, sStopping)}, "STOPPING prev=16 attempt=0 lme=-1", 1},
		{"stop from truncation (OP-5)", []Write{write(0, sTruncation), write(0, sStopping)}, "STOPPING prev=0 attempt=0 lme=-1", 1},
		{"stop from failed truncation", []Write{write(0, sTruncation), write(0, sFailed), write(0, sStopping)}, "STOPPING prev=0 attempt=0 lme=-1", 1},
		{"failure over stopping with 0 keeps it", []Write{write(0, sTruncation), write(0, sStopping), write(0, sFailed)}, "FAILED prev=0 attempt=1 lme=-1", 1},
		{
			"failed stop", []Write{write(0, sTruncation), write(0, sMirroring), write(0, sStopping), write(0, sFailed)},
			"FAILED prev=5 attempt=1 lme=-1", 1,
		},
		{
			"stop resumed counts on", []Write{write(0, sTruncation), write(0, sMirroring), write(0, sStopping), lme(0, 7), write(0, sFailed), write(0, sStopping), write(0, sFailed)},
			"FAILED prev=5 attempt=2 lme=7", 1,
		},
		{
			"a new stop drops the old LME", []Write{write(0, sTruncation), write(0, sMirroring), write(0, sStopping), lme(0, 7), write(0, sStopped), write(0, sTruncation), write(0, sMirroring), write(0, sStopping)},
			"STOPPING prev=16 attempt=0 lme=-1", 1,
		},
		{
			"a stop out of truncation keeps it", []Write{write(0, sTruncation), write(0, sMirroring), write(0, sStopping), lme(0, 7), write(0, sStopped), write(0, sTruncation), write(0, sStopping), write(0, sStopped)},
			"STOPPED prev=16 attempt=0 lme=7", 1,
		},
		{"stopped directly", []Write{write(0, sStopped)}, "STOPPED prev=16 attempt=0 lme=-1", 1},
		{"LME only", []Write{lme(0, 3)}, "UNKNOWN prev=16 attempt=0 lme=3", 1},
		{"LME again", []Write{lme(0, 3), lme(0, 3)}, "UNKNOWN prev=16 attempt=0 lme=3", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := NewShard(1)
			var last Plan
			for _, w := range tt.writes {
				last = do(t, s, w)
				require.NoError(t, last.Answers[0].Err)
			}
			require.Equal(t, tt.want, stored(s, 0))
			require.Len(t, last.Records, tt.record)
		})
	}
}

func TestWritesOutsideTheTableAreRefused(t *testing.T) {
	for _, from := range messages.States() {
		for _, to := range messages.States() {
			for _, previous := range messages.States() {
				cur := messages.UnknownPartitionState()
				cur.State, cur.Previous = from, previous
				_, changed, _, err := Next(cur, write(0, to))
				ok := to == messages.StateUnknown || to == from
				for i := range rows {
					ok = ok || rows[i].Persist == PersistState && rows[i].To == to && rows[i].matches(from, rows[i].On[0], facts(rows[i], previous))
				}
				require.Equal(t, ok, err == nil, "%s (previous %s) -> %s: %v", from, previous, to, err)
				if err != nil {
					require.ErrorIs(t, err, messages.ErrInvalidMirrorStates)
					require.False(t, changed)
				}
			}
		}
	}
}

// facts under which a row may hold: everything granted, the wish that fits.
func facts(r Row, previous messages.State) Facts {
	f := Facts{Previous: previous, LogEmpty: r.If.Name == emptyLog.Name, Converged: true, EpochRaised: true, ResetAcked: true, Desired: messages.DesiredActive}
	switch r.Number {
	case "16":
		f.Desired = messages.DesiredStopped
	case "17":
		f.Desired = messages.DesiredPaused
	case "11 FAILED":
		f.Previous = messages.StateMirroring // the coordinator can't know that a stop failed
	}
	return f
}

// TestFencedWrites is OP-42.
func TestFencedWrites(t *testing.T) {
	by := func(w Write, epoch int32, number int64) Write {
		w.LeaderEpoch, w.Number = epoch, number
		return w
	}
	s := NewShard(1)
	do(t, s, by(write(0, sTruncation), 5, 1), by(write(0, sMirroring), 5, 2))
	first := do(t, s, by(write(0, sFailed), 5, 3))

	t.Run("a repeat gets the same answer", func(t *testing.T) {
		again := do(t, s, by(write(0, sFailed), 5, 3))
		require.Empty(t, again.Records)
		require.Equal(t, first.Answers, again.Answers)
	})
	t.Run("a late copy of an older write", func(t *testing.T) {
		require.ErrorIs(t, do(t, s, by(write(0, sMirroring), 5, 2)).Answers[0].Err, messages.ErrInvalidMirrorStates)
	})
	t.Run("a new leader", func(t *testing.T) {
		require.NoError(t, do(t, s, by(write(0, sStopping), 6, 1)).Answers[0].Err)
	})
	t.Run("the old leader wakes up", func(t *testing.T) {
		p := do(t, s, by(write(0, sFailed), 5, 4), by(lme(0, 9), 5, 5))
		require.ErrorIs(t, p.Answers[0].Err, messages.ErrFencedLeaderEpoch)
		require.ErrorIs(t, p.Answers[1].Err, messages.ErrFencedLeaderEpoch)
		require.Empty(t, p.Records)
		require.Equal(t, "STOPPING prev=16 attempt=0 lme=-1", stored(s, 0))
	})
}

// TestFencesAndTickets: a leader's read rules out what older ones still write.
func TestFencesAndTickets(t *testing.T) {
	by := func(w Write, epoch int32, number, ticket int64) Write {
		w.LeaderEpoch, w.Number, w.Ticket = epoch, number, ticket
		return w
	}
	s := NewShard(7)
	stored := do(t, s, by(write(0, sStopped), 5, 1, 7))
	require.Equal(t, int64(100), s.Read("m", tp(0), messages.NoOffset, 6, 100).WriteNumber)
	err := func(w Write) error { return s.Plan([]Write{w}).Answers[0].Err }
	require.ErrorIs(t, err(by(write(0, sTruncation), 5, 2, 7)), messages.ErrFencedLeaderEpoch, "the old leader's late write")
	require.ErrorIs(t, err(by(write(0, sTruncation), 6, 100, 7)), messages.ErrInvalidMirrorStates, "an earlier incarnation's")
	require.ErrorIs(t, err(by(write(0, sTruncation), 6, 101, 8)), messages.ErrInvalidMirrorStates, "read from another coordinator")
	require.NoError(t, err(by(write(0, sTruncation), 6, 101, 7)))
	require.NoError(t, err(by(write(0, sTruncation), 6, 101, 0)), "without a ticket nothing is compared")
	require.Equal(t, stored.Answers, s.Plan([]Write{by(write(0, sStopped), 5, 1, 3)}).Answers, "a repeat gets its answer")
	s.Read("m", tp(0), messages.NoOffset, 5, 200)
	require.NoError(t, err(by(write(0, sTruncation), 6, 101, 7)), "an older reader moves nothing")
	behind := s.Read("m", tp(0), messages.NoOffset, 6, 3)
	require.Equal(t, int64(100+fenceJump), behind.WriteNumber, "a clock that is behind")
	require.Equal(t, behind, s.Read("m", tp(0), messages.NoOffset, 6, 3), "the same read again")
	require.ErrorIs(t, err(by(write(0, sTruncation), 6, 101, 7)), messages.ErrInvalidMirrorStates)
}

// TestD55LMEsOfOneStop: one record per mirror holds all; an LME record that
// another partition's stop writes carries no stale entry.
func TestD55LMEsOfOneStop(t *testing.T) {
	s := NewShard(1)
	do(t, s, write(0, sTruncation), write(1, sTruncation))
	do(t, s, write(0, sMirroring), write(1, sMirroring))
	do(t, s, write(0, sStopping), write(1, sStopping))
	p := do(t, s, lme(0, 3), lme(1, 4))
	require.Len(t, p.Records, 1, "one LME record for both")
	require.Equal(t, map[messages.TopicPartition]int32{tp(0): 3, tp(1): 4}, p.Records[0].Epochs)
	do(t, s, write(0, sStopped), write(1, sStopped))
	do(t, s, write(0, sTruncation), write(1, sTruncation))
	do(t, s, write(0, sMirroring), write(1, sMirroring))

	do(t, s, write(0, sStopping), write(1, sStopping))
	p = do(t, s, lme(0, 8))
	require.Equal(t, map[messages.TopicPartition]int32{tp(0): 8}, p.Records[0].Epochs, "not the old 4 of partition 1")
	require.Equal(t, "STOPPING prev=16 attempt=0 lme=-1", stored(s, 1))
}

func TestNotesMakeARecord(t *testing.T) {
	s := NewShard(1)
	do(t, s, write(0, sTruncation), write(0, sMirroring))
	w := NewWrite("m", tp(0))
	w.Notes.CutRecords, w.Notes.CutFrom, w.Notes.CutTo = 2, 8, 10
	require.Len(t, do(t, s, w).Records, 1)
	require.Empty(t, do(t, s, w).Records, "nothing new")
	st := s.Get("m", tp(0), messages.NoOffset)
	require.Equal(t, messages.StateMirroring, st.State)
	require.Equal(t, int64(8), st.CutFrom)
	require.Equal(t, int64(2), st.CutRecords)
}

func TestReplayOddRecords(t *testing.T) {
	s := NewShard(1)
	rec := func(state, previous messages.State) Record {
		st := messages.UnknownPartitionState()
		st.State, st.Previous = state, previous
		return Record{Kind: RecordState, Mirror: "m", Partition: tp(0), State: st, Created: messages.NoOffset}
	}
	require.NoError(t, s.Apply(rec(sMirroring, sUnknown)))
	require.Error(t, s.Apply(rec(9, sUnknown)), "code 9 is corrupt")
	require.Equal(t, "UNKNOWN prev=16 attempt=0 lme=-1", stored(s, 0))
	require.Error(t, s.Apply(rec(sUnknown, sUnknown)), "16 is never stored")
	require.Error(t, s.Apply(rec(sFailed, 9)))
	require.NoError(t, s.Apply(rec(sFailed, sMirroring)))
	require.Equal(t, "FAILED prev=2 attempt=0 lme=-1", stored(s, 0))
	require.NoError(t, s.Apply(Record{Kind: RecordStatesTombstone, Mirror: "m"}))
	require.Empty(t, s.Mirrors())
}

func TestDeleteAndForget(t *testing.T) {
	s := NewShard(1)
	a := write(0, sStopped)
	a.Created = 10
	b := write(1, sStopped)
	b.Partition.Topic, b.Created = "u", 11
	do(t, s, a, b)
	la, lb := lme(0, 3), lme(1, 4)
	lb.Partition.Topic = "u"
	do(t, s, la, lb)

	t.Run("a topic that was made anew has no state", func(t *testing.T) {
		require.Equal(t, messages.StateUnknown, s.Get("m", tp(0), 99).State)
		require.Equal(t, messages.StateStopped, s.Get("m", tp(0), 10).State)
		w := write(0, sTruncation)
		w.Created = 99
		require.NoError(t, s.Plan([]Write{w}).Answers[0].Err)
	})
	t.Run("topic deleted", func(t *testing.T) {
		p := s.PlanForget(func(topic string) (int64, bool) { return 11, topic == "u" }, "topic deleted")
		s.Commit(p)
		require.Len(t, p.Records, 1)
		require.Equal(t, []messages.TopicPartition{lb.Partition}, s.Partitions("m"))
	})
	t.Run("mirror deleted", func(t *testing.T) {
		require.Equal(t, []string{"m"}, s.Stale(func(string) bool { return false }))
		p := s.PlanDeleteMirror("m", "mirror deleted")
		require.Len(t, p.Records, 2)
		s.Commit(p)
		require.Empty(t, s.Mirrors())
		require.Empty(t, s.PlanDeleteMirror("m", "").Records)
	})
}

// TestReplayEqualsLive: whatever is written in whatever groups, a replay of the
// records gives the live state, and an abandoned plan leaves no trace.
func TestReplayEqualsLive(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		live := NewShard(1)
		var log []Record
		for range 60 {
			var group []Write
			for range 1 + rng.IntN(6) {
				group = append(group, randomWrite(rng, live))
			}
			p := live.Plan(group)
			if rng.IntN(10) == 0 {
				continue // the append failed
			}
			if rng.IntN(40) == 0 {
				p = live.PlanDeleteMirror("m", "x")
			}
			live.Commit(p)
			log = append(log, p.Records...)
		}
		replayed := NewShard(1)
		for _, r := range log {
			require.NoError(t, replayed.Apply(r))
		}
		if d := cmp.Diff(dump(live), dump(replayed)); d != "" {
			t.Fatalf("seed %d: %s", seed, d)
		}
	}
}

func randomWrite(rng *rand.Rand, s *Shard) Write {
	w := NewWrite([]string{"m", "n"}[rng.IntN(2)], tp(rng.Int32N(4)))
	cur := s.Get(w.Mirror, w.Partition, messages.NoOffset).State
	all := messages.States()
	w.State = all[rng.IntN(len(all))]
	for range 20 {
		if Leads(cur, w.State) || rng.IntN(10) == 0 {
			break
		}
		w.State = all[rng.IntN(len(all))]
	}
	if rng.IntN(3) == 0 {
		w.LME = rng.Int32N(10)
	}
	if rng.IntN(2) == 0 {
		w.LeaderEpoch, w.Number = rng.Int32N(3), rng.Int64N(5)
	}
	if rng.IntN(4) == 0 {
		w.Notes.Error = "boom"
		w.Notes.CutRecords = rng.Int64N(5)
	}
	return w
}

func dump(s *Shard) map[string]string {
	out := map[string]string{}
	for _, m := range s.Mirrors() {
		for _, p := range s.Partitions(m) {
			out[m+"/"+p.String()] = fmt.Sprintf("%+v", s.Get(m, p, messages.NoOffset))
		}
	}
	return maps.Clone(out)
}

// TestLMEOfAHalfStoredGroup: the coordinator dies between the records of one
// write. What is sent again isn't taken for done (found by test/sim).
func TestLMEOfAHalfStoredGroup(t *testing.T) {
	s := NewShard(1)
	state := messages.UnknownPartitionState()
	state.State, state.LeaderEpoch, state.WriteNumber = messages.StateStopping, 5, 1
	require.NoError(t, s.Apply(Record{Kind: RecordState, Mirror: "m", Partition: tp(0), State: state, Created: messages.NoOffset}))
	w := NewWrite("m", tp(0))
	w.LME, w.LeaderEpoch, w.Number = 7, 5, 2
	w.Notes.GapFrom, w.Notes.GapTo, w.Notes.GapAtMillis = 1, 3, 1
	for stored := range len(s.Plan([]Write{w}).Records) + 1 {
		again := NewShard(2)
		require.NoError(t, again.Apply(Record{Kind: RecordState, Mirror: "m", Partition: tp(0), State: state, Created: messages.NoOffset}))
		for _, r := range s.Plan([]Write{w}).Records[:stored] {
			require.NoError(t, again.Apply(r))
		}
		again.Commit(again.Plan([]Write{w}))
		require.Equal(t, int32(7), again.Get("m", tp(0), messages.NoOffset).LME)
	}
}
