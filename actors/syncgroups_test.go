package actors

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/groups"
	pb "kagami/messages/proto"
	"kagami/test/kafka/stub"
)

// C19, D28: an offset of the source within the local log, at its ends, and outside.
func TestC19D28Clamp(t *testing.T) {
	rows := []struct{ start, end, source, want int64 }{
		{0, 40, 90, 40}, {0, 100, 90, 90}, {50, 100, 10, 50}, {0, 0, 100, 0}, {100, 100, 30, 100}, {0, 100, 100, 100}, {0, 100, 0, 0}, {50, 100, 50, 50},
	}
	for _, row := range rows {
		got := logRange{start: row.start, end: row.end, startEpoch: 1, endEpoch: 2}.clamp(fetch.CommittedOffset{Offset: row.source, LeaderEpoch: 7, Metadata: "m"})
		want := fetch.CommittedOffset{Offset: row.want, LeaderEpoch: 7, Metadata: "m"}
		switch {
		case row.source > row.end:
			want.LeaderEpoch, want.Metadata = 2, ""
		case row.source < row.start:
			want.LeaderEpoch, want.Metadata = 1, ""
		}
		require.Equal(t, want, got, "%+v", row)
	}
	require.Equal(t, int32(-1), logRange{endEpoch: messages.NoEpoch}.clamp(fetch.CommittedOffset{Offset: 9}).LeaderEpoch, "no epoch is known here")
}

func TestPlanGroup(t *testing.T) {
	source := map[messages.TopicPartition]fetch.CommittedOffset{
		tpOf("t", 0): {Offset: 0, LeaderEpoch: -1}, tpOf("t", 1): {Offset: messages.NoOffset}, tpOf("t", 2): {Offset: 5}, tpOf("u", 0): {Offset: 5},
	}
	ranges := map[messages.TopicPartition]logRange{tpOf("t", 0): {end: 10}, tpOf("t", 1): {end: 10}, tpOf("t", 2): {end: 10}}
	require.Nil(t, planGroup("g", source, ranges, nil), "nothing is known of the group")
	require.Nil(t, planGroup("g", source, ranges, &groupHere{live: true}))
	require.Nil(t, planGroup("g", source, nil, &groupHere{}), "no local log")
	got := planGroup("g", source, ranges, &groupHere{offsets: map[messages.TopicPartition]int64{tpOf("t", 2): 0}})
	require.Equal(t, []*pb.GroupOffset{{Topic: "t", Offset: 0, LeaderEpoch: -1, Was: -1}, {Topic: "t", Partition: 2, Offset: 5, Was: 0}}, got.Offsets)
}

// commit has a group of the source commit.
func commitOnSource(src *stub.Cluster, group string, tp messages.TopicPartition, offset int64) {
	src.Update(func(s *stub.State) {
		g := s.Groups[group]
		if g == nil {
			g = &stub.Group{Type: "classic", State: "Stable", Offsets: map[messages.TopicPartition]stub.GroupOffset{}}
			s.Groups[group] = g
		}
		g.Offsets[tp] = stub.GroupOffset{Offset: offset, Epoch: 0, Metadata: "of the source"}
	})
}

// position is what a group has committed here, Offset -1 for nothing.
func (n *mirrorNode) position(group string, tp messages.TopicPartition) groups.Position {
	n.t.Helper()
	a, ok := n.groups.Ask(n.t.Context(), nil, groups.Fetch{Group: group, Epoch: -1, Topics: []groups.Partitions{{Topic: tp.Topic, Partitions: []int32{tp.Partition}}}}).(*groups.Fetched)
	require.True(n.t, ok)
	if a.Err != nil {
		return groups.Position{Err: a.Err, Offset: messages.NoOffset}
	}
	return a.Positions[0]
}

func (n *mirrorNode) awaitPosition(group string, tp messages.TopicPartition, offset int64) {
	n.t.Helper()
	n.await(group, func() error {
		if p := n.position(group, tp); p.Offset != offset || p.Err != nil {
			return fmt.Errorf("%s is at %d of %s, want %d: %w", group, p.Offset, tp, offset, p.Err)
		}
		return nil
	})
}

func (n *mirrorNode) commitHere(group string, tp messages.TopicPartition, offset int64) {
	n.t.Helper()
	a, ok := n.groups.Ask(n.t.Context(), nil, groups.Commit{
		Who: groups.Who{Group: group, Generation: -1}, RetentionMillis: -1,
		Positions: []groups.Position{{Topic: tp.Topic, Partition: tp.Partition, Offset: offset, LeaderEpoch: -1}},
	}).(*groups.Committed)
	require.True(n.t, ok)
	require.NoError(n.t, a.Err)
	require.NoError(n.t, a.Positions[0])
}

// Offsets follow the source, in both directions, within the local log; groups by
// pattern; what was deleted there stays here (K5, D28, D29, C19).
func TestK5D28D29C19GroupOffsets(t *testing.T) {
	src := stubSource(t, 2, 2)
	src.Update(func(s *stub.State) {
		p := s.Topics["t"].Partitions[0]
		p.Epoch = 3
		p.Fill(20) // 20..39 in epoch 3
		p.LogStart = 10
		p.Trim(10)
		s.Groups["a-share"] = &stub.Group{Type: "share", State: "Stable", Offsets: map[messages.TopicPartition]stub.GroupOffset{tpOf("t", 0): {Offset: 12}}}
	})
	at, other := tpOf("t", 0), tpOf("t", 1)
	commitOnSource(src, "a-in", at, 15)
	commitOnSource(src, "a-ahead", at, 90)
	commitOnSource(src, "a-behind", at, 3)
	commitOnSource(src, "a-zero", other, 0)
	commitOnSource(src, "a-excluded", at, 15)
	commitOnSource(src, "b", at, 15)
	n := startMirrorNode(t, t.TempDir())
	n.create(src, configs.MirrorGroupsInclude+"=a-.*", configs.MirrorGroupsExclude+"=a-excl.*")
	n.begin(src, "t")
	n.awaitPosition("a-in", at, 15)
	require.Equal(t, groups.Position{Topic: "t", Offset: 15, LeaderEpoch: 0, Metadata: "of the source"}, n.position("a-in", at))
	n.awaitPosition("a-ahead", at, 40)
	require.Equal(t, groups.Position{Topic: "t", Offset: 40, LeaderEpoch: 3}, n.position("a-ahead", at), "the local epoch there, and not its metadata")
	n.awaitPosition("a-behind", at, 10)
	require.Equal(t, int32(0), n.position("a-behind", at).LeaderEpoch)
	n.awaitPosition("a-zero", other, 0)
	require.Equal(t, messages.NoOffset, n.position("a-zero", at).Offset, "no offset isn't offset 0")
	for _, g := range []string{"a-excluded", "b", "a-share"} {
		require.Equal(t, messages.NoOffset, n.position(g, at).Offset, g)
	}

	src.Update(func(s *stub.State) {
		s.Topics["t"].Partitions[0].Fill(60) // up to 100
		delete(s.Groups["a-in"].Offsets, at)
		delete(s.Groups, "a-behind")
	})
	commitOnSource(src, "a-zero", at, 30)
	n.awaitPosition("a-ahead", at, 90)
	require.Equal(t, int32(0), n.position("a-ahead", at).LeaderEpoch, "the source's again")
	n.awaitPosition("a-zero", at, 30)
	commitOnSource(src, "a-zero", at, 20)
	n.awaitPosition("a-zero", at, 20)
	n.refreshTwice()
	require.Equal(t, int64(15), n.position("a-in", at).Offset)
	require.Equal(t, int64(10), n.position("a-behind", at).Offset)
	require.Zero(t, n.Mirrors.SyncErrors(SyncGroups))

	n.alter(messages.ResourceClusterMirror, "m", configs.MirrorGroupsInclude, "b") // edited while it runs
	n.awaitPosition("b", at, 15)
}

// A group that works here is left alone (D27, C21a); after the stop nobody moves it,
// over a restart too (C21c); only topics that follow the source count (C21d).
func TestC21D27GroupsThatWorkHere(t *testing.T) {
	src := stubSource(t, 1, 1)
	names := []string{"t", "stopped", "paused"}
	src.Update(func(s *stub.State) {
		for i, name := range append(names[1:], "not-mirrored") {
			s.NewTopic(name, messages.TopicID{byte(20 + i)}, 1).Partitions[0].Fill(20)
		}
	})
	for _, g := range []string{"live", "quiet"} {
		for _, topic := range append(names, "not-mirrored") {
			commitOnSource(src, g, tpOf(topic, 0), 5)
		}
	}
	dir := t.TempDir()
	n := startMirrorNode(t, dir)
	n.create(src)
	n.begin(src, names...)
	for _, topic := range names {
		n.awaitPosition("quiet", tpOf(topic, 0), 5)
		n.awaitPosition("live", tpOf(topic, 0), 5)
	}
	beat := func(n *mirrorNode, member string, epoch int32) *groups.Beaten {
		b := groups.Beat{Group: "live", Member: member, Epoch: epoch, RebalanceMillis: 60_000, ClientID: "c", ClientHost: "/h"}
		if epoch == groups.EpochJoins {
			b.Topics, b.Owned = []string{"t"}, []groups.TopicPartitions{}
		}
		a, ok := n.groups.Ask(t.Context(), nil, b).(*groups.Beaten)
		require.True(t, ok)
		require.NoError(t, a.Err)
		return a
	}
	beat(n, "member-1", groups.EpochJoins)
	commitOnSource(src, "live", tpOf("t", 0), 7)
	commitOnSource(src, "quiet", tpOf("t", 0), 7)
	n.awaitPosition("quiet", tpOf("t", 0), 7)
	n.refreshTwice()
	require.Equal(t, int64(5), n.position("live", tpOf("t", 0)).Offset, "it has a member here")

	n.submit(messages.PauseMirrorTopics{Mirror: "m", Topics: []messages.MirrorTopic{{Name: "paused"}}})
	n.halt("stopped")
	n.awaitIn(messages.StateStopped, tpOf("stopped", 0))
	n.awaitIn(messages.StatePaused, tpOf("paused", 0))
	n.commitHere("quiet", tpOf("stopped", 0), 15)
	for _, topic := range append(names, "not-mirrored") {
		commitOnSource(src, "quiet", tpOf(topic, 0), 9)
	}
	n.awaitPosition("quiet", tpOf("t", 0), 9)
	require.NoError(t, n.stop())
	n = startMirrorNode(t, dir)
	n.refreshTwice()
	n.awaitPosition("quiet", tpOf("stopped", 0), 15)
	require.Equal(t, int64(5), n.position("quiet", tpOf("paused", 0)).Offset)
	require.Equal(t, messages.NoOffset, n.position("quiet", tpOf("not-mirrored", 0)).Offset)
}

// Groups of a topic made anew are left alone (C11).
func TestC11GroupOfRecreatedTopic(t *testing.T) {
	src := stubSource(t, 1, 1)
	commitOnSource(src, "g", tpOf("t", 0), 3)
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t")
	n.awaitPosition("g", tpOf("t", 0), 3)
	src.Update(func(s *stub.State) { s.Topics["t"].ID = messages.TopicID{77} })
	n.awaitIn(messages.StateFailed, tpOf("t", 0))
	commitOnSource(src, "g", tpOf("t", 0), 12)
	n.refreshTwice()
	require.Equal(t, int64(3), n.position("g", tpOf("t", 0)).Offset)
}

// One group that can't be read is counted, and keeps no other from its offsets.
func TestSyncFailsForOneGroupOnly(t *testing.T) {
	src := stubSource(t, 1, 1)
	for i := range 5 {
		commitOnSource(src, fmt.Sprint("g", i), tpOf("t", 0), 3)
	}
	src.Edit(9, func(_ *stub.Request, resp kmsg.Response) {
		for i := range resp.(*kmsg.OffsetFetchResponse).Groups {
			if g := &resp.(*kmsg.OffsetFetchResponse).Groups[i]; g.Group == "g2" {
				g.ErrorCode, g.Topics = 30, nil
			}
		}
	})
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t")
	for _, g := range []string{"g0", "g1", "g3", "g4"} {
		n.awaitPosition(g, tpOf("t", 0), 3)
	}
	n.await("counted", func() error {
		if n.Mirrors.SyncErrors(SyncGroups) == 0 {
			return fmt.Errorf("no error is counted")
		}
		return nil
	})
	require.Equal(t, messages.NoOffset, n.position("g2", tpOf("t", 0)).Offset)
}

// C21e: where nothing is known of a group here, nothing is written in that cycle.
func TestC21CoordinatorHereIsSilent(t *testing.T) {
	src := stubSource(t, 1, 1)
	commitOnSource(src, "g", tpOf("t", 0), 3)
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t")
	n.awaitPosition("g", tpOf("t", 0), 3)
	n.groupsDown.Store(true)
	commitOnSource(src, "g", tpOf("t", 0), 9)
	n.refreshTwice()
	require.Equal(t, int64(3), n.position("g", tpOf("t", 0)).Offset)
	require.Positive(t, n.Mirrors.SyncErrors(SyncGroups))
	n.groupsDown.Store(false)
	n.awaitPosition("g", tpOf("t", 0), 9)
}

// Thousands of groups take some requests, not thousands. KAGAMI_SYNC_GROUPS is how many.
func TestThousandsOfGroups(t *testing.T) {
	count := 2000
	if v, err := strconv.Atoi(os.Getenv("KAGAMI_SYNC_GROUPS")); err == nil {
		count = v
	}
	src := stubSource(t, 2, 4)
	n := startMirrorNode(t, t.TempDir(), configs.MirrorRefreshInterval+"=600000")
	n.create(src)
	n.begin(src, "t")
	for i := range count {
		commitOnSource(src, fmt.Sprintf("g%04d", i), tpOf("t", int32(i%4)), int64(i%20))
	}
	began := time.Now()
	n.alter(messages.ResourceClusterMirror, "m", configs.MirrorGroupsInclude, "g.*")
	for _, i := range []int{0, 1, 999, count - 1} {
		n.awaitPosition(fmt.Sprintf("g%04d", i), tpOf("t", int32(i%4)), int64(i%20))
	}
	n.await("all groups", func() error {
		listed, err := n.groups.List(t.Context())
		if len(listed) != count {
			err = fmt.Errorf("%d groups", len(listed))
		}
		return err
	})
	t.Logf("%d groups in %s, %d requests for their offsets", count, time.Since(began).Round(time.Millisecond), len(src.Seen(9)))
	require.Less(t, len(src.Seen(9)), count/20)
	require.Zero(t, n.Mirrors.SyncErrors(SyncGroups))
}
