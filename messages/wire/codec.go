package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

// codec is what every generated message has.
type codec interface {
	AppendTo(dst []byte) []byte
	ReadFrom(src []byte) error
	Default()
}

// prealloc caps what an array length makes a decoder allocate at once; longer
// arrays grow as their elements really come.
const prealloc = 256

// reader decodes and remembers its first error; after one it returns zeros.
type reader struct {
	src []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
	r.src = nil
}

func (r *reader) complete(name string) error {
	if r.err == nil && len(r.src) > 0 {
		r.fail("%d bytes left over", len(r.src))
	}
	if r.err != nil {
		return fmt.Errorf("decode %s: %w", name, r.err)
	}
	return nil
}

func (r *reader) version(name string, v, lo, hi int16) {
	if r.err == nil && (v < lo || v > hi) {
		r.err = fmt.Errorf("%w: %s version %d, known are %d to %d", ErrVersion, name, v, lo, hi)
		r.src = nil
	}
}

func (r *reader) recordType(want int16) {
	if got := r.int16(); r.err == nil && got != want {
		r.err = fmt.Errorf("%w: %d, want %d", ErrUnknownType, got, want)
		r.src = nil
	}
}

func (r *reader) span(n int) []byte {
	if n < 0 || n > len(r.src) {
		r.fail("%d bytes wanted, %d are there", n, len(r.src))
		return nil
	}
	b := r.src[:n:n]
	r.src = r.src[n:]
	return b
}

func (r *reader) bool() bool { return r.int8() != 0 }

func (r *reader) int8() int8 {
	if b := r.span(1); b != nil {
		return int8(b[0])
	}
	return 0
}

func (r *reader) int16() int16 { return int16(r.uint16()) }

func (r *reader) uint16() uint16 {
	if b := r.span(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) int32() int32 {
	if b := r.span(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *reader) int64() int64 {
	if b := r.span(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *reader) float64() float64 { return math.Float64frombits(uint64(r.int64())) }

func (r *reader) uuid() (id messages.TopicID) {
	copy(id[:], r.span(len(id)))
	return id
}

func (r *reader) uvarint() uint32 {
	v, n := kbin.Uvarint(r.src)
	if n <= 0 {
		r.fail("broken varint")
		return 0
	}
	r.src = r.src[n:]
	return v
}

// length reads the length of a string, bytes or array; -1 is null. width is
// the size of the field where the version isn't flexible.
func (r *reader) length(width int, flex bool) int {
	switch {
	case flex:
		return int(int64(r.uvarint()) - 1)
	case width == 2:
		return int(r.int16())
	default:
		return int(r.int32())
	}
}

// payload reads what follows a length; ok is false for null.
func (r *reader) payload(width int, null, flex bool) (b []byte, ok bool) {
	n := r.length(width, flex)
	if n == -1 && null {
		return nil, false
	}
	return r.span(n), true
}

func (r *reader) string(flex bool) string {
	b, _ := r.payload(2, false, flex)
	return string(b)
}

func (r *reader) nullableString(null, flex bool) *string {
	b, ok := r.payload(2, null, flex)
	if !ok || r.err != nil {
		return nil
	}
	s := string(b)
	return &s
}

func (r *reader) bytes(flex bool) []byte {
	b, _ := r.payload(4, false, flex)
	return append([]byte{}, b...)
}

func (r *reader) nullableBytes(null, flex bool) []byte {
	b, ok := r.payload(4, null, flex)
	if !ok || r.err != nil {
		return nil
	}
	return append([]byte{}, b...)
}

// arrayLen reads the length of an array whose elements take at least size
// bytes each; -1 is returned only after an error.
func (r *reader) arrayLen(size int, flex bool) int { return r.nullableArrayLen(size, false, flex) }

func (r *reader) nullableArrayLen(size int, null, flex bool) int {
	n := r.length(4, flex)
	switch {
	case r.err != nil || n == -1 && null:
		return -1
	case n < 0 || n > len(r.src)/size:
		r.fail("array of %d elements in %d bytes", n, len(r.src))
		return -1
	}
	return n
}

// tagIter walks a tag section; tags must rise, as KIP-482 says.
type tagIter struct {
	left  uint32
	last  int64
	tag   uint32
	value reader
}

func (r *reader) tags() tagIter { return tagIter{left: r.uvarint(), last: -1} }

func (it *tagIter) next(r *reader) bool {
	if it.left == 0 || r.err != nil {
		return false
	}
	it.left--
	it.tag = r.uvarint()
	if size := r.uvarint(); r.err == nil {
		it.value = reader{src: r.span(int(size))}
	}
	if r.err == nil && int64(it.tag) <= it.last {
		r.fail("tag %d after tag %d", it.tag, it.last)
	}
	it.last = int64(it.tag)
	return r.err == nil
}

// done hands the fault of a known tag's value on to r.
func (it *tagIter) done(r *reader) {
	if it.value.err == nil && len(it.value.src) > 0 {
		it.value.fail("%d bytes left over in tag %d", len(it.value.src), it.tag)
	}
	if it.value.err != nil && r.err == nil {
		r.err, r.src = it.value.err, nil
	}
}

func (it *tagIter) keep(r *reader, into *kmsg.Tags) {
	if r.err == nil {
		into.Set(it.tag, append([]byte{}, it.value.src...))
	}
}

func (r *reader) unknownTags(into *kmsg.Tags) {
	for it := r.tags(); it.next(r); {
		it.keep(r, into)
	}
}

// tagWriter gathers the known tags of one struct, in rising order.
type tagWriter struct {
	buf  []byte
	tags []taggedValue
}

type taggedValue struct {
	tag uint32
	end int // of the value in buf; it starts where the one before ends
}

func (t *tagWriter) end(tag uint32) { t.tags = append(t.tags, taggedValue{tag, len(t.buf)}) }

// append writes the tag section: known and unknown tags merged by number. An
// unknown tag with a known number is dropped.
func (t *tagWriter) append(dst []byte, unknown *kmsg.Tags) []byte {
	if unknown.Len() == 0 {
		dst = kbin.AppendUvarint(dst, uint32(len(t.tags)))
		for i := range t.tags {
			dst = t.appendOne(dst, i)
		}
		return dst
	}
	count, i := len(t.tags), 0
	var body []byte
	unknown.Each(func(tag uint32, value []byte) {
		for ; i < len(t.tags) && t.tags[i].tag < tag; i++ {
			body = t.appendOne(body, i)
		}
		if i < len(t.tags) && t.tags[i].tag == tag {
			return
		}
		count++
		body = kbin.AppendUvarint(body, tag)
		body = kbin.AppendUvarint(body, uint32(len(value)))
		body = append(body, value...)
	})
	for ; i < len(t.tags); i++ {
		body = t.appendOne(body, i)
	}
	return append(kbin.AppendUvarint(dst, uint32(count)), body...)
}

func (t *tagWriter) appendOne(dst []byte, i int) []byte {
	start := 0
	if i > 0 {
		start = t.tags[i-1].end
	}
	dst = kbin.AppendUvarint(dst, t.tags[i].tag)
	dst = kbin.AppendUvarint(dst, uint32(t.tags[i].end-start))
	return append(dst, t.buf[start:t.tags[i].end]...)
}

func appendUnknownTags(dst []byte, unknown *kmsg.Tags) []byte {
	return (&tagWriter{}).append(dst, unknown)
}

func appendString(dst []byte, s string, flex bool) []byte {
	if flex {
		return kbin.AppendCompactString(dst, s)
	}
	if len(s) > math.MaxInt16 {
		s = s[:math.MaxInt16] // can't be expressed; cut rather than write a length that lies
	}
	return kbin.AppendString(dst, s)
}

// appendNullableString writes nil as null where the version allows it, else as
// the empty string.
func appendNullableString(dst []byte, s *string, null, flex bool) []byte {
	switch {
	case s == nil && !null:
		return appendString(dst, "", flex)
	case s != nil:
		return appendString(dst, *s, flex)
	case flex:
		return append(dst, 0)
	default:
		return kbin.AppendInt16(dst, -1)
	}
}

func appendBytes(dst, b []byte, flex bool) []byte {
	if flex {
		return kbin.AppendCompactBytes(dst, b)
	}
	return kbin.AppendBytes(dst, b)
}

func appendNullableBytes(dst, b []byte, null, flex bool) []byte {
	if b == nil && null {
		return appendNullableArrayLen(dst, 0, true, flex)
	}
	return appendBytes(dst, b, flex)
}

func appendArrayLen(dst []byte, n int, flex bool) []byte {
	return appendNullableArrayLen(dst, n, false, flex)
}

func appendNullableArrayLen(dst []byte, n int, null, flex bool) []byte {
	if null {
		n = -1
	}
	if flex {
		return kbin.AppendUvarint(dst, uint32(n+1))
	}
	return kbin.AppendInt32(dst, int32(n))
}
