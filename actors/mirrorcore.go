package actors

import (
	"fmt"
	"slices"
	"strings"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// Thresholds of the epoch bumps (spec: workflows.md, Bumping leader epochs).
const (
	epochBumpThreshold = 3
	epochBumpIncrement = 10
)

// sourcePartition is what the source's metadata says of one partition.
type sourcePartition struct {
	leader int32 // broker id, -1 if none is known
	epoch  int32 // source leader epoch (SLE), -1 if the source doesn't tell
}

// sourceTopic is what the source's metadata says of one topic.
type sourceTopic struct {
	name       string
	id         messages.TopicID // zero before 2.8
	partitions []sourcePartition
	missing    bool  // UNKNOWN_TOPIC_OR_PARTITION
	err        error // any other error: nothing is known of the topic this time
}

// refreshInput is everything that one cycle of a mirror has learned.
type refreshInput struct {
	image     *metadata.Image
	mirror    string
	described map[string]sourceTopic // answer for the mirror's topics
	// listed is a fresh list of all topics of the source, internal ones left out;
	// nil when it wasn't asked for or failed: then nothing is taken for deleted and
	// nothing is discovered.
	listed      map[string]sourceTopic
	coordinator bool // this node coordinates the mirror
	included    func(topic string) bool
	excluded    func(topic string) bool
	discovering bool // there is an effective include pattern
}

// topicFault stops a topic's partitions without a retry timer.
type topicFault struct {
	topic string
	text  string
}

// refreshPlan is what the cycle leads to.
type refreshPlan struct {
	grow       []messages.PartitionCount
	gone       []messages.MirrorTopic // deleted on the source
	excluded   []messages.MirrorTopic // active topics that match an exclude pattern
	discovered []messages.MirrorTopic
	faults     []topicFault
	healthy    []string // topics whose earlier fault is over, if they had one
	bumps      []messages.EpochBump
	notes      []topicNote // why a topic that matches isn't discovered, for the log
}

type topicNote struct{ topic, text string }

// planRefresh decides what one cycle leads to (spec: workflows.md, Auto-discovery,
// Partition expansion, Topic deleted or recreated; metadata-sync.md, Cycle).
func planRefresh(in refreshInput) refreshPlan {
	var plan refreshPlan
	for _, t := range in.image.TopicsOfMirror(in.mirror) {
		if t.Desired == messages.DesiredActive {
			planActiveTopic(in, t, &plan)
		}
	}
	if in.coordinator {
		planDiscovery(in, &plan)
	}
	return plan
}

func planActiveTopic(in refreshInput, t *metadata.Topic, plan *refreshPlan) {
	here := messages.MirrorTopic{Name: t.Name, ID: t.ID}
	if in.coordinator && in.excluded(t.Name) {
		plan.excluded = append(plan.excluded, here)
		return
	}
	src, asked := in.described[t.Name]
	switch {
	case !asked || src.err != nil:
		return
	case src.missing:
		// A stale answer looks alike, so only a second, complete list decides.
		if _, still := in.listed[t.Name]; in.coordinator && in.listed != nil && !still {
			plan.gone = append(plan.gone, here)
		}
		return
	case !src.id.IsZero() && src.id != t.ID:
		plan.faults = append(plan.faults, topicFault{topic: t.Name, text: fmt.Sprintf(
			"topic %s was made anew on the source: its id there is %s, here %s; delete the topic here to copy the new one from the start",
			t.Name, src.id, t.ID)})
		return
	case len(src.partitions) < len(t.Partitions):
		plan.faults = append(plan.faults, topicFault{topic: t.Name, text: fmt.Sprintf(
			"topic %s has %d partitions here, %d on the source: a mirror topic can't have more than its source",
			t.Name, len(t.Partitions), len(src.partitions))})
		return
	}
	plan.healthy = append(plan.healthy, t.Name)
	if !in.coordinator {
		return
	}
	if len(src.partitions) > len(t.Partitions) {
		plan.grow = append(plan.grow, messages.PartitionCount{Topic: t.Name, Count: int32(len(src.partitions))})
	}
	for i, p := range t.Partitions {
		if sle := src.partitions[i].epoch; sle > p.LeaderEpoch-epochBumpThreshold {
			if target, err := bumpTarget(sle); err == nil {
				plan.bumps = append(plan.bumps, messages.EpochBump{TopicID: t.ID, Partition: int32(i), MinLeaderEpoch: target})
			}
		}
	}
}

// bumpTarget is SLE + 10; an overflow of int32 is an error and the caller's
// partition goes to FAILED.
func bumpTarget(sle int32) (int32, error) {
	if sle > 1<<31-1-epochBumpIncrement-1 {
		return 0, fmt.Errorf("source leader epoch %d is too high to stay above it", sle)
	}
	return sle + epochBumpIncrement, nil
}

func planDiscovery(in refreshInput, plan *refreshPlan) {
	if !in.discovering || in.listed == nil {
		return
	}
	for name, src := range in.listed {
		if src.err != nil || src.missing || len(src.partitions) == 0 {
			continue
		}
		if messages.IsInternalTopic(name) || !in.included(name) || in.excluded(name) {
			continue
		}
		if here := in.image.Topic(name); here != nil {
			switch {
			case here.Mirror == in.mirror:
				continue // a member in any wish is left alone
			case here.Desired == messages.DesiredActive || here.Desired == messages.DesiredPaused:
				plan.note(name, "it matches the include patterns but is in mirror %s", here.Mirror)
				continue
			case !src.id.IsZero() && here.ID != src.id:
				plan.note(name, "it matches the include patterns but exists here with id %s, on the source with %s: delete it here to mirror it", here.ID, src.id)
				continue
			case len(here.Partitions) > len(src.partitions):
				plan.note(name, "it matches the include patterns but has %d partitions here, %d on the source", len(here.Partitions), len(src.partitions))
				continue
			}
		}
		plan.discovered = append(plan.discovered, messages.MirrorTopic{
			Name: name, ID: src.id, NumPartitions: int32(len(src.partitions)),
		})
	}
	sortTopics(plan.discovered)
}

func (p *refreshPlan) note(topic, format string, args ...any) {
	p.notes = append(p.notes, topicNote{topic: topic, text: fmt.Sprintf(format, args...)})
}

func sortTopics(topics []messages.MirrorTopic) {
	slices.SortFunc(topics, func(a, b messages.MirrorTopic) int { return strings.Compare(a.Name, b.Name) })
}
