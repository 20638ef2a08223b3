package broker

import (
	"context"
	"fmt"

	"kagami/messages"
	"kagami/messages/groups"
	"kagami/persistence/metadata"
)

// ask has a group's coordinator answer, if the client has the right. A is the
// answer's type, which goes with the request.
func ask[A groups.Answer](ctx context.Context, s *Server, r *request, op Operation, req groups.Request) (A, error) {
	var a groups.Answer
	if s.allowed(r, op, KindGroup, req.GroupID()) {
		a = s.deps.Groups.Ask(ctx, r.gone, req)
	} else {
		a = groups.Refusal(req, fmt.Errorf("%w: group %q", messages.ErrGroupNotAuthorized, req.GroupID()))
	}
	out, ok := a.(A)
	if !ok {
		return out, fmt.Errorf("%w: %T for %T", errNoAnswer, a, req)
	}
	return out, nil
}

// named is a topic of a group request: by name, or by id from version 10 on.
type named struct {
	name       string
	partitions int32
	err        error // of all its partitions
}

// check refuses a partition that isn't there, and all of a topic that is refused.
func (n named) check(partition int32) error {
	if n.err == nil && (partition < 0 || partition >= n.partitions) {
		return fmt.Errorf("%w: %s-%d", messages.ErrUnknownTopicOrPartition, n.name, partition)
	}
	return n.err
}

// groupTopic finds out what a request may do with a topic of a group.
func (s *Server) groupTopic(r *request, img *metadata.Image, op Operation, name string, id messages.TopicID, byID bool) named {
	t := img.Topic(name)
	if byID {
		if t = img.TopicByID(id); t == nil {
			return named{err: messages.ErrUnknownTopicID}
		}
		name = t.Name
	}
	switch {
	case !s.allowed(r, op, KindTopic, name):
		return named{name: name, err: messages.ErrTopicNotAuthorized}
	case t == nil:
		return named{name: name, err: messages.ErrUnknownTopicOrPartition}
	default:
		return named{name: name, partitions: int32(len(t.Partitions))}
	}
}

// textOf is a nullable string, "" for null.
func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// nullable is null for "".
func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// repeatsMax is how often one request is told the same: an answer about a name of one byte may have
// kilobytes, and a request a million such names. Kafka answers each.
const repeatsMax = 16

// repeats counts what a request has named.
type repeats[K comparable] map[K]int

// often reports whether this is once too often.
func (r repeats[K]) often(k K) bool {
	r[k]++
	return r[k] > repeatsMax
}

// bounded is the names, each so often only.
func bounded(names []string) []string {
	seen := make(repeats[string], len(names))
	out := names[:0:0]
	for _, n := range names {
		if !seen.often(n) {
			out = append(out, n)
		}
	}
	return out
}

// partitionKey is a partition as a request about groups names it.
type partitionKey struct {
	topic     string
	id        messages.TopicID
	partition int32
}
