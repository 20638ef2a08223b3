package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kagami/messages"
)

// commitGroups has groups, and a share group, commit in topic t of a cluster.
func commitGroups(ctx context.Context, adm *kadm.Client, names []string, partitions int32, offset int64) error {
	for _, name := range names {
		var all kadm.Offsets
		for p := range partitions {
			all.AddOffset("t", p, offset, -1)
		}
		if err := adm.CommitAllOffsets(ctx, name, all); err != nil {
			return err
		}
	}
	var all kadm.Offsets
	for p := range partitions {
		all.AddOffset("t", p, offset, -1)
	}
	res, err := adm.AlterShareGroupOffsets(ctx, "shares", all)
	return errors.Join(err, res.Error())
}

// within is the offset in a partition of t: all of its records are in partition 0.
func within(partition int32, offset int64) int64 {
	if partition == 0 {
		return offset
	}
	return 0
}

// groupsAt is nil when all groups are at the offset in all partitions.
func groupsAt(ctx context.Context, adm *kadm.Client, names []string, partitions int32, offset int64) error {
	for _, name := range names {
		got, err := adm.FetchOffsets(ctx, name)
		if err != nil {
			return err
		}
		for p := range partitions {
			if o, ok := got.Lookup("t", p); !ok || o.At != within(p, offset) || o.Err != nil {
				return fmt.Errorf("group %s is at %v of partition %d, want %d", name, o.At, p, within(p, offset))
			}
		}
	}
	described, err := adm.DescribeShareGroupOffsets(ctx, "shares")
	if err != nil {
		return err
	}
	for p := range partitions {
		if o, ok := described["shares"].Offsets.Lookup("t", p); !ok || o.StartOffset != within(p, offset) {
			return fmt.Errorf("the share group begins at %v of partition %d, want %d", o.StartOffset, p, within(p, offset))
		}
	}
	return nil
}

// TestSyncOverNodes: on three nodes logs, group coordinators, states of share groups and
// the mirror's coordinator are on different ones; offsets follow, also after the node of
// the mirror's coordinator has ended.
func TestSyncOverNodes(t *testing.T) {
	const partitions = 6
	c, src := mirrored(t, partitions, "mirror.metadata.refresh.interval.ms=1000", "offsets.topic.num.partitions=6", "share.coordinator.state.topic.num.partitions=6")
	_, _, source := connectTo(t, src.kafka())
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprint("g", i))
	}
	await(t, "groups of the source", func() error { return commitGroups(t.Context(), source, names, partitions, 7) })
	_, _, adm := c.connect(1)
	await(t, "offsets over three nodes", func() error { return groupsAt(t.Context(), adm, names, partitions, 7) })
	leaders := map[messages.NodeID]bool{}
	for _, topic := range []string{"t", messages.ConsumerOffsetsTopic, messages.ShareGroupStateTopic} {
		for _, p := range c.nodes[1].store.Image().Topic(topic).Partitions {
			leaders[p.Leader] = true
		}
	}
	require.Len(t, leaders, 3)

	coordinator, _ := coordinatorOf(c.nodes[1].store.Image(), "m")
	c.stop(coordinator)
	for id := range c.nodes {
		_, _, adm = c.connect(id)
		break
	}
	require.NoError(t, commitGroups(t.Context(), source, names, partitions, 9))
	await(t, "offsets by another coordinator", func() error { return groupsAt(t.Context(), adm, names, partitions, 9) })
}
