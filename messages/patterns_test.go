package messages

import (
	"errors"
	"slices"
	"testing"
)

func TestPatternsMatchWholeNames(t *testing.T) {
	tests := []struct {
		list, name, by string
	}{
		{"orders", "orders", "orders"},
		{"orders", "orders-eu", ""},
		{"orders-.*, pay", "orders-eu", "orders-.*"},
		{" a|b ,c", "b", "a|b"},
		{"a|ab", "ab", "a|ab"},
		{"(?i)Orders,x", "ORDERS", "(?i)Orders"},
		{"(?i)a,b", "B", ""},
		{"a.b", "axb", "a.b"},
		{"", "a", ""},
		{"__.*", "__mirror_state", "__.*"},
		{"a$,b", "a\n", ""},
	}
	for _, tt := range tests {
		p, err := CompilePatterns(ParseList(tt.list))
		if err != nil {
			t.Fatalf("%q: %v", tt.list, err)
		}
		by, ok := p.MatchedBy(tt.name)
		if by != tt.by || ok != (tt.by != "") || p.Match(tt.name) != ok {
			t.Errorf("%q on %q: by %q %v, want %q", tt.list, tt.name, by, ok, tt.by)
		}
	}
}

func TestPatternsRefused(t *testing.T) {
	for _, item := range []string{"[", "a)(b", "a,b", "", " a", `(?=a)`, "*"} {
		if _, err := CompilePatterns([]string{"ok", item}); !errors.Is(err, ErrInvalidRegex) {
			t.Errorf("%q: %v", item, err)
		}
	}
}

func TestTopicPatternsEditing(t *testing.T) {
	type lists = TopicPatterns
	tests := []struct {
		name  string
		edit  func(lists) lists
		start map[string]string
		want  lists
	}{
		{"OP-10 default stays", func(l lists) lists { return l.Start([]string{"a"}, []string{"b"}) }, nil,
			lists{[]string{"a"}, []string{"__.*", "b"}}},
		{"D38", func(l lists) lists { return l.Start([]string{"orders-.*"}, []string{"orders-internal"}) }, nil,
			lists{[]string{"orders-.*"}, []string{"__.*", "orders-internal"}}},
		{"D39 stop moves", func(l lists) lists { return l.Stop([]string{".*"}) }, map[string]string{MirrorTopicsIncludeConfig: ".*"},
			lists{[]string{}, []string{"__.*", ".*"}}},
		{"D39 start moves back", func(l lists) lists { return l.Stop([]string{".*"}).Start([]string{".*"}, nil) },
			map[string]string{MirrorTopicsIncludeConfig: "x, .*"}, lists{[]string{"x", ".*"}, []string{"__.*"}}},
		{"both lists in one request: exclude last", func(l lists) lists { return l.Start([]string{"a"}, []string{"a"}) }, nil,
			lists{[]string{}, []string{"__.*", "a"}}},
		{"explicitly empty exclude", func(l lists) lists { return l.Start([]string{"a", "a"}, nil) },
			map[string]string{MirrorTopicsExcludeConfig: ""}, lists{[]string{"a"}, nil}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.edit(EffectiveTopicPatterns(tt.start))
			if !slices.Equal(got.Include, tt.want.Include) || !slices.Equal(got.Exclude, tt.want.Exclude) {
				t.Fatalf("got %q", got)
			}
		})
	}
}

func TestTopicSelectorDiscovers(t *testing.T) {
	s, err := TopicPatterns{Include: []string{".*"}, Exclude: []string{"b"}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"a": true, "b": false, MirrorStateTopic: false} {
		if s.Discovers(name) != want {
			t.Errorf("%s: want %v", name, want)
		}
	}
	if (TopicSelector{}).Discovers("a") {
		t.Error("no include pattern, yet discovered")
	}
}
