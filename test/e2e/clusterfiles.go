package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"kagami/messages"
	"kagami/persistence/metadata"
	"kagami/test/kafka"
)

// segmentFiles are the segments of a partition in a node's folder, in order.
func (n *Node) segmentFiles(folder string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(n.DataDir(), folder, "*.log"))
	if err != nil {
		return nil, fmt.Errorf("list segments: %w", err)
	}
	slices.Sort(files)
	return files, nil
}

// eachBatch reads a node's files of a partition, whether the node runs or not.
func (n *Node) eachBatch(folder string, f func(b Batch, raw []byte) error) error {
	files, err := n.segmentFiles(folder)
	if err != nil {
		return err
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted meanwhile: its batches are below the log start
		}
		if err != nil {
			return fmt.Errorf("read segment: %w", err)
		}
		for len(raw) >= headerSize && !zeros(raw[:headerSize]) { // segments may be allocated ahead
			batches, err := splitBatches(raw)
			if err != nil {
				return fmt.Errorf("read segment %s: %w", file, err)
			}
			if len(batches) == 0 {
				break // the last one is being written
			}
			for _, b := range batches {
				if err := f(b, raw[:b.Size]); err != nil {
					return fmt.Errorf("read segment %s: %w", file, err)
				}
				raw = raw[b.Size:]
			}
		}
	}
	return nil
}

func zeros(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) }

// FileBatches are the batches of a partition in a node's folder.
func (n *Node) FileBatches(folder string) ([]Batch, error) {
	var out []Batch
	err := n.eachBatch(folder, func(b Batch, _ []byte) error {
		if len(out) > 0 && (b.Base <= out[len(out)-1].Last || b.Epoch < out[len(out)-1].Epoch) {
			return fmt.Errorf("%v after %v", b, out[len(out)-1])
		}
		out = append(out, b)
		return nil
	})
	return out, err
}

// from leaves out what lies below an offset.
func from(batches []Batch, offset int64) []Batch {
	i := slices.IndexFunc(batches, func(b Batch) bool { return b.Last >= offset })
	if i < 0 {
		return nil
	}
	return batches[i:]
}

// ReplicasDiffer returns nil if every replica of the topic holds the same batches
// from the highest log start on, up to the end that the leader tells, and each log
// has rising offsets and epochs. Want is the number of replicas (0: any).
func (c *Cluster) ReplicasDiffer(ctx context.Context, side *Side, topic string, want int) error {
	detail, err := side.Topic(ctx, topic)
	if err != nil {
		return err
	}
	ends, err := side.TopicEnds(ctx, topic)
	if err != nil {
		return err
	}
	for p, e := range ends {
		folder := fmt.Sprintf("%s-%d", topic, p)
		replicas := detail.Partitions[p].Replicas
		if want > 0 && len(replicas) != want {
			return fmt.Errorf("%s has replicas %v, want %d", folder, replicas, want)
		}
		logs := map[int32][]Batch{}
		start := e.Start
		for _, id := range replicas {
			if logs[id], err = c.nodes[int(id)].FileBatches(folder); err != nil {
				return fmt.Errorf("node %d: %w", id, err)
			}
			if len(logs[id]) > 0 && e.Start < e.End {
				start = max(start, logs[id][0].Base)
			}
		}
		first := from(logs[replicas[0]], start)
		for _, id := range replicas {
			log := from(logs[id], start)
			if err := sameBatches(first, log); err != nil {
				return fmt.Errorf("%s: nodes %d and %d: %w", folder, replicas[0], id, err)
			}
			end := start
			if len(log) > 0 {
				end = log[len(log)-1].Last + 1
			}
			if end != e.End {
				return fmt.Errorf("%s: the log of node %d ends at %d, its leader %d says %d", folder, id, end, detail.Partitions[p].Leader, e.End)
			}
		}
	}
	return nil
}

func sameBatches(a, b []Batch) error {
	for i := range max(len(a), len(b)) {
		switch {
		case i >= len(a):
			return fmt.Errorf("only the second has %v", b[i])
		case i >= len(b):
			return fmt.Errorf("only the first has %v", a[i])
		case a[i] != b[i]:
			return fmt.Errorf("batch %d: %v and %v", i, a[i], b[i])
		}
	}
	return nil
}

// AwaitReplicas waits until the replicas of the topics are equal.
func (c *Cluster) AwaitReplicas(ctx context.Context, side *Side, want int, topics ...string) error {
	for _, topic := range topics {
		if err := kafka.Poll(ctx, func() error { return c.ReplicasDiffer(ctx, side, topic, want) }); err != nil {
			return err
		}
	}
	return nil
}

const metadataFolder = "__cluster_metadata-0"

// Owners checks a node's metadata log: every leader epoch of a partition has one
// owner, epochs never fall while the partition lives, and claims of the controller
// rise. Batches under an older claim count as nobody's. It returns how many
// (partition, epoch) pairs it saw.
func (n *Node) Owners() (int, error) {
	type tenure struct {
		key   messages.PartitionKey
		epoch int32
	}
	owners, last := map[tenure]messages.NodeID{}, map[messages.PartitionKey]int32{}
	img := metadata.EmptyImage()
	claim := int32(-1)
	err := n.eachBatch(metadataFolder, func(b Batch, raw []byte) error {
		step, err := img.Replay(raw)
		if err != nil {
			return err
		}
		img = step.Delta.New
		if img.ControllerEpoch() < claim {
			return fmt.Errorf("batch %v: controller epoch %d after %d", b, img.ControllerEpoch(), claim)
		}
		claim = img.ControllerEpoch()
		for name := range step.Delta.Topics {
			t := img.Topic(name)
			if t == nil {
				continue
			}
			for i, p := range t.Partitions {
				key := t.Key(int32(i))
				if before, known := last[key]; known && p.LeaderEpoch < before {
					return fmt.Errorf("batch %v: %s-%d goes from leader epoch %d to %d", b, name, i, before, p.LeaderEpoch)
				}
				last[key] = p.LeaderEpoch
				at := tenure{key, p.LeaderEpoch}
				if owner, known := owners[at]; known && owner != p.Leader {
					return fmt.Errorf("batch %v: %s-%d epoch %d belongs to node %d and to node %d", b, name, i, p.LeaderEpoch, owner, p.Leader)
				}
				owners[at] = p.Leader
			}
		}
		return nil
	})
	return len(owners), err
}

// SameMetadata returns nil if the metadata logs of the nodes are equal as far as
// each goes.
func (c *Cluster) SameMetadata(ids ...int) error {
	first, err := c.nodes[ids[0]].FileBatches(metadataFolder)
	if err != nil {
		return err
	}
	for _, id := range ids[1:] {
		log, err := c.nodes[id].FileBatches(metadataFolder)
		if err != nil {
			return err
		}
		if len(log) == 0 || len(first) == 0 {
			return fmt.Errorf("nodes %d and %d have %d and %d batches of metadata", ids[0], id, len(first), len(log))
		}
		start := max(first[0].Base, log[0].Base)
		a, b := from(first, start), from(log, start)
		short := min(len(a), len(b))
		if err := sameBatches(a[:short], b[:short]); err != nil {
			return fmt.Errorf("metadata of nodes %d and %d: %w", ids[0], id, err)
		}
	}
	return nil
}
