package group

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/groups"
)

func always(string) bool { return true }

func followOf(topic string, was, offset int64) groups.Follow {
	return groups.Follow{Group: "g", Follows: always, Positions: []groups.FollowPosition{{
		Position: groups.Position{Topic: topic, Offset: offset, LeaderEpoch: 3, Metadata: "m"}, Was: was,
	}}}
}

func (w *world) follow(r groups.Follow) error {
	w.t.Helper()
	a := answerOf[*groups.Committed](w, w.ask(r))
	if a.Err != nil {
		return a.Err
	}
	return a.Positions[0]
}

func TestFollow(t *testing.T) {
	w := newWorld(t)
	require.Equal(t, &groups.Looked{}, answerOf[*groups.Looked](w, w.ask(groups.Look{Group: "g", Topics: map[string]struct{}{"t": {}}})))
	require.NoError(t, w.follow(followOf("t", messages.NoOffset, 0)), "offset 0 isn't no offset")
	require.ErrorIs(t, w.follow(followOf("t", messages.NoOffset, 5)), messages.ErrSettingsChanged)
	require.NoError(t, w.follow(followOf("t", 0, 50)))
	require.NoError(t, w.follow(followOf("t", 50, 40)), "back, as the source")
	looked := answerOf[*groups.Looked](w, w.ask(groups.Look{Group: "g", Topics: map[string]struct{}{"t": {}}}))
	require.Equal(t, "Empty", looked.State)
	require.Equal(t, []groups.Position{{Topic: "t", Offset: 40, LeaderEpoch: 3, Metadata: "m"}}, looked.Positions)
	require.Empty(t, answerOf[*groups.Looked](w, w.ask(groups.Look{Group: "g", Topics: map[string]struct{}{"u": {}}})).Positions)

	r := followOf("t", 40, 60)
	r.Follows = func(string) bool { return false }
	require.ErrorIs(t, w.follow(r), messages.ErrSettingsChanged)
	long := followOf("t", 40, 60)
	long.Positions[0].Metadata = "longer than is kept"
	require.NoError(t, w.follow(long), "the offset is what counts")
	require.Empty(t, answerOf[*groups.Fetched](w, w.ask(groups.Fetch{Group: "g", All: true})).Positions[0].Metadata)
	w.replay()
	require.Equal(t, int64(60), w.offset("t"))
}

// C21: a group that works here is never moved, nor one that did since it was looked at.
func TestC21FollowAfterTheGroupMoved(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.follow(followOf("t", messages.NoOffset, 50)))
	m := w.stable(1)[0]
	require.ErrorIs(t, w.follow(followOf("t", 50, 40)), messages.ErrNonEmptyGroup)
	require.NoError(t, w.commit(who(m), "t", 120))
	w.ask(groups.Leave{Group: "g", Members: []groups.Leaver{{Member: m.Member}}})
	require.ErrorIs(t, w.follow(followOf("t", 50, 40)), messages.ErrSettingsChanged)
	require.Equal(t, int64(120), w.offset("t"))
}

// A commit that is on its way to the log is seen.
func TestC21FollowWaitsForCommits(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.follow(followOf("t", messages.NoOffset, 50)))
	w.hold = true
	commit := w.ask(commitOf(outside, "t", 70))
	follow := w.ask(followOf("t", 50, 40))
	require.NotContains(t, w.answers, follow)
	w.hold = false
	w.store()
	require.NoError(t, answerOf[*groups.Committed](w, commit).Err)
	require.ErrorIs(t, answerOf[*groups.Committed](w, follow).Positions[0], messages.ErrSettingsChanged)
	require.Equal(t, int64(70), w.offset("t"))
}

// What doesn't change isn't stored again and again, and doesn't grow too old either.
func TestFollowStoresWhatChanges(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.follow(followOf("t", messages.NoOffset, 50)))
	stored := len(w.log)
	require.NoError(t, w.follow(followOf("t", 50, 50)))
	require.Len(t, w.log, stored)
	w.pass(retention / 2)
	require.NoError(t, w.follow(followOf("t", 50, 50)))
	require.Greater(t, len(w.log), stored)
	w.pass(retention * 2 / 3)
	w.perform(w.core.Expire(w.now))
	require.Equal(t, int64(50), w.offset("t"))
}

// TestFollowSim: whatever happens between the look and the commit, in any order of
// writes, crashes, members and other commits: a mirror moves a group only from where it
// had seen it, and never one that has members.
func TestFollowSim(t *testing.T) {
	for seed := range uint64(200) {
		w := newWorld(t)
		rng := rand.New(rand.NewPCG(seed, 9))
		var looks []int64 // offsets that were seen, to follow from
		var member *groups.Joined
		for range 120 {
			w.hold = rng.IntN(3) > 0
			if rng.IntN(2) == 0 {
				w.store1()
			}
			switch rng.IntN(9) {
			case 0, 1:
				looks = append(looks, w.offset("t"))
			case 2, 3:
				if len(looks) == 0 {
					break
				}
				was := looks[rng.IntN(len(looks))]
				r := followOf("t", was, rng.Int64N(100))
				r.Positions[0].Metadata = fmt.Sprint("f", was)
				g := w.core.groups["g"]
				lively, queued := g != nil && !g.empty(), len(w.out)
				w.ask(r)
				if lively && len(w.out) > queued {
					t.Fatalf("seed %d: a group with members is moved", seed)
				}
			case 4:
				w.ask(commitOf(outside, "t", rng.Int64N(100)))
			case 5:
				w.hold = false
				w.store()
				if g := w.core.groups["g"]; member == nil && (g == nil || g.empty()) {
					member = w.stable(1)[0]
				} else if member == nil {
					w.pass(2 * rebalance) // one whose good-bye was lost
				}
			case 6:
				if member != nil {
					w.ask(commitOf(who(member), "t", rng.Int64N(100)))
				}
			case 7:
				if member != nil {
					w.ask(groups.Leave{Group: "g", Members: []groups.Leaver{{Member: member.Member}}})
					member = nil
				}
			default:
				for _, wr := range w.out[:rng.IntN(len(w.out)+1)] {
					w.log = append(w.log, wr.Records...)
				}
				w.replay()
				if member != nil && !w.knows(member) {
					member = nil
				}
			}
		}
		w.hold = false
		w.store()
		at, followed := messages.NoOffset, 0
		for i, r := range w.log {
			if r.Kind != groups.KindOffset {
				continue
			}
			if was, ok := strings.CutPrefix(r.Offset.Metadata, "f"); ok {
				followed++
				if was != fmt.Sprint(at) {
					t.Fatalf("seed %d: record %d follows from %s, %d was committed", seed, i, was, at)
				}
			}
			at = r.Offset.Offset
		}
		if followed == 0 && seed == 0 {
			t.Fatal("nothing ever followed")
		}
	}
}

// store1 stores the oldest write.
func (w *world) store1() {
	if len(w.out) == 0 {
		return
	}
	next := w.out[0]
	w.out = w.out[1:]
	w.log = append(w.log, next.Records...)
	hold := w.hold
	w.hold = true
	w.perform(w.core.Stored(w.now, next.ID))
	w.hold = hold
}

func (w *world) knows(m *groups.Joined) bool {
	g := w.core.groups["g"]
	return g != nil && g.members[m.Member] != nil
}
