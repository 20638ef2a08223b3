package messages

// ElectLeaders makes replicas the leaders of their partitions, as an operator asks; one
// item per election. The caller has checked that each is alive and has everything.
type ElectLeaders struct{ Elections []Election }

// Election asks for one partition.
type Election struct {
	TopicID   TopicID
	Partition int32
	Node      NodeID
}

// ReassignPartitions changes the replicas of partitions, as an operator asks; one item per
// change.
type ReassignPartitions struct{ Changes []Reassignment }

// Reassignment is the new replicas of one partition, preferred leader first. InSync are
// those of now that have everything; Resize allows another number of replicas.
type Reassignment struct {
	TopicID   TopicID
	Partition int32
	Replicas  []NodeID
	InSync    []NodeID
	Resize    bool
}

func (ElectLeaders) command()       {}
func (ReassignPartitions) command() {}
