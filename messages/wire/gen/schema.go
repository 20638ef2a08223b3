package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// message is one schema file.
type message struct {
	APIKey           *int            `json:"apiKey"`
	Type             string          `json:"type"` // request, response, data, coordinator-key, coordinator-value, metadata
	Name             string          `json:"name"`
	About            string          `json:"about"`
	ValidVersions    string          `json:"validVersions"`
	FlexibleVersions string          `json:"flexibleVersions"`
	CommonStructs    []structDef     `json:"commonStructs"`
	Fields           []*field        `json:"fields"`
	Listeners        json.RawMessage `json:"listeners"`
	// Hook names a hand-written func([]byte) []byte of package wire that a
	// decoder applies first: older or shorter forms become the current one.
	Hook string `json:"hook"`
	// LatestVersionUnstable is Kafka's; it has no effect here.
	LatestVersionUnstable bool `json:"latestVersionUnstable"`

	valid, flexible versions
}

type structDef struct {
	Name     string   `json:"name"`
	Versions string   `json:"versions"`
	About    string   `json:"about"`
	Fields   []*field `json:"fields"`
}

type field struct {
	Name             string          `json:"name"`
	Type             string          `json:"type"`
	Versions         string          `json:"versions"`
	NullableVersions string          `json:"nullableVersions"`
	TaggedVersions   string          `json:"taggedVersions"`
	FlexibleVersions string          `json:"flexibleVersions"`
	Tag              *uint32         `json:"tag"`
	Default          json.RawMessage `json:"default"`
	Ignorable        bool            `json:"ignorable"`
	MapKey           bool            `json:"mapKey"`
	EntityType       string          `json:"entityType"`
	ZeroCopy         bool            `json:"zeroCopy"`
	About            string          `json:"about"`
	Fields           []*field        `json:"fields"`

	array                 bool
	elem                  string // element or own type: a primitive, or a Go struct name
	isStruct              bool
	vers, nullable, tagVs versions
	def                   string // Go literal of the default; for arrays "" or "nil"
}

// versions is an inclusive range; none has lo > hi.
type versions struct{ lo, hi int16 }

var none = versions{lo: 1, hi: 0}

func (v versions) empty() bool              { return v.lo > v.hi }
func (v versions) covers(o versions) bool   { return !v.empty() && v.lo <= o.lo && v.hi >= o.hi }
func (v versions) overlaps(o versions) bool { return v.lo <= o.hi && o.lo <= v.hi }

func parseVersions(s string) (versions, error) {
	if s == "" || s == "none" {
		return none, nil
	}
	if lo, ok := strings.CutSuffix(s, "+"); ok {
		n, err := strconv.ParseInt(lo, 10, 16)
		return versions{int16(n), math.MaxInt16}, err
	}
	lo, hi, ranged := strings.Cut(s, "-")
	if !ranged {
		hi = lo
	}
	a, err := strconv.ParseInt(lo, 10, 16)
	if err != nil {
		return none, fmt.Errorf("parse versions %q: %w", s, err)
	}
	b, err := strconv.ParseInt(hi, 10, 16)
	if err != nil {
		return none, fmt.Errorf("parse versions %q: %w", s, err)
	}
	return versions{int16(a), int16(b)}, nil
}

var primitives = map[string]string{
	"bool": "bool", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64",
	"uint16": "uint16", "float64": "float64", "string": "string", "bytes": "[]byte", "uuid": "messages.TopicID",
}

func loadSchemas(dir string) ([]*message, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	sort.Strings(names)
	var out []*message
	seen := map[string]string{}
	for _, name := range names {
		m, err := loadSchema(name)
		if err != nil {
			return nil, fmt.Errorf("load %s: %w", name, err)
		}
		if other, ok := seen[m.Name]; ok {
			return nil, fmt.Errorf("load %s: %s is defined in %s as well", name, m.Name, other)
		}
		seen[m.Name] = name
		out = append(out, m)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no schema files in %s", dir)
	}
	return out, nil
}

func loadSchema(name string) (*message, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parseSchema(raw)
}

func parseSchema(raw []byte) (*message, error) {
	dec := json.NewDecoder(bytes.NewReader(stripComments(raw)))
	dec.DisallowUnknownFields()
	m := &message{}
	err := dec.Decode(m)
	if err != nil {
		return nil, err
	}
	switch m.Type {
	case "request", "response", "coordinator-key", "coordinator-value", "metadata":
		if m.APIKey == nil {
			return nil, fmt.Errorf("%s: apiKey is missing", m.Name)
		}
	case "data":
	default:
		return nil, fmt.Errorf("%s: unknown type %q", m.Name, m.Type)
	}
	if m.valid, err = parseVersions(m.ValidVersions); err != nil || m.valid.empty() || m.valid.hi == math.MaxInt16 {
		return nil, fmt.Errorf("%s: validVersions %q must be a closed range", m.Name, m.ValidVersions)
	}
	if m.flexible, err = parseVersions(m.FlexibleVersions); err != nil {
		return nil, fmt.Errorf("%s: flexibleVersions: %w", m.Name, err)
	}
	return m, m.resolve(m.Fields)
}

// stripComments removes lines whose first mark is //, as Kafka's files have them.
func stripComments(raw []byte) []byte {
	var out []byte
	for line := range bytes.Lines(raw) {
		if !bytes.HasPrefix(bytes.TrimSpace(line), []byte("//")) {
			out = append(out, line...)
		}
	}
	return out
}

func (m *message) resolve(fields []*field) error {
	tags := map[uint32]bool{}
	for _, f := range fields {
		if err := m.resolveField(f); err != nil {
			return fmt.Errorf("%s: field %s: %w", m.Name, f.Name, err)
		}
		if f.Tag != nil {
			if tags[*f.Tag] {
				return fmt.Errorf("%s: field %s: tag %d twice", m.Name, f.Name, *f.Tag)
			}
			tags[*f.Tag] = true
		}
	}
	for i := range m.CommonStructs {
		if m.CommonStructs[i].Fields == nil || m.CommonStructs[i].Versions == "done" {
			continue
		}
		m.CommonStructs[i].Versions = "done"
		if err := m.resolve(m.CommonStructs[i].Fields); err != nil {
			return err
		}
	}
	return nil
}

func (m *message) resolveField(f *field) error {
	var err error
	if f.vers, err = parseVersions(f.Versions); err != nil {
		return err
	}
	if f.nullable, err = parseVersions(f.NullableVersions); err != nil {
		return err
	}
	if f.tagVs, err = parseVersions(f.TaggedVersions); err != nil {
		return err
	}
	if f.FlexibleVersions != "" {
		return fmt.Errorf("flexibleVersions of a field are not supported")
	}
	if (f.Tag == nil) != f.tagVs.empty() {
		return fmt.Errorf("tag and taggedVersions go together")
	}
	if f.Tag != nil && !f.tagVs.covers(versions{max(f.vers.lo, m.valid.lo), min(f.vers.hi, m.valid.hi)}) {
		return fmt.Errorf("a field must be tagged in all its versions")
	}
	typ := f.Type
	if typ, f.array = strings.CutPrefix(typ, "[]"); f.array && strings.HasPrefix(typ, "[]") {
		return fmt.Errorf("arrays of arrays are not supported")
	}
	f.elem = typ
	if _, ok := primitives[typ]; ok {
		if f.array && !f.nullable.empty() && f.def == "" {
			f.def = ""
		}
		return f.resolveDefault()
	}
	f.isStruct = true
	f.elem = m.Name + goName(typ)
	if f.nullStruct() && !f.nullable.covers(m.valid) {
		return fmt.Errorf("structs that are nullable in some versions only are not supported")
	}
	if len(f.Fields) == 0 && !m.hasCommon(typ) {
		return fmt.Errorf("unknown type %q", typ)
	}
	if err := f.resolveDefault(); err != nil {
		return err
	}
	return m.resolve(f.Fields)
}

// nullStruct: a struct that may be null, which is a byte before it: 1, or -1 for null.
func (f *field) nullStruct() bool { return f.isStruct && !f.array && !f.nullable.empty() }

func (m *message) hasCommon(name string) bool {
	for _, c := range m.CommonStructs {
		if c.Name == name {
			return true
		}
	}
	return false
}

// resolveDefault turns the schema's default (a JSON string or a bare value)
// into a Go literal; Kafka's rule: no default means the zero value.
func (f *field) resolveDefault() error {
	text := strings.Trim(string(f.Default), `"`)
	if len(f.Default) > 0 && f.Default[0] == '"' {
		if err := json.Unmarshal(f.Default, &text); err != nil {
			return err
		}
	}
	switch {
	case f.array || f.isStruct || f.elem == "bytes":
		if text != "" && text != "null" {
			return fmt.Errorf("default %q of type %s", text, f.Type)
		}
		return nil
	case f.elem == "string":
		if text == "null" {
			if f.nullable.empty() {
				return fmt.Errorf("default null of a field that is never null")
			}
			f.def = "nil"
		} else if !f.nullable.empty() {
			if text != "" {
				return fmt.Errorf("nullable strings with a default text are not supported")
			}
			f.def = "nil" // unset and null are one thing here
		} else {
			f.def = strconv.Quote(text)
		}
		return nil
	case f.elem == "bool":
		f.def = "false"
		if text == "true" {
			f.def = "true"
		}
		return nil
	case f.elem == "uuid":
		if text != "" {
			return fmt.Errorf("uuid with a default")
		}
		return nil
	}
	if text == "" {
		text = "0"
	}
	if f.elem == "float64" {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("default: %w", err)
		}
		f.def = strconv.FormatFloat(n, 'g', -1, 64)
		return nil
	}
	bits := map[string]int{"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 17}[f.elem]
	n, err := strconv.ParseInt(text, 0, bits)
	if err != nil {
		return fmt.Errorf("default: %w", err)
	}
	f.def = strconv.FormatInt(n, 10)
	return nil
}

// goName is the exported Go name: Id becomes ID where a word ends.
func goName(s string) string {
	s = strings.ToUpper(s[:1]) + s[1:]
	for i := 0; i+2 <= len(s); i++ {
		if s[i:i+2] != "Id" {
			continue
		}
		rest := strings.TrimPrefix(s[i+2:], "s")
		if rest == "" || rest[0] >= 'A' && rest[0] <= 'Z' {
			s = s[:i] + "ID" + s[i+2:]
		}
	}
	return s
}

// jsonName is the name that Kafka's JSON converters print.
func jsonName(s string) string { return strings.ToLower(s[:1]) + s[1:] }

func snake(s string) string {
	var b strings.Builder
	for i, r := range s {
		if r >= 'A' && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}
