package metadata

import "errors"

// Sentinels of this package.
var (
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("metadata store is closed")
	// ErrUnknownRecord: a record type or version that this build doesn't know. The
	// log was written by a newer one; going on would lose changes.
	ErrUnknownRecord = errors.New("unknown metadata record")
	// ErrBadRecord: a record that contradicts the image it is applied to, such as
	// a partition of a topic that doesn't exist.
	ErrBadRecord = errors.New("metadata record does not fit")
	// ErrMissed: the log starts above the image: it was copied from another node after
	// this one had missed changes. A new store begins with a snapshot that reaches it.
	ErrMissed = errors.New("the metadata log goes on above what is known of it")
	// ErrStale: the batch came back under a claim that is no longer the newest and
	// was ignored by everybody.
	ErrStale = errors.New("metadata change of an older controller claim")
)
