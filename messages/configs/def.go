package configs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"kagami/messages"
)

// Type is the type of a value, with Kafka's numbers (DescribeConfigs v3).
type Type int8

// The types.
const (
	TypeBoolean  Type = 1
	TypeString   Type = 2
	TypeInt      Type = 3
	TypeShort    Type = 4
	TypeLong     Type = 5
	TypeDouble   Type = 6
	TypeList     Type = 7
	TypeClass    Type = 8
	TypePassword Type = 9
)

// String is Kafka's name of the type.
func (t Type) String() string {
	switch t {
	case TypeBoolean:
		return "boolean"
	case TypeString:
		return "string"
	case TypeInt:
		return "int"
	case TypeShort:
		return "short"
	case TypeLong:
		return "long"
	case TypeDouble:
		return "double"
	case TypeList:
		return "list"
	case TypeClass:
		return "class"
	case TypePassword:
		return "password"
	default:
		return fmt.Sprintf("Type(%d)", int8(t))
	}
}

// Change says when a new value of a key takes effect.
type Change int8

// The ways to change a key.
const (
	// ChangeAlways: at run time; on brokers per node or as the default of all.
	ChangeAlways Change = iota + 1
	// ChangeRestart: in the node's file only, read at start.
	ChangeRestart
	// ChangeDynamicOnly: at run time only, refused in the file.
	ChangeDynamicOnly
	// ChangeNever: set by the cluster itself, shown read-only.
	ChangeNever
)

// String is the word used in the reference.
func (c Change) String() string {
	switch c {
	case ChangeAlways:
		return "yes"
	case ChangeRestart:
		return "no, in the file"
	case ChangeDynamicOnly:
		return "only, not in the file"
	case ChangeNever:
		return "read-only"
	default:
		return fmt.Sprintf("Change(%d)", int8(c))
	}
}

// Def is one key. Definitions are shared: nobody changes them.
type Def struct {
	Name    string
	Type    Type
	Default *string // nil: no value
	Doc     string
	Change  Change
	// High marks the keys that most users look at (importance HIGH; else LOW).
	High bool
	// Synonyms are the broker configs that stand in for a topic config that isn't
	// set, best first. The last one's default is the default.
	Synonyms []Synonym
	// Internal keys are left out of lists and of the reference.
	Internal bool

	check check
}

// Synonym is a broker config whose value, times Factor, is used.
type Synonym struct {
	Name   string
	Factor int64 // 0 = 1; e.g. 3600000 for hours
}

// Sensitive reports whether the value must never be shown or logged.
func (d *Def) Sensitive() bool { return d.Type == TypePassword }

// ReadOnly reports whether clients can't set it at run time.
func (d *Def) ReadOnly() bool { return d.Change == ChangeRestart || d.Change == ChangeNever }

// Valid is a text that says which values are allowed, "" if all of the type are.
func (d *Def) Valid() string { return d.check.text }

// valueBytesMax is Kafka's limit on a config value (configs.md, Limits).
const valueBytesMax = 32767

// Check returns nil if value may be set, else an error that wraps
// messages.ErrInvalidConfig, names the key, and never shows a password.
func (d *Def) Check(value string) error {
	if len(value) > valueBytesMax {
		return d.fault("the value has %d bytes, at most %d are allowed", len(value), valueBytesMax)
	}
	if why := d.typeFault(value); why != "" {
		return d.fault("%s %s", d.shown(value), why)
	}
	if d.check.fn == nil {
		return nil
	}
	if why := d.check.fn(value); why != "" {
		return d.fault("%s %s", d.shown(value), why)
	}
	return nil
}

func (d *Def) fault(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", messages.ErrInvalidConfig, d.Name, fmt.Sprintf(format, args...))
}

func (d *Def) shown(value string) string {
	if d.Sensitive() {
		return "the value"
	}
	const most = 200
	if len(value) > most {
		value = value[:most] + "..."
	}
	return strconv.Quote(value)
}

func (d *Def) typeFault(value string) string {
	v := strings.TrimSpace(value)
	var err error
	switch d.Type {
	case TypeBoolean:
		if !strings.EqualFold(v, "true") && !strings.EqualFold(v, "false") {
			return "is neither true nor false"
		}
	case TypeShort:
		_, err = strconv.ParseInt(v, 10, 16)
	case TypeInt:
		_, err = strconv.ParseInt(v, 10, 32)
	case TypeLong:
		_, err = strconv.ParseInt(v, 10, 64)
	case TypeDouble:
		if _, err := strconv.ParseFloat(v, 64); err != nil {
			return "is not a number"
		}
	case TypeString, TypeList, TypeClass, TypePassword:
	}
	switch {
	case errors.Is(err, strconv.ErrRange):
		return "is out of range of " + d.Type.String()
	case err != nil:
		return "is not a whole number"
	}
	return ""
}

// Set is all keys of one kind of resource.
type Set struct {
	kind  string
	defs  map[string]*Def
	names []string // sorted
	// cross checks values against each other.
	cross func(v Values) []error
}

func newSet(kind string, cross func(Values) []error, groups ...[]Def) *Set {
	s := &Set{kind: kind, defs: make(map[string]*Def), cross: cross}
	for _, g := range groups {
		for i := range g {
			d := &g[i]
			if d.Change == 0 {
				d.Change = ChangeAlways
			}
			s.defs[d.Name] = d
		}
	}
	s.names = slices.Sorted(maps.Keys(s.defs))
	return s
}

// Kind is what kind of resource the keys are of: "topic", "group" ...
func (s *Set) Kind() string { return s.kind }

// Names lists the keys in order, internal ones too.
func (s *Set) Names() []string { return s.names }

// Lookup returns the definition of a key, nil if it isn't known.
func (s *Set) Lookup(name string) *Def { return s.defs[name] }

// Check checks one value: an unknown key or a bad value wraps
// messages.ErrInvalidConfig.
func (s *Set) Check(name, value string) error {
	d := s.defs[name]
	if d == nil {
		return s.unknown(name)
	}
	return d.Check(value)
}

func (s *Set) unknown(name string) error {
	return fmt.Errorf("%w: unknown %s config %q", messages.ErrInvalidConfig, s.kind, name)
}

// Validate checks a whole map and reports every fault, in the order of the
// keys; each wraps messages.ErrInvalidConfig. It doesn't ask who set what: see
// [Set.Settable].
func (s *Set) Validate(configs map[string]string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		if err := s.Check(name, configs[name]); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 && s.cross != nil {
		errs = s.cross(Values{set: s, values: configs})
	}
	return errors.Join(errs...)
}

// Settable returns nil if a client may set or delete the key at run time, else
// an error that wraps messages.ErrInvalidConfig.
func (s *Set) Settable(name string) error {
	d := s.defs[name]
	switch {
	case d == nil:
		return s.unknown(name)
	case d.Change == ChangeNever:
		return d.fault("it is set by the cluster only")
	case d.Change == ChangeRestart:
		return d.fault("it can't be changed at run time: set it in the node's file and restart the node")
	default:
		return nil
	}
}
