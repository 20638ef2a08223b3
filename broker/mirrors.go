package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// mirroringOn refuses mirror requests while the feature mirror.version is 0.
func (s *Server) mirroringOn() error {
	if s.image().MirrorVersion() < 1 {
		return fmt.Errorf("%w: feature %s is 0", messages.ErrUnsupportedVersion, metadata.MirrorVersionFeature)
	}
	return nil
}

// mayChangeTopics is what start, stop, pause, resume and recover have in common:
// the feature, the right to alter the mirror and the configs of every named
// topic, and a mirror of that name. The refusal is one of the whole request.
func (s *Server) mayChangeTopics(r *request, mirror string, topics []messages.MirrorTopic) error {
	if err := s.mirroringOn(); err != nil {
		return err
	}
	if !s.allowed(r, OpAlter, KindClusterMirror, mirror) {
		return messages.ErrMirrorNotAuthorized
	}
	for _, t := range topics {
		if !s.allowed(r, OpAlterConfigs, KindTopic, t.Name) {
			return fmt.Errorf("%w: topic %q: ALTER_CONFIGS on it is needed", messages.ErrTopicNotAuthorized, t.Name)
		}
	}
	if s.image().Mirror(mirror) == nil {
		return fmt.Errorf("%w: %q", messages.ErrUnknownMirror, mirror)
	}
	return nil
}

// topicsAnswer is the response that start, stop, pause, resume and recover share
// in shape; the wire package has one type for each.
type topicsAnswer struct {
	code    int16
	message *string
	mirror  string
	topics  []wire.StartMirrorTopicsResponseTopicResult
}

// answerTopics makes it from the items. Topic results carry no text: the texts
// go into the top-level message, one line "<topic>: <text>" per refused topic.
func answerTopics(r *request, mirror string, topics []messages.MirrorTopic, items []messages.Item, err error) topicsAnswer {
	a := topicsAnswer{mirror: mirror, topics: []wire.StartMirrorTopicsResponseTopicResult{}}
	if err != nil {
		a.code, a.message = r.code(err), errorText(err)
		return a
	}
	var lines []string
	for i, t := range topics {
		res := wire.StartMirrorTopicsResponseTopicResult{Name: t.Name, ErrorCode: r.code(items[i].Err)}
		if items[i].Err != nil {
			lines = append(lines, t.Name+": "+*errorText(items[i].Err))
		}
		a.topics = append(a.topics, res)
	}
	if len(lines) > 0 {
		text := strings.Join(lines, "\n")
		a.message = &text
	}
	return a
}

// changeTopics submits a change of a mirror's topics. The error refuses the
// whole request.
func (s *Server) changeTopics(ctx context.Context, r *request, mirror string, topics []messages.MirrorTopic, cmd messages.Command) ([]messages.Item, error) {
	if err := s.mayChangeTopics(r, mirror, topics); err != nil {
		return nil, err
	}
	if err := repeated(topics); err != nil {
		return nil, err
	}
	out := s.submit(ctx, r, 0, cmd)
	if out.Err != nil {
		return nil, out.Err
	}
	return itemsOf(topics, out), nil
}

// itemsOf matches the items of an outcome with the topics of a request. Stop
// may answer for topics that only a pattern named; they come last there.
func itemsOf(topics []messages.MirrorTopic, out messages.Outcome) []messages.Item {
	items := make([]messages.Item, len(topics))
	for i := range topics {
		if i < len(out.Items) {
			items[i] = out.Items[i]
		} else {
			items[i].Err = fmt.Errorf("controller answered %d of %d items", len(out.Items), len(topics))
		}
	}
	return items
}

// repeated finds topics that a request names twice; map keys must be unique.
func repeated(topics []messages.MirrorTopic) error {
	seen := map[string]bool{}
	for _, t := range topics {
		if seen[t.Name] {
			return fmt.Errorf("%w: topic %q is named twice", messages.ErrInvalidRequest, t.Name)
		}
		seen[t.Name] = true
	}
	return nil
}

// member checks that a topic belongs to a mirror, as stop, pause, resume and
// recover want it.
func member(img *metadata.Image, mirror string, ask messages.MirrorTopic) error {
	t := img.Topic(ask.Name)
	switch {
	case t == nil:
		return messages.ErrUnknownTopicOrPartition
	case !ask.ID.IsZero() && ask.ID != t.ID:
		return fmt.Errorf("%w: the topic here has id %s", messages.ErrInconsistentTopicID, t.ID)
	case t.Mirror == "":
		return fmt.Errorf("%w: the topic is in no mirror", messages.ErrUnknownMirror)
	case t.Mirror != mirror:
		return fmt.Errorf("%w: the topic is in mirror %s", messages.ErrTopicNotInMirror, t.Mirror)
	default:
		return nil
	}
}

var errNoAnswer = errors.New("malformed answer of the coordinator")
