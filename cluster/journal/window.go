package journal

import "sync/atomic"

// WindowBytesMax is the default of NewWindow.
const WindowBytesMax = 4 << 20

// Window is what the proposers of one node have in flight together: what is sent waits
// in one queue of the servers, and the beats behind it. It may be used by several
// goroutines.
type Window struct {
	max  int64
	used atomic.Int64
}

// NewWindow makes a window of so many bytes; 0 is the default, 4 MiB.
func NewWindow(bytes int64) *Window {
	if bytes <= 0 {
		bytes = WindowBytesMax
	}
	return &Window{max: bytes}
}

// Room reports whether a message of so many bytes fits.
func (w *Window) Room(bytes int) bool { return w.used.Load()+int64(bytes) <= w.max }

// Used is the bytes in flight. It may be above the limit: a proposer with nothing in
// flight may always send a message, so that one whose stream has no leader holds up
// none of the others.
func (w *Window) Used() int64 { return w.used.Load() }

func (w *Window) add(bytes int) { w.used.Add(int64(bytes)) }
