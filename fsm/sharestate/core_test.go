package sharestate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/groups"
)

func keyOf(topic byte, partition int32) groups.ShareKey {
	return groups.ShareKey{Group: "g", Topic: messages.TopicID{topic}, Partition: partition}
}

func TestStates(t *testing.T) {
	c := New(3)
	var log []groups.ShareRecord
	do := func(now int64, r groups.ShareStates) *groups.ShareStated {
		t.Helper()
		e := c.Handle(now, 1, r)
		for _, w := range e.Writes {
			require.Empty(t, e.Replies, "an answer means that it is stored")
			log = append(log, w.Records...)
			e = c.Stored(w.ID)
		}
		require.Len(t, e.Replies, 1)
		return e.Replies[0].Answer
	}
	none := do(1, groups.ShareStates{Get: []groups.ShareKey{keyOf(1, 0)}})
	require.Equal(t, messages.NoOffset, none.States[0].Start)
	set := do(10, groups.ShareStates{Set: []groups.ShareSet{{Key: keyOf(1, 0), Start: 0}, {Key: keyOf(2, 5), Start: 9}}, Get: []groups.ShareKey{keyOf(1, 0), keyOf(2, 5)}})
	require.Equal(t, groups.ShareState{LeaderEpoch: 3, CreatedMillis: 10, WrittenMillis: 10}, set.States[0], "offset 0 isn't no state")
	do(20, groups.ShareStates{Set: []groups.ShareSet{{Key: keyOf(1, 0), Start: 0}}})
	require.Len(t, log, 2, "what doesn't change isn't stored again")
	again := do(30, groups.ShareStates{Set: []groups.ShareSet{{Key: keyOf(2, 5), Start: 4}}, Get: []groups.ShareKey{keyOf(2, 5)}})
	require.Equal(t, groups.ShareState{SnapshotEpoch: 1, StateEpoch: 1, LeaderEpoch: 3, Start: 4, CreatedMillis: 10, WrittenMillis: 30}, again.States[0])
	do(40, groups.ShareStates{Forget: []groups.ShareKey{keyOf(1, 0), keyOf(7, 7)}})

	replayed := New(4)
	for _, r := range log {
		replayed.Apply(r)
	}
	require.Equal(t, c.States(), replayed.States())
	require.Equal(t, 1, replayed.Len())
	e := replayed.TopicsGone(func(messages.TopicID) bool { return false })
	require.Equal(t, []groups.ShareRecord{{Key: keyOf(2, 5)}}, e.Writes[0].Records)
	require.Empty(t, replayed.Stored(e.Writes[0].ID).Replies)
	require.Zero(t, replayed.Len())
	require.Empty(t, replayed.TopicsGone(func(messages.TopicID) bool { return false }).Writes)
}
