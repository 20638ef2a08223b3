package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"kagami/client"
	"kagami/messages"
)

const demoMirror = "demo"

// demo is one run: two clusters, a mirror from A to B, a failover, a failback.
type demo struct {
	out     io.Writer
	dir     string
	topics  []string
	seconds time.Duration
	rate    int

	// sourceBootstrap is set when the source isn't a node of ours (real Kafka).
	sourceBootstrap string
	nodes           int // of B
	a               *demoNode
	b               []*demoNode
	ca, cb          *demoCluster
}

// runDemo shows the main job on this machine and returns nil only if both
// clusters hold the same batches at the end.
func runDemo(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	const line = "demo [options]"
	source := fs.String("source-bootstrap", "", "use this Kafka cluster as the source (first half only) instead of a node of our own")
	seconds := fs.Duration("phase", 6*time.Second, "how long each load phase takes")
	rate := fs.Int("rate", 8000, "records of 1 KiB per second")
	nodes := fs.Int("nodes", 1, "nodes of the destination: 3 form a cluster, one of which is killed on the way")
	keep := fs.Bool("keep", false, "keep the demo's folder")
	if err := parse(fs, line, 0, args, stdout, stderr); err != nil {
		return err
	}
	if *rate < 1 || *seconds <= 0 {
		return usageFault(fs, line, stderr, "--rate and --phase must be above 0")
	}
	if *nodes != 1 && *nodes < 3 {
		return usageFault(fs, line, stderr, "--nodes must be 1, or 3 and more: two don't outlive the loss of one")
	}
	dir, err := os.MkdirTemp("", "kagami-demo-")
	if err != nil {
		return fmt.Errorf("make the demo's folder: %w", err)
	}
	d := &demo{out: stdout, dir: dir, topics: []string{"orders", "payments"}, seconds: *seconds, rate: *rate, sourceBootstrap: *source, nodes: *nodes}
	defer func() {
		d.shutdown()
		if *keep {
			sayf(stdout, "kept %s\n", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			sayf(stderr, "remove %s: %v\n", dir, err)
		}
	}()
	steps := []func(context.Context) error{d.startClusters, d.mirror, d.failover, d.compareReplicas, d.failback, d.compareBack}
	if d.sourceBootstrap != "" {
		steps = []func(context.Context) error{d.startClusters, d.mirror, d.compareMirror, d.failover, d.compareReplicas}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) say(format string, args ...any) { sayf(d.out, format+"\n", args...) }

func (d *demo) shutdown() {
	for _, c := range []*demoCluster{d.ca, d.cb} {
		if c != nil {
			c.close()
		}
	}
	for _, n := range append([]*demoNode{d.a}, d.b...) {
		if n != nil {
			n.kill()
		}
	}
}

func (d *demo) startClusters(ctx context.Context) error {
	var err error
	if d.sourceBootstrap == "" {
		if d.a, err = newDemoNode("A", d.dir); err != nil {
			return err
		}
		if err = d.a.start(ctx); err != nil {
			return err
		}
		d.sourceBootstrap = ""
	}
	if err = d.startB(ctx); err != nil {
		return err
	}
	if d.ca, err = connect(d.sourceAddr()); err != nil {
		return err
	}
	if d.cb, err = connect(d.destination()); err != nil {
		return err
	}
	d.say("1. Source A at %s, destination B at %s.", d.sourceAddr(), d.destination())
	for topic, partitions := range map[string]int32{"orders": 3, "payments": 1} {
		resp, err := d.ca.admin.CreateTopics(ctx, partitions, 1, nil, topic)
		if err == nil {
			err = resp[topic].Err
		}
		if err != nil {
			return fmt.Errorf("create topic %s on A: %w", topic, err)
		}
	}
	return nil
}

func (d *demo) sourceAddr() string {
	if d.sourceBootstrap != "" {
		return d.sourceBootstrap
	}
	return d.a.kafka
}

// mirror starts the load on A and the mirror on B, and shows progress.
func (d *demo) mirror(ctx context.Context) error {
	load, err := startLoad(ctx, d.sourceAddr(), d.topics, d.rate)
	if err != nil {
		return err
	}
	d.say("2. Load on A: %d records of %d bytes a second. B mirrors %s.", d.rate, demoRecordBytes, strings.Join(d.topics, ", "))
	if err := createAndStart(ctx, d.cb, d.ca, d.sourceAddr(), d.topics); err != nil {
		return errors.Join(err, load.finish(ctx, false))
	}
	if err := d.watch(ctx); err != nil {
		return errors.Join(err, load.finish(ctx, false))
	}
	if err := d.refuseWrites(ctx); err != nil {
		return errors.Join(err, load.finish(ctx, false))
	}
	if d.a != nil {
		d.a.kill()
		d.say("3. A is killed (kill -9) in the middle of the load: %d records were acknowledged by A.", load.acked.Load())
		return load.finish(ctx, false)
	}
	d.say("3. The load stops: %d records were acknowledged by A.", load.acked.Load())
	return load.finish(ctx, true)
}

// refuseWrites shows that B is read-only.
func (d *demo) refuseWrites(ctx context.Context) error {
	_, err := produceOne(ctx, d.destination(), d.topics[0], "too early")
	if err == nil {
		return fmt.Errorf("destination B took a write into %s while it is a mirror", d.topics[0])
	}
	d.say("   A write to B is refused: %v", err)
	return nil
}

// progress prints one line every half second.
func (d *demo) progress(ctx context.Context, long time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	last := int64(-1)
	lastAt := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		desc, err := d.cb.mirrors.DescribeClusterMirrors(ctx, []string{demoMirror}, client.DescribeOptions{})
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("describe the mirror on B: %w", err)
		}
		var src, dst, lag int64
		states := map[string]int{}
		for _, p := range desc.Mirrors[demoMirror].Partitions {
			src, dst, lag = src+max(0, p.SourceOffset), dst+max(0, p.DestinationOffset), lag+max(0, p.Lag)
			states[p.State]++
		}
		now := time.Now()
		if last < 0 {
			last = dst // nothing to compare with
		}
		d.say("   source %8d  destination %8d  lag %6d  %6.1f MB/s  %s", src, dst, lag,
			float64((dst-last)*demoRecordBytes)/1e6/now.Sub(lastAt).Seconds(), stateCounts(states))
		last, lastAt = dst, now
	}
}

// stateCounts is "4 MIRRORING", the states in order of name.
func stateCounts(states map[string]int) string {
	var out []string
	for _, s := range slices.Sorted(maps.Keys(states)) {
		out = append(out, fmt.Sprintf("%d %s", states[s], s))
	}
	return strings.Join(out, ", ")
}

// failover stops the mirror on B and writes there.
func (d *demo) failover(ctx context.Context) error {
	began := time.Now()
	if err := stopAndWait(ctx, d.cb, d.topics); err != nil {
		return err
	}
	offset, err := produceOne(ctx, d.destination(), d.topics[0], "first write after the failover")
	if err != nil {
		return fmt.Errorf("first write on B: %w", err)
	}
	d.say("4. Failover on B: stopped and the first write stored at offset %d after %d ms.", offset, time.Since(began).Milliseconds())
	load, err := startLoad(ctx, d.destination(), d.topics, d.rate)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(d.seconds / 2):
	}
	if err := load.finish(ctx, true); err != nil {
		return fmt.Errorf("finish the load on B: %w", err)
	}
	d.say("   B took %d more records.", load.acked.Load())
	if n := load.failed.Load(); n > 0 {
		return fmt.Errorf("%d writes on B failed, the last with: %w", n, *load.lastErr.Load())
	}
	return nil
}

// failback brings A back as a mirror of B.
func (d *demo) failback(ctx context.Context) error {
	if err := d.a.start(ctx); err != nil {
		return err
	}
	before, err := d.ca.ends(ctx, d.topics)
	if err != nil {
		return fmt.Errorf("ends on A: %w", err)
	}
	target, err := d.cb.ends(ctx, d.topics)
	if err != nil {
		return fmt.Errorf("ends on B: %w", err)
	}
	d.say("5. A is back with %d offsets, B has %d. A mirrors B under the same name.", before, target)
	began := time.Now()
	if err := createAndStart(ctx, d.ca, d.cb, d.destination(), d.topics); err != nil {
		return err
	}
	if err := waitFor(ctx, time.Minute, func() (bool, string, error) {
		now, err := d.ca.ends(ctx, d.topics)
		return now == target, fmt.Sprintf("A is at %d of %d", now, target), err
	}); err != nil {
		return fmt.Errorf("failback: %w", err)
	}
	desc, err := d.ca.mirrors.DescribeClusterMirrors(ctx, []string{demoMirror}, client.DescribeOptions{})
	if err != nil {
		return fmt.Errorf("describe the mirror on A: %w", err)
	}
	var cut int64
	for _, p := range desc.Mirrors[demoMirror].Partitions {
		cut += p.CutRecords
	}
	d.say("   Caught up after %d ms: %d records that never reached B were cut on A, the difference was copied.", time.Since(began).Milliseconds(), cut)
	return nil
}

// compareBack is the end of the whole demo: A is a copy of B again.
func (d *demo) compareBack(ctx context.Context) error {
	if err := d.compare(ctx, d.a.kafka); err != nil {
		return err
	}
	d.say("6. Every batch on A equals the one on B, byte for byte.")
	return nil
}

// compareMirror waits until B has all, and compares it with a source that lives.
func (d *demo) compareMirror(ctx context.Context) error {
	if err := waitFor(ctx, time.Minute, func() (bool, string, error) {
		src, err := d.ca.ends(ctx, d.topics)
		if err != nil {
			return false, "", err
		}
		dst, err := d.cb.ends(ctx, d.topics)
		return src == dst, fmt.Sprintf("B is at %d of %d", dst, src), err
	}); err != nil {
		return fmt.Errorf("catch up: %w", err)
	}
	if err := d.compare(ctx, d.destination()); err != nil {
		return err
	}
	d.say("   Every batch on B equals the one on A, byte for byte.")
	return nil
}

// compare verifies the mirror of the cluster at bootstrap and prints the table.
func (d *demo) compare(ctx context.Context, bootstrap string) error {
	rows, err := verify(ctx, verifyOptions{mirror: demoMirror, bootstrap: bootstrap, topics: ".*", deep: true})
	if len(rows) > 0 {
		if perr := printVerdict(d.out, rows); perr != nil {
			return perr
		}
	}
	if err != nil {
		return fmt.Errorf("compare source and destination: %w", err)
	}
	for _, r := range rows {
		if !r.Equal() {
			return errDifferent
		}
	}
	return nil
}

// createAndStart makes the mirror on dst and starts the topics with the ids and
// counts that src has.
func createAndStart(ctx context.Context, dst, src *demoCluster, bootstrap string, topics []string) error {
	if err := dst.mirrors.CreateClusterMirror(ctx, demoMirror, map[string]*string{"bootstrap.servers": &bootstrap}); err != nil {
		return fmt.Errorf("create mirror: %w", err)
	}
	meta := map[string]client.TopicMetadata{}
	// A broker shows a topic a moment after the controller has made it.
	if err := waitFor(ctx, time.Minute, func() (bool, string, error) {
		details, err := src.admin.ListTopics(ctx, topics...)
		if err != nil {
			return false, "", fmt.Errorf("list topics of the source: %w", err)
		}
		clear(meta)
		for _, t := range details {
			if t.Err == nil && len(t.Partitions) > 0 {
				meta[t.Topic] = client.TopicMetadata{ID: messages.TopicID(t.ID), Partitions: int32(len(t.Partitions))}
			}
		}
		return len(meta) == len(topics), fmt.Sprintf("the source shows %d of %d topics", len(meta), len(topics)), nil
	}); err != nil {
		return err
	}
	results, err := dst.mirrors.StartMirrorTopics(ctx, demoMirror, topics, client.StartOptions{TopicMetadata: meta})
	if err == nil {
		err = results.Err()
	}
	if err != nil {
		return fmt.Errorf("start mirror topics: %w", err)
	}
	return nil
}

func stopAndWait(ctx context.Context, c *demoCluster, topics []string) error {
	results, err := c.mirrors.StopMirrorTopics(ctx, demoMirror, topics)
	if err == nil {
		err = results.Err()
	}
	if err != nil {
		return fmt.Errorf("stop mirror topics: %w", err)
	}
	return waitFor(ctx, time.Minute, func() (bool, string, error) {
		desc, err := c.mirrors.DescribeClusterMirrors(ctx, []string{demoMirror}, client.DescribeOptions{})
		if err != nil {
			return false, "", err
		}
		states := map[string]int{}
		for _, p := range desc.Mirrors[demoMirror].Partitions {
			states[p.State]++
		}
		return len(states) == 1 && states[messages.StateStopped.String()] > 0, "states " + stateCounts(states), nil
	})
}

// waitFor asks every 20 ms until done, and says at the end of its patience what
// it last saw.
func waitFor(ctx context.Context, patience time.Duration, ask func() (done bool, seen string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		done, seen, err := ask()
		if err != nil {
			return err
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not done after %s: %s", patience, seen)
		case <-tick.C:
		}
	}
}

// produceOne writes one record without retries and returns its offset.
func produceOne(ctx context.Context, bootstrap, topic, value string) (int64, error) {
	l, err := startLoad(ctx, bootstrap, []string{topic}, 0)
	if err != nil {
		return 0, err
	}
	l.stop()
	l.done.Wait()
	defer l.client.Close()
	rec, err := l.client.ProduceSync(ctx, demoRecord(topic, value)).First()
	if err != nil {
		return 0, err
	}
	return rec.Offset, nil
}
