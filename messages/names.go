package messages

import (
	"fmt"
	"strings"
	"unicode/utf16"
)

// JavaHash is String.hashCode of Java over UTF-16 code units, which Kafka
// shards by (spec: records.md, Coordinator partition).
func JavaHash(s string) int32 {
	var h int32
	for _, c := range utf16.Encode([]rune(s)) {
		h = h*31 + int32(c)
	}
	return h
}

// JavaAbs is the absolute value with abs(-2147483648) = 0, as Kafka has it. It
// isn't a bit mask: the two differ for negative hashes.
func JavaAbs(v int32) int32 {
	if v == -1<<31 {
		return 0
	}
	if v < 0 {
		return -v
	}
	return v
}

// CoordinatorShard is the partition of __mirror_state that holds a mirror.
// shards is the partition count of that topic, at least 1.
func CoordinatorShard(mirror string, shards int32) int32 {
	return JavaAbs(JavaHash(mirror)) % shards
}

// FetcherNumber spreads the partitions of a mirror over its fetchers.
// fetchers is mirror.num.replica.fetchers, at least 1 (spec: fetcher.md, Workers).
func FetcherNumber(tp TopicPartition, fetchers int32) int32 {
	return JavaAbs(31*JavaHash(tp.Topic)+tp.Partition) % fetchers
}

const nameLengthMax = 249

// CheckTopicName returns nil for a legal topic name, else an error that wraps
// [ErrInvalidTopic] and says what is wrong.
func CheckTopicName(name string) error {
	if why := nameFault(name); why != "" {
		return fmt.Errorf("%w: topic name %s", ErrInvalidTopic, why)
	}
	return nil
}

// CheckMirrorName returns nil for a legal mirror name, else an error that wraps
// [ErrInvalidMirrorName] (spec: protocol.md, Validation rules).
func CheckMirrorName(name string) error {
	why := nameFault(name)
	if why == "" && (strings.HasSuffix(name, StoppedSuffix) || strings.HasSuffix(name, PausedSuffix)) {
		why = fmt.Sprintf("%q ends in %s or %s, which mark stopped and paused topics", name, StoppedSuffix, PausedSuffix)
	}
	if why != "" {
		return fmt.Errorf("%w: mirror name %s", ErrInvalidMirrorName, why)
	}
	return nil
}

func nameFault(name string) string {
	switch {
	case name == "":
		return "is empty"
	case name == "." || name == "..":
		return fmt.Sprintf("can't be %q", name)
	case len(name) > nameLengthMax:
		return fmt.Sprintf("has %d characters, at most %d are allowed", len(name), nameLengthMax)
	}
	for _, r := range name {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
		if !ok {
			return fmt.Sprintf("%q has a character other than letters, digits, '.', '_' and '-'", name)
		}
	}
	return ""
}

// TopicNamesCollide reports whether two different names become one where dots
// are replaced by underscores, as Kafka's metric names do.
func TopicNamesCollide(a, b string) bool {
	return a != b && strings.ReplaceAll(a, ".", "_") == strings.ReplaceAll(b, ".", "_")
}
