package wire

import "errors"

// Sentinels of the decoders.
var (
	// ErrVersion means that the version is outside what this build knows.
	ErrVersion = errors.New("unknown version")
	// ErrMalformed means that the bytes are not what the schema says.
	ErrMalformed = errors.New("malformed message")
	// ErrUnknownType means a record type that this build doesn't know.
	ErrUnknownType = errors.New("unknown record type")
)
