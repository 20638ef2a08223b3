package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/kafka"
)

// memberRecord is a record that a member of a group has read.
type memberRecord struct {
	member    string
	partition int32
	offset    int64
	value     string
}

// membership is members of one group, and what they have said so far.
type membership struct {
	join, leave func(name string) error
	close       func() error

	mu      sync.Mutex
	records []memberRecord
	left    map[string]bool
	broken  error
}

// told takes in a line of a client: "record NAME PARTITION OFFSET VALUE" or "left NAME".
func (m *membership) told(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := strings.Fields(line)
	switch {
	case len(f) == 2 && f[0] == "left":
		m.left[f[1]] = true
	case len(f) == 5 && f[0] == "record":
		p, errP := strconv.ParseInt(f[2], 10, 32)
		o, errO := strconv.ParseInt(f[3], 10, 64)
		m.records = append(m.records, memberRecord{f[1], int32(p), o, f[4]})
		m.broken = errors.Join(m.broken, errP, errO)
	default:
		m.broken = errors.Join(m.broken, fmt.Errorf("the client said %q", line))
	}
}

// since are the records from the n-th on, and how many there are in all.
func (m *membership) since(n int) ([]memberRecord, int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]memberRecord(nil), m.records[n:]...), len(m.records), m.broken
}

func (m *membership) hasLeft(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.left[name] {
		return errors.Join(fmt.Errorf("member %s has not left", name), m.broken)
	}
	return m.broken
}

// lineWriter gives whole lines to a function.
type lineWriter struct {
	rest string
	each func(string)
}

// Write takes in a part of the output.
func (w *lineWriter) Write(b []byte) (int, error) {
	w.rest += string(b)
	for {
		line, rest, ok := strings.Cut(w.rest, "\n")
		if !ok {
			return len(b), nil
		}
		w.rest = rest
		if line = strings.TrimSpace(line); line != "" {
			w.each(line)
		}
	}
}

// programMembers is members in one process that takes orders on its standard input. It
// ends with the test at the latest, by the end of that input.
func programMembers(t *testing.T, command ...string) *membership {
	t.Helper()
	m := &membership{left: map[string]bool{}}
	cmd := exec.Command(command[0], command[1:]...)
	var errs strings.Builder
	cmd.Stdout, cmd.Stderr = &lineWriter{each: m.told}, &errs
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	order := func(what string) func(string) error {
		return func(name string) error {
			_, err := io.WriteString(in, what+" "+name+"\n")
			return err
		}
	}
	m.join, m.leave = order("join"), order("leave")
	m.close = sync.OnceValue(func() error {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			return fmt.Errorf("%s: %w: %s", command[0], err, errs.String())
		}
		return nil
	})
	t.Cleanup(func() {
		if t.Failed() {
			_ = cmd.Process.Kill() // it may be stuck
			_ = m.close()
			t.Logf("--- members:\n%s", errs.String())
		}
	})
	return m
}

func (u matrixUse) classicGroup(t *testing.T) string {
	t.Helper()
	return u.group(t, "classic")
}

func (u matrixUse) consumerGroup(t *testing.T) string {
	t.Helper()
	return u.group(t, "consumer")
}

// group: a joins, b joins, a leaves, b leaves, while records come.
func (u matrixUse) group(t *testing.T, protocol string) string {
	t.Helper()
	const partitions = 4
	topic, group := u.prefix+"-group-"+protocol, u.prefix+"-"+protocol
	u.topic(u.ctx, t, topic, partitions)
	m, ends := u.comeAndGo(t, topic, group, protocol, partitions)
	u.wholeGroup(t, m, ends)
	return works
}

// comeAndGo has members come and go while records come to a topic. It returns what they
// have read and the ends of the topic, where the group stands now.
func (u matrixUse) comeAndGo(t *testing.T, topic, group, protocol string, partitions int) (*membership, map[int32]int64) {
	t.Helper()
	quiet, stop := u.feed(t, topic, partitions)
	m := u.c.members(t, u.args("topic="+topic, "group="+group, "protocol="+protocol)...)
	// read waits until the members have read what counts of what came after the last wait.
	at := 0
	read := func(what string, enough func([]memberRecord) bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(u.ctx, convergeTimeout)
		defer cancel()
		var all int
		require.NoError(t, kafka.Poll(ctx, func() error {
			records, n, err := m.since(at)
			if err != nil {
				return err
			}
			if all = n; !enough(records) {
				return fmt.Errorf("%d records since", len(records))
			}
			return nil
		}), what)
		at = all
	}
	owns := func(name string, count int) func([]memberRecord) bool {
		return func(records []memberRecord) bool {
			parts := map[int32]bool{}
			for _, r := range records {
				if r.member == name {
					parts[r.partition] = true
				}
			}
			return len(parts) >= count
		}
	}
	require.NoError(t, m.join("a"))
	read("a has all partitions", owns("a", partitions))
	require.NoError(t, m.join("b"))
	read("b has some", owns("b", 1))
	read("both have some", func(records []memberRecord) bool { return owns("a", 1)(records) && owns("b", 1)(records) })
	if u.c.name == "kcat" { // ended by a signal it drops the record in its hands, which counts as read
		quiet.Lock()
		u.caughtUp(t, m, topic)
	}
	require.NoError(t, m.leave("a"))
	require.NoError(t, kafka.Poll(u.ctx, func() error { return m.hasLeft("a") }))
	if u.c.name == "kcat" {
		quiet.Unlock()
	}
	_, at, _ = m.since(0)
	read("b has all partitions", owns("b", partitions))
	ends := stop()
	u.caughtUp(t, m, topic)
	require.NoError(t, m.leave("b"))
	require.NoError(t, kafka.Poll(u.ctx, func() error { return m.hasLeft("b") }))
	require.NoError(t, m.close())
	u.emptied(t, group)
	require.Equal(t, ends, u.committed(u.ctx, t, group, topic), "the group stands at the end")
	return m, ends
}

// wholeGroup: nothing was left out. A record may come again when a partition has changed
// hands before it was committed; members are processes of their own, so what two of them
// say has no order.
func (u matrixUse) wholeGroup(t *testing.T, m *membership, ends map[int32]int64) {
	t.Helper()
	records, _, err := m.since(0)
	require.NoError(t, err)
	type place struct {
		partition int32
		offset    int64
	}
	type reader struct {
		member    string
		partition int32
	}
	read, at, back := map[place]string{}, map[reader]int64{}, 0
	for _, r := range records {
		p, who := place{r.partition, r.offset}, reader{r.member, r.partition}
		if before, ok := read[p]; ok {
			require.Equal(t, before, r.value, "%v", p)
		}
		read[p] = r.value
		if last, ok := at[who]; ok && r.offset <= last {
			back++
		}
		at[who] = r.offset
	}
	total := 0
	for p, end := range ends {
		total += int(end)
		for o := range end {
			if _, ok := read[place{p, o}]; !ok {
				t.Fatalf("record %d of partition %d was left out", o, p)
			}
			var number int32
			var index int64
			_, err := fmt.Sscanf(read[place{p, o}], "v%d-%d", &number, &index)
			require.NoError(t, err)
			require.Equal(t, place{p, o}, place{number, index}, "each record is stored once and in order")
		}
	}
	require.Len(t, read, total)
	again := len(records) - total
	t.Logf("%d records, %d of them again after a partition had changed hands", total, again)
	require.Less(t, again, total/2, "most records come once")
	require.LessOrEqual(t, back, 2*len(ends), "a member goes back only when it gets a partition again")
}

// caughtUp waits until the members have read what a topic holds.
func (u matrixUse) caughtUp(t *testing.T, m *membership, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(u.ctx, convergeTimeout)
	defer cancel()
	ends := u.ends(t, topic)
	require.NoError(t, kafka.Poll(ctx, func() error {
		records, _, err := m.since(0)
		next := map[int32]int64{}
		for _, r := range records {
			next[r.partition] = max(next[r.partition], r.offset+1)
		}
		for p, end := range ends {
			if next[p] < end {
				return errors.Join(fmt.Errorf("partition %d is read to %d of %d", p, next[p], end), err)
			}
		}
		return err
	}))
}

// ends are the ends of a topic's partitions.
func (u matrixUse) ends(t *testing.T, topic string) map[int32]int64 {
	t.Helper()
	bounds, err := u.side.TopicEnds(u.ctx, topic)
	require.NoError(t, err)
	ends := map[int32]int64{}
	for p, e := range bounds {
		ends[p] = e.End
	}
	return ends
}

// feed writes records to all partitions of a topic until it is stopped, which returns
// their ends then. It pauses while somebody holds quiet.
func (u matrixUse) feed(t *testing.T, topic string, partitions int) (quiet *sync.Mutex, stop func() map[int32]int64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(u.node.Bootstrap()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(u.ctx)
	done := make(chan error, 1)
	quiet = new(sync.Mutex)
	go func() {
		defer cl.Close()
		done <- feedLoop(ctx, cl, quiet, topic, partitions)
	}()
	t.Cleanup(cancel)
	return quiet, func() map[int32]int64 {
		t.Helper()
		cancel()
		require.NoError(t, <-done)
		return u.ends(t, topic)
	}
}

// feedLoop writes a record to each partition, again and again, with a pause in which
// readers keep up.
func feedLoop(ctx context.Context, cl *kgo.Client, quiet *sync.Mutex, topic string, partitions int) error {
	tick := time.NewTicker(feedPause)
	defer tick.Stop()
	for i := 0; ; i++ {
		var batch []*kgo.Record
		for p := range partitions {
			batch = append(batch, &kgo.Record{Topic: topic, Partition: int32(p), Value: fmt.Appendf(nil, "v%d-%d", p, i)})
		}
		quiet.Lock()
		err := cl.ProduceSync(context.WithoutCancel(ctx), batch...).FirstErr()
		quiet.Unlock()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

const feedPause = 20 * time.Millisecond
