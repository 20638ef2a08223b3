package group

import (
	"fmt"
	"hash/fnv"
	"iter"
	"regexp"
	"slices"

	"kagami/messages"
	"kagami/messages/groups"
)

// Topics is what topics there are. It doesn't change: another version is another
// value.
type Topics interface {
	// Version grows with every change of names, ids and numbers of partitions.
	Version() int64
	// Topic is the id of a topic and the number of its partitions.
	Topic(name string) (id messages.TopicID, partitions int32, ok bool)
	Name(id messages.TopicID) (name string, ok bool)
	// Names is all names, in no order.
	Names() iter.Seq[string]
}

// noTopics is before the first SetTopics.
type noTopics struct{}

func (noTopics) Version() int64 { return 0 }

func (noTopics) Topic(string) (messages.TopicID, int32, bool) { return messages.TopicID{}, 0, false }

func (noTopics) Name(messages.TopicID) (string, bool) { return "", false }

func (noTopics) Names() iter.Seq[string] { return func(func(string) bool) {} }

// SetTopics tells what topics there are from the next call on. Members hear of a
// change when they beat next.
func (c *Core) SetTopics(t Topics) { c.topics = t }

// compileRegex is a subscription in RE2 syntax, which must match whole names.
func compileRegex(pattern string) (*regexp.Regexp, error) {
	re, err := messages.CompileClientPattern(pattern)
	if err != nil {
		return nil, fmt.Errorf("SubscribedTopicRegex: %w", err)
	}
	return re, nil
}

// resolve is the topics that a regular expression matches and a member may see.
func (c *Core) resolve(pattern string, visible func(string) bool) []string {
	out := []string{}
	re, err := compileRegex(pattern)
	if err != nil {
		return out // it was checked when it came; a log may hold what another build took
	}
	for name := range c.topics.Names() {
		if re.MatchString(name) && (visible == nil || visible(name)) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// subscription is the names of the topics that a member reads, existing or not.
func (con *consumer) subscription(m *consumerMember) []string {
	if m.info.Regex == "" {
		return m.info.Topics
	}
	out := slices.Concat(m.info.Topics, con.regexes[m.info.Regex].Topics)
	slices.Sort(out)
	return slices.Compact(out)
}

// reads reports whether a member reads a topic.
func (con *consumer) reads(topic string) bool {
	for _, m := range con.members {
		if slices.Contains(m.info.Topics, topic) || m.info.Regex != "" && slices.Contains(con.regexes[m.info.Regex].Topics, topic) {
			return true
		}
	}
	return false
}

// look is a hash of the group's topics as they are now, 0 without a topic.
func (c *Core) look(con *consumer) int64 {
	names := map[string]struct{}{}
	for _, m := range con.members {
		for _, name := range con.subscription(m) {
			names[name] = struct{}{}
		}
	}
	h, any := fnv.New64a(), false
	for _, name := range sortedKeys(names) {
		id, partitions, ok := c.topics.Topic(name)
		if !ok {
			continue
		}
		any = true
		_, _ = fmt.Fprintf(h, "%s\x00%x\x00%d\x00", name, id, partitions) // a hash takes everything
	}
	if !any {
		return 0
	}
	return int64(h.Sum64())
}

// dropRegexes forgets the regular expressions that no member has any more, and returns
// those that are left.
func (c *Core) dropRegexes(g *group) (used map[string]struct{}) {
	con := g.consumer
	used = map[string]struct{}{}
	for _, m := range con.members {
		if m.info.Regex != "" {
			used[m.info.Regex] = struct{}{}
		}
	}
	for _, pattern := range sortedKeys(con.regexes) {
		if _, ok := used[pattern]; !ok {
			c.propose(g, groups.Record{Group: g.id, Kind: groups.KindRegex, Pattern: pattern, Gone: true})
		}
	}
	return used
}

// match resolves the regular expressions that members have: a new one, and all
// when topics have changed.
func (c *Core) match(now int64, g *group, visible func(string) bool) {
	con := g.consumer
	used := c.dropRegexes(g)
	for _, pattern := range sortedKeys(used) {
		was, known := con.regexes[pattern]
		if known && con.seen == c.topics.Version() {
			continue
		}
		if topics := c.resolve(pattern, visible); !known || !slices.Equal(topics, was.Topics) {
			c.propose(g, groups.Record{Group: g.id, Kind: groups.KindRegex, Pattern: pattern, Regex: &groups.Regex{Topics: topics, Version: c.topics.Version(), Millis: now}})
		}
	}
}
