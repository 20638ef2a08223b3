package diff

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"kagami/messages/batch"
	"kagami/messages/wire"
)

// flat is an answer as values by path: Topics[x].Partitions[0].ErrorCode.
type flat map[string]string

// identity are the fields that name an element of a list, so that the order of lists
// in which neither side promises one doesn't count.
var identity = []string{
	"ApiKey", "Topic", "TopicName", "TopicID", "Partition", "ResourceType", "ResourceName", "Name", "Key", "NodeID", "BrokerID", "GroupID", "Group", "Dir",
	"TransactionalID", "ProducerID", "User", "MemberID", "EntityType", "Type",
}

// flatten lists what is compared of an answer. s turns ids into names.
func flatten(s *side, o outcome) flat {
	out := flat{}
	if o.end != "" {
		out["answer"] = o.end
		return out
	}
	out["answer"] = "an answer"
	s.walk(out, "", reflect.ValueOf(o.resp).Elem())
	return out
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func (s *side) walk(out flat, path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		t := v.Type()
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() || f.Name == "Version" || f.Name == "UnknownTags" {
				continue
			}
			s.field(out, join(path, f.Name), f.Name, v.Field(i))
		}
	default:
		s.field(out, path, "", v)
	}
}

func (s *side) field(out flat, path, name string, v reflect.Value) {
	if text, ok := s.special(path, name, v); ok {
		out[path] = text
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			out[path] = "null"
			return
		}
		s.field(out, path, name, v.Elem())
	case reflect.Struct:
		s.walk(out, path, v)
	case reflect.Slice:
		s.list(out, path, v)
	default:
		out[path] = fmt.Sprint(v.Interface())
	}
}

func (s *side) list(out flat, path string, v reflect.Value) {
	if v.Len() == 0 {
		out[path] = "no elements"
		return
	}
	elem := v.Type().Elem()
	if elem.Kind() != reflect.Struct {
		items := make([]string, v.Len())
		for i := range v.Len() {
			items[i] = fmt.Sprint(reflect.Indirect(v.Index(i)).Interface())
		}
		if strings.Contains(path, "__consumer_offsets") {
			slices.Sort(items) // a set
		}
		out[path] = "[" + strings.Join(items, " ") + "]"
		return
	}
	seen := map[string]int{}
	for i := range v.Len() {
		label := s.label(v.Index(i))
		if label == "" {
			label = fmt.Sprint(i)
		}
		if seen[label]++; seen[label] > 1 {
			label = fmt.Sprintf("%s#%d", label, seen[label])
		}
		at := fmt.Sprintf("%s[%s]", path, label)
		out[at] = "there"
		s.walk(out, at, v.Index(i))
	}
}

// label is the element's identity, "" for none.
func (s *side) label(v reflect.Value) string {
	var parts []string
	for _, name := range identity {
		f := v.FieldByName(name)
		if !f.IsValid() {
			continue
		}
		if text, ok := s.special("", name, f); ok {
			if text != "none" && text != "some id" {
				parts = append(parts, text)
			}
			continue
		}
		if f.Kind() == reflect.Pointer {
			if f.IsNil() {
				continue
			}
			f = f.Elem()
		}
		if f.Kind() == reflect.Slice || f.Kind() == reflect.Struct {
			continue
		}
		parts = append(parts, fmt.Sprint(f.Interface()))
	}
	if f := v.FieldByName("Entity"); f.IsValid() && f.Kind() == reflect.Slice {
		for i := range f.Len() {
			parts = append(parts, s.label(f.Index(i)))
		}
		slices.Sort(parts)
	}
	return strings.Join(parts, " ")
}

// special is what isn't compared as it is: ids by the names they stand for, times and
// texts by whether they are there, codes with their names, bytes by their length.
func (s *side) special(path, name string, v reflect.Value) (string, bool) {
	switch x := v.Interface().(type) {
	case [16]byte:
		switch known, ok := s.names[x]; {
		case x == [16]byte{}:
			return "none", true
		case ok:
			return "id of " + s.plain(known), true
		default:
			return "some id", true
		}
	case string:
		return s.text(name, x), true
	case *string:
		if x == nil {
			return "null", true
		}
		return s.text(name, *x), true
	case int16:
		if strings.HasSuffix(name, "ErrorCode") {
			return code(x), true
		}
	case []byte:
		if name == "RecordBatches" {
			return records(x), true
		}
		if x == nil {
			return "null", true
		}
		return fmt.Sprintf("%d bytes %s", len(x), hex.EncodeToString(x[:min(len(x), 64)])), true
	case int32:
		switch name {
		case "Port":
			return "a port", true
		case "SessionID":
			return sign(int64(x)), true
		}
	case int64:
		if slices.Contains([]string{"ProducerID", "FinalizedFeaturesEpoch", "TotalBytes", "UsableBytes", "LogAppendTime", "Timestamp", "LastTimestamp", "StartTimestamp"}, name) && !strings.HasPrefix(path, "exact") {
			if strings.HasSuffix(name, "Timestamp") || name == "LogAppendTime" {
				return when(x), true
			}
			if name == "ProducerID" && x >= 0 {
				if txn, ok := s.producers[x]; ok {
					return "id of " + txn, true
				}
				return "an id", true
			}
			return sign(x), true
		}
	}
	return "", false
}

func (s *side) text(name, x string) string {
	switch name {
	case "ErrorMessage", "Documentation":
		if x == "" {
			return "empty"
		}
		return "a text"
	case "MemberID":
		if len(x) == len("m1") {
			return fmt.Sprintf("%q", x) // one of the script's own
		}
	}
	switch name {
	case "Host", "ClusterID", "Rack", "Dir", "MemberID", "LeaderID", "ClientHost":
		if x == "" {
			return "empty"
		}
		return "some"
	}
	return fmt.Sprintf("%q", s.plain(x))
}

var versionSuffix = regexp.MustCompile(`-v\d+\b`)

// plain is a name without what is the run's and the version's.
func (s *side) plain(name string) string {
	return versionSuffix.ReplaceAllString(strings.ReplaceAll(name, s.prefix, ""), "")
}

func sign(x int64) string {
	switch {
	case x < 0:
		return fmt.Sprint(x)
	case x == 0:
		return "0"
	default:
		return "above 0"
	}
}

// when tells times of the past day from those that a script has made up.
func when(x int64) string {
	if age := time.Since(time.UnixMilli(x)); age > -time.Hour && age < 24*time.Hour {
		return "now"
	}
	return fmt.Sprint(x)
}

func code(x int16) string {
	if x == 0 {
		return "0"
	}
	if x == wire.CodeClusterMirrorAuthorizationFailed {
		return fmt.Sprintf("%d CLUSTER_MIRROR_AUTHORIZATION_FAILED", x)
	}
	if e := kerr.TypedErrorForCode(x); e != nil {
		return fmt.Sprintf("%d %s", x, e.Message)
	}
	return fmt.Sprint(x)
}

// records is a fetched record set: each batch without its leader epoch.
func records(b []byte) string {
	if b == nil {
		return "null"
	}
	var out []string
	for len(b) > 0 {
		if len(b) < 61 {
			out = append(out, fmt.Sprintf("%d bytes of a batch", len(b)))
			break
		}
		size := 12 + int(binary.BigEndian.Uint32(b[8:]))
		if size > len(b) || b[16] != 2 {
			out = append(out, fmt.Sprintf("%d bytes of a batch at %d, magic %d", len(b), binary.BigEndian.Uint64(b), b[16]))
			break
		}
		attributes, crc := binary.BigEndian.Uint16(b[21:]), fmt.Sprintf("%08x", binary.BigEndian.Uint32(b[17:]))
		switch {
		case attributes&batch.AttrLogAppendTime != 0:
			crc = "of its time"
		case int64(binary.BigEndian.Uint64(b[43:])) >= 0:
			crc = fmt.Sprintf("of its producer, epoch %d, sequence %d", int16(binary.BigEndian.Uint16(b[51:])), int32(binary.BigEndian.Uint32(b[53:])))
		}
		out = append(out, fmt.Sprintf("batch at %d, %d bytes, attributes %d, crc %s", binary.BigEndian.Uint64(b), size, attributes, crc))
		b = b[size:]
	}
	return "[" + strings.Join(out, "; ") + "]"
}

// difference is one path at which the answers differ.
type difference struct {
	key           int16
	step          string
	version       int16
	path          string
	kafka, kagami string
}

const absent = "absent"

// compare lists the paths that differ. An element that only one side has is one
// difference, not one per field.
func compare(kafka, kagami flat) []difference {
	var out []difference
	all := maps.Clone(kafka)
	maps.Copy(all, kagami)
	var gone []string
	for _, path := range slices.Sorted(maps.Keys(all)) {
		a, inA := kafka[path]
		b, inB := kagami[path]
		if a == b && inA == inB || slices.ContainsFunc(gone, func(p string) bool { return strings.HasPrefix(path, p+".") }) {
			continue
		}
		if !inA {
			a = absent
		}
		if !inB {
			b = absent
		}
		if inA != inB && strings.HasSuffix(path, "]") {
			gone = append(gone, path)
		}
		if inA != inB && (a == "no elements" || b == "no elements") {
			continue // told by the elements of the other side
		}
		out = append(out, difference{path: path, kafka: a, kagami: b})
	}
	return out
}
