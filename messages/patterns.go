package messages

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The mirror configs that select topics, and the default of the exclude list.
const (
	MirrorTopicsIncludeConfig  = "mirror.topics.include"
	MirrorTopicsExcludeConfig  = "mirror.topics.exclude"
	MirrorTopicsExcludeDefault = "__.*"
)

// ParseList splits a list value: comma separated items, each trimmed, empty
// ones and repeats dropped, in order.
func ParseList(value string) []string {
	var out []string
	for item := range strings.SplitSeq(value, ",") {
		if item = strings.TrimSpace(item); item != "" && !slices.Contains(out, item) {
			out = append(out, item)
		}
	}
	return out
}

// FormatList is the value that ParseList reads.
func FormatList(items []string) string { return strings.Join(items, ",") }

// Patterns is a list of regular expressions (RE2 syntax), of which one must
// match a whole name. The zero value and nil match nothing.
type Patterns struct {
	items []string
	res   []*regexp.Regexp
	all   *regexp.Regexp
}

// CompilePatterns compiles items. The error wraps [ErrInvalidRegex] and names
// the first bad one.
func CompilePatterns(items []string) (*Patterns, error) {
	p := &Patterns{items: items}
	if len(items) == 0 {
		return p, nil
	}
	if err := checkListSize(items); err != nil {
		return nil, err
	}
	for _, item := range items {
		re, err := compilePattern(item)
		if err != nil {
			return nil, err
		}
		p.res = append(p.res, re)
	}
	re, err := regexp.Compile(`\A(?:(?:` + strings.Join(items, `)|(?:`) + `))\z`)
	if err != nil {
		return nil, fmt.Errorf("%w: the list %q is too large or too complex: %w", ErrInvalidRegex, FormatList(items), err)
	}
	p.all = re
	return p, nil
}

func compilePattern(item string) (*regexp.Regexp, error) {
	switch {
	case item == "" || item != strings.TrimSpace(item):
		return nil, fmt.Errorf("%w: pattern %q is empty or has blanks around it", ErrInvalidRegex, item)
	case strings.Contains(item, ","):
		return nil, fmt.Errorf("%w: pattern %q has a comma, which separates patterns", ErrInvalidRegex, item)
	}
	if _, err := regexp.Compile(item); err != nil { // alone: "a)(b" must not pass inside the brackets
		return nil, fmt.Errorf("%w: pattern %q: %w", ErrInvalidRegex, item, err)
	}
	re, err := regexp.Compile(`\A(?:` + item + `)\z`)
	if err != nil {
		return nil, fmt.Errorf("%w: pattern %q: %w", ErrInvalidRegex, item, err)
	}
	return re, nil
}

// Match reports whether some pattern matches the whole name.
func (p *Patterns) Match(name string) bool {
	return p != nil && p.all != nil && p.all.MatchString(name)
}

// MatchedBy returns the first pattern that matches the whole name.
func (p *Patterns) MatchedBy(name string) (item string, ok bool) {
	if !p.Match(name) {
		return "", false
	}
	for i, re := range p.res {
		if re.MatchString(name) {
			return p.items[i], true
		}
	}
	return "", false
}

// Items lists the patterns in order.
func (p *Patterns) Items() []string {
	if p == nil {
		return nil
	}
	return p.items
}

// TopicPatterns is the pair of lists that selects the topics of a mirror.
type TopicPatterns struct {
	Include []string
	Exclude []string
}

// EffectiveTopicPatterns reads the lists from the configs set on a mirror, with
// the default exclude list where none is set (OP-10). A list set to the empty
// value is empty.
func EffectiveTopicPatterns(configs map[string]string) TopicPatterns {
	exclude, ok := configs[MirrorTopicsExcludeConfig]
	if !ok {
		exclude = MirrorTopicsExcludeDefault
	}
	return TopicPatterns{Include: ParseList(configs[MirrorTopicsIncludeConfig]), Exclude: ParseList(exclude)}
}

// Start returns the lists after a start request (workflows.md, Start, step 4):
// every include pattern is added to Include and removed from Exclude, then every
// exclude pattern is added to Exclude and removed from Include.
func (l TopicPatterns) Start(include, exclude []string) TopicPatterns {
	return l.move(include, true).move(exclude, false)
}

// Stop returns the lists after a stop request (OP-16): every pattern is removed
// from Include and added to Exclude.
func (l TopicPatterns) Stop(patterns []string) TopicPatterns { return l.move(patterns, false) }

func (l TopicPatterns) move(patterns []string, toInclude bool) TopicPatterns {
	out := TopicPatterns{Include: slices.Clone(l.Include), Exclude: slices.Clone(l.Exclude)}
	to, from := &out.Exclude, &out.Include
	if toInclude {
		to, from = from, to
	}
	for _, p := range patterns {
		*from = slices.DeleteFunc(*from, func(o string) bool { return o == p })
		if !slices.Contains(*to, p) {
			*to = append(*to, p)
		}
	}
	return out
}

// Compile makes a selector of the lists.
func (l TopicPatterns) Compile() (TopicSelector, error) {
	include, err := CompilePatterns(l.Include)
	if err != nil {
		return TopicSelector{}, fmt.Errorf("%s: %w", MirrorTopicsIncludeConfig, err)
	}
	exclude, err := CompilePatterns(l.Exclude)
	if err != nil {
		return TopicSelector{}, fmt.Errorf("%s: %w", MirrorTopicsExcludeConfig, err)
	}
	return TopicSelector{Include: include, Exclude: exclude}, nil
}

// TopicSelector decides which topics a mirror takes. Exclude wins, and internal
// topics are never taken.
type TopicSelector struct {
	Include *Patterns
	Exclude *Patterns
}

// Excludes reports whether only the excludes keep discovery from taking that topic.
func (s TopicSelector) Excludes(topic string) bool {
	return s.Include.Match(topic) && s.Exclude.Match(topic) && !IsInternalTopic(topic)
}

// Discovers reports whether discovery takes a source topic of that name.
func (s TopicSelector) Discovers(topic string) bool {
	return s.Include.Match(topic) && !s.Exclude.Match(topic) && !IsInternalTopic(topic)
}
