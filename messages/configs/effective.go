package configs

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"kagami/messages"
)

// Source says where a value comes from, with Kafka's numbers (DescribeConfigs).
type Source int8

// The sources. Kafka has no number for the settings of a mirror: 0, unknown.
const (
	SourceMirror        Source = 0
	SourceTopic         Source = 1
	SourceBroker        Source = 2
	SourceBrokerDefault Source = 3
	SourceStatic        Source = 4
	SourceDefault       Source = 5
	SourceLogger        Source = 6
	SourceClientMetrics Source = 7
	SourceGroup         Source = 8
)

// String is Kafka's name of the source.
func (s Source) String() string {
	switch s {
	case SourceMirror:
		return "UNKNOWN"
	case SourceTopic:
		return "DYNAMIC_TOPIC_CONFIG"
	case SourceBroker:
		return "DYNAMIC_BROKER_CONFIG"
	case SourceBrokerDefault:
		return "DYNAMIC_DEFAULT_BROKER_CONFIG"
	case SourceStatic:
		return "STATIC_BROKER_CONFIG"
	case SourceLogger:
		return "DYNAMIC_BROKER_LOGGER_CONFIG"
	case SourceClientMetrics:
		return "DYNAMIC_CLIENT_METRICS_CONFIG"
	case SourceGroup:
		return "DYNAMIC_GROUP_CONFIG"
	case SourceDefault:
		return "DEFAULT_CONFIG"
	default:
		return fmt.Sprintf("Source(%d)", int8(s))
	}
}

// Layer is what one source sets. Of several layers the first wins.
type Layer struct {
	Source Source
	Values map[string]string
}

// Candidate is one value of a key: the key it was set under (a topic config may
// come from a broker config), the value in the unit of the key that was asked for
// (nil: none) and the source.
type Candidate struct {
	Name   string
	Value  *string
	Source Source
	// Written is the value in the unit of Name, which may count in hours what is asked
	// for in ms. nil: there is none, or it is a default that Name doesn't have as such.
	Written *string
}

// Candidates lists every value of a key, the effective one first, the default
// last; nil for an unknown key. own are the layers of the resource itself, node
// the broker layers, where a topic's synonyms are looked up.
func (s *Set) Candidates(name string, own, node []Layer) []Candidate {
	d := s.defs[name]
	if d == nil {
		return nil
	}
	var out []Candidate
	for _, l := range own {
		if v, ok := l.Values[name]; ok {
			out = append(out, Candidate{name, &v, l.Source, &v})
		}
	}
	last, scaled, ofNode := name, false, false
	for _, syn := range d.Synonyms {
		last, scaled = syn.Name, syn.Factor > 1
		for _, l := range node {
			if v, ok := l.Values[syn.Name]; ok {
				value := multiply(v, syn.Factor)
				out = append(out, Candidate{syn.Name, &value, l.Source, &v})
				ofNode = true
			}
		}
	}
	written := d.Default
	if scaled {
		if written = nil; ofNode { // Kafka tells it then, too
			written = Broker().defs[last].Default
		}
	}
	return append(out, Candidate{last, d.Default, SourceDefault, written})
}

// multiply keeps what isn't a number, and -1, which means "no limit".
func multiply(value string, factor int64) string {
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if factor <= 1 || err != nil || n < 0 {
		return value
	}
	return strconv.FormatInt(n*factor, 10)
}

// BrokerMap is the configs of a node in one map: dynamic ones over its file's.
func BrokerMap(dynamic, static map[string]string) map[string]string {
	out := maps.Clone(static)
	if out == nil {
		out = make(map[string]string, len(dynamic))
	}
	maps.Copy(out, dynamic)
	return out
}

// Values reads values that were validated when they were set. A key that isn't
// set, or can't be read as asked, has its default.
type Values struct {
	set    *Set
	values map[string]string
}

// TopicValues are the effective configs of a topic: its own, over the node's
// (see [BrokerMap]), over the defaults. Asked for by topic key.
func TopicValues(topic, node map[string]string) Values {
	out := make(map[string]string, len(topicSet.names))
	own, broker := []Layer{{SourceTopic, topic}}, []Layer{{SourceStatic, node}}
	for _, name := range topicSet.names {
		if c := topicSet.Candidates(name, own, broker)[0]; c.Value != nil {
			out[name] = *c.Value
		}
	}
	return Values{set: topicSet, values: out}
}

// MirrorValues reads the configs of a mirror.
func MirrorValues(configs map[string]string) Values { return Values{set: mirrorSet, values: configs} }

// BrokerValues reads the configs of a node: dynamic ones over its file's.
func BrokerValues(dynamic, static map[string]string) Values {
	return Values{set: brokerSet, values: BrokerMap(dynamic, static)}
}

// String is the value, "" for none.
func (v Values) String(name string) string {
	if s, ok := v.values[name]; ok {
		return s
	}
	return v.fallback(name)
}

// Int64 is the value of an int, short or long.
func (v Values) Int64(name string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(v.String(name)), 10, 64)
	if err != nil {
		n, _ = strconv.ParseInt(v.fallback(name), 10, 64)
	}
	return n
}

// Int is Int64 for values that fit an int.
func (v Values) Int(name string) int { return int(v.Int64(name)) }

// Float is the value of a double.
func (v Values) Float(name string) float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(v.String(name)), 64)
	if err != nil {
		n, _ = strconv.ParseFloat(v.fallback(name), 64)
	}
	return n
}

// Bool is the value of a boolean.
func (v Values) Bool(name string) bool {
	return strings.EqualFold(strings.TrimSpace(v.String(name)), "true")
}

// List is the items of a list, see messages.ParseList.
func (v Values) List(name string) []string { return messages.ParseList(v.String(name)) }

func (v Values) fallback(name string) string {
	if d := v.set.Lookup(name); d != nil && d.Default != nil {
		return *d.Default
	}
	return ""
}
