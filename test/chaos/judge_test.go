package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/e2e"
)

// judgeLog finds what must never be in a node's log.
func (w *world) judgeLog(c *cluster) {
	w.t.Helper()
	for line := range strings.Lines(c.node.Process().Log()) {
		for _, bad := range []string{"DATA RACE", "actor panicked", "invariant violated", "panic:", "goroutine 1 [", "fatal error:"} {
			if strings.Contains(line, bad) {
				w.t.Fatalf("log of %s: %s", c.name, line)
			}
		}
	}
}

// settle heals everything, brings every wish to "mirror", and judges.
func (w *world) settle() {
	w.t.Helper()
	w.heal()
	w.normalise()
	for _, name := range w.names("t") {
		if err := w.topics[name].end(); err != nil {
			w.note("writer of %s: %v", name, err)
			w.t.Fatalf("the producer of %s on %s: %v", name, w.source().name, err)
		}
	}
	w.keepAll()
	w.poll(settleWithin, "every partition MIRRORING and healthy", w.mirroring)
	for _, name := range w.names("t") {
		w.poll(settleWithin, name+" equal on both sides", func(ctx context.Context) error {
			return e2e.Different(ctx, w.source().side, w.dest().side, name, true)
		})
	}
	w.note("equal")
	w.judgeVictims()
	w.judgeStored(w.source(), "t")
	w.judgeStored(w.dest(), "t")
	w.judgeEpochs()
	for _, c := range w.nodes {
		w.judgeLog(c)
		w.judgeUsage(c)
	}
	w.note("settled")
}

// normalise undoes what the round wished for.
func (w *world) normalise() {
	w.t.Helper()
	adm := w.dest().adm
	w.poll(settleWithin, "every topic wished for", func(ctx context.Context) error {
		if err := w.create(ctx); err != nil {
			return err
		}
		if err := w.alterBootstrap(ctx, false); err != nil {
			return err
		}
		members, err := adm.MirrorTopics(ctx)
		if err != nil {
			return err
		}
		var errs []error
		for _, name := range w.names("t") {
			m, member := members[name]
			switch {
			case !member || m.Desired.String() == "stopped":
				errs = append(errs, w.start(ctx, []string{name}))
			case m.Desired.String() == "paused":
				res, err := adm.ResumeMirrorTopics(ctx, mirror, []string{name})
				errs = append(errs, err, res.Err())
			}
		}
		return errors.Join(errs...)
	})
}

func (w *world) mirroring(ctx context.Context) error {
	ps, err := w.partitions(ctx)
	if err != nil {
		return err
	}
	for _, name := range w.names("t") {
		detail, err := w.source().side.Topic(ctx, name)
		if err != nil {
			return err
		}
		if len(ps[name]) != len(detail.Partitions) {
			return fmt.Errorf("%s has %d partitions on %s, %d on %s", name, len(detail.Partitions), w.source().name, len(ps[name]), w.dest().name)
		}
		for _, p := range ps[name] {
			if p.State != "MIRRORING" || p.RetryAttempt != 0 {
				return fmt.Errorf("%s-%d is %s, attempt %d: %s", name, p.Partition, p.State, p.RetryAttempt, p.ErrorText)
			}
		}
	}
	return nil
}

// stored is where each value stands in a topic; a value that stands there twice is
// an error.
func (w *world) stored(c *cluster, name string) (map[string][]place, map[int32]e2e.Ends, error) {
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	ends, err := c.side.TopicEnds(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	parts := map[int32]kgo.Offset{}
	for p, e := range ends {
		if e.Start < e.End {
			parts[p] = kgo.NewOffset().At(e.Start)
		}
	}
	got := map[string][]place{}
	if len(parts) == 0 {
		return got, ends, nil
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.node.Bootstrap()), kgo.KeepControlRecords(), kgo.FetchMaxWait(200*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{name: parts}))
	if err != nil {
		return nil, nil, err
	}
	defer cl.Close()
	for len(parts) > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			return nil, nil, fmt.Errorf("read %s of %s, %d partitions to go: %w", name, c.name, len(parts), err)
		}
		fs.EachError(func(_ string, p int32, e error) { err = fmt.Errorf("read %s-%d of %s: %w", name, p, c.name, e) })
		if err != nil {
			return nil, nil, err
		}
		fs.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				got[string(r.Value)] = append(got[string(r.Value)], place{r.Partition, r.Offset})
			}
			if r.Offset >= ends[r.Partition].End-1 {
				delete(parts, r.Partition)
			}
		})
	}
	return got, ends, nil
}

// judgeStored: every acknowledged record is where it was acknowledged, and no
// record, acknowledged or not, is there twice.
func (w *world) judgeStored(c *cluster, prefix string) {
	w.t.Helper()
	total := 0
	for _, name := range w.names(prefix) {
		got, ends, err := w.stored(c, name)
		if err != nil {
			w.t.Fatal(err)
		}
		tp := w.topics[name]
		tp.mu.Lock()
		for value, at := range tp.acked {
			if at.offset < ends[at.partition].Start {
				continue
			}
			if len(got[value]) != 1 || got[value][0] != at {
				w.t.Errorf("%s of %s: %.40q was acknowledged at %v and is at %v", name, c.name, value, at, got[value])
			}
			total++
		}
		tp.mu.Unlock()
		for value, at := range got {
			if len(at) > 1 {
				w.t.Errorf("%s of %s: %.40q is there twice: %v", name, c.name, value, at)
			}
		}
	}
	w.note("%s: %d acknowledged records are in place", c.name, total)
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// judgeEpochs: no batch of the destination is of an epoch above its leader's.
func (w *world) judgeEpochs() {
	w.t.Helper()
	ctx, cancel := w.short()
	defer cancel()
	ps, err := w.partitions(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, name := range w.names("t") {
		for p, batches := range w.batches(w.dest(), name) {
			last := int32(-1)
			for _, b := range batches {
				if b.Epoch < last {
					w.t.Errorf("%s-%d of %s: epoch %d after %d at %d", name, p, w.dest().name, b.Epoch, last, b.Base)
				}
				last = max(last, b.Epoch)
			}
			if dle := ps[name][p].LeaderEpoch; dle < last {
				w.t.Errorf("%s-%d of %s: leader epoch %d, batch epoch %d", name, p, w.dest().name, dle, last)
			}
		}
	}
	if w.t.Failed() {
		w.t.FailNow()
	}
}

func (w *world) batches(c *cluster, name string) map[int32][]e2e.Batch {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 30*time.Second)
	defer cancel()
	detail, err := c.side.Topic(ctx, name)
	if err != nil {
		w.t.Fatal(err)
	}
	ends, err := c.side.TopicEnds(ctx, name)
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[int32][]e2e.Batch{}
	for _, p := range slices.Sorted(maps.Keys(ends)) {
		if out[p], err = c.side.Batches(ctx, detail, p, ends[p].Start, ends[p].End); err != nil {
			w.t.Fatal(err)
		}
	}
	return out
}

// usage of a process.
type usage struct{ partitions, goroutines, files int }

var goroutineCount = regexp.MustCompile(`goroutine profile: total (\d+)`)

// judgeUsage: goroutines and files of a process don't grow from one settled round
// to the next by more than its new partitions explain.
func (w *world) judgeUsage(c *cluster) {
	w.t.Helper()
	const slack = 40 // connections of clients, of the tests too
	pid := c.node.Process().Pid()
	measure := func(ctx context.Context) (usage, error) {
		var u usage
		body, err := c.node.Get(ctx, "/debug/pprof/goroutine?debug=1")
		if err != nil {
			return u, err
		}
		if m := goroutineCount.FindSubmatch(body); m != nil {
			u.goroutines, _ = strconv.Atoi(string(m[1]))
		}
		if u.files, err = openFiles(pid, c.node.DataDir()); err != nil {
			return u, err
		}
		list, err := c.side.Admin.ListTopicsWithInternal(ctx)
		for _, d := range list {
			u.partitions += len(d.Partitions)
		}
		return u, err
	}
	var now usage
	w.poll(20*time.Second, "goroutines and files of "+c.name+" as before", func(ctx context.Context) (err error) {
		if now, err = measure(ctx); err != nil {
			return err
		}
		if before, known := w.usage[pid]; known {
			grown := now.partitions - before.partitions
			if now.goroutines > before.goroutines+8*grown+slack || now.files > before.files+8*grown+slack {
				return fmt.Errorf("before %+v, now %+v", before, now)
			}
		}
		return nil
	})
	if _, known := w.usage[pid]; !known {
		w.usage[pid] = now
	}
	w.note("%s: %+v", c.name, now)
}

// openFiles counts what a process holds open, but for files of living logs: a cache
// with a limit keeps those.
func openFiles(pid int, data string) (int, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, f := range files {
		to, err := os.Readlink(filepath.Join(dir, f.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		if !strings.HasPrefix(to, data+"/") || strings.HasSuffix(to, " (deleted)") {
			n++
		}
	}
	return n, nil
}
