package actors

import (
	"fmt"
	"slices"

	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

func (p *plan) electLeaders(c messages.ElectLeaders) {
	for _, e := range c.Elections {
		item := messages.Item{TopicID: e.TopicID, Partition: e.Partition}
		t, part, err := p.partitionOf(e.TopicID, e.Partition)
		switch {
		case err != nil:
			item.Err = err
		case !slices.Contains(part.Replicas, e.Node) || !slices.Contains(p.env.live, e.Node):
			item.Err = fmt.Errorf("%w: node %d isn't a live replica of %s partition %d", messages.ErrInvalidRequest, e.Node, t.Name, e.Partition)
		case part.Leader != e.Node:
			p.add(leaderChange(e.TopicID, e.Partition, e.Node))
		}
		p.items = append(p.items, item)
	}
}

func leaderChange(id messages.TopicID, partition int32, to messages.NodeID) *wire.PartitionChangeRecord {
	r := wire.NewPtrPartitionChangeRecord()
	r.TopicID, r.PartitionID, r.Leader = id, partition, int32(to)
	return r
}

func (p *plan) partitionOf(id messages.TopicID, partition int32) (*metadata.Topic, metadata.Partition, error) {
	t := p.img.TopicByID(id)
	if t == nil {
		return nil, metadata.Partition{}, fmt.Errorf("%w: %s", messages.ErrUnknownTopicID, id)
	}
	part, ok := t.Partition(partition)
	if !ok {
		return t, part, fmt.Errorf("%w: %s has %d partitions", messages.ErrUnknownTopicOrPartition, t.Name, len(t.Partitions))
	}
	return t, part, nil
}

func (p *plan) reassign(c messages.ReassignPartitions) {
	for _, r := range c.Changes {
		before := len(p.records)
		err := p.reassignOne(r)
		if err != nil {
			p.records = p.records[:before]
		}
		p.items = append(p.items, messages.Item{TopicID: r.TopicID, Partition: r.Partition, Err: err})
	}
}

// reassignOne changes the replicas of one partition. What is added copies what the
// leader has, so a replica that stays and has everything must lead.
func (p *plan) reassignOne(c messages.Reassignment) error {
	t, part, err := p.partitionOf(c.TopicID, c.Partition)
	if err != nil {
		return err
	}
	if err := p.checkReassigned(c, part); err != nil {
		return err
	}
	if slices.Equal(part.Replicas, c.Replicas) {
		return nil
	}
	r := wire.NewPtrPartitionChangeRecord()
	r.TopicID, r.PartitionID = t.ID, c.Partition
	for _, n := range c.Replicas {
		r.Replicas = append(r.Replicas, int32(n))
	}
	r.Isr = r.Replicas
	if !slices.Contains(c.Replicas, part.Leader) {
		at := slices.IndexFunc(c.Replicas, func(n messages.NodeID) bool {
			return slices.Contains(c.InSync, n) && slices.Contains(p.env.live, n)
		})
		r.Leader = int32(c.Replicas[at]) // there is one: checkReassigned has looked
	}
	p.add(r)
	return nil
}

func (p *plan) checkReassigned(c messages.Reassignment, part metadata.Partition) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", messages.ErrInvalidAssignment, fmt.Sprintf(format, args...))
	}
	if len(c.Replicas) == 0 {
		return bad("no replicas")
	}
	added, removed, stays := 0, 0, false
	for i, n := range c.Replicas {
		switch {
		case n < 0:
			return bad("node %d", n)
		case slices.Contains(c.Replicas[:i], n):
			return bad("node %d is named twice", n)
		case !slices.Contains(part.Replicas, n) && !slices.Contains(p.env.live, n):
			return bad("node %d isn't live", n)
		case !slices.Contains(part.Replicas, n):
			added++
		case slices.Contains(c.InSync, n) && slices.Contains(p.env.live, n):
			stays = true
		}
	}
	for _, n := range part.Replicas {
		if !slices.Contains(c.Replicas, n) {
			removed++
		}
	}
	switch {
	case !c.Resize && len(c.Replicas) != len(part.Replicas):
		return fmt.Errorf("%w: the partition has %d replicas, %d are asked for, and the request doesn't allow another number", messages.ErrInvalidReplication, len(part.Replicas), len(c.Replicas))
	case added > 0 && removed > 0:
		return bad("replicas are added and taken away in one request: add the new ones first, and take the old ones away when the new ones are in sync")
	case removed > 0 && !stays:
		return bad("none of the replicas that stay is alive and in sync")
	}
	return nil
}
