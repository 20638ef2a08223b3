package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

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
	frameHeaderMin = 8        // key, version, correlation id
	frameChunk     = 64 << 10 // first piece of a frame that is read before more memory is taken
)

// frame is one request as it came, without the size.
type frame struct {
	key         int16
	version     int16
	correlation int32
	body        []byte // after the correlation id
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

// readFrame reads one frame. io.EOF before its first byte means that the client
// has closed the connection in order. Memory is taken as bytes arrive, never by
// the size that the client claims. before is called ahead of every read, to move
// the deadline.
func readFrame(r io.Reader, limits frameLimits, before func()) (frame, error) {
	var fixed [4 + frameHeaderMin]byte
	before()
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
	before()
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
	body, err := readGrowing(r, size-frameHeaderMin, before)
	f.body = body
	return f, err
}

func readGrowing(r io.Reader, size int, before func()) ([]byte, error) {
	buf := make([]byte, 0, min(size, frameChunk))
	for len(buf) < size {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(size, 4*cap(buf)))
			copy(grown, buf)
			buf = grown
		}
		before()
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err != nil && len(buf) < size {
			return nil, fmt.Errorf("%w after %d of %d bytes: %w", errFrameCut, len(buf), size, err)
		}
	}
	return buf, nil
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
