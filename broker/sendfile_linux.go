package broker

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"kagami/persistence"
)

const haveSendfile = true

// sendfile sends a chunk from the page cache to the socket. It passes the
// offset explicitly: the file is shared by all readers of the segment, so its
// position can't be used (net.TCPConn.ReadFrom would).
func (w *frameWriter) sendfile(c *persistence.Chunk) error {
	out, err := w.tcp.SyscallConn()
	if err != nil {
		return fmt.Errorf("write response: %w", err)
	}
	in, err := c.File.SyscallConn()
	if err != nil {
		return fmt.Errorf("read %s: %w", c.File.Name(), err)
	}
	pos, end := c.Pos, c.Pos+int64(c.Len)
	for pos < end {
		w.extend()
		var n int
		var sendErr error
		// Control keeps the file open for the call; Write waits for the socket and
		// honours its deadline.
		err := in.Control(func(inFD uintptr) {
			sendErr = out.Write(func(outFD uintptr) bool {
				n, err = unix.Sendfile(int(outFD), int(inFD), &pos, int(min(end-pos, sendfileStep)))
				return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
			})
			if sendErr == nil {
				sendErr = err
			}
		})
		switch {
		case err != nil:
			return fmt.Errorf("read %s: %w", c.File.Name(), err)
		case sendErr != nil:
			return fmt.Errorf("send %s at %d: %w", c.File.Name(), pos, sendErr)
		case n == 0:
			return fmt.Errorf("send %s at %d: %w", c.File.Name(), pos, io.ErrUnexpectedEOF)
		}
	}
	return nil
}
