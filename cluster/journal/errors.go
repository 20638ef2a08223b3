package journal

import "errors"

// ErrNotLogEnd is about an append whose base offset isn't the log end at its place in the
// journal. The author read an older state; it reads the log end again and starts
// from there.
var ErrNotLogEnd = errors.New("base offset is not the log end")
