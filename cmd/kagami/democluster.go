package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"kagami/client"
	"kagami/internal/ports"
	"kagami/messages"
	"kagami/messages/batch"
)

// destination names the addresses of all nodes of B.
func (d *demo) destination() string {
	var all []string
	for _, n := range d.b {
		all = append(all, n.kafka)
	}
	return strings.Join(all, ",")
}

// startB starts the nodes of B side by side: several wait for one another.
func (d *demo) startB(ctx context.Context) error {
	var peers []string
	for i := range d.nodes {
		name := "B"
		if d.nodes > 1 {
			name = fmt.Sprintf("B%d", i+1)
		}
		n, err := newDemoNode(name, d.dir)
		if err != nil {
			return err
		}
		d.b = append(d.b, n)
		route, err := ports.FreeAddr()
		if err != nil {
			return err
		}
		peers = append(peers, fmt.Sprintf("%d@%s", i+1, route))
	}
	var g errgroup.Group
	for i, n := range d.b {
		if d.nodes > 1 {
			n.more = []string{fmt.Sprintf("node.id=%d", i+1), "cluster.peers=" + strings.Join(peers, ","), "default.replication.factor=3"}
		}
		g.Go(func() error { return n.start(ctx) })
	}
	return g.Wait()
}

// watch shows the progress; of a cluster, one node is killed on the way.
func (d *demo) watch(ctx context.Context) error {
	if d.nodes == 1 {
		return d.progress(ctx, d.seconds)
	}
	if err := d.progress(ctx, d.seconds/2); err != nil {
		return err
	}
	details, err := d.cb.admin.ListTopics(ctx, d.topics[0])
	if err != nil {
		return fmt.Errorf("look for a leader on B: %w", err)
	}
	leader := int(details[d.topics[0]].Partitions[0].Leader)
	if leader < 1 || leader > len(d.b) {
		return fmt.Errorf("%s-0 has no leader on B", d.topics[0])
	}
	began := time.Now()
	d.b[leader-1].kill()
	d.say("   B%d, the leader of %s-0, is killed (kill -9).", leader, d.topics[0])
	if err := waitFor(ctx, time.Minute, d.allMoved(ctx)); err != nil {
		return fmt.Errorf("go on without B%d: %w", leader, err)
	}
	d.say("   Every partition is led by another node and fetches again, %d ms after the kill.", time.Since(began).Milliseconds())
	if err := d.progress(ctx, d.seconds/2); err != nil {
		return err
	}
	if err := d.b[leader-1].start(ctx); err != nil {
		return err
	}
	d.say("   B%d is back and takes what it missed.", leader)
	return nil
}

// allMoved asks until each partition of the mirror has got more from the source
// since the first time it was seen mirroring.
func (d *demo) allMoved(ctx context.Context) func() (bool, string, error) {
	first := map[messages.TopicPartition]int64{}
	return func() (bool, string, error) {
		desc, err := d.cb.mirrors.DescribeClusterMirrors(ctx, []string{demoMirror}, client.DescribeOptions{})
		if err != nil || desc.Mirrors[demoMirror] == nil {
			return false, fmt.Sprint("no answer: ", err), nil // nodes are just finding out that one is gone
		}
		moved := len(desc.Mirrors[demoMirror].Partitions) > 0
		for _, p := range desc.Mirrors[demoMirror].Partitions {
			tp := messages.TopicPartition{Topic: p.Topic, Partition: p.Partition}
			began, seen := first[tp]
			if !seen && p.State == messages.StateMirroring.String() && p.DestinationOffset >= 0 {
				first[tp] = p.DestinationOffset
			}
			moved = moved && seen && p.DestinationOffset > began
		}
		return moved, fmt.Sprintf("%d partitions go on", len(first)), nil
	}
}

// compareReplicas compares the files of the nodes of B: every replica has the same
// batches from the highest log start on.
func (d *demo) compareReplicas(ctx context.Context) error {
	if d.nodes == 1 {
		return nil
	}
	var count int
	err := waitFor(ctx, time.Minute, func() (bool, string, error) {
		var why error
		count, why = d.replicasDiffer(ctx)
		return why == nil, fmt.Sprint(why), nil
	})
	if err != nil {
		return fmt.Errorf("compare the replicas on B: %w", err)
	}
	d.say("   The files of all %d replicas on B hold the same batches, byte for byte.", count)
	return nil
}

var errReplicasDiffer = errors.New("replicas differ")

func (d *demo) replicasDiffer(ctx context.Context) (count int, err error) {
	details, err := d.cb.admin.ListTopics(ctx, d.topics...)
	if err != nil {
		return 0, err
	}
	for _, topic := range d.topics {
		for p, detail := range details[topic].Partitions {
			folder := fmt.Sprintf("%s-%d", topic, p)
			var logs [][]demoBatch
			start := int64(0)
			for _, id := range detail.Replicas {
				log, err := readBatches(filepath.Join(d.b[id-1].data(), folder))
				if err != nil {
					return 0, err
				}
				if len(log) > 0 {
					start = max(start, log[0].base)
				}
				logs = append(logs, log)
			}
			if len(logs) < 3 {
				return 0, fmt.Errorf("%w: %s has replicas on %v only", errReplicasDiffer, folder, detail.Replicas)
			}
			for i, log := range logs {
				logs[i] = slices.DeleteFunc(log, func(b demoBatch) bool { return b.base < start })
				if !slices.Equal(logs[i], logs[0]) {
					return 0, fmt.Errorf("%w: %s on B%d and B%d", errReplicasDiffer, folder, detail.Replicas[0], detail.Replicas[i])
				}
				count++
			}
		}
	}
	return count, nil
}

// demoBatch is one batch in a file.
type demoBatch struct {
	base int64
	sum  [sha256.Size]byte
}

// readBatches reads a partition's segments; a last batch that is being written is
// left out.
func readBatches(dir string) ([]demoBatch, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var out []demoBatch
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for len(b) >= batch.HeaderSize {
			h, err := batch.ParseHeader(b)
			if err != nil || h.Size() > len(b) {
				break
			}
			out = append(out, demoBatch{base: h.BaseOffset, sum: sha256.Sum256(b[:h.Size()])})
			b = b[h.Size():]
		}
	}
	return out, nil
}
