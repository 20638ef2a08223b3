package batch

import "errors"

var (
	// ErrCorrupt means bytes that are no whole, valid batch. Errors that wrap it say
	// which offset and why.
	ErrCorrupt = errors.New("corrupt data")

	// ErrCompressed means that the records of a compressed batch were asked for where
	// nothing is decompressed.
	ErrCompressed = errors.New("batch is compressed")
)
