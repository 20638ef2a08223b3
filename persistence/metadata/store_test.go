package metadata

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func topicRecords(name string, id byte, partitions int) []Record {
	r := wire.NewPtrTopicRecord()
	r.Name, r.TopicID = name, messages.TopicID{id}
	out := []Record{r}
	for n := range partitions {
		out = append(out, PartitionRecord(r.TopicID, int32(n), Partition{
			Leader: 1, LeaderEpoch: 0, Replicas: []messages.NodeID{1}, ISR: []messages.NodeID{1},
		}))
	}
	return out
}

func topicConfig(name, key, value string) Record {
	return ConfigRecord(messages.ResourceTopic, name, key, &value)
}

func bump(id byte, partition, minEpoch int32) Record {
	r := wire.NewPtrPartitionChangeRecord()
	r.TopicID, r.PartitionID, r.MinLeaderEpoch = messages.TopicID{id}, partition, minEpoch
	return r
}

func claim(node messages.NodeID, epoch int32) Record {
	r := wire.NewPtrControllerClaimRecord()
	r.NodeID, r.Epoch = int32(node), epoch
	return r
}

func mustAppend(t *testing.T, s *Store, records ...Record) int64 {
	t.Helper()
	o, err := s.Append(t.Context(), records, messages.Requester{Principal: "User:alice", RequestID: "r1"})
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	return o
}

// dump is the image as snapshot bytes: equal images give equal bytes.
func dump(t *testing.T, i *Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := encodeSnapshot(&b, i, 0, 0); err != nil {
		t.Fatal(err)
	}
	return fmt.Appendf(b.Bytes(), "@%d", i.Offset())
}

func TestStoreAppendsAndReplays(t *testing.T) {
	p, dir := newFakePartition(), t.TempDir()
	s := openStore(t, p, func(o *Options) { o.Dir = dir })
	mustAppend(t, s, append(topicRecords("a", 1, 3), topicConfig("a", "mirror.name", "m.paused"))...)
	last := mustAppend(t, s, bump(1, 2, 7), bump(1, 0, -1+1))
	img := s.Image()
	if img.Offset() != last || last != 6 {
		t.Fatalf("offset %d, appended up to %d, want 6", img.Offset(), last)
	}
	a := img.Topic("a")
	if a.Mirror != "m" || a.Desired != messages.DesiredPaused || a.CreatedAt != 0 || len(a.Partitions) != 3 {
		t.Fatalf("topic %+v", a)
	}
	if got := a.Partitions[2]; got.LeaderEpoch != 8 || got.PartitionEpoch != 1 || got.Leader != 1 {
		t.Fatalf("bumped partition %+v", got)
	}
	if got := a.Partitions[0].LeaderEpoch; got != 1 {
		t.Fatalf("partition 0 has epoch %d, want 1", got)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	again := openStore(t, p, func(o *Options) { o.Dir = dir })
	if !bytes.Equal(dump(t, again.Image()), dump(t, img)) {
		t.Fatal("replay gives another image")
	}
	if err := s.WaitFor(t.Context(), 100); !errors.Is(err, ErrClosed) {
		t.Fatalf("wait on a closed store: %v", err)
	}
}

func TestStoreImagesNeverChange(t *testing.T) {
	s := openStore(t, newFakePartition(), nil)
	mustAppend(t, s, append(topicRecords("a", 1, 2), topicConfig("a", "retention.ms", "1"))...)
	mustAppend(t, s, topicRecords("b", 2, 1)...)
	img := s.Image()
	before := dump(t, img)
	mustAppend(t, s, bump(1, 1, 5), topicConfig("a", "retention.ms", "2"), topicConfig("b", "x", "y"))
	rm := wire.NewPtrRemoveTopicRecord()
	rm.TopicID = messages.TopicID{2}
	value := "h:1"
	mustAppend(t, s, rm, ConfigRecord(messages.ResourceClusterMirror, "m", "bootstrap.servers", &value),
		ConfigRecord(messages.ResourceBroker, "", "k", &value))
	if !bytes.Equal(before, dump(t, img)) {
		t.Fatal("an old image changed")
	}
	now := s.Image()
	if now.Topic("b") != nil || now.TopicByID(messages.TopicID{2}) != nil || len(now.Topics()) != 1 {
		t.Fatal("removed topic is still there")
	}
	if now.Topic("a").Configs["retention.ms"] != "2" || now.Mirror("m").Configs["bootstrap.servers"] != "h:1" {
		t.Fatal("configs not applied")
	}
	if now.BrokerConfig(3)["k"] != "h:1" {
		t.Fatal("default broker config not seen on node 3")
	}
	mustAppend(t, s, ConfigRecord(messages.ResourceClusterMirror, "m", "bootstrap.servers", nil))
	if s.Image().Mirror("m") != nil || len(s.Image().Mirrors()) != 0 {
		t.Fatal("a mirror without configs is still there")
	}
}

// TestStoreGroupConfigs: configs of groups are set, told, kept in snapshots and deleted.
func TestStoreGroupConfigs(t *testing.T) {
	s := openStore(t, newFakePartition(), nil)
	var told []bool // of changes of what groups have
	cancel := s.Subscribe(func(d Delta) {
		if len(d.Old.GroupConfigs()) != len(d.New.GroupConfigs()) {
			told = append(told, d.Groups)
		}
	})
	value := "50000"
	mustAppend(t, s, ConfigRecord(messages.ResourceGroup, "g", "consumer.session.timeout.ms", &value))
	img := s.Image()
	if img.GroupConfigs()["g"]["consumer.session.timeout.ms"] != value {
		t.Fatalf("%v", img.GroupConfigs())
	}
	if !bytes.Contains(dump(t, img), []byte("consumer.session.timeout.ms")) {
		t.Fatal("not in a snapshot")
	}
	mustAppend(t, s, ConfigRecord(messages.ResourceGroup, "g", "consumer.session.timeout.ms", nil))
	if len(s.Image().GroupConfigs()) != 0 || img.GroupConfigs()["g"]["consumer.session.timeout.ms"] != value {
		t.Fatal("the deletion isn't seen, or an old image changed")
	}
	cancel()
	if fmt.Sprint(told) != "[true true]" {
		t.Fatalf("subscribers were told %v", told)
	}
}

func TestStoreSubscribersSeeEverythingInOrder(t *testing.T) {
	s := openStore(t, newFakePartition(), nil)
	mustAppend(t, s, topicRecords("a", 1, 1)...)
	var mu sync.Mutex
	var seen []string
	last := EmptyImage()
	cancel := s.Subscribe(func(d Delta) {
		mu.Lock()
		defer mu.Unlock()
		if d.Old.Offset() != last.Offset() {
			seen = append(seen, "gap")
		}
		last = d.New
		seen = append(seen, fmt.Sprint(len(d.Topics), len(d.Mirrors), d.Brokers))
	})
	mustAppend(t, s, topicRecords("b", 2, 1)...)
	mustAppend(t, s, NodeRecord(messages.Node{ID: 4, Endpoints: []messages.Endpoint{{Listener: "L", Host: "h", Port: 1}}}))
	cancel()
	mustAppend(t, s, topicRecords("c", 3, 1)...)
	mu.Lock()
	defer mu.Unlock()
	want := [][]string{{"1 0 true", "1 0 false", "0 0 true"}, {"2 0 true", "0 0 true"}}
	if fmt.Sprint(seen) != fmt.Sprint(want[0]) && fmt.Sprint(seen) != fmt.Sprint(want[1]) {
		t.Fatalf("deltas %v", seen)
	}
	if n := s.Image().Node(4); n == nil || n.Endpoints[0].Host != "h" || len(s.Image().Nodes()) != 1 {
		t.Fatalf("node %+v", n)
	}
}

func TestStoreAppliesOnlyBelowHighWatermark(t *testing.T) {
	p := newFakePartition()
	s := openStore(t, p, nil)
	p.mu.Lock()
	p.hw = 0
	p.mu.Unlock()
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		_, err := s.Append(ctx, topicRecords("a", 1, 1), messages.Requester{})
		done <- err
	}()
	cancel(errors.New("enough"))
	if err := <-done; err == nil || err.Error() != "wait for metadata offset 1: enough" {
		t.Fatalf("append with a stuck high watermark: %v", err)
	}
	p.mu.Lock()
	p.hw = -1
	p.mu.Unlock()
	s.poke()
	if err := s.WaitFor(t.Context(), 1); err != nil || s.Image().Topic("a") == nil {
		t.Fatalf("after the high watermark moved: %v", err)
	}
}

func TestStoreIgnoresOlderClaims(t *testing.T) {
	s := openStore(t, newFakePartition(), nil)
	mustAppend(t, s, claim(1, 1))
	mustAppend(t, s, claim(2, 2))
	for name, c := range map[string]Change{
		"records of an older claim":   {Records: topicRecords("a", 1, 1), Claim: 1},
		"second claim of equal epoch": {Records: []Record{claim(3, 2)}, Claim: 2},
		"older claim":                 {Records: []Record{claim(3, 1)}, Claim: 2},
	} {
		if _, err := s.AppendAll(t.Context(), []Change{c}); !errors.Is(err, ErrStale) {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if img := s.Image(); img.Controller() != 2 || img.ControllerEpoch() != 2 || img.Topic("a") != nil {
		t.Fatalf("controller %d epoch %d, topic %v", img.Controller(), img.ControllerEpoch(), img.Topic("a"))
	}
	if _, err := s.AppendAll(t.Context(), []Change{{Records: topicRecords("a", 1, 1), Claim: 2}, {Records: topicRecords("b", 2, 1)}}); err != nil {
		t.Fatal(err)
	}
}

func TestStoreAppendFailure(t *testing.T) {
	p := newFakePartition()
	s := openStore(t, p, nil)
	p.mu.Lock()
	p.fail = persistence.ErrStorage
	p.mu.Unlock()
	if _, err := s.Append(t.Context(), topicRecords("a", 1, 1), messages.Requester{}); !errors.Is(err, persistence.ErrStorage) {
		t.Fatalf("got %v", err)
	}
	if _, err := s.Append(t.Context(), nil, messages.Requester{}); !errors.Is(err, ErrBadRecord) {
		t.Fatalf("empty change: %v", err)
	}
	mustAppend(t, s, topicRecords("a", 1, 1)...)
}

func TestStoreStopsAtRecordsThatDoNotFit(t *testing.T) {
	s := openStore(t, newFakePartition(), nil)
	if _, err := s.Append(t.Context(), []Record{bump(9, 0, 0)}, messages.Requester{}); !errors.Is(err, ErrBadRecord) {
		t.Fatalf("got %v", err)
	}
}

func fill(t *testing.T, s *Store, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		mustAppend(t, s, append(topicRecords(fmt.Sprint("t", n), byte(n), 3), topicConfig(fmt.Sprint("t", n), "k", "v"))...)
	}
}

func waitSnapshots(t *testing.T, s *Store) {
	t.Helper()
	s.Close() // waits for the writer
}

func TestStoreSnapshots(t *testing.T) {
	p, dir := newFakePartition(), t.TempDir()
	opt := func(o *Options) { o.Dir, o.SnapshotRecords = dir, 10 }
	var want []byte
	for round := range 5 { // a store per round: each writes at least one snapshot
		s := openStore(t, p, opt)
		if round > 0 && !bytes.Equal(dump(t, s.Image()), want) {
			t.Fatalf("round %d: replay gives another image", round)
		}
		fill(t, s, round*4, round*4+4)
		want = dump(t, s.Image())
		waitSnapshots(t, s)
	}
	names, err := listSnapshots(persistence.OSFS{}, dir)
	if err != nil || len(names) != snapshotKeep {
		t.Fatalf("snapshots %v, %v", names, err)
	}
	if p.LogStart() == 0 {
		t.Fatal("log start was not raised")
	}
	older, _, _ := parseSnapshotName(names[1])
	if p.LogStart() > older {
		t.Fatalf("log starts at %d, above the older snapshot at %d", p.LogStart(), older)
	}
	newest := filepath.Join(dir, names[0])
	good, err := os.ReadFile(newest)
	if err != nil {
		t.Fatal(err)
	}
	damage := map[string]func([]byte) []byte{
		"cut in a batch":   func(b []byte) []byte { return b[:len(b)/2] },
		"no footer":        func(b []byte) []byte { return b[:len(b)-76] },
		"flipped byte":     func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"empty":            func([]byte) []byte { return nil },
		"garbage appended": func(b []byte) []byte { return append(b, make([]byte, 100)...) },
	}
	for name, f := range damage {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(newest, f(bytes.Clone(good)), 0o600); err != nil {
				t.Fatal(err)
			}
			s := openStore(t, p, func(o *Options) { opt(o); o.SnapshotRecords = -1 })
			if !bytes.Equal(dump(t, s.Image()), want) {
				t.Fatal("the older snapshot and the log give another image")
			}
		})
	}
	if err := os.Remove(filepath.Join(dir, names[1])); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), Options{Journal: p, Source: p, Dir: dir, Now: func() int64 { return 0 }})
	if !errors.Is(err, persistence.ErrCorrupt) {
		t.Fatalf("no good snapshot and a log that starts later: %v", err)
	}
}

func TestStoreLeavesHalfWrittenSnapshotsAlone(t *testing.T) {
	p, dir := newFakePartition(), t.TempDir()
	s := openStore(t, p, func(o *Options) { o.Dir = dir })
	fill(t, s, 0, 2)
	want := dump(t, s.Image())
	s.Close()
	if err := os.WriteFile(filepath.Join(dir, snapshotName(3, 1)+".part"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := openStore(t, p, func(o *Options) { o.Dir = dir }); !bytes.Equal(dump(t, again.Image()), want) {
		t.Fatal("another image")
	}
}

func BenchmarkStoreChangeTopic(b *testing.B) {
	img := EmptyImage()
	for n := range 1000 {
		r := topicRecords(fmt.Sprintf("topic-%04d", n), 0, 100)
		id := messages.TopicID{byte(n), byte(n >> 8)}
		r[0].(*wire.TopicRecord).TopicID = id
		for _, p := range r[1:] {
			p.(*wire.PartitionRecord).TopicID = id
		}
		d, err := img.Apply(img.Offset()+1, r)
		if err != nil {
			b.Fatal(err)
		}
		img = d.New
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := img.Apply(img.Offset()+1, []Record{bump(5, 7, 3)}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSnapshot writes and loads the snapshot of 1,000 topics with 100
// partitions each.
func BenchmarkSnapshot(b *testing.B) {
	img := EmptyImage()
	for n := range 1000 {
		id := messages.TopicID{byte(n), byte(n >> 8)}
		records := topicRecords(fmt.Sprintf("topic-%04d", n), 0, 100)
		records[0].(*wire.TopicRecord).TopicID = id
		for _, p := range records[1:] {
			p.(*wire.PartitionRecord).TopicID = id
		}
		d, err := img.Apply(img.Offset()+1, records)
		if err != nil {
			b.Fatal(err)
		}
		img = d.New
	}
	path := filepath.Join(b.TempDir(), snapshotName(img.Offset()+1, 1))
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := writeSnapshotFile(persistence.OSFS{}, path, img, 1, 1); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("load", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if got, err := readSnapshotFile(persistence.OSFS{}, path); err != nil || len(got.Topics()) != 1000 {
				b.Fatal(err)
			}
		}
	})
}
