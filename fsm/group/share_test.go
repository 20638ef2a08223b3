package group

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/groups"
)

func (w *world) alterShare(r groups.AlterShare) error {
	w.t.Helper()
	r.Group = "g"
	return answerOf[*groups.Done](w, w.ask(r)).Err
}

func (w *world) share() *groups.ShareLooked {
	w.t.Helper()
	return answerOf[*groups.ShareLooked](w, w.ask(groups.LookShare{Group: "g"}))
}

func TestShareGroup(t *testing.T) {
	w := newWorld(t)
	one, two := messages.TopicID{1}, messages.TopicID{2}
	require.ErrorIs(t, w.share().Err, messages.ErrUnknownGroup)
	require.ErrorIs(t, w.alterShare(groups.AlterShare{Remove: []messages.TopicID{one}}), messages.ErrUnknownGroup)
	require.NoError(t, w.alterShare(groups.AlterShare{Add: []groups.ShareTopic{{ID: two, Name: "u", Partitions: []int32{1}}, {ID: one, Name: "t", Partitions: []int32{2, 0}}}}))
	require.NoError(t, w.alterShare(groups.AlterShare{Add: []groups.ShareTopic{{ID: one, Name: "t", Partitions: []int32{1, 0}}}}))
	stored := len(w.log)
	require.NoError(t, w.alterShare(groups.AlterShare{Add: []groups.ShareTopic{{ID: one, Name: "t", Partitions: []int32{1}}}}))
	require.Len(t, w.log, stored, "what doesn't change isn't stored again")
	want := &groups.ShareLooked{State: "Empty", Epoch: 1, Topics: []groups.ShareTopic{{ID: one, Name: "t", Partitions: []int32{0, 1, 2}}, {ID: two, Name: "u", Partitions: []int32{1}}}}
	require.Equal(t, want, w.share())
	w.replay()
	require.Equal(t, want, w.share())
	require.Equal(t, groups.Listed{Group: "g", ProtocolType: "share", State: "Empty", Type: "share", Offsets: 4, Epoch: 1}, w.core.List()[0])

	// It is no group of another kind.
	require.ErrorIs(t, answerOf[*groups.Joined](w, w.ask(joinOf("", ""))).Err, messages.ErrInconsistentProtocol)
	require.ErrorIs(t, w.commit(outside, "t", 1), messages.ErrUnknownGroup)
	require.Equal(t, int64(-1), w.offset("t"))
	require.ErrorIs(t, answerOf[*groups.Done](w, w.ask(groups.Heartbeat{Who: groups.Who{Group: "g", Member: "m"}})).Err, messages.ErrUnknownMember)
	require.ErrorIs(t, answerOf[*groups.Described](w, w.ask(groups.Describe{Group: "g"})).Err, messages.ErrUnknownGroup)
	require.ErrorIs(t, answerOf[*groups.Committed](w, w.ask(followOf("t", messages.NoOffset, 5))).Err, messages.ErrUnknownGroup)
	require.Equal(t, groups.TypeShare, answerOf[*groups.Looked](w, w.ask(groups.Look{Group: "g"})).Type)
	w.pass(retention * 2)
	w.perform(w.core.Expire(w.now))
	require.Equal(t, want, w.share(), "it doesn't grow too old")

	w.perform(w.core.TopicsGone(func(topic string) bool { return topic == "u" }))
	require.Equal(t, want.Topics[1:], w.share().Topics)
	require.NoError(t, answerOf[*groups.Done](w, w.ask(groups.Delete{Group: "g"})).Err)
	require.Zero(t, w.core.Groups())
	w.replay()
	require.Zero(t, w.core.Groups())
	require.NoError(t, w.commit(outside, "t", 1))
	require.ErrorIs(t, w.alterShare(groups.AlterShare{Add: []groups.ShareTopic{{ID: one, Name: "t", Partitions: []int32{1}}}}), messages.ErrUnknownGroup, "a name of another kind is never overwritten")
	require.ErrorIs(t, w.share().Err, messages.ErrUnknownGroup)
}

// Between the wish and the log the group is a share group already.
func TestShareGroupOnItsWay(t *testing.T) {
	w := newWorld(t)
	w.hold = true
	alter := w.ask(groups.AlterShare{Group: "g", Add: []groups.ShareTopic{{ID: messages.TopicID{1}, Name: "t", Partitions: []int32{0}}}})
	require.NotContains(t, w.answers, alter)
	require.ErrorIs(t, answerOf[*groups.Joined](w, w.ask(joinOf("", ""))).Err, messages.ErrInconsistentProtocol)
	w.hold = false
	w.store()
	require.NoError(t, answerOf[*groups.Done](w, alter).Err)
}
