package group

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/groups"
	"kagami/messages/wire"
)

// classicPair is a stable classic group in which each member has half of topic t.
func classicPair(w *world) []*groups.Joined {
	w.t.Helper()
	joins := []Ticket{w.ask(joinOf("", "")), w.ask(joinOf("", ""))}
	w.pass(2 * delay)
	var out []*groups.Joined
	assignments := map[string][]byte{}
	for i, t := range joins {
		j := answerOf[*groups.Joined](w, t)
		require.NoError(w.t, j.Err)
		out = append(out, j)
		assignments[j.Member] = wire.EncodeAssignment(1, []groups.Partitions{{Topic: "t", Partitions: []int32{int32(i * 2), int32(i*2 + 1)}}})
	}
	for _, j := range out {
		require.NoError(w.t, answerOf[*groups.Synced](w, w.ask(groups.Sync{Who: who(j), Assignments: assignments})).Err)
	}
	return out
}

// rejoins joins a member that has given everything up, and syncs.
func (w *world) rejoins(id string) (*groups.Joined, []groups.Partitions) {
	w.t.Helper()
	j := answerOf[*groups.Joined](w, w.ask(joinOf(id, "")))
	require.NoError(w.t, j.Err)
	s := answerOf[*groups.Synced](w, w.ask(groups.Sync{Who: who(j)}))
	require.NoError(w.t, s.Err)
	got, ok := wire.DecodeAssignment(s.Assignment)
	require.True(w.t, ok)
	return j, got
}

// TestUpgrade: a member of the consumer protocol joins a classic group, whose members
// go on with what they have until they are told to join again; when it leaves, the
// group is a classic one again. A replay says the same at each step.
func TestUpgrade(t *testing.T) {
	w := consumerWorld(t, 4)
	m := classicPair(w)
	require.NoError(t, w.commit(who(m[0]), "t", 7))
	n := w.peer("n")
	require.NoError(t, n.joins().Err)
	require.Empty(t, n.numbers("t"))
	d := w.described()
	require.Equal(t, "Reconciling", d.State)
	require.Len(t, d.Members, 3)
	require.ErrorIs(t, answerOf[*groups.Described](w, w.ask(groups.Describe{Group: "g"})).Err, messages.ErrUnknownGroup)
	require.Equal(t, groups.TypeConsumer, w.core.List()[0].Type)
	require.NoError(t, w.commit(who(m[0]), "t", 8), "it has what it had")
	require.ErrorIs(t, w.beat(m[0]), messages.ErrRebalanceInProgress)
	w.replay()
	require.ErrorIs(t, w.beat(m[1]), messages.ErrRebalanceInProgress)
	for _, old := range m {
		j, got := w.rejoins(old.Member)
		require.Empty(t, j.Leader, "the coordinator assigns")
		require.NotEmpty(t, got)
		require.NoError(t, w.beat(j))
		old.Generation = j.Generation
	}
	settle(n)
	require.Len(t, n.numbers("t"), 1)
	require.Equal(t, "Stable", w.described().State)
	require.Equal(t, int64(8), w.offset("t"))

	require.NoError(t, n.says(groups.EpochLeaves).Err)
	require.Equal(t, groups.TypeClassic, w.core.List()[0].Type)
	require.ErrorIs(t, w.beat(m[0]), messages.ErrRebalanceInProgress)
	w.replay()
	require.Equal(t, "Stable", w.state(), "it hasn't been told yet")
	require.NoError(t, w.beat(m[0]))
	require.Equal(t, int64(8), w.offset("t"))
	a := w.ask(joinOf(m[0].Member, "", "range", "sticky"))
	w.ask(joinOf(m[1].Member, ""))
	require.Greater(t, answerOf[*groups.Joined](w, a).Generation, m[0].Generation)
}

// TestClassicMembersHearOfTopics: members of the classic protocol are told to join again
// when their topics change, not when others do.
func TestClassicMembersHearOfTopics(t *testing.T) {
	w := consumerWorld(t, 4)
	m := classicPair(w)
	n := w.peer("n")
	n.joins()
	joined := make([]*groups.Joined, 2)
	for i, old := range m {
		joined[i], _ = w.rejoins(old.Member)
	}
	settle(n)
	w.setTopics(w.topics.set("other", 1))
	require.NoError(t, w.beat(joined[0]))
	require.Equal(t, w.topics.version, w.core.groups["g"].consumer.seen)
	w.setTopics(w.topics.set("t", 6))
	require.ErrorIs(t, w.beat(joined[0]), messages.ErrRebalanceInProgress)
	_, got := w.rejoins(joined[0].Member)
	require.Len(t, got[0].Partitions, 2)
}

// TestUpgradeRefused: the policy, and groups that are no consumers.
func TestUpgradeRefused(t *testing.T) {
	for _, policy := range []Migration{MigrateNever, MigrateUp, MigrateDown, MigrateBoth} {
		t.Run(policy.String(), func(t *testing.T) {
			require.Equal(t, policy, ParseMigration(policy.String()))
			w := consumerWorld(t, 4)
			config := testConfig()
			config.Migration = policy
			w.core.SetConfig(config)
			m := classicPair(w)
			n := w.peer("n")
			if policy == MigrateNever || policy == MigrateDown {
				require.ErrorIs(t, n.joins().Err, messages.ErrUnknownGroup)
				require.NoError(t, w.beat(m[0]))
				return
			}
			require.NoError(t, n.joins().Err)
			n.says(groups.EpochLeaves)
			want := groups.TypeConsumer
			if policy == MigrateBoth {
				want = groups.TypeClassic
			}
			require.Equal(t, want, w.core.List()[0].Type)
		})
	}
	w := consumerWorld(t, 4)
	j := joinOf("", "")
	j.ProtocolType = "connect"
	w.ask(j)
	w.pass(delay)
	require.ErrorIs(t, w.peer("n").joins().Err, messages.ErrUnknownGroup)
}

// TestEmptyGroupsChange: a group without members takes either protocol, and keeps its
// offsets.
func TestEmptyGroupsChange(t *testing.T) {
	w := consumerWorld(t, 4)
	for _, m := range classicPair(w) {
		w.ask(groups.Leave{Group: "g", Members: []groups.Leaver{{Member: m.Member}}})
	}
	require.NoError(t, w.commit(outside, "t", 7))
	n := w.peer("n")
	require.NoError(t, n.joins().Err)
	require.Len(t, n.numbers("t"), 4)
	w.replay()
	require.NoError(t, n.beats().Err)
	n.says(groups.EpochLeaves)
	require.Len(t, classicPair(w), 2)
	require.Equal(t, groups.TypeClassic, w.core.List()[0].Type)
	require.Equal(t, int64(7), w.offset("t"))
	w.replay()
	require.Equal(t, "Stable", w.state())
}

// TestClassicMembersLeave: LeaveGroup in a group of the consumer protocol.
func TestClassicMembersLeave(t *testing.T) {
	w := consumerWorld(t, 4)
	m := classicPair(w)
	n := w.peer("n")
	n.beat.Instance = "i"
	n.joins()
	leave := func(members ...groups.Leaver) []error {
		return answerOf[*groups.Left](w, w.ask(groups.Leave{Group: "g", Members: members})).Members
	}
	require.ErrorIs(t, leave(groups.Leaver{Member: "x"})[0], messages.ErrUnknownMember)
	errs := leave(groups.Leaver{Member: m[0].Member}, groups.Leaver{Member: m[0].Member}, groups.Leaver{Member: m[1].Member, Instance: "i"})
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], messages.ErrUnknownMember)
	require.ErrorIs(t, errs[2], messages.ErrFencedInstance)
	settle(n)
	require.Equal(t, []int32{1}, n.numbers("t"), "the other one has to give 3 up first")
	for range 2 { // n's session is shorter
		w.pass(session / 2)
		n.beats()
	}
	settle(n)
	require.Len(t, w.described().Members, 1, "the session of the classic member is over")
	n.beats()
	require.NoError(t, leave(groups.Leaver{Instance: "i"})[0], "by an administrator")
	require.ErrorIs(t, n.beats().Err, messages.ErrUnknownMember)
}
