package wire

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/groups"
)

// Subscription is what a consumer of the classic protocol tells as its metadata.
type Subscription struct {
	Version int16
	Topics  []string
	Owned   []groups.Partitions
	Rack    string
}

// subscriptionMax is the newest version of subscriptions and assignments.
const subscriptionMax = 3

// SubscribedTopics reads the topics of a consumer's subscription, which is the
// metadata of a member of protocol type "consumer"; false if it isn't one. What
// follows the topics depends on the version, and some clients get it wrong.
func SubscribedTopics(metadata []byte) ([]string, bool) {
	r := kbin.Reader{Src: metadata}
	r.Int16()
	n := r.ArrayLen()
	if n < 0 || int(n) > len(metadata) {
		return nil, false
	}
	topics := make([]string, 0, n)
	for range n {
		topics = append(topics, r.String())
	}
	return topics, r.Ok()
}

// DecodeSubscription reads a consumer's subscription; of one that is only right up
// to its topics nothing else is known. False if it isn't one.
func DecodeSubscription(metadata []byte) (Subscription, bool) {
	topics, ok := SubscribedTopics(metadata)
	if !ok {
		return Subscription{}, false
	}
	v := kmsg.NewConsumerMemberMetadata()
	if err := v.ReadFrom(slices.Clone(metadata)); err != nil {
		return Subscription{Topics: topics}, true
	}
	out := Subscription{Version: v.Version, Topics: topics, Rack: text(v.Rack)}
	for _, o := range v.OwnedPartitions {
		out.Owned = append(out.Owned, groups.Partitions{Topic: o.Topic, Partitions: o.Partitions})
	}
	return out, true
}

// EncodeAssignment is a consumer's assignment in the version of its subscription.
func EncodeAssignment(version int16, topics []groups.Partitions) []byte {
	v := kmsg.NewConsumerMemberAssignment()
	v.Version = max(0, min(version, subscriptionMax))
	for _, t := range topics {
		vt := kmsg.NewConsumerMemberAssignmentTopic()
		vt.Topic, vt.Partitions = t.Topic, t.Partitions
		v.Topics = append(v.Topics, vt)
	}
	return v.AppendTo(nil)
}

// DecodeAssignment reads a consumer's assignment; false if it isn't one. An empty one
// is no partitions.
func DecodeAssignment(b []byte) ([]groups.Partitions, bool) {
	if len(b) == 0 {
		return nil, true
	}
	v := kmsg.NewConsumerMemberAssignment()
	if err := v.ReadFrom(slices.Clone(b)); err != nil {
		return nil, false
	}
	var out []groups.Partitions
	for _, t := range v.Topics {
		out = append(out, groups.Partitions{Topic: t.Topic, Partitions: t.Partitions})
	}
	return out, true
}
