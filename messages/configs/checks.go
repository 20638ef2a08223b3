package configs

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	"kagami/messages"
)

// check is a rule on top of the type: fn returns what is wrong, "" if nothing.
type check struct {
	text string
	fn   func(value string) string
}

const maxLong = "9223372036854775807"

func number(value string) float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil {
		return math.NaN() // the type check has refused it
	}
	return n
}

func atLeast(least float64) check {
	s := strconv.FormatFloat(least, 'f', -1, 64)
	return check{"at least " + s, func(v string) string {
		if number(v) < least {
			return "is below " + s
		}
		return ""
	}}
}

func between(least, most float64) check {
	a, b := strconv.FormatFloat(least, 'f', -1, 64), strconv.FormatFloat(most, 'f', -1, 64)
	return check{a + " to " + b, func(v string) string {
		if n := number(v); n < least || n > most {
			return fmt.Sprintf("is not from %s to %s", a, b)
		}
		return ""
	}}
}

// levels is a compression level: -1 stands for the codec's default where the
// range itself doesn't hold it.
func levels(least, most float64) check {
	c := between(least, most)
	return check{c.text + ", or -1", func(v string) string {
		if number(v) == -1 {
			return ""
		}
		return c.fn(v)
	}}
}

func oneOf(values ...string) check {
	names := slices.Clone(values)
	if i := slices.Index(names, ""); i >= 0 {
		names[i] = "nothing"
	}
	all := strings.Join(names, ", ")
	return check{"one of " + all, func(v string) string {
		if !slices.Contains(values, v) {
			return "is none of " + all
		}
		return ""
	}}
}

// someOf is a list of values that must be among those given, without repeats.
func someOf(values ...string) check {
	all := strings.Join(values, ", ")
	return check{"any of " + all, func(v string) string {
		for _, item := range messages.ParseList(v) {
			if !slices.Contains(values, item) {
				return fmt.Sprintf("has %q, which is none of %s", item, all)
			}
		}
		return ""
	}}
}

func (c check) notEmpty() check {
	return check{c.text + ", not empty", func(v string) string {
		if len(messages.ParseList(v)) == 0 {
			return "is empty"
		}
		return c.fn(v)
	}}
}

// unsupported refuses everything but one value of a key that Kafka has.
func unsupported(allowed, what string) check {
	return check{"only " + allowed, func(v string) string {
		if !strings.EqualFold(strings.TrimSpace(v), allowed) {
			return "is refused: " + what + " is not supported"
		}
		return ""
	}}
}

// throttledReplicas is Kafka's list of partition:broker, or *, or the tool's
// form in brackets.
func throttledReplicas() check {
	return check{"partition:broker items, or *", func(v string) string {
		v = strings.TrimSpace(v)
		if v == "*" || v == "none" {
			return ""
		}
		for _, item := range messages.ParseList(strings.TrimSuffix(strings.TrimPrefix(v, "["), "]")) {
			p, b, ok := strings.Cut(item, ":")
			_, err1 := strconv.ParseUint(p, 10, 31)
			_, err2 := strconv.ParseUint(b, 10, 31)
			if !ok || err1 != nil || err2 != nil {
				return fmt.Sprintf("has %q, want partition:broker, e.g. 0:4, or *", item)
			}
		}
		return ""
	}}
}

// regexList is a list of patterns (configs.md, Selection and filters).
func regexList() check {
	return check{"regular expressions (RE2), comma separated", func(v string) string {
		if _, err := messages.CompilePatterns(messages.ParseList(v)); err != nil {
			return "has a bad pattern: " + err.Error()
		}
		return ""
	}}
}

// bootstrap is a list of host:port, at least one.
func bootstrap() check {
	return check{"host:port items, at least one", func(v string) string {
		items := messages.ParseList(v)
		if len(items) == 0 {
			return "is empty, want host:port of one broker of the source at least"
		}
		for _, item := range items {
			if _, addr, ok := strings.Cut(item, "://"); ok {
				item = addr // Kafka clients take PLAINTEXT://host:port as well
			}
			host, port, err := net.SplitHostPort(item)
			n, err2 := strconv.ParseUint(port, 10, 16)
			if err != nil || err2 != nil || n == 0 || host == "" {
				return fmt.Sprintf("has %q, want host:port", item)
			}
		}
		return ""
	}}
}

// aclRules checks mirror.acl.include.
func aclRules() check {
	return check{"rules type;name;operation;permission;principal, or *", func(v string) string {
		if _, err := CompileACLRules(messages.ParseList(v)); err != nil {
			return err.Error()
		}
		return ""
	}}
}

// listeners is a list of NAME://host:port.
func listenerList() check {
	return check{"NAME://host:port items", func(v string) string {
		for _, item := range messages.ParseList(v) {
			name, addr, ok := strings.Cut(item, "://")
			_, port, err := net.SplitHostPort(addr)
			if _, err2 := strconv.ParseUint(port, 10, 16); !ok || name == "" || err != nil || err2 != nil {
				return fmt.Sprintf("has %q, want NAME://host:port", item)
			}
		}
		return ""
	}}
}
