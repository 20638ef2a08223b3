package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/kafka"
)

// matrixUse is one client at work; topics and groups begin with its prefix.
type matrixUse struct {
	*clientMatrix
	ctx    context.Context
	c      matrixClient
	prefix string
}

// args are those of a job.
func (u matrixUse) args(pairs ...string) []string {
	return append([]string{"bootstrap=" + u.address(), "name=" + u.prefix}, pairs...)
}

// seenRecord is a record as readers see it.
type seenRecord struct {
	partition  int32
	offset     int64
	key, value string
	header     string
}

// readBack reads a whole topic by franz-go and by kcat, which must see the same.
func (u matrixUse) readBack(t *testing.T, topic, isolation string) []seenRecord {
	t.Helper()
	res, err := kafka.Kcat(u.ctx, nil, "-C", "-b", u.node.Bootstrap(), "-t", topic, "-o", "beginning", "-e", "-q",
		"-f", `%p %o %k %h %s\n`, "-X", "isolation.level="+isolation, "-X", "check.crcs=true")
	require.NoError(t, err)
	byKcat := res.Lines()
	level := kgo.ReadUncommitted()
	if isolation == committed {
		level = kgo.ReadCommitted()
	}
	ends, err := u.side.TopicEnds(u.ctx, topic)
	require.NoError(t, err)
	from := map[int32]kgo.Offset{}
	for p, e := range ends {
		if e.Start < e.End {
			from[p] = kgo.NewOffset().AtStart()
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(u.node.Bootstrap()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond))
	require.NoError(t, err)
	defer cl.Close()
	var out []seenRecord
	for len(out) < len(byKcat) {
		fetches := cl.PollFetches(u.ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Attrs.IsControl() {
				return
			}
			header := ""
			if len(r.Headers) > 0 {
				header = r.Headers[0].Key + "=" + string(r.Headers[0].Value)
			}
			out = append(out, seenRecord{r.Partition, r.Offset, string(r.Key), string(r.Value), header})
		})
	}
	slices.SortFunc(out, func(a, b seenRecord) int {
		return int(a.partition-b.partition)<<20 + int(a.offset-b.offset)
	})
	var byKgo []string
	for _, r := range out {
		byKgo = append(byKgo, fmt.Sprintf("%d %d %s %s %s", r.partition, r.offset, r.key, r.header, r.value))
	}
	slices.Sort(byKcat)
	require.Equal(t, slices.Sorted(slices.Values(byKgo)), byKcat, "franz-go and kcat read the same")
	return out
}

// acked are the records that a client was told of.
func acked(t *testing.T, out []string) map[string]seenRecord {
	t.Helper()
	all := map[string]seenRecord{}
	for _, line := range out {
		f := strings.Fields(line)
		if f[0] != "acked" {
			continue
		}
		require.Len(t, f, 4, line)
		p, errP := strconv.ParseInt(f[1], 10, 32)
		o, errO := strconv.ParseInt(f[2], 10, 64)
		require.NoError(t, errP)
		require.NoError(t, errO)
		require.NotContains(t, all, f[3], "acknowledged twice")
		all[f[3]] = seenRecord{partition: int32(p), offset: o}
	}
	return all
}

// produced checks count records v0, v1, ... of a topic: each once, where the client was
// told, in order within its partition, all of a key in one partition.
func (u matrixUse) produced(t *testing.T, topic string, count int, told map[string]seenRecord) {
	t.Helper()
	stored := u.readBack(t, topic, uncommitted)
	require.Len(t, stored, count)
	keys, last := map[string]int32{}, map[int32]int{}
	for _, r := range stored {
		i, err := strconv.Atoi(strings.TrimPrefix(r.value, "v"))
		require.NoError(t, err)
		if before, ok := last[r.partition]; ok {
			require.Greater(t, i, before, "order of partition %d", r.partition)
		}
		last[r.partition] = i
		require.Equal(t, fmt.Sprint("k", i%7), r.key)
		if _, ok := keys[r.key]; !ok {
			keys[r.key] = r.partition
		}
		require.Equal(t, keys[r.key], r.partition, "one partition for key %s", r.key)
		if told == nil {
			require.Equal(t, kcatHeader, r.header)
		} else {
			require.Equal(t, fmt.Sprint("n=", i), r.header)
			require.Equal(t, seenRecord{partition: r.partition, offset: r.offset}, told[r.value], "%s is where its writer was told", r.value)
		}
	}
	require.GreaterOrEqual(t, len(last), 2, "both partitions have records")
}

// perCodec is how many records are written in each codec.
const perCodec = 20

func (u matrixUse) produce(t *testing.T) string {
	t.Helper()
	topic := u.prefix + "-produce"
	u.topic(u.ctx, t, topic, 2)
	var out []string
	for i, codec := range u.c.codecs {
		out = append(out, u.c.job(u.ctx, t, "produce", u.args("topic="+topic, "mode=plain", "codec="+codec,
			fmt.Sprintf("from=%d", i*perCodec), fmt.Sprintf("count=%d", perCodec))...)...)
	}
	told := acked(t, out)
	if u.c.name == "kcat" { // it doesn't tell
		told = nil
	}
	u.produced(t, topic, perCodec*len(u.c.codecs), told)
	return works + ": " + strings.Join(u.c.codecs, ", ")
}

func (u matrixUse) idempotent(t *testing.T) string {
	t.Helper()
	topic := u.prefix + "-idempotent"
	u.topic(u.ctx, t, topic, 2)
	const count = 40
	u.proxy.lose(u.prefix, produceKey, 2)
	told := acked(t, u.c.job(u.ctx, t, "produce", u.args("topic="+topic, "mode=idempotent", "codec=none", fmt.Sprintf("count=%d", count))...))
	require.Equal(t, 2, u.proxy.hasLost(u.prefix, produceKey), "answers were lost")
	if u.c.name == "kcat" {
		told = nil
	}
	u.produced(t, topic, count, told)
	w := &world{t: t, ctx: u.ctx}
	for p := range int32(2) {
		next := map[int64]int32{} // by producer id
		for _, b := range w.producedBatches(u.side, topic, p, 0) {
			require.GreaterOrEqual(t, b.pid, int64(0), "it has a producer id")
			require.Equal(t, next[b.pid], b.sequence, "sequence numbers of partition %d have no hole", p)
			next[b.pid] += b.records
		}
	}
	return works
}

func (u matrixUse) transact(t *testing.T) string {
	t.Helper()
	topic, input, group := u.prefix+"-transact", u.prefix+"-input", u.prefix+"-copy"
	u.topic(u.ctx, t, topic, 1)
	u.topic(u.ctx, t, input, 1)
	u.fill(u.ctx, t, input, 20)
	before := u.proxy.hasLost(u.prefix, produceKey)
	for _, key := range u.c.survives {
		u.proxy.lose(u.prefix, key, 1)
	}
	out := u.c.job(u.ctx, t, "transact", u.args("topic="+topic, "input="+input, "group="+group, "id="+u.prefix)...)
	told := acked(t, out)
	if len(u.c.survives) > 0 {
		require.Equal(t, before+1, u.proxy.hasLost(u.prefix, produceKey), "an answer was lost")
	}
	if slices.Contains(u.c.survives, endTxnKey) {
		require.Equal(t, 1, u.proxy.hasLost(u.prefix, endTxnKey), "an answer was lost")
	}
	require.True(t, slices.ContainsFunc(out, func(line string) bool { return strings.HasPrefix(line, "fenced ") }), "%v", out)
	require.NoError(t, kafka.Poll(u.ctx, func() error { return u.side.lsoAtEnd(u.ctx, topic) }), "nothing stays open")
	values := func(records []seenRecord) []string {
		var all []string
		for _, r := range records {
			all = append(all, r.value)
			require.Equal(t, told[r.value], seenRecord{partition: r.partition, offset: r.offset}, r.value)
		}
		return all
	}
	seen := values(u.readBack(t, topic, committed))
	require.Equal(t, []string{"c0", "c1", "c2", "c3", "c4", "pv0", "pv1", "pv2", "pv3", "pv4", "c5"}, seen)
	all := values(u.readBack(t, topic, uncommitted))
	require.Equal(t, []string{"c0", "c1", "c2", "a0", "a1", "c3", "c4", "pv0", "pv1", "pv2", "pv3", "pv4", "pv5", "pv6", "pv7", "pv8", "pv9", "f0", "c5"}, all)
	require.Equal(t, map[int32]int64{0: 5}, u.committed(u.ctx, t, group, input), "the offset of the copies that are committed")
	if u.c.gives != "" {
		return works + "; " + u.c.gives
	}
	return works
}

// Requests of a transaction whose answers get lost, as long as the client tries each again:
// Produce, AddOffsetsToTxn, EndTxn, TxnOffsetCommit; InitProducerId and AddPartitionsToTxn.
var (
	transactKeys    = []int16{produceKey, 25, endTxnKey, 28}
	transactAllKeys = append([]int16{22, 24}, transactKeys...)
)

const endTxnKey = int16(26)

func (u matrixUse) admin(t *testing.T) string {
	t.Helper()
	topic, records, group := u.prefix+"-admin", u.prefix+"-produce", u.prefix+"-classic"
	settings := u.args("topic="+topic, "records="+records, "group="+group)
	did, lacks := map[string]string{}, []string{}
	for _, line := range u.c.job(u.ctx, t, "admin", append(settings, "phase=make")...) {
		f := strings.SplitN(line, " ", 3)
		switch f[0] {
		case "did":
			did[f[1]] = strings.Join(f[2:], "")
		case "lacks":
			lacks = append(lacks, f[1])
		}
	}
	start := int64(3)
	if slices.Contains(lacks, "delete-records") {
		start = 0
	}
	for step, want := range map[string]string{
		"create-topic": "", "create-partitions": "", "alter-config": "", "describe-config": "7200000", "describe-topic": "3", "delete-records": "",
		"list-offsets": fmt.Sprint(start), "list-groups": "true", "describe-group": "Empty", "alter-offsets": "", "fetch-offsets": "4",
	} {
		if got, ok := did[step]; !slices.Contains(lacks, step) {
			require.True(t, ok, "%s wasn't done: %v", step, did)
			require.Equal(t, want, got, step)
		}
	}
	detail, err := u.side.Topic(u.ctx, topic)
	require.NoError(t, err)
	require.Len(t, detail.Partitions, 3)
	w := &world{t: t, ctx: u.ctx}
	retention, _ := w.config(u.side, topic, "retention.ms")
	require.Equal(t, "7200000", retention)
	ends, err := u.side.TopicEnds(u.ctx, records)
	require.NoError(t, err)
	require.Equal(t, start, ends[0].Start)
	require.Equal(t, int64(4), u.committed(u.ctx, t, group, records)[0])

	u.c.job(u.ctx, t, "admin", append(settings, "phase=remove")...)
	require.NoError(t, kafka.Poll(u.ctx, func() error { // what the reader knows of topics may be some milliseconds old
		if _, err := u.side.Topic(u.ctx, topic); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return errors.Join(fmt.Errorf("topic %s isn't removed", topic), err)
		}
		return nil
	}))
	groups, err := u.side.Admin.ListGroups(u.ctx)
	require.NoError(t, err)
	require.NotContains(t, groups, group)
	if len(lacks) > 0 {
		return works + "; not offered: " + strings.Join(lacks, ", ")
	}
	return works
}

// emptied waits until a group has no members.
func (u matrixUse) emptied(t *testing.T, group string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(u.ctx, convergeTimeout)
	defer cancel()
	require.NoError(t, kafka.Poll(ctx, func() error {
		listed, err := u.side.Admin.ListGroups(ctx)
		if err != nil {
			return err
		}
		if state := listed[group].State; state != "Empty" {
			return fmt.Errorf("group %s is %q", group, state)
		}
		return nil
	}))
}
