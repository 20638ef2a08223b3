package actors

import (
	"cmp"
	"slices"

	"kagami/fetch"
	"kagami/messages"
	pb "kagami/messages/proto"
)

// logRange is the extent of a local log, and the local epochs at its ends, NoEpoch if
// not known.
type logRange struct {
	start, end           int64
	startEpoch, endEpoch int32
}

// clamp is the position to commit for one that was committed on the source (spec:
// metadata-sync.md, Consumer group offsets): within the local log, with the local
// log's epoch where it isn't the source's position any more.
func (r logRange) clamp(c fetch.CommittedOffset) fetch.CommittedOffset {
	switch {
	case c.Offset > r.end:
		return fetch.CommittedOffset{Offset: r.end, LeaderEpoch: r.endEpoch}
	case c.Offset < r.start:
		return fetch.CommittedOffset{Offset: r.start, LeaderEpoch: r.startEpoch}
	default:
		return c
	}
}

// groupHere is what is known of a group on this side.
type groupHere struct {
	live    bool // it has members here, or is a share group
	offsets map[messages.TopicPartition]int64
}

// planGroup is what a group is to commit here; nil for nothing. here is nil if nothing
// is known of the group on this side.
func planGroup(group string, source map[messages.TopicPartition]fetch.CommittedOffset, ranges map[messages.TopicPartition]logRange, here *groupHere) *pb.GroupOffsets {
	if here == nil || here.live {
		return nil
	}
	out := &pb.GroupOffsets{Group: group}
	for tp, c := range source {
		r, ok := ranges[tp]
		if !ok || c.Offset < 0 {
			continue // no local log, or nothing committed: that isn't offset 0
		}
		was, committed := here.offsets[tp]
		if !committed {
			was = messages.NoOffset
		}
		c = r.clamp(c)
		out.Offsets = append(out.Offsets, &pb.GroupOffset{Topic: tp.Topic, Partition: tp.Partition, Offset: c.Offset, LeaderEpoch: c.LeaderEpoch, Metadata: c.Metadata, Was: was})
	}
	if len(out.Offsets) == 0 {
		return nil
	}
	slices.SortFunc(out.Offsets, func(a, b *pb.GroupOffset) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out
}

// consumerGroups are the names of groups that take part, in order.
func consumerGroups(listed []fetch.SourceGroup, include, exclude *messages.Patterns) []string {
	var out []string
	for _, g := range listed {
		switch g.Type {
		case "", "classic", "consumer":
			if include.Match(g.Name) && !exclude.Match(g.Name) {
				out = append(out, g.Name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
