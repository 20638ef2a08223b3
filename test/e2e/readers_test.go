package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/kafka"
)

// kcatFormat shows all that a reader can see of a record: partition, offset,
// timestamp, key, value length, headers, and the start of the value.
const kcatFormat = `%p %o %T %K %k %S %h %s\n`

// kcat reads whole topics and returns one line per record, sorted.
func (w *world) kcat(bootstrap, topic, isolation string) []string {
	w.t.Helper()
	res, err := kafka.Kcat(w.ctx, nil, "-C", "-b", bootstrap, "-t", topic, "-o", "beginning", "-e", "-q",
		"-f", kcatFormat, "-X", "isolation.level="+isolation, "-X", "check.crcs=true")
	require.NoError(w.t, err)
	lines := res.Lines()
	slices.Sort(lines)
	return lines
}

// console reads a partition by Java's console consumer: as many records as kgo saw on A.
func (w *world) console(bootstrap, topic string, partition int32, isolation string, count int) []string {
	w.t.Helper()
	if count == 0 {
		return nil
	}
	res, err := kafka.Tool(w.ctx, kafka.ConsoleConsumer, "--bootstrap-server", bootstrap,
		"--topic", topic, "--partition", fmt.Sprint(partition), "--offset", "earliest", "--max-messages", fmt.Sprint(count), "--timeout-ms", "20000",
		"--isolation-level", isolation,
		"--formatter-property", "print.offset=true", "--formatter-property", "print.timestamp=true", "--formatter-property", "print.key=true",
		"--formatter-property", "print.headers=true", "--formatter-property", "print.partition=true")
	require.NoError(w.t, err)
	require.Len(w.t, res.Lines(), count, "%s", res.Stderr)
	return res.Lines()
}

// kgoRead reads the partitions of a topic up to the given ends by kgo.
func (w *world) kgoRead(bootstrap, topic string, isolation kgo.IsolationLevel) map[int32][]string {
	w.t.Helper()
	side, err := NewSide("reader", bootstrap)
	require.NoError(w.t, err)
	defer side.Close()
	ends, err := side.TopicEnds(w.ctx, topic)
	require.NoError(w.t, err)
	stable, err := side.Admin.ListCommittedOffsets(w.ctx, topic)
	require.NoError(w.t, err)
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords(), kgo.FetchMaxWait(200*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(w.t, err)
	defer cl.Close()
	left := map[int32]int64{} // partition -> offset to be reached
	for p, e := range ends {
		until := e.End
		if lso, _ := stable.Lookup(topic, p); isolation == kgo.ReadCommitted() {
			until = lso.Offset
		}
		if until > e.Start {
			left[p] = until
		}
	}
	out := map[int32][]string{}
	// A tail that holds nothing but an aborted transaction shows no record: then
	// silence for a while is the end.
	for len(left) > 0 {
		quiet, cancel := context.WithTimeout(w.ctx, 2*time.Second)
		fetches := cl.PollFetches(quiet)
		cancel()
		if errors.Is(fetches.Err0(), context.DeadlineExceeded) {
			break
		}
		require.NoError(w.t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				out[r.Partition] = append(out[r.Partition], fmt.Sprintf("%d %d %q %d %x %v", r.Offset, r.Timestamp.UnixMilli(), r.Key, len(r.Value), r.Value[:min(len(r.Value), 20)], r.Headers))
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return out
}

// readersAgree: kgo, kcat and Java's console consumer read the same from A and B.
func (w *world) readersAgree(topic string, java bool, isolations ...string) {
	w.t.Helper()
	for _, isolation := range isolations {
		level := kgo.ReadUncommitted()
		if isolation == "read_committed" {
			level = kgo.ReadCommitted()
		}
		ga, gb := w.kgoRead(w.source.Bootstrap(), topic, level), w.kgoRead(w.node.Bootstrap(), topic, level)
		w.same("kgo "+isolation, ga, gb)
		ka, kb := w.kcat(w.source.Bootstrap(), topic, isolation), w.kcat(w.node.Bootstrap(), topic, isolation)
		w.same("kcat "+isolation, ka, kb)
		if total := len(slices.Concat(slices.Collect(maps.Values(ga))...)); total != len(ka) {
			w.t.Errorf("%s: kgo sees %d records, kcat %d", isolation, total, len(ka))
		}
		if java {
			w.same("console "+isolation, w.console(w.source.Bootstrap(), topic, 0, isolation, len(ga[0])), w.console(w.node.Bootstrap(), topic, 0, isolation, len(ga[0])))
		}
	}
}

// same reports the first lines that differ.
func (w *world) same(what string, a, b any) {
	w.t.Helper()
	if diff := cmp.Diff(a, b); diff != "" {
		w.t.Errorf("%s reads differently from A (-) and B (+):\n%.3000s", what, diff)
	}
}

// offsetsAgree: kafka-get-offsets says the same of both clusters, for every special time.
func (w *world) offsetsAgree(topics string) {
	w.t.Helper()
	for _, at := range []string{"earliest", "latest", "max-timestamp", fmt.Sprint(loadStart.UnixMilli() + 7)} {
		args := []string{"--topic-partitions", topics, "--time", at}
		a, err := w.source.Tool(w.ctx, kafka.GetOffsets, args...)
		require.NoError(w.t, err)
		b, err := w.node.JavaTool(w.ctx, kafka.GetOffsets, args...)
		require.NoError(w.t, err)
		la, lb := a.Lines(), b.Lines()
		require.NotEmpty(w.t, la)
		if at == "max-timestamp" {
			// Real Kafka also counts records below the log start whose segment it
			// still has; the mirror never had them.
			below := func(line string) bool { return strings.HasPrefix(line, "mx-allcut:") }
			la, lb = slices.DeleteFunc(la, below), slices.DeleteFunc(lb, below)
		}
		slices.Sort(la)
		slices.Sort(lb)
		w.same("kafka-get-offsets --time "+at, la, lb)
	}
}

// partitionFiles are the files of a partition in a data folder, by extension.
func partitionFiles(t require.TestingT, dataDir, folder, ext string) []string {
	var files []string
	err := filepath.WalkDir(dataDir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Base(filepath.Dir(path)) == folder && filepath.Ext(path) == ext {
			files = append(files, path)
		}
		return err
	})
	require.NoError(t, err)
	slices.Sort(files)
	return files
}

// position is the one field of a dumped batch that depends on where segments end.
var position = regexp.MustCompile(` position: \d+`)

// dumpBatches is what kafka-dump-log says of every batch of the files.
func (w *world) dumpBatches(files []string) []string {
	w.t.Helper()
	require.NotEmpty(w.t, files)
	res, err := kafka.Tool(w.ctx, kafka.DumpLog, "--deep-iteration", "--files", strings.Join(files, ","))
	require.NoError(w.t, err)
	var lines []string
	for _, line := range res.Lines() {
		if strings.HasPrefix(line, "baseOffset:") || strings.HasPrefix(line, "| offset:") {
			lines = append(lines, position.ReplaceAllString(line, ""))
		}
		if strings.Contains(line, "isvalid: false") {
			w.t.Errorf("kafka-dump-log: %s", line)
		}
	}
	return lines
}

// dumpAgrees: kafka-dump-log reads every file of the node's partitions, finds its
// indexes sane, and sees the same batches as in the source's files. The node is down.
func (w *world) dumpAgrees(topic string, partition int32) {
	w.t.Helper()
	folder := fmt.Sprintf("%s-%d", topic, partition)
	detail, err := w.a.Topic(w.ctx, topic)
	require.NoError(w.t, err)
	leader := int(detail.Partitions[partition].Leader)
	theirs := w.dumpBatches(partitionFiles(w.t, w.source.LogDir(leader), folder, ".log"))
	ours := w.dumpBatches(partitionFiles(w.t, w.node.DataDir(), folder, ".log"))
	// The source may still hold batches below the log start, in the segment that has it.
	if extra := len(theirs) - len(ours); extra > 0 {
		theirs = theirs[extra:]
	}
	w.same("kafka-dump-log "+folder, theirs, ours)
	w.dumpSideFiles(folder)
}

// manyBatches: the segment is so long that its indexes must have entries.
func (w *world) manyBatches(file string) bool {
	w.t.Helper()
	const sparse = 4096 // index.interval.bytes
	b, err := os.ReadFile(file)
	require.NoError(w.t, err)
	batches, err := splitBatches(b)
	require.NoError(w.t, err)
	return len(batches) > 4 && len(b)-batches[len(batches)-1].Size > 4*sparse
}

// dumpSideFiles: the other files of a partition, and the checks of its indexes.
func (w *world) dumpSideFiles(folder string) {
	w.t.Helper()
	for _, ext := range []string{".index", ".timeindex"} {
		files := partitionFiles(w.t, w.node.DataDir(), folder, ext)
		for _, log := range partitionFiles(w.t, w.node.DataDir(), folder, ".log") {
			if !slices.Contains(files, strings.TrimSuffix(log, ".log")+ext) && w.manyBatches(log) {
				w.t.Errorf("%s has no %s", log, ext)
			}
		}
		if len(files) == 0 {
			continue // small segments need none
		}
		list := strings.Join(files, ",")
		res, err := kafka.Tool(w.ctx, kafka.DumpLog, "--index-sanity-check", "--files", list)
		require.NoError(w.t, err)
		require.Equal(w.t, len(files), strings.Count(res.Stdout, "passed sanity check")+strings.Count(res.Stdout, "is empty"), "%s", res.Stdout)
		for _, file := range files {
			if strings.Contains(res.Stdout, file+" is empty") && w.manyBatches(strings.TrimSuffix(file, ext)+".log") {
				w.t.Errorf("%s is empty", file)
			}
		}
		// The tool reads the log once per entry of a time index: only short ones.
		files = slices.DeleteFunc(files, func(file string) bool {
			st, err := os.Stat(strings.TrimSuffix(file, ext) + ".log")
			return ext == ".timeindex" && err == nil && st.Size() > 4<<20
		})
		if len(files) == 0 {
			continue
		}
		res, err = kafka.Tool(w.ctx, kafka.DumpLog, "--verify-index-only", "--files", strings.Join(files, ","))
		require.NoError(w.t, err)
		for _, bad := range []string{"Mismatches in", "Non-consecutive", "Found timestamp mismatch", "Found out of order"} {
			require.NotContains(w.t, res.Stdout, bad)
		}
	}
	for _, ext := range []string{".txnindex", ".snapshot"} {
		if files := partitionFiles(w.t, w.node.DataDir(), folder, ext); len(files) > 0 {
			_, err := kafka.Tool(w.ctx, kafka.DumpLog, "--files", strings.Join(files, ","))
			require.NoError(w.t, err)
		}
	}
}

type placed struct {
	offset int64
	value  string
}

// values reads a partition's values by kgo.
func (w *world) values(bootstrap, topic string, partition int32, ends Ends) []placed {
	w.t.Helper()
	if ends.Start >= ends.End {
		return nil
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(ends.Start)}}))
	require.NoError(w.t, err)
	defer cl.Close()
	var out []placed
	for len(out) == 0 || out[len(out)-1].offset+1 < ends.End {
		fetches := cl.PollFetches(w.ctx)
		require.NoError(w.t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { out = append(out, placed{r.Offset, string(r.Value)}) })
	}
	return out
}
