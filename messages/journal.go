package messages

import "fmt"

// Class says whose batches an append carries; a partition's [Mode] decides which
// classes are valid (design: Journal).
type Class int8

// The classes of an append.
const (
	ClassClient   Class = iota + 1 // a producer's batches
	ClassMirror                    // batches copied from a source
	ClassInternal                  // control batches and records of internal topics
)

// String is the class in lower case.
func (c Class) String() string {
	switch c {
	case ClassClient:
		return "client"
	case ClassMirror:
		return "mirror"
	case ClassInternal:
		return "internal"
	default:
		return fmt.Sprintf("Class(%d)", int8(c))
	}
}

// Mode of a partition's journal: which classes of append it takes.
type Mode int8

// The modes. A new partition is writable. Writable takes client and internal
// appends, sealed takes internal ones only, mirroring takes mirror ones only.
const (
	ModeWritable Mode = iota + 1
	ModeSealed
	ModeMirroring
)

// String is the mode in lower case.
func (m Mode) String() string {
	switch m {
	case ModeWritable:
		return "writable"
	case ModeSealed:
		return "sealed"
	case ModeMirroring:
		return "mirroring"
	default:
		return fmt.Sprintf("Mode(%d)", int8(m))
	}
}

// Takes reports whether a partition in mode m accepts appends of class c.
func (m Mode) Takes(c Class) bool {
	switch m {
	case ModeWritable:
		return c == ClassClient || c == ClassInternal
	case ModeSealed:
		return c == ClassInternal
	case ModeMirroring:
		return c == ClassMirror
	default:
		return false
	}
}
