package group

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/groups"
)

// TestInitialDelay: the first generation waits for the delay, and again while
// members come, up to the rebalance timeout.
func TestInitialDelay(t *testing.T) {
	w := newWorld(t)
	a := w.ask(joinOf("", ""))
	w.pass(delay - 1)
	require.NotContains(t, w.answers, a)
	b := w.ask(joinOf("", ""))
	w.pass(delay)
	require.NotContains(t, w.answers, a, "another one came")
	w.pass(delay)
	ja, jb := answerOf[*groups.Joined](w, a), answerOf[*groups.Joined](w, b)
	require.Equal(t, int32(1), ja.Generation)
	require.Equal(t, ja.Member, jb.Leader)
	require.Len(t, ja.Members, 2)
	require.Empty(t, jb.Members, "for the leader alone")
}

func TestJoinRefusals(t *testing.T) {
	short, long, none, other := joinOf("", ""), joinOf("", ""), joinOf("", ""), joinOf("", "")
	short.SessionMillis, long.SessionMillis, none.Protocols, other.ProtocolType = 5_999, 1_800_001, nil, "connect"
	nameless := joinOf("", "")
	nameless.Group = ""
	for _, row := range []struct {
		name    string
		members int
		req     groups.Join
		want    error
	}{
		{"session too short", 0, short, messages.ErrInvalidSessionTimeout},
		{"session too long", 0, long, messages.ErrInvalidSessionTimeout},
		{"no group id", 0, nameless, messages.ErrInvalidGroupID},
		{"unknown member of no group", 0, joinOf("x", ""), messages.ErrUnknownMember},
		{"unknown member", 1, joinOf("x", ""), messages.ErrUnknownMember},
		{"unknown static member", 1, joinOf("x", "i"), messages.ErrUnknownMember},
		{"no protocol", 0, none, messages.ErrInconsistentProtocol},
		{"another protocol", 1, joinOf("", "", "sticky"), messages.ErrInconsistentProtocol},
		{"another type", 1, other, messages.ErrInconsistentProtocol},
		{"full", 4, joinOf("", ""), messages.ErrGroupFull},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			if row.members > 0 {
				w.stable(row.members)
			}
			got := answerOf[*groups.Joined](w, w.ask(row.req))
			require.ErrorIs(t, got.Err, row.want)
			require.Equal(t, int32(-1), got.Generation)
			if row.members == 0 {
				require.Zero(t, w.core.Groups(), "nothing stays of a refused join")
			}
		})
	}
}

// TestMemberIDFirst: KIP-394. An id that nobody comes back with is forgotten.
func TestMemberIDFirst(t *testing.T) {
	w := newWorld(t)
	j := joinOf("", "")
	j.NeedsID = true
	got := answerOf[*groups.Joined](w, w.ask(j))
	require.ErrorIs(t, got.Err, messages.ErrMemberIDRequired)
	require.NotEmpty(t, got.Member)
	again := w.ask(joinOf(got.Member, ""))
	w.pass(delay)
	require.Equal(t, got.Member, answerOf[*groups.Joined](w, again).Member)

	w = newWorld(t)
	w.ask(j)
	w.pass(session)
	require.Zero(t, w.core.Groups())
}

// TestRebalance: a member comes, those that are there join again, one that doesn't
// is out after the rebalance timeout.
func TestRebalance(t *testing.T) {
	w := newWorld(t)
	m := w.stable(2)
	c := w.ask(joinOf("", ""))
	require.ErrorIs(t, w.beat(m[0]), messages.ErrRebalanceInProgress)
	a := w.ask(joinOf(m[0].Member, ""))
	for range 3 {
		w.pass(session - 1)
		require.ErrorIs(t, w.beat(m[1]), messages.ErrRebalanceInProgress)
	}
	w.pass(session)
	next := w.settle(a, c)
	require.Equal(t, int32(2), next[0].Generation)
	require.ErrorIs(t, w.beat(m[1]), messages.ErrUnknownMember)
	require.ErrorIs(t, w.beat(m[0]), messages.ErrIllegalGeneration)
	require.NoError(t, w.beat(next[0]))
}

func TestSessionEnds(t *testing.T) {
	w := newWorld(t)
	m := w.stable(2)
	w.pass(session - 1)
	require.NoError(t, w.beat(m[0]))
	w.pass(1)
	require.ErrorIs(t, w.beat(m[0]), messages.ErrRebalanceInProgress)
	next := w.settle(w.ask(joinOf(m[0].Member, "")))
	require.Equal(t, int32(2), next[0].Generation)
	w.pass(session)
	require.Equal(t, "Empty", w.state())
}

// TestNeverSynced: who joined and doesn't ask for its assignment is out.
func TestNeverSynced(t *testing.T) {
	w := newWorld(t)
	a, b := w.ask(joinOf("", "")), w.ask(joinOf("", ""))
	w.pass(2 * delay)
	ja, jb := answerOf[*groups.Joined](w, a), answerOf[*groups.Joined](w, b)
	w.ask(groups.Sync{Who: who(ja)})
	require.Equal(t, "Stable", w.state())
	for range 4 {
		w.pass(session - 1)
		_, _ = w.beat(ja), w.beat(jb)
	}
	require.Equal(t, "PreparingRebalance", w.state())
	require.ErrorIs(t, w.beat(jb), messages.ErrUnknownMember)
}

func TestSyncRefusals(t *testing.T) {
	w := newWorld(t)
	m := w.stable(1)[0]
	ask := func(change func(*groups.Sync)) error {
		s := groups.Sync{Who: who(m)}
		change(&s)
		return answerOf[*groups.Synced](w, w.ask(s)).Err
	}
	require.NoError(t, ask(func(*groups.Sync) {}))
	require.ErrorIs(t, ask(func(s *groups.Sync) { s.Generation = 7 }), messages.ErrIllegalGeneration)
	require.ErrorIs(t, ask(func(s *groups.Sync) { s.Member = "x" }), messages.ErrUnknownMember)
	require.ErrorIs(t, ask(func(s *groups.Sync) { s.Group = "other" }), messages.ErrUnknownMember)
	require.ErrorIs(t, ask(func(s *groups.Sync) { s.Protocol = new("sticky") }), messages.ErrInconsistentProtocol)
	require.ErrorIs(t, ask(func(s *groups.Sync) { s.ProtocolType = new("connect") }), messages.ErrInconsistentProtocol)
	w.ask(joinOf("", ""))
	require.ErrorIs(t, ask(func(*groups.Sync) {}), messages.ErrRebalanceInProgress)
}

// TestAssignmentIsStoredFirst: nobody learns an assignment that isn't durable, and a
// rebalance that begins meanwhile wins.
func TestAssignmentIsStoredFirst(t *testing.T) {
	w := newWorld(t)
	a := w.ask(joinOf("", ""))
	w.pass(delay)
	j := answerOf[*groups.Joined](w, a)
	w.hold = true
	s := w.ask(groups.Sync{Who: who(j), Assignments: map[string][]byte{j.Member: []byte("x")}})
	require.NotContains(t, w.answers, s)
	require.Equal(t, "CompletingRebalance", w.state())
	w.ask(joinOf("", ""))
	require.ErrorIs(t, answerOf[*groups.Synced](w, s).Err, messages.ErrRebalanceInProgress)
	w.hold = false
	w.store()
	require.Equal(t, "PreparingRebalance", w.state())
}

func TestLeave(t *testing.T) {
	w := newWorld(t)
	m := w.stable(2)
	left := answerOf[*groups.Left](w, w.ask(groups.Leave{Group: "g", Members: []groups.Leaver{{Member: m[0].Member}, {Member: "x"}}}))
	require.NoError(t, left.Err)
	require.NoError(t, left.Members[0])
	require.ErrorIs(t, left.Members[1], messages.ErrUnknownMember)
	require.ErrorIs(t, w.beat(m[1]), messages.ErrRebalanceInProgress)
	next := w.settle(w.ask(joinOf(m[1].Member, "")))
	require.Equal(t, m[1].Member, next[0].Leader)
	w.ask(groups.Leave{Group: "g", Members: []groups.Leaver{{Member: m[1].Member}}})
	require.Equal(t, "Empty", w.state())
	other := answerOf[*groups.Left](w, w.ask(groups.Leave{Group: "other", Members: []groups.Leaver{{Member: "x"}}}))
	require.ErrorIs(t, other.Members[0], messages.ErrUnknownMember)
}

// TestStaticMember: KIP-345 and KIP-814. It comes back under another id without a
// rebalance, its former self is fenced, and a restart of the coordinator knows it.
func TestStaticMember(t *testing.T) {
	w := newWorld(t)
	a, b := w.ask(joinOf("", "one")), w.ask(joinOf("", "two"))
	w.pass(2 * delay)
	m := w.settle(a, b)
	back := answerOf[*groups.Joined](w, w.ask(joinOf("", "one")))
	require.NoError(t, back.Err)
	require.NotEqual(t, m[0].Member, back.Member)
	require.Equal(t, m[0].Generation, back.Generation)
	require.True(t, back.SkipAssignment, "the leader, who shall not assign")
	require.Len(t, back.Members, 2)
	old := groups.Heartbeat{Who: who(m[0])}
	old.Instance = "one"
	require.ErrorIs(t, answerOf[*groups.Done](w, w.ask(old)).Err, messages.ErrFencedInstance)
	s := answerOf[*groups.Synced](w, w.ask(groups.Sync{Who: who(back)}))
	require.Equal(t, "for "+m[0].Member, string(s.Assignment), "what it had")

	w.replay()
	require.NoError(t, w.beat(back))
	elder := joinOf("", "two")
	elder.MaySkip = false
	third := answerOf[*groups.Joined](w, w.ask(elder))
	require.NoError(t, third.Err)
	require.Equal(t, back.Member, third.Leader)

	gone := answerOf[*groups.Left](w, w.ask(groups.Leave{Group: "g", Members: []groups.Leaver{{Instance: "two"}}}))
	require.NoError(t, gone.Members[0])
	require.Equal(t, "PreparingRebalance", w.state())
}

// TestKnownMemberAgain: a lost answer is given again; a leader that joins again, or
// other protocols, begin a rebalance.
func TestKnownMemberAgain(t *testing.T) {
	for _, row := range []struct {
		name    string
		member  int
		changed bool
		want    string
	}{
		{"follower", 1, false, "Stable"},
		{"follower with other protocols", 1, true, "PreparingRebalance"},
		{"leader", 0, false, "PreparingRebalance"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			m := w.stable(2)
			j := joinOf(m[row.member].Member, "")
			if row.changed {
				j = joinOf(m[row.member].Member, "", "range", "sticky")
			}
			ticket := w.ask(j)
			require.Equal(t, row.want, w.state())
			if row.want == "Stable" {
				require.Equal(t, int32(1), answerOf[*groups.Joined](w, ticket).Generation)
			}
		})
	}
}

func TestProtocolVote(t *testing.T) {
	w := newWorld(t)
	a := w.ask(joinOf("", "", "range", "sticky"))
	w.ask(joinOf("", "", "sticky", "range"))
	w.ask(joinOf("", "", "other", "sticky", "range"))
	w.pass(4 * delay)
	require.Equal(t, "sticky", answerOf[*groups.Joined](w, a).Protocol)
}

// TestReplay: another coordinator has the generation, and what members believe holds.
func TestReplay(t *testing.T) {
	w := newWorld(t)
	m := w.stable(2)
	require.NoError(t, w.commit(who(m[1]), "t", 5))
	w.replay()
	require.Equal(t, "Stable", w.state())
	require.NoError(t, w.beat(m[0]))
	require.NoError(t, w.beat(m[1]))
	require.Equal(t, int64(5), w.offset("t"))
	require.NoError(t, w.commit(who(m[0]), "t", 6))
	w.pass(session)
	require.Equal(t, "Empty", w.state(), "their sessions count from the load")
	w.replay()
	require.Equal(t, "Empty", w.state())
	require.Equal(t, int64(6), w.offset("t"))
}
