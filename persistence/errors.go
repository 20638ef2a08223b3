package persistence

import (
	"errors"
	"fmt"

	"kagami/messages/batch"
)

// Sentinels of this package; see [Log] for when they come.
var (
	ErrCorrupt              = batch.ErrCorrupt
	ErrStorage              = errors.New("storage failure")
	ErrOffsetOutOfRange     = errors.New("offset out of range")
	ErrClosed               = errors.New("log is closed")
	ErrExists               = errors.New("log exists")
	ErrNotFound             = errors.New("log not found")
	ErrLocked               = errors.New("data folder is in use by another process")
	ErrForeignFolder        = errors.New("data folder belongs to another cluster or node")
	ErrOutOfOrderSequence   = errors.New("out of order sequence")
	ErrInvalidProducerEpoch = errors.New("invalid producer epoch")
	ErrUnknownProducer      = errors.New("unknown producer id")
	ErrInvalidTxnState      = errors.New("invalid transaction state")
)

// DuplicateError says that the batch is stored already, at these offsets.
type DuplicateError struct {
	FirstOffset int64
	LastOffset  int64
	Timestamp   int64
}

// Error says where the batch stands.
func (e *DuplicateError) Error() string {
	return fmt.Sprintf("duplicate batch: stored at offsets %d to %d", e.FirstOffset, e.LastOffset)
}

// CorruptError says which file is damaged, at which offset and byte, and how.
type CorruptError struct {
	File   string
	Pos    int64 // byte position in the file, -1 if unknown
	Offset int64 // Kafka offset, -1 if unknown
	Reason string
}

// Error describes the damage.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("corrupt data in %s at byte %d, offset %d: %s", e.File, e.Pos, e.Offset, e.Reason)
}

// Unwrap makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Unwrap() error { return ErrCorrupt }

// unwrittenError is a failure to write something beside the data, on a full disk
// mostly, that left on the disk what was there before. It is tried again with the
// next flush; a failed sync or rename is never one, for those leave doubt.
type unwrittenError struct{ err error }

func (e *unwrittenError) Error() string { return e.err.Error() }
func (e *unwrittenError) Unwrap() error { return e.err }

func isUnwritten(err error) bool {
	var u *unwrittenError
	return errors.As(err, &u)
}

func storageError(verb, name string, err error) error {
	return fmt.Errorf("%s %s: %w: %w", verb, name, ErrStorage, err)
}
