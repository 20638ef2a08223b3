package messages

import (
	"fmt"
	"regexp"
	"regexp/syntax"
)

// What a pattern of a client may come to. RE2 takes time linear in the name, but by the size of the
// program: a pattern of 1 KB like (a?){500}(a?){500}... takes a second for each name, and one of 8 MB
// two gigabytes before it is refused.
const (
	clientPatternBytesMax = 4096
	clientPatternSizeMax  = 8192 // characters, classes and the like, counted repetitions written out
)

// CompileClientPattern compiles a regular expression (RE2 syntax) that a client without any other
// right may send, and which must match whole names. The error wraps [ErrInvalidRegex].
func CompileClientPattern(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > clientPatternBytesMax {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrInvalidRegex, len(pattern), clientPatternBytesMax)
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrInvalidRegex, pattern, err)
	}
	if patternSize(tree, clientPatternSizeMax) > clientPatternSizeMax {
		return nil, fmt.Errorf("%w: %q: counted repetitions make it too large", ErrInvalidRegex, pattern)
	}
	re, err := regexp.Compile("^(?:" + pattern + ")$")
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrInvalidRegex, pattern, err)
	}
	return re, nil
}

// Bounds of a whole list of patterns, as mirrors have them.
const (
	patternListBytesMax = 32 << 10
	patternListSizeMax  = 64 << 10
)

// checkListSize refuses a list that would cost too much to compile: what is too long for a config
// wraps ErrInvalidConfig. What is no pattern is found later.
func checkListSize(items []string) error {
	bytes, size := 0, 0
	for _, item := range items {
		if bytes += len(item); bytes > patternListBytesMax {
			return fmt.Errorf("%w: the patterns have more than %d bytes", ErrInvalidConfig, patternListBytesMax)
		}
		if tree, err := syntax.Parse(item, syntax.Perl); err == nil {
			size += patternSize(tree, patternListSizeMax)
		}
		if size > patternListSizeMax {
			return fmt.Errorf("%w: pattern %.100q: counted repetitions make it, or the whole list, too large", ErrInvalidRegex, item)
		}
	}
	return nil
}

// patternSize is about how many instructions a pattern is compiled to. It stops counting beyond most.
func patternSize(re *syntax.Regexp, most int) int {
	size := 1 // a class is one, whatever it holds
	if re.Op == syntax.OpLiteral {
		size = len(re.Rune)
	}
	for _, sub := range re.Sub {
		size = min(size+patternSize(sub, most), most+1)
	}
	if re.Op == syntax.OpRepeat {
		size *= max(re.Min+1, re.Max)
	}
	return min(size, most+1)
}
