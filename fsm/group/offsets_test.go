package group

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/groups"
)

func TestCommitFencing(t *testing.T) {
	w := newWorld(t)
	require.ErrorIs(t, w.commit(groups.Who{Group: "g", Generation: 1, Member: "x"}, "t", 1), messages.ErrIllegalGeneration)
	require.Zero(t, w.core.Groups())
	require.NoError(t, w.commit(outside, "t", 1), "a group without members takes it from anybody")
	m := w.stable(1)[0]
	require.ErrorIs(t, w.commit(outside, "t", 2), messages.ErrUnknownMember)
	stale := who(m)
	stale.Generation--
	require.ErrorIs(t, w.commit(stale, "t", 2), messages.ErrIllegalGeneration)
	require.NoError(t, w.commit(who(m), "t", 3))
	require.Equal(t, int64(3), w.offset("t"))
	other := w.ask(joinOf("", ""))
	require.NoError(t, w.commit(who(m), "t", 4), "before it joins again it commits what it has")
	again := w.ask(joinOf(m.Member, ""))
	next := answerOf[*groups.Joined](w, again)
	require.ErrorIs(t, w.commit(who(next), "t", 5), messages.ErrRebalanceInProgress)
	w.settle(again, other)
	require.NoError(t, w.commit(who(next), "t", 5))
}

// TestCommitIsStoredFirst: neither the answer nor a fetch knows an offset that isn't
// durable.
func TestCommitIsStoredFirst(t *testing.T) {
	w := newWorld(t)
	w.hold = true
	c := w.ask(commitOf(outside, "t", 9))
	require.NotContains(t, w.answers, c)
	require.Equal(t, int64(-1), w.offset("t"))
	del := w.ask(groups.Delete{Group: "g"})
	require.NotContains(t, w.answers, del, "it waits for what is being committed")
	w.hold = false
	w.store()
	require.NoError(t, answerOf[*groups.Committed](w, c).Err)
	require.NoError(t, answerOf[*groups.Done](w, del).Err)
	require.Zero(t, w.core.Groups())
	w.replay()
	require.Zero(t, w.core.Groups(), "the tombstones are in the log")
}

func TestCommitOfManyPositions(t *testing.T) {
	w := newWorld(t)
	got := answerOf[*groups.Committed](w, w.ask(groups.Commit{Who: outside, RetentionMillis: -1, Positions: []groups.Position{
		{Topic: "a", Offset: 1, Metadata: "0123456789"}, {Topic: "b", Offset: 2, Metadata: "01234567890"},
	}}))
	require.NoError(t, got.Positions[0])
	require.ErrorIs(t, got.Positions[1], messages.ErrOffsetMetadataTooLarge)
	all := answerOf[*groups.Fetched](w, w.ask(groups.Fetch{Group: "g", All: true}))
	require.Equal(t, []groups.Position{{Topic: "a", Offset: 1, Metadata: "0123456789"}}, all.Positions)
}

func TestDeletes(t *testing.T) {
	w := newWorld(t)
	del := groups.DeleteOffsets{Group: "g", Topics: []groups.Partitions{{Topic: "t", Partitions: []int32{0}}, {Topic: "u", Partitions: []int32{0}}}}
	require.ErrorIs(t, answerOf[*groups.Committed](w, w.ask(del)).Err, messages.ErrUnknownGroup)
	require.ErrorIs(t, answerOf[*groups.Done](w, w.ask(groups.Delete{Group: "g"})).Err, messages.ErrUnknownGroup)
	m := w.stable(1)[0]
	require.NoError(t, w.commit(who(m), "t", 1))
	require.NoError(t, w.commit(who(m), "u", 1))
	require.ErrorIs(t, answerOf[*groups.Done](w, w.ask(groups.Delete{Group: "g"})).Err, messages.ErrNonEmptyGroup)
	got := answerOf[*groups.Committed](w, w.ask(del))
	require.ErrorIs(t, got.Positions[0], messages.ErrGroupSubscribed)
	require.NoError(t, got.Positions[1])
	require.Equal(t, []int64{1, -1}, []int64{w.offset("t"), w.offset("u")})
	w.pass(session)
	require.NoError(t, answerOf[*groups.Done](w, w.ask(groups.Delete{Group: "g"})).Err)
	require.Equal(t, "Dead", w.state())
	w.replay()
	require.Zero(t, w.core.Groups())
}

// TestRetention: KIP-211.
func TestRetention(t *testing.T) {
	w := newWorld(t)
	m := w.stable(1)[0]
	require.NoError(t, w.commit(who(m), "t", 1))
	require.NoError(t, w.commit(who(m), "unread", 1))
	for range retention / (session - 1) {
		w.pass(session - 1)
		require.NoError(t, w.beat(m))
	}
	w.pass(session - 1)
	w.perform(w.core.Expire(w.now))
	require.Equal(t, []int64{1, -1}, []int64{w.offset("t"), w.offset("unread")}, "the members read t")
	w.pass(session)
	require.Equal(t, "Empty", w.state())
	w.pass(retention - session)
	w.perform(w.core.Expire(w.now))
	require.Equal(t, int64(1), w.offset("t"), "the time counts from when it became empty")
	w.pass(session)
	w.perform(w.core.Expire(w.now))
	require.Zero(t, w.core.Groups())

	require.NoError(t, w.commit(outside, "t", 1))
	w.pass(retention - 1)
	w.perform(w.core.Expire(w.now))
	require.Equal(t, int64(1), w.offset("t"))
	w.pass(1)
	w.perform(w.core.Expire(w.now))
	require.Zero(t, w.core.Groups())
}

func TestTopicsGone(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.commit(outside, "t", 1))
	require.NoError(t, w.commit(outside, "gone", 1))
	w.perform(w.core.TopicsGone(func(topic string) bool { return topic == "t" }))
	require.Equal(t, []int64{1, -1}, []int64{w.offset("t"), w.offset("gone")})
}

// TestUnstable: RequireStable refuses what an open transaction may change, and
// nothing else.
func TestUnstable(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.commit(outside, "t", 5))
	require.NoError(t, w.commit(outside, "u", 6))
	w.core.groups["g"].txns = map[int64]map[place]groups.Offset{7: {{"t", 0}: {Offset: 9}}}
	for _, row := range []struct {
		name, topic string
		stable, all bool
		want        error
		offset      int64
	}{
		{"an open transaction", "t", true, false, messages.ErrUnstableOffset, -1},
		{"not asked for", "t", false, false, nil, 5},
		{"another partition", "u", true, false, nil, 6},
		{"all", "", true, true, messages.ErrUnstableOffset, -1},
	} {
		t.Run(row.name, func(t *testing.T) {
			req := groups.Fetch{Group: "g", Epoch: -1, RequireStable: row.stable, All: row.all}
			if !row.all {
				req.Topics = []groups.Partitions{{Topic: row.topic, Partitions: []int32{0}}}
			}
			got := answerOf[*groups.Fetched](w, w.ask(req)).Positions[0]
			require.ErrorIs(t, got.Err, row.want)
			require.Equal(t, row.offset, got.Offset)
		})
	}
}
