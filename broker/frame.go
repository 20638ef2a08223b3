package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/twmb/franz-go/pkg/kbin"
)

// A request frame (all integers big-endian):
//
//	int32 size            bytes that follow
//	int16 api key
//	int16 api version
//	int32 correlation id
//	int16 n, n bytes      client id, -1 = null
//	tagged fields         only where the version is flexible (header v2)
//	body
//
// A response frame:
//
//	int32 size
//	int32 correlation id
//	tagged fields         one 0 byte, where flexible, never for ApiVersions
//	body

// Faults of frames. Each costs the connection.
var (
	errFrameSize  = errors.New("frame size out of range")
	errFrameCut   = errors.New("frame cut off")
	errFrameShape = errors.New("malformed frame")
	errAPIUnknown = errors.New("api key not served")
	errAPIVersion = errors.New("api version not served")
)

const (
	frameHeaderMin = 8           // key, version, correlation id
	frameChunk     = budgetSmall // first piece of a frame that is read before more memory is taken
)

// frame is one request as it came, without the size.
type frame struct {
	key         int16
	version     int16
	correlation int32
	body        []byte // after the correlation id
	held        int64  // of the budget of requests
}

// frameLimits says how long a frame of a key may be.
type frameLimits struct {
	largest int // of keys that carry records
	small   int // of all others
}

func (l frameLimits) of(key int16) int {
	if key == keyProduce {
		return l.largest
	}
	return l.small
}

// frameHooks are what a connection has to say while a frame is read.
type frameHooks struct {
	// before is called ahead of the reads of a frame's size and header, to set the
	// deadline; begun is false until the size is there.
	before func(begun bool)
	// body is called ahead of every read of the body, of which got bytes are there and held
	// are counted, to set the deadline; a read that meets it is tried again. An error
	// ends the frame.
	body func(got int, held int64) error
	// grow asks for room for so many bytes in place of what is held, and says what is held
	// then.
	grow func(bytes int, held int64) (int64, error)
}

// readFrame reads one frame. io.EOF before its first byte means that the client
// has closed the connection in order. Memory is taken as bytes arrive, never by
// the size that the client claims. What the hooks have counted is in the frame, of one
// that isn't read to its end, too: the caller gives it back.
func readFrame(r io.Reader, limits frameLimits, hooks frameHooks) (frame, error) {
	var fixed [4 + frameHeaderMin]byte
	hooks.before(false)
	if n, err := io.ReadFull(r, fixed[:4]); err != nil {
		if n == 0 {
			return frame{}, err
		}
		return frame{}, fmt.Errorf("%w after %d bytes of its size: %w", errFrameCut, n, err)
	}
	size := int(int32(binary.BigEndian.Uint32(fixed[:])))
	if size < frameHeaderMin || size > max(limits.largest, limits.small) {
		return frame{}, fmt.Errorf("%w: %d bytes", errFrameSize, size)
	}
	hooks.before(true)
	if n, err := io.ReadFull(r, fixed[4:]); err != nil {
		return frame{}, fmt.Errorf("%w after %d of %d bytes: %w", errFrameCut, n, size, err)
	}
	f := frame{
		key:         int16(binary.BigEndian.Uint16(fixed[4:])),
		version:     int16(binary.BigEndian.Uint16(fixed[6:])),
		correlation: int32(binary.BigEndian.Uint32(fixed[8:])),
	}
	if limit := limits.of(f.key); size > limit {
		return f, fmt.Errorf("%w: %d bytes for key %d, at most %d are allowed", errFrameSize, size, f.key, limit)
	}
	err := f.readBody(r, size-frameHeaderMin, hooks)
	return f, err
}

func (f *frame) readBody(r io.Reader, size int, hooks frameHooks) error {
	buf := make([]byte, 0, min(size, frameChunk))
	for len(buf) < size {
		if len(buf) == cap(buf) {
			next := min(size, 4*cap(buf))
			var err error
			if f.held, err = hooks.grow(next, f.held); err != nil {
				return err
			}
			grown := make([]byte, len(buf), next)
			copy(grown, buf)
			buf = grown
		}
		if err := hooks.body(len(buf), f.held); err != nil {
			return fmt.Errorf("%w after %d of %d bytes: %w", errFrameCut, len(buf), size, err)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && len(buf) < size {
			return fmt.Errorf("%w after %d of %d bytes: %w", errFrameCut, len(buf), size, err)
		}
	}
	f.body = buf
	return nil
}

// splitHeader takes client id and header tags off a frame's body.
func splitHeader(body []byte, flexible bool) (clientID string, rest []byte, err error) {
	r := kbin.Reader{Src: body}
	if id := r.NullableString(); id != nil {
		clientID = *id
	}
	skipTags(&r, flexible)
	if !r.Ok() {
		return "", nil, fmt.Errorf("%w: request header", errFrameShape)
	}
	return clientID, r.Src, nil
}

// beginResponse appends size (to be patched by endResponse) and header.
func beginResponse(dst []byte, correlation int32, flexible bool) []byte {
	dst = kbin.AppendInt32(dst, 0)
	dst = kbin.AppendInt32(dst, correlation)
	if flexible {
		dst = append(dst, 0)
	}
	return dst
}

// endResponse writes the size of a frame that starts at dst[0] and of which
// extra bytes are not in dst.
func endResponse(dst []byte, extra int) {
	binary.BigEndian.PutUint32(dst, uint32(len(dst)-4+extra))
}
