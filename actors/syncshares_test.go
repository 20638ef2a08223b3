package actors

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/groups"
	"kagami/test/kafka/stub"
)

func shareOnSource(src *stub.Cluster, group string, starts map[messages.TopicPartition]int64) {
	src.Update(func(s *stub.State) {
		s.Versions[90] = stub.Range{}
		g := &stub.Group{Type: "share", State: "Empty", Offsets: map[messages.TopicPartition]stub.GroupOffset{}}
		for tp, o := range starts {
			g.Offsets[tp] = stub.GroupOffset{Offset: o}
		}
		s.Groups[group] = g
	})
}

// startsAt is nil when the share group begins there.
func (n *mirrorNode) startsAt(group string, tp messages.TopicPartition, want int64) error {
	_, states, err := n.shares.Look(n.t.Context(), group)
	got := messages.NoOffset
	if s, ok := states[groups.ShareKey{Group: group, Topic: n.store.Image().Topic(tp.Topic).ID, Partition: tp.Partition}]; ok {
		got = s.Start
	}
	if err == nil && got != want {
		err = fmt.Errorf("share group %s begins at %d of %s, want %d", group, got, tp, want)
	}
	return err
}

// U8: start offsets of share groups follow the source, within the local log, over a
// restart; a name of another kind is never overwritten.
func TestU8ShareGroups(t *testing.T) {
	src := stubSource(t, 1, 3)
	src.Update(func(s *stub.State) { s.NewTopic("not-mirrored", messages.TopicID{9}, 1) })
	shareOnSource(src, "s", map[messages.TopicPartition]int64{tpOf("t", 0): 7, tpOf("t", 1): 0, tpOf("t", 2): 500, tpOf("not-mirrored", 0): 1})
	shareOnSource(src, "other-kind-here", map[messages.TopicPartition]int64{tpOf("t", 0): 7})
	dir := t.TempDir()
	n := startMirrorNode(t, dir)
	n.create(src)
	n.begin(src, "t")
	n.await("s", func() error {
		return errors.Join(n.startsAt("s", tpOf("t", 0), 7), n.startsAt("s", tpOf("t", 1), 0), n.startsAt("s", tpOf("t", 2), 20))
	})
	listed, err := n.groups.List(t.Context())
	require.NoError(t, err)
	for _, l := range listed {
		require.Equal(t, groups.TypeShare, l.Type)
	}
	require.NoError(t, n.shares.Delete(t.Context(), "other-kind-here"))
	n.halt("t")
	n.awaitIn(messages.StateStopped, tpOf("t", 0), tpOf("t", 1), tpOf("t", 2))
	shareOnSource(src, "s", map[messages.TopicPartition]int64{tpOf("t", 0): 3})
	require.NoError(t, n.stop())
	n = startMirrorNode(t, dir)
	n.refreshTwice()
	n.await("s as it was", func() error { return n.startsAt("s", tpOf("t", 0), 7) })

	image := n.store.Image()
	had, err := n.shares.Forget(t.Context(), "s", []messages.TopicID{image.Topic("t").ID})
	require.NoError(t, err)
	require.True(t, had[image.Topic("t").ID])
	require.NoError(t, n.startsAt("s", tpOf("t", 0), messages.NoOffset))
	require.NoError(t, n.shares.Delete(t.Context(), "s"))
	_, _, err = n.shares.Look(t.Context(), "s")
	require.ErrorIs(t, err, messages.ErrUnknownGroup)
}

// A name that is a consumer group's on one side and a share group's on the other.
func TestShareGroupOfAnotherKindHere(t *testing.T) {
	src := stubSource(t, 1, 1)
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t")
	commitOnSource(src, "a", tpOf("t", 0), 5)
	n.awaitPosition("a", tpOf("t", 0), 5)
	shareOnSource(src, "a", map[messages.TopicPartition]int64{tpOf("t", 0): 9})
	shareOnSource(src, "b", map[messages.TopicPartition]int64{tpOf("t", 0): 9})
	n.await("b", func() error { return n.startsAt("b", tpOf("t", 0), 9) })
	commitOnSource(src, "c", tpOf("t", 0), 5)
	src.Update(func(s *stub.State) { s.Groups["b"] = s.Groups["c"] }) // a consumer group there now
	n.awaitPosition("c", tpOf("t", 0), 5)
	n.refreshTwice()
	require.Equal(t, int64(5), n.position("a", tpOf("t", 0)).Offset)
	require.NoError(t, n.startsAt("b", tpOf("t", 0), 9))
	require.Zero(t, n.Mirrors.SyncErrors(SyncShareGroups))
	require.Zero(t, n.Mirrors.SyncErrors(SyncGroups))
}

// A source before 4.0: one line, and nothing is counted.
func TestShareGroupsOfAnOldSource(t *testing.T) {
	src := stubSource(t, 1, 1)
	commitOnSource(src, "g", tpOf("t", 0), 5)
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t")
	n.awaitPosition("g", tpOf("t", 0), 5)
	n.refreshTwice()
	require.Len(t, n.logs.FilterMessage("offsets of share groups aren't copied: the source doesn't tell them (Kafka does from 4.0 on)").All(), 1)
	require.Zero(t, n.Mirrors.SyncErrors(SyncShareGroups))
}
