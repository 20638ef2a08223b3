package actors

import (
	"fmt"
	"maps"
	"slices"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/persistence/metadata"
)

// createMirror is workflows.md "Create mirror", steps 3 to 5.
func (p *plan) createMirror(c messages.CreateMirror) error {
	if err := messages.CheckMirrorName(c.Name); err != nil {
		return err
	}
	if p.img.Mirror(c.Name) != nil {
		return fmt.Errorf("%w: %q", messages.ErrMirrorExists, c.Name)
	}
	r := resource{change: messages.ResourceChange{Type: messages.ResourceClusterMirror, Name: c.Name}, set: configs.Mirror()}
	seen := make(map[string]bool)
	for _, ch := range c.Configs {
		if seen[ch.Name] {
			return fmt.Errorf("%w: config %q is named twice", messages.ErrInvalidConfig, ch.Name)
		}
		seen[ch.Name] = true
		if ch.Value != nil { // null means the default
			r.change.Changes = append(r.change.Changes, messages.ConfigChange{Name: ch.Name, Op: messages.ConfigSet, Value: ch.Value})
		} else if err := r.set.Settable(ch.Name); err != nil {
			return err
		}
	}
	now, err := r.apply(messages.AlterConfigs{})
	if err != nil {
		return err
	}
	if err := r.check(now); err != nil {
		return err
	}
	p.diff(messages.ResourceClusterMirror, c.Name, nil, now)
	p.items = []messages.Item{{Name: c.Name}}
	if p.img.Topic(messages.MirrorStateTopic) == nil {
		before := len(p.records)
		if _, err := p.createTopic(p.mirrorStateTopic()); err != nil {
			// The mirror exists all the same; creation is tried again (workflows.md).
			p.records = p.records[:before]
		}
	}
	return nil
}

// deleteMirror is workflows.md "Delete mirror", steps 2 and 3.
func (p *plan) deleteMirror(c messages.DeleteMirror) error {
	m, err := p.mirror(c.Name)
	if err != nil {
		return err
	}
	topics := p.img.TopicsOfMirror(c.Name)
	for _, t := range topics {
		if t.Desired != messages.DesiredStopped {
			return fmt.Errorf("%w: topic %s is %s in mirror %s; stop its topics first", messages.ErrMirrorNotEmpty, t.Name, t.Desired, c.Name)
		}
	}
	for _, t := range topics {
		p.setConfig(messages.ResourceTopic, t.Name, configs.MirrorName, nil)
		if _, ok := t.Configs[configs.MirrorCopiedConfigs]; ok {
			p.setConfig(messages.ResourceTopic, t.Name, configs.MirrorCopiedConfigs, nil)
		}
	}
	p.leaveACLs(c.Name)
	for _, key := range slices.Sorted(maps.Keys(m.Configs)) {
		p.setConfig(messages.ResourceClusterMirror, c.Name, key, nil)
	}
	p.items = []messages.Item{{Name: c.Name}}
	return nil
}

func (p *plan) mirror(name string) (*metadata.Mirror, error) {
	if m := p.img.Mirror(name); m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("%w: %q", messages.ErrUnknownMirror, name)
}

// startTopics is workflows.md "Start", steps 4 and 5.
func (p *plan) startTopics(c messages.StartMirrorTopics) error {
	m, err := p.mirror(c.Mirror)
	if err != nil {
		return err
	}
	old := messages.EffectiveTopicPatterns(m.Configs)
	now := old.Start(c.Include, c.Exclude)
	exclude, err := p.editPatterns(m, now, append(slices.Clone(c.Include), c.Exclude...))
	if err != nil {
		return err
	}
	wish := wishes{plan: p, mirror: c.Mirror}
	if !slices.Equal(old.Exclude, now.Exclude) {
		wish.stopExcluded(exclude)
	}
	for _, t := range c.Topics {
		before := len(p.records)
		item := messages.Item{Name: t.Name}
		if item, err = p.startTopic(&wish, t, exclude); err != nil {
			p.records = p.records[:before]
		}
		item.Name, item.Err = t.Name, err
		p.items = append(p.items, item)
	}
	return nil
}

// editPatterns checks the patterns of a request and the lists they lead to,
// adds the records for lists that changed, and returns the new exclude list.
func (p *plan) editPatterns(m *metadata.Mirror, now messages.TopicPatterns, given []string) (*messages.Patterns, error) {
	if _, err := messages.CompilePatterns(given); err != nil {
		return nil, err
	}
	selector, err := now.Compile()
	if err != nil {
		return nil, err
	}
	if len(given) == 0 {
		return selector.Exclude, nil
	}
	old := messages.EffectiveTopicPatterns(m.Configs)
	for _, l := range []struct {
		key       string
		old, list []string
	}{
		{configs.MirrorTopicsInclude, old.Include, now.Include},
		{configs.MirrorTopicsExclude, old.Exclude, now.Exclude},
	} {
		if slices.Equal(l.old, l.list) {
			continue
		}
		value := messages.FormatList(l.list)
		if err := configs.Mirror().Check(l.key, value); err != nil {
			return nil, err
		}
		p.setConfig(messages.ResourceClusterMirror, m.Name, l.key, &value)
	}
	return selector.Exclude, nil
}

// wishes sets mirror.name of topics, and knows what the request has already set.
type wishes struct {
	plan   *plan
	mirror string
	made   map[string]messages.Desired
}

func (w *wishes) of(t *metadata.Topic) messages.Desired {
	if d, ok := w.made[t.Name]; ok {
		return d
	}
	return t.Desired
}

func (w *wishes) set(topic string, d messages.Desired) {
	if w.made == nil {
		w.made = make(map[string]messages.Desired)
	}
	w.made[topic] = d
	value := messages.FormatMirrorName(w.mirror, d)
	w.plan.setConfig(messages.ResourceTopic, topic, configs.MirrorName, &value)
}

// stopExcluded stops the mirror's active topics that match an exclude pattern.
func (w *wishes) stopExcluded(exclude *messages.Patterns) {
	for _, t := range w.plan.img.TopicsOfMirror(w.mirror) {
		if w.of(t) == messages.DesiredActive && exclude.Match(t.Name) {
			w.set(t.Name, messages.DesiredStopped)
		}
	}
}

// startTopic decides one topic of a start: the table of workflows.md "Start".
// mirrorFactor is how many replicas a mirror topic begins with: what is configured,
// as far as nodes are live. It grows as they come (OP-24, D51).
func (p *plan) mirrorFactor() int16 {
	return int16(min(p.settings().Int(configs.DefaultReplicationFactor), max(1, len(p.env.live))))
}

func (p *plan) startTopic(w *wishes, ask messages.MirrorTopic, exclude *messages.Patterns) (messages.Item, error) {
	item := messages.Item{Name: ask.Name}
	if _, again := p.newTopics[ask.Name]; again {
		return item, fmt.Errorf("%w: topic %s is named twice", messages.ErrInvalidRequest, ask.Name)
	}
	if messages.IsInternalTopic(ask.Name) {
		return item, fmt.Errorf("%w: internal topic %s is never mirrored", messages.ErrInvalidRequest, ask.Name)
	}
	t := p.img.Topic(ask.Name)
	if t != nil && (t.Desired == messages.DesiredActive || t.Desired == messages.DesiredPaused) {
		return item, fmt.Errorf("%w: topic %s is %s in mirror %s", messages.ErrTopicInMirror, t.Name, t.Desired, t.Mirror)
	}
	if t != nil && !ask.ID.IsZero() && ask.ID != t.ID {
		return item, fmt.Errorf("%w: topic %s has id %s here and %s on the source; delete the topic here and start again",
			messages.ErrInconsistentTopicID, t.Name, t.ID, ask.ID)
	}
	if entry, ok := exclude.MatchedBy(ask.Name); ok {
		return item, fmt.Errorf("%w: topic %s matches the entry %q of %s", messages.ErrInvalidRequest, ask.Name, entry, configs.MirrorTopicsExclude)
	}
	switch {
	case t == nil && ask.NumPartitions <= 0:
		return item, fmt.Errorf("%w: topic %s does not exist here and the request doesn't say how many partitions it has", messages.ErrUnknownTopicOrPartition, ask.Name)
	case t == nil:
		made, err := p.createTopic(messages.NewTopic{Name: ask.Name, ID: ask.ID, Partitions: ask.NumPartitions, ReplicationFactor: p.mirrorFactor()})
		if err != nil {
			return item, err
		}
		item = made
	case w.made[ask.Name] != 0:
		return item, fmt.Errorf("%w: topic %s is named twice", messages.ErrInvalidRequest, ask.Name)
	case ask.NumPartitions > 0 && len(t.Partitions) > int(ask.NumPartitions):
		return item, fmt.Errorf("%w: topic %s has %d partitions here and %d on the source", messages.ErrInvalidRequest, t.Name, len(t.Partitions), ask.NumPartitions)
	default:
		item.TopicID, item.Partitions = t.ID, int32(len(t.Partitions))
	}
	w.set(ask.Name, messages.DesiredActive)
	return item, nil
}

// stopTopics is workflows.md "Stop", steps 2 and 3.
func (p *plan) stopTopics(c messages.StopMirrorTopics) error {
	m, err := p.mirror(c.Mirror)
	if err != nil {
		return err
	}
	now := messages.EffectiveTopicPatterns(m.Configs).Stop(c.Patterns)
	exclude, err := p.editPatterns(m, now, c.Patterns)
	if err != nil {
		return err
	}
	wish := wishes{plan: p, mirror: c.Mirror}
	for _, ask := range c.Topics {
		t, err := p.member(c.Mirror, ask)
		if err == nil && wish.of(t) != messages.DesiredStopped { // else success, no change
			wish.set(t.Name, messages.DesiredStopped)
		}
		p.item(ask.Name, err)
	}
	if len(c.Patterns) > 0 {
		wish.stopExcluded(exclude)
	}
	return nil
}

// pauseTopics and resumeTopics are workflows.md "Pause and resume", step 2.
func (p *plan) pauseTopics(c messages.PauseMirrorTopics) error {
	return p.rewish(c.Mirror, c.Topics, messages.DesiredPaused, func(t *metadata.Topic, is messages.Desired) error {
		switch is {
		case messages.DesiredActive:
			return nil
		case messages.DesiredPaused:
			return fmt.Errorf("%w: topic %s", messages.ErrAlreadyPaused, t.Name)
		case messages.DesiredStopped, messages.DesiredNone:
			return fmt.Errorf("%w: topic %s", messages.ErrBeingStopped, t.Name)
		default:
			return fmt.Errorf("%w: topic %s", messages.ErrBeingStopped, t.Name)
		}
	})
}

func (p *plan) resumeTopics(c messages.ResumeMirrorTopics) error {
	return p.rewish(c.Mirror, c.Topics, messages.DesiredActive, func(t *metadata.Topic, is messages.Desired) error {
		if is != messages.DesiredPaused {
			return fmt.Errorf("%w: topic %s is %s", messages.ErrNotPaused, t.Name, is)
		}
		return nil
	})
}

func (p *plan) rewish(mirror string, topics []messages.MirrorTopic, to messages.Desired, check func(*metadata.Topic, messages.Desired) error) error {
	if _, err := p.mirror(mirror); err != nil {
		return err
	}
	wish := wishes{plan: p, mirror: mirror}
	for _, ask := range topics {
		t, err := p.member(mirror, ask)
		if err == nil {
			err = check(t, wish.of(t))
		}
		if err == nil {
			wish.set(t.Name, to)
		}
		p.item(ask.Name, err)
	}
	return nil
}

// member finds a topic of the mirror by name (protocol.md: an id that is sent
// must be the topic's).
func (p *plan) member(mirror string, ask messages.MirrorTopic) (*metadata.Topic, error) {
	t := p.img.Topic(ask.Name)
	switch {
	case t == nil:
		return nil, fmt.Errorf("%w: topic %q", messages.ErrUnknownTopicOrPartition, ask.Name)
	case !ask.ID.IsZero() && ask.ID != t.ID:
		return nil, fmt.Errorf("%w: topic %s has id %s, not %s", messages.ErrInconsistentTopicID, t.Name, t.ID, ask.ID)
	case t.Mirror == "":
		return nil, fmt.Errorf("%w: topic %s is in no mirror", messages.ErrUnknownMirror, t.Name)
	case t.Mirror != mirror:
		return nil, fmt.Errorf("%w: topic %s is in mirror %s", messages.ErrTopicNotInMirror, t.Name, t.Mirror)
	}
	return t, nil
}
