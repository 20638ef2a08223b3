package actors

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"

	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/persistence/metadata"
)

// syncConfigsAtOnce is how many topics one request to the source asks about.
const syncConfigsAtOnce = 500

// topicConfigs copies configs of topics (spec: metadata-sync.md, Topic configs): one
// change for all of them.
func (s *syncer) topicConfigs(ctx context.Context, topics []*metadata.Topic) error {
	mi := s.outside.Image().Mirror(s.mirror)
	if mi == nil {
		return nil
	}
	read := map[string]fetch.TopicConfigs{}
	for part := range slices.Chunk(topicNames(topics), syncConfigsAtOnce) {
		some, err := s.source.TopicConfigs(ctx, part)
		if err != nil {
			return err
		}
		maps.Copy(read, some)
	}
	plan := planTopicConfigs(topics, mi.Configs, read)
	for _, n := range plan.notes {
		if s.told.first(n.topic + "\x00" + n.text) {
			s.log.Warn("topic config isn't copied", zap.String(messages.FieldTopic, n.topic), zap.String("why", n.text))
		}
	}
	if len(plan.changes) > 0 { // of these topics, not of some that were made meanwhile
		if err := s.same(ctx, changedNames(plan.changes)); err != nil {
			return err
		}
	}
	errs := plan.errs
	for part := range parts(plan.changes, cycleRecordsMax, func(r messages.ResourceChange) int { return len(r.Changes) }) {
		errs = append(errs, outcomeError(s.outside.Submit(ctx, s.who, messages.AlterConfigs{Internal: true, Resources: part})))
	}
	return errors.Join(errs...)
}

func changedNames(changes []messages.ResourceChange) []string {
	out := make([]string, len(changes))
	for i, c := range changes {
		out[i] = c.Name
	}
	return out
}

func topicNames(topics []*metadata.Topic) []string {
	out := make([]string, len(topics))
	for i, t := range topics {
		out[i] = t.Name
	}
	return out
}

// configsPlan is what a look at the source's topic configs leads to.
type configsPlan struct {
	changes []messages.ResourceChange
	notes   []topicNote // keys that can't be copied
	errs    []error     // topics whose configs aren't known
}

// planTopicConfigs decides which configs of active topics are set and removed. read
// is what the source has set on them; a topic that it lacks is left alone, and so is
// one that the source doesn't tell about.
func planTopicConfigs(topics []*metadata.Topic, mirror map[string]string, read map[string]fetch.TopicConfigs) configsPlan {
	var plan configsPlan
	for _, t := range topics {
		r, ok := read[t.Name]
		switch {
		case !ok || fetch.IsUnknownTopic(r.Err):
		case r.Err != nil:
			plan.errs = append(plan.errs, r.Err)
		default:
			plan.topic(t, mirror, r)
		}
	}
	return plan
}

func (p *configsPlan) topic(t *metadata.Topic, mirror map[string]string, read fetch.TopicConfigs) {
	var changes []messages.ConfigChange
	now := map[string]string{}
	maps.Copy(now, t.Configs)
	for _, key := range slices.Sorted(maps.Keys(read.Overrides)) {
		value := read.Overrides[key]
		is, has := t.Configs[key]
		if configs.CopyExcluded(mirror, key) || has && is == value {
			continue
		}
		err := configs.Topic().Settable(key)
		if err == nil {
			err = configs.Topic().Check(key, value)
		}
		if err != nil {
			p.notes = append(p.notes, topicNote{topic: t.Name, text: err.Error()})
			continue
		}
		changes = append(changes, messages.ConfigChange{Name: key, Op: messages.ConfigSet, Value: &value})
		now[key] = value
	}
	for _, key := range messages.ParseList(t.Configs[configs.MirrorCopiedConfigs]) {
		if _, set := read.Overrides[key]; set || slices.Contains(read.Hidden, key) || configs.CopyExcluded(mirror, key) {
			continue
		}
		changes = append(changes, messages.ConfigChange{Name: key, Op: messages.ConfigDelete})
		delete(now, key)
	}
	if len(changes) == 0 {
		return
	}
	if err := wouldBeValid(now); err != nil {
		p.notes = append(p.notes, topicNote{topic: t.Name, text: fmt.Sprintf("no config of the topic is copied now: %v", err)})
		return
	}
	p.changes = append(p.changes, messages.ResourceChange{Type: messages.ResourceTopic, Name: t.Name, Changes: changes})
}

// wouldBeValid checks values against each other; keys of another build don't count.
func wouldBeValid(now map[string]string) error {
	known := maps.Clone(now)
	maps.DeleteFunc(known, func(key, _ string) bool { return configs.Topic().Lookup(key) == nil })
	return configs.Topic().Validate(known)
}
