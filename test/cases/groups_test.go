package cases

import (
	"fmt"

	"kagami/messages"
	"kagami/test/kafka/stub"
)

// group is the consumer group of a test.
func (w *world) group() string { return "group-of-" + w.mirror }

// groupCommits has the group commit an offset on the source.
func (w *world) groupCommits(topic string, partition int32, offset int64) {
	w.src.Update(func(s *stub.State) {
		g := s.Groups[w.group()]
		if g == nil {
			g = &stub.Group{Type: "classic", State: "Empty", Offsets: map[messages.TopicPartition]stub.GroupOffset{}}
			s.Groups[w.group()] = g
		}
		g.Offsets[messages.TopicPartition{Topic: topic, Partition: partition}] = stub.GroupOffset{Offset: offset, Epoch: -1}
	})
}

// groupAt is what the group has committed on the node, -1 for nothing.
func (w *world) groupAt(topic string, partition int32) (at int64) {
	w.t.Helper()
	w.await(func() (err error) {
		at, err = w.askGroup(topic, partition)
		return err
	})
	return at
}

// askGroup fails while the group's coordinator is about to begin.
func (w *world) askGroup(topic string, partition int32) (int64, error) {
	fetched, err := w.kadm().FetchOffsets(w.ctx, w.group())
	if err != nil {
		return 0, err
	}
	if o, ok := fetched.Lookup(topic, partition); ok {
		return o.At, o.Err
	}
	return -1, nil
}

func (w *world) awaitGroup(topic string, partition int32, want int64) {
	w.t.Helper()
	w.await(func() error {
		at, err := w.askGroup(topic, partition)
		if err != nil {
			return err
		}
		if at != want {
			return fmt.Errorf("the group is at %d of %s-%d, want %d", at, topic, partition, want)
		}
		return nil
	})
}
