package compare

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/messages"
	"kagami/test/kafka/stub"
)

var topicID = messages.TopicID{1, 2, 3}

// side is a scripted cluster with topic t, filled by fill.
func side(t *testing.T, name string, fill func(*stub.State, *stub.Topic)) *Side {
	t.Helper()
	c, err := stub.Start(stub.Options{ClusterID: name})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	c.Update(func(s *stub.State) { fill(s, s.NewTopic("t", topicID, 1)) })
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Address()))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return &Side{Name: name, Client: cl}
}

// record is a batch of one record at an offset.
func record(offset int64, key, value string) []byte {
	return stub.Build(stub.Spec{Base: offset, Epoch: 3, Timestamp: offset, Records: []stub.Record{{Key: []byte(key), Value: []byte(value)}}})
}

func tombstone(offset int64, key string) []byte {
	return stub.Build(stub.Spec{Base: offset, Epoch: 3, Timestamp: offset, Records: []stub.Record{{Key: []byte(key)}}})
}

func put(batches ...[]byte) func(*stub.State, *stub.Topic) {
	return func(_ *stub.State, t *stub.Topic) { t.Partitions[0].Put(batches...) }
}

func TestRun(t *testing.T) {
	three := [][]byte{record(0, "a", "1"), record(1, "b", "2"), record(2, "c", "3")}
	otherKey := bytes.Clone(three[1])
	otherKey[len(otherKey)-1] ^= 1 // one byte of the record, CRC left as it was
	for _, tc := range []struct {
		name             string
		source, dest     func(*stub.State, *stub.Topic)
		deep, compacted  bool
		want             string // part of the difference, "" = equal
		batches, removed int64
	}{
		{name: "equal", source: put(three...), dest: put(three...), batches: 3},
		{name: "empty", source: put(), dest: put()},
		{name: "deep equal", source: put(three...), dest: put(three...), deep: true, batches: 3},
		{name: "another record", source: put(three...), dest: put(three[0], record(1, "b", "9"), three[2]), want: "batch headers differ", batches: 1},
		{name: "bytes below an equal checksum", source: put(three...), dest: put(three[0], otherKey, three[2]), deep: true, want: "bytes differ", batches: 1},
		{name: "checksums alone don't see it", source: put(three...), dest: put(three[0], otherKey, three[2]), batches: 3},
		{name: "destination is behind", source: put(three...), dest: put(three[:2]...), want: "log end offset is 3 on the source, 2", batches: 2},
		{name: "destination has more", source: put(three[:2]...), dest: put(three...), want: "log end offset is 2 on the source, 3", batches: 2},
		{name: "hole", source: put(three...), dest: put(three[0], three[2]), want: "batch headers differ", batches: 1},
		{
			name: "hole at the end", source: put(three...), want: "on one side only", batches: 2,
			dest: func(_ *stub.State, t *stub.Topic) { t.Partitions[0].Put(three[:2]...); t.Partitions[0].EndAt = 3 },
		},
		{
			name: "trimmed on the source", dest: put(three...), batches: 2,
			source: func(_ *stub.State, t *stub.Topic) { t.Partitions[0].Put(three...); t.Partitions[0].Trim(1) },
		},
		{
			name: "made anew", source: put(three...), want: "topic id is", batches: 3,
			dest: func(_ *stub.State, t *stub.Topic) { t.Partitions[0].Put(three...); t.ID = messages.TopicID{9} },
		},
		{
			name: "fewer partitions", source: put(three...), want: "1 partitions on the source, 2 on the destination", batches: 3,
			dest: func(_ *stub.State, t *stub.Topic) {
				t.Partitions[0].Put(three...)
				t.Partitions = append(t.Partitions, &stub.Partition{})
			},
		},
		{
			name: "topic is gone", source: func(s *stub.State, _ *stub.Topic) { delete(s.Topics, "t") }, dest: put(three...),
			want: "doesn't exist on the source",
		},
		{name: "compacted there, a later record has the key", compacted: true, batches: 2, removed: 1,
			source: put(record(1, "b", "2"), record(2, "a", "3")), dest: put(record(0, "a", "1"), record(1, "b", "2"), record(2, "a", "3"))},
		{name: "compacted here, a later record has the key", compacted: true, batches: 2, removed: 1,
			source: put(record(0, "a", "1"), record(1, "b", "2"), record(2, "a", "3")), dest: put(record(1, "b", "2"), record(2, "a", "3"))},
		{name: "tombstone aged out", compacted: true, batches: 1, removed: 1,
			source: put(tombstone(0, "a"), record(1, "b", "2")), dest: put(record(1, "b", "2"))},
		{name: "record is missing and nothing explains it", compacted: true, batches: 1,
			source: put(record(0, "a", "1"), record(1, "b", "2")), dest: put(record(1, "b", "2")), want: "record at offset 0 is on the source only"},
		{name: "other value", compacted: true, batches: 1,
			source: put(record(0, "a", "1"), record(1, "b", "2")), dest: put(record(0, "a", "1"), record(1, "b", "3")), want: "record at offset 1 differs: value"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			start := func(fill func(*stub.State, *stub.Topic)) func(*stub.State, *stub.Topic) {
				return func(s *stub.State, topic *stub.Topic) {
					fill(s, topic)
					if tc.compacted && topic.Partitions[0].Batches[0].Base > 0 {
						topic.Partitions[0].LogStart = 0 // the log start stays where it was
					}
				}
			}
			rows, err := Run(t.Context(), side(t, "source", start(tc.source)), side(t, "destination", start(tc.dest)), []Topic{{Name: "t", Partitions: 1}},
				Options{Deep: tc.deep, Compacted: func(string) bool { return tc.compacted }})
			require.NoError(t, err)
			var differences []string
			var batches, removed int64
			for _, r := range rows {
				batches, removed = batches+r.Batches, removed+r.Compacted
				if !r.Equal() {
					differences = append(differences, r.Difference)
				}
			}
			got := strings.Join(differences, "\n")
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("difference %q, want %q", got, tc.want)
			}
			if batches != tc.batches || removed != tc.removed {
				t.Errorf("%d compared and %d compacted, want %d and %d", batches, removed, tc.batches, tc.removed)
			}
		})
	}
}

// A side that can't be read is an error, not a difference, and rows so far come
// with it.
func TestRunCantRead(t *testing.T) {
	good := put(record(0, "a", "1"))
	bad := func(_ *stub.State, topic *stub.Topic) {
		topic.Partitions[0].Put(record(0, "a", "1"))
		topic.Partitions[0].Code = 29
	}
	rows, err := Run(t.Context(), side(t, "source", bad), side(t, "destination", good), []Topic{{Name: "t", Partitions: 1}}, Options{})
	require.ErrorContains(t, err, "source")
	require.Len(t, rows, 1)
}

// A batch that a broker cuts off is asked for again; one that never fits is an error.
func TestReaderCutOff(t *testing.T) {
	cut := func(s *stub.State, topic *stub.Topic) {
		topic.Partitions[0].Fill(50)
		s.CutOffTails = true
	}
	whole := func(_ *stub.State, topic *stub.Topic) { topic.Partitions[0].Fill(50) }
	rows, err := Run(t.Context(), side(t, "source", cut), side(t, "destination", whole), []Topic{{Name: "t", Partitions: 1}}, Options{Deep: true})
	require.NoError(t, err)
	require.True(t, rows[0].Equal(), rows[0].Difference)
	half := record(0, "a", strings.Repeat("x", 100))
	short := func(_ *stub.State, topic *stub.Topic) { topic.Partitions[0].PutRaw(0, 0, 3, half[:80]) }
	_, err = Run(t.Context(), side(t, "source", short), side(t, "destination", put(half)), []Topic{{Name: "t", Partitions: 1}}, Options{})
	require.ErrorContains(t, err, "cut off")
}
