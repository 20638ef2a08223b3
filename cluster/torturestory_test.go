package cluster

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"kagami/cluster/journal"
	"kagami/messages"
)

// tortureStory is what is told of a history that went wrong: what was done, what the
// nodes logged, and what the journal has of the partitions that it went wrong with.
type tortureStory struct {
	mu    sync.Mutex
	lines []string
	bad   map[messages.PartitionKey]string // name of the partition
}

// storyLinesMax bounds the lines that are remembered, storyOpsMax the operations of a
// partition that are printed.
const (
	storyLinesMax = 20000
	storyOpsMax   = 60
)

// note adds a line to the story.
func (x *torture) note(format string, args ...any) {
	line := fmt.Sprintf("%7.3fs ", time.Since(x.clock.began).Seconds()*tortureSpeed) + fmt.Sprintf(format, args...)
	x.story.mu.Lock()
	defer x.story.mu.Unlock()
	if len(x.story.lines) >= storyLinesMax {
		x.story.lines = append(x.story.lines[:0], x.story.lines[storyLinesMax/2:]...)
	}
	x.story.lines = append(x.story.lines, line)
}

// blame remembers that something is wrong with a partition.
func (x *torture) blame(key messages.PartitionKey, name string) {
	x.story.mu.Lock()
	defer x.story.mu.Unlock()
	if x.story.bad == nil {
		x.story.bad = make(map[messages.PartitionKey]string)
	}
	x.story.bad[key] = name
}

// tell prints the story of the partitions that something is wrong with.
func (x *torture) tell() {
	x.story.mu.Lock()
	defer x.story.mu.Unlock()
	shards := make(map[int32]bool)
	for key, name := range x.story.bad {
		shard := x.shardOf(key)
		shards[shard] = true
		x.t.Logf("%s is %s, in shard %d; its operations:\n%s", name, key, shard, x.oracle.history(key))
		for _, n := range x.nodes {
			if run := n.run.Load(); run != nil {
				x.t.Logf("node %d: %s", n.id, run.describe(key))
			}
		}
	}
	var out strings.Builder
	for _, line := range x.story.lines {
		if x.story.tells(line, shards) {
			out.WriteString(line)
			out.WriteByte('\n')
		}
	}
	x.t.Logf("what was done and logged, in the nodes' seconds:\n%s", &out)
}

// tells reports whether a line is about one of the partitions or their shards, or about
// all of them. KAGAMI_TORTURE_LOG set: every line.
func (s *tortureStory) tells(line string, shards map[int32]bool) bool {
	if os.Getenv("KAGAMI_TORTURE_LOG") != "" {
		return true
	}
	if _, after, ok := strings.Cut(line, `"shard": `); ok {
		for shard := range shards {
			rest, ok := strings.CutPrefix(after, fmt.Sprint(shard))
			if ok && (rest == "" || rest[0] < '0' || rest[0] > '9') {
				return true
			}
		}
		return false
	}
	for key, name := range s.bad {
		if strings.Contains(line, name) || strings.Contains(line, key.TopicID.String()) {
			return true
		}
	}
	return strings.Contains(line, storyStep)
}

// storyStep marks lines that are about whole nodes.
const storyStep = "-- "

func (x *torture) shardOf(key messages.PartitionKey) int32 {
	if key.TopicID == MetadataTopicID {
		return MetadataShard
	}
	return ShardOf(key, severalShards)
}

// describe is a replica and its shard as a node has them.
func (run *tortureRun) describe(key messages.PartitionKey) string {
	s := run.journal.shardOf(key)
	s.dirtyMu.Lock()
	shard := fmt.Sprintf("shard applied %d, record %+v, covered %d, holes %d", s.applied.Load(), s.stable, s.covered.Load(), s.holes.Load())
	s.dirtyMu.Unlock()
	if t := run.store.Image().TopicByID(key.TopicID); t != nil {
		if p, ok := t.Partition(key.Partition); ok {
			shard += fmt.Sprintf("; image %d has leader %d, epoch %d, replicas %v", run.store.Image().Offset(), p.Leader, p.LeaderEpoch, p.Replicas)
		}
	}
	r := run.journal.replica(key)
	if r == nil {
		return "no replica; " + shard
	}
	o := r.order.(*streamed)
	o.mu.Lock()
	defer o.mu.Unlock()
	return fmt.Sprintf("%+v, log %d-%d, behind %t whole %t cause %v, %d kept from %s; %s", o.d.state, o.d.log.LogStart(), o.d.log.End(),
		o.behind, o.whole, o.cause, len(o.kept), storyPosition(o.keptAt), shard)
}

func storyPosition(at int64) string {
	return fmt.Sprintf("%d.%d", journal.SequenceOf(at), at-journal.At(journal.SequenceOf(at), 0))
}

// history is the last operations of a partition.
func (o *tortureOracle) history(key messages.PartitionKey) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.logs[key]
	if l == nil {
		return "none"
	}
	var out strings.Builder
	for i, op := range l.ops {
		if i < len(l.ops)-storyOpsMax {
			continue
		}
		fmt.Fprintf(&out, "%s node %d %s generation %s base %d end %d offset %d epoch %d of %d mode %d: %s\n", storyPosition(op.position), op.author,
			op.op.Kind, storyPosition(op.op.Generation), op.op.Base, op.op.End, op.op.Offset, op.op.Epoch, op.op.Node, op.op.Mode, op.verdict)
	}
	return out.String()
}

// oracleOp is one operation that a stream got; without its batches.
type oracleOp struct {
	position int64
	author   messages.NodeID
	op       journal.Operation
	verdict  journal.Refusal
}
