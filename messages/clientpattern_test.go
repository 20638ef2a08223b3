package messages

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestClientPattern: what costs much is refused before it is compiled.
func TestClientPattern(t *testing.T) {
	var names []string
	for range 100 {
		names = append(names, "orders-of-a-customer-"+strings.Repeat("x", 15))
	}
	for name, pattern := range map[string]string{
		"all": ".*", "a prefix": "orders-.*", "some": "a|b|c", "a class": `\p{L}{1,249}`, "case": "(?i)orders", "a list": strings.Join(names, "|"), "nothing": "",
		"a name of the largest size": "[a-zA-Z0-9._-]{249}",
	} {
		re, err := CompileClientPattern(pattern)
		require.NoError(t, err, name)
		require.Equal(t, re.MatchString("orders-1"), regexp.MustCompile(`\A(?:`+pattern+`)\z`).MatchString("orders-1"), name)
	}
	for name, pattern := range map[string]string{
		"no pattern":         "(",
		"brackets of ours":   "a)(?:b",
		"long":               strings.Repeat("a", clientPatternBytesMax+1),
		"huge":               strings.Repeat("a?", 4<<20),
		"repetitions":        strings.Repeat("(a?){500}", 30),
		"nested repetitions": "((a{90}){90})",
		"with an open end":   strings.Repeat("(ab|cd){900,}", 10),
		"classes":            strings.Repeat(`[^a]{999}`, 100),
	} {
		_, err := CompileClientPattern(pattern)
		require.ErrorIs(t, err, ErrInvalidRegex, name)
		require.Less(t, len(err.Error()), 5*clientPatternBytesMax, "an answer isn't larger than what it is about")
	}
}

// TestPatternListSize: so it is with the lists of mirrors, which may be longer.
func TestPatternListSize(t *testing.T) {
	var names []string
	for range 700 {
		names = append(names, "orders-of-a-customer-"+strings.Repeat("x", 20))
	}
	_, err := CompilePatterns(names)
	require.NoError(t, err)
	_, err = CompilePatterns([]string{strings.Join(names, "|")})
	require.NoError(t, err)
	for _, row := range []struct {
		items []string
		want  error
	}{
		{[]string{strings.Repeat("x", 40_000)}, ErrInvalidConfig},
		{append(names, names...), ErrInvalidConfig},
		{[]string{strings.Repeat("(a?){500}", 200)}, ErrInvalidRegex},
		{[]string{strings.Repeat("(a?){500}", 100), strings.Repeat("(b?){500}", 100)}, ErrInvalidRegex},
	} {
		_, err := CompilePatterns(row.items)
		require.ErrorIs(t, err, row.want)
		require.Less(t, len(err.Error()), 400)
	}
}

// FuzzClientPattern: a pattern is refused, or means what it means to regexp, and costs little.
func FuzzClientPattern(f *testing.F) {
	f.Add("orders-.*", "orders-1")
	f.Add("(a?){500}(a?){400}", strings.Repeat("a", 249))
	f.Add(`[^\x00-\x{10FFFF}]|\C|(?U)a{2,}?$`, "\xff")
	f.Add("(?i:K){100}", "K")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		re, err := CompileClientPattern(pattern)
		if err != nil {
			return
		}
		if len(name) <= 249 {
			re.MatchString(name)
		}
	})
}
