package actors

import (
	"iter"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// groupTopics is a metadata image as groups of the consumer protocol see it.
type groupTopics struct {
	image   *metadata.Image
	version int64
}

// Version grows with every change of topics.
func (t *groupTopics) Version() int64 { return t.version }

// Topic is the id of a topic and the number of its partitions.
func (t *groupTopics) Topic(name string) (messages.TopicID, int32, bool) {
	topic := t.image.Topic(name)
	if topic == nil {
		return messages.TopicID{}, 0, false
	}
	return topic.ID, int32(len(topic.Partitions)), true
}

// Name is the name of a topic.
func (t *groupTopics) Name(id messages.TopicID) (string, bool) {
	topic := t.image.TopicByID(id)
	if topic == nil {
		return "", false
	}
	return topic.Name, true
}

// Names is all names.
func (t *groupTopics) Names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, topic := range t.image.Topics() {
			if !yield(topic.Name) {
				return
			}
		}
	}
}

// next is the topics of a newer image, in which topics with these names may differ,
// nil stands for all.
func (t *groupTopics) next(image *metadata.Image, touched map[string]struct{}) *groupTopics {
	out := &groupTopics{image: image, version: t.version}
	if touched == nil {
		out.version++
		return out
	}
	for name := range touched {
		was, is := t.image.Topic(name), image.Topic(name)
		if (was == nil) != (is == nil) || was != nil && (was.ID != is.ID || len(was.Partitions) != len(is.Partitions)) {
			out.version++
			return out
		}
	}
	return out
}
