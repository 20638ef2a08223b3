package wire

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

var update = flag.Bool("update", false, "rewrite golden files")

// The generated types are what kgo takes.
var (
	_ kmsg.Request             = (*StartMirrorTopicsRequest)(nil)
	_ kmsg.Response            = (*StartMirrorTopicsResponse)(nil)
	_ kmsg.SetThrottleResponse = (*StartMirrorTopicsResponse)(nil)
)

var equalTags = cmp.Comparer(func(a, b kmsg.Tags) bool {
	return string((&a).AppendEach(nil)) == string((&b).AppendEach(nil))
})

func names() []string {
	var out []string
	for name := range allMessages() {
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}

// fill gives every field a value of its own that isn't the default.
func fill(v reflect.Value, n *int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.Name == "UnknownTags" || f.Tag.Get("json") == "-" {
				continue
			}
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(uint64(*n%100 + i))
		}
		*n++
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.String:
		v.SetString(fmt.Sprintf("s%d", *n))
		*n++
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Uint8, reflect.Uint16:
		v.SetUint(uint64(*n % 100))
		*n++
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.5)
		*n++
	default:
		v.SetInt(int64(*n%100) + 1)
		*n++
	}
}

// versionsOf lists the versions of a message: 0 to MaxVersion. Messages
// without a version have one.
func versionsOf(c codec) []int16 {
	v, ok := c.(interface{ MaxVersion() int16 })
	if !ok {
		return []int16{0}
	}
	var out []int16
	for i := int16(0); i <= v.MaxVersion(); i++ {
		out = append(out, i)
	}
	return out
}

func setVersion(c codec, v int16) {
	if s, ok := c.(interface{ SetVersion(int16) }); ok {
		s.SetVersion(v)
	}
}

func filled(name string, version int16) codec {
	c := allMessages()[name]
	setVersion(c, version)
	n := 1
	fill(reflect.ValueOf(c).Elem(), &n)
	return c
}

func goldenFile(name string, version int16) string {
	return filepath.Join("testdata", fmt.Sprintf("%s.v%d.hex", name, version))
}

func readGolden(tb testing.TB, name string, version int16) []byte {
	tb.Helper()
	text, err := os.ReadFile(goldenFile(name, version))
	require.NoError(tb, err, "run go test ./messages/wire -update and read the diff")
	b, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	require.NoError(tb, err)
	return b
}

// TestGolden: every message in every version has the bytes it always had, and
// decodes to what was encoded.
func TestGolden(t *testing.T) {
	for _, name := range names() {
		for _, version := range versionsOf(allMessages()[name]) {
			t.Run(fmt.Sprintf("%s/v%d", name, version), func(t *testing.T) {
				want := filled(name, version)
				b := want.AppendTo(nil)
				if *update {
					var text strings.Builder
					for i := 0; i < len(b); i += 32 {
						fmt.Fprintln(&text, hex.EncodeToString(b[i:min(i+32, len(b))]))
					}
					require.NoError(t, os.WriteFile(goldenFile(name, version), []byte(text.String()), 0o600))
				}
				require.Equal(t, hex.EncodeToString(readGolden(t, name, version)), hex.EncodeToString(b))

				got := allMessages()[name]
				setVersion(got, version)
				require.NoError(t, got.ReadFrom(b))
				require.Equal(t, b, got.AppendTo(nil))
				if len(versionsOf(got)) == 1 {
					require.Empty(t, cmp.Diff(want, got, equalTags))
				}
			})
		}
	}
}

// Every message: defaults round-trip, every cut is refused, a byte too many is
// refused, the next version is refused with its sentinel.
func TestRefusals(t *testing.T) {
	for _, name := range names() {
		t.Run(name, func(t *testing.T) {
			c := allMessages()[name]
			b := c.AppendTo(nil)
			require.NoError(t, allMessages()[name].ReadFrom(b), "defaults")

			versions := versionsOf(c)
			newest := versions[len(versions)-1]
			full := filled(name, newest).AppendTo(nil)
			for n := range full {
				got := allMessages()[name]
				setVersion(got, newest)
				if err := got.ReadFrom(full[:n:n]); err == nil {
					t.Fatalf("first %d of %d bytes were accepted", n, len(full))
				}
			}
			got := allMessages()[name]
			require.ErrorIs(t, got.ReadFrom(append(slices.Clip(full), 0)), ErrMalformed)

			if s, ok := got.(interface{ SetVersion(int16) }); ok {
				s.SetVersion(newest + 1)
				next := got.AppendTo(nil) // a coordinator value carries its version
				if _, isValue := got.(interface{ IsFlexible() bool }); isValue {
					require.ErrorIs(t, got.ReadFrom(next), ErrVersion)
				}
			}
		})
	}
}

// A length field can't make a decoder allocate much more than it was given.
func TestHostileLengths(t *testing.T) {
	huge := [][]byte{
		{0xff, 0xff, 0xff, 0xff, 0x0f}, // compact length 2^32-2
		{0x7f, 0xff, 0xff, 0xff},
		{0xff, 0xff, 0xff, 0xff},
		{0x80, 0x80, 0x80, 0x80, 0x80, 0x01},
	}
	var before, after runtime.MemStats
	for _, name := range names() {
		for _, version := range versionsOf(allMessages()[name]) {
			full := filled(name, version).AppendTo(nil)
			for pos := range full {
				for _, h := range huge {
					b := append(append(append([]byte{}, full[:pos]...), h...), full[pos:]...)
					c := allMessages()[name]
					setVersion(c, version)
					_ = c.ReadFrom(b)
				}
			}
		}
	}
	// One long array of the smallest elements: the worst a sender can do.
	const size = 1 << 20
	b := append([]byte{0, 0, 0, 0, 0, 0, 0}, binary.AppendUvarint(nil, size+1)...)
	b = append(b, make([]byte, size*3)...)
	runtime.ReadMemStats(&before)
	_ = NewPtrReadMirrorStatesResponse().ReadFrom(b)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 256*uint64(len(b)) {
		t.Errorf("%d bytes of input made %d bytes of garbage", len(b), got)
	}
}

// Byte fields are in no schema today; Kafka's definitions have them.
func TestBytesFields(t *testing.T) {
	for _, flex := range []bool{true, false} {
		b := appendBytes(nil, []byte("ab"), flex)
		b = appendNullableBytes(b, nil, true, flex)
		b = appendNullableBytes(b, nil, false, flex)
		b = appendNullableBytes(b, []byte("c"), true, flex)
		r := reader{src: b}
		require.Equal(t, "ab", string(r.bytes(flex)))
		require.Nil(t, r.nullableBytes(true, flex))
		require.Equal(t, []byte{}, r.nullableBytes(true, flex))
		require.Equal(t, "c", string(r.nullableBytes(true, flex)))
		require.NoError(t, r.complete("x"))
	}
}

func TestUnknownTagsAreKept(t *testing.T) {
	m := NewPtrReadMirrorStatesResponse()
	p := NewReadMirrorStatesResponsePartitionStateData()
	p.PreviousState, p.RetryAttempt, p.WriteNumber = 2, 3, 9
	p.UnknownTags.Set(1, []byte("a known number: dropped"))
	p.UnknownTags.Set(500, []byte("between"))
	p.UnknownTags.Set(90000, []byte("after"))
	topic := NewReadMirrorStatesResponseTopicStates()
	topic.Partitions = append(topic.Partitions, p)
	m.Topics = append(m.Topics, topic)
	m.UnknownTags.Set(7, nil)
	b := m.AppendTo(nil)

	got := NewPtrReadMirrorStatesResponse()
	require.NoError(t, got.ReadFrom(b))
	require.Equal(t, b, got.AppendTo(nil))
	gp := got.Topics[0].Partitions[0]
	require.Equal(t, int8(2), gp.PreviousState)
	require.Equal(t, int16(3), gp.RetryAttempt)
	require.Equal(t, int64(9), gp.WriteNumber)
	require.Equal(t, 2, gp.UnknownTags.Len())

	falling := []byte{2, 5, 0, 4, 0} // two tags, 5 before 4
	r := reader{src: falling}
	var tags kmsg.Tags
	r.unknownTags(&tags)
	require.ErrorIs(t, r.err, ErrMalformed)
}

// TestD24 is the byte examples of records.md (cases D24).
func TestD24RecordExamples(t *testing.T) {
	epochs := NewPtrLastMirrorEpochsValue()
	epochs.Topics = []LastMirrorEpochsValueTopicEpochs{{Name: "my-topic", Partitions: []LastMirrorEpochsValuePartitionEpoch{
		{PartitionIndex: 0, LastMirrorEpoch: 5}, {PartitionIndex: 1, LastMirrorEpoch: 7},
	}}}
	state := func(s, previous int8, retry int16) *MirrorPartitionStateValue {
		v := NewPtrMirrorPartitionStateValue()
		v.TopicName, v.State, v.PreviousState, v.RetryAttempt = "my-topic", s, previous, retry
		return v
	}
	for name, tc := range map[string]struct {
		value codec
		size  int
		want  string
	}{
		"type 1 key":       {&LastMirrorEpochsKey{MirrorName: "my-mirror"}, 13, "00 01 00 09 6d 79 2d 6d 69 72 72 6f 72"},
		"type 1 value":     {epochs, 33, "00 00 02 09 6d 79 2d 74 6f 70 69 63 03 00 00 00 00 00 00 00 05 00 00 00 00 01 00 00 00 07 00 00 00"},
		"type 2 key":       {&MirrorPartitionStateKey{MirrorName: "my-mirror"}, 13, "00 02 00 09 6d 79 2d 6d 69 72 72 6f 72"},
		"type 2 MIRRORING": {state(2, 16, 0), 20, "00 00 09 6d 79 2d 74 6f 70 69 63 00 00 00 00 02 10 00 00 00"},
		"type 2 FAILED":    {state(7, 2, 1), 20, "00 00 09 6d 79 2d 74 6f 70 69 63 00 00 00 00 07 02 00 01 00"},
		"MIRROR_PID_RESET": {&MirrorPidReset{SourceClusterID: "lBq12jYZRp-9wF3M9MPopg"}, 26, "00 00 17 6c 42 71 31 32 6a 59 5a 52 70 2d 39 77 46 33 4d 39 4d 50 6f 70 67 00"},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := hex.DecodeString(strings.ReplaceAll(tc.want, " ", ""))
			require.NoError(t, err)
			require.Len(t, want, tc.size)
			require.Equal(t, want, tc.value.AppendTo(nil))
			got := reflect.New(reflect.TypeOf(tc.value).Elem()).Interface().(codec)
			require.NoError(t, got.ReadFrom(want))
			require.Empty(t, cmp.Diff(tc.value, got, equalTags))
		})
	}
}

func TestD24ShortPartitionState(t *testing.T) {
	short, err := hex.DecodeString("0000096d792d746f7069630000000004" + "00")
	require.NoError(t, err)
	require.Len(t, short, 17)
	var got MirrorPartitionStateValue
	require.NoError(t, got.ReadFrom(short))
	require.Equal(t, "my-topic", got.TopicName)
	require.Equal(t, int8(messages.StatePaused), got.State)
	require.Equal(t, int8(messages.StateUnknown), got.PreviousState)
	require.Zero(t, got.RetryAttempt)
	require.Error(t, got.ReadFrom(short[:16]))
}

// What the wire looks like by hand, field by field, for one request of each shape.
func TestBytesByHand(t *testing.T) {
	start := NewPtrStartMirrorTopicsRequest()
	start.MirrorName = "m"
	start.Topics = []StartMirrorTopicsRequestTopicData{{TopicID: messages.TopicID{15: 9}, TopicName: "t", NumPartitions: 3}}
	start.IncludePatterns = []string{"t.*"}
	require.Equal(t, "02"+"6d"+ // MirrorName
		"02"+"00000000000000000000000000000009"+"0274"+"00000003"+"00"+ // Topics
		"02"+"04742e2a"+ // IncludePatterns
		"01"+"00", hex.EncodeToString(start.AppendTo(nil)))

	write := NewPtrWriteMirrorStatesRequest()
	p := NewWriteMirrorStatesRequestPartitionStateData()
	p.State, p.LeaderEpoch, p.WriteNumber = 2, 5, 6
	write.MirrorName = "m"
	write.Topics = []WriteMirrorStatesRequestTopicStates{{Name: "t", Partitions: []WriteMirrorStatesRequestPartitionStateData{p}}}
	require.Equal(t, "026d"+"02"+"0274"+"02"+"00000000"+"ffffffff"+"02"+
		"02"+"d00f"+"04"+"00000005"+"d10f"+"08"+"0000000000000006"+
		"00"+"01"+"00", hex.EncodeToString(write.AppendTo(nil)))

	null := NewPtrCreateClusterMirrorResponse()
	null.ErrorCode = CodeInvalidClusterMirrorName
	require.Equal(t, "00000000"+"0857"+"00"+"00", hex.EncodeToString(null.AppendTo(nil)))
}

func TestMetadataRecordFraming(t *testing.T) {
	for key := range int16(300) {
		rec := NewMetadataRecord(key)
		if rec == nil {
			continue
		}
		name := MetadataRecordName(key)
		rec = filled(name, rec.MaxVersion()).(MetadataRecord)
		b := AppendMetadataRecord(nil, rec)
		got, err := ReadMetadataRecord(b)
		require.NoError(t, err, name)
		require.Empty(t, cmp.Diff(rec, got, equalTags), name)

		rec.SetVersion(rec.MaxVersion() + 1)
		_, err = ReadMetadataRecord(AppendMetadataRecord(nil, rec))
		require.ErrorIs(t, err, ErrVersion, name)
	}
	for name, tc := range map[string]struct {
		b    []byte
		want error
	}{
		"empty":          {nil, ErrMalformed},
		"next frame":     {[]byte{2, 2, 0, 0}, ErrVersion},
		"unknown type":   {[]byte{1, 0xff, 0x01, 0, 0}, ErrUnknownType},
		"type too large": {[]byte{1, 0xff, 0xff, 0xff, 0x0f, 0, 0}, ErrUnknownType},
	} {
		_, err := ReadMetadataRecord(tc.b)
		require.ErrorIs(t, err, tc.want, name)
	}
}

type maxVersions map[int16]int16

func (m maxVersions) SetMaxKeyVersion(k, v int16) { m[k] = v }

func TestKeys(t *testing.T) {
	table := maxVersions{}
	RaiseMaxVersions(table)
	require.Len(t, table, 14)
	for _, key := range Keys() {
		req, resp := RequestForKey(key), ResponseForKey(key)
		require.NotEmpty(t, KeyName(key))
		require.Equal(t, "*wire."+KeyName(key)+"Request", fmt.Sprintf("%T", req))
		require.Equal(t, key, req.Key())
		require.Equal(t, key, resp.Key())
		require.Equal(t, fmt.Sprintf("%T", resp), fmt.Sprintf("%T", req.ResponseKind()))
		require.Equal(t, fmt.Sprintf("%T", req), fmt.Sprintf("%T", resp.RequestKind()))
		require.True(t, req.IsFlexible())
		require.Nil(t, kmsg.RequestForKey(key), "Kafka has this key by now")
	}
	require.Nil(t, RequestForKey(2097))
	require.Empty(t, KeyName(0))
}

func TestErrorForCode(t *testing.T) {
	require.NoError(t, ErrorForCode(0, "x"))
	for code := CodeReadOnlyTopic; code <= CodeInvalidClusterMirrorStates; code++ {
		err := ErrorForCode(code, "")
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, code, e.Code)
		require.Equal(t, e.Name, ErrorName(code))
		require.NotNil(t, errors.Unwrap(err))
		require.NotEqual(t, code, kerr.TypedErrorForCode(code).Code, "Kafka has this code by now")
	}
	require.ErrorIs(t, ErrorForCode(2137, "no such mirror"), messages.ErrUnknownMirror)
	require.EqualError(t, ErrorForCode(2137, "no such mirror"), "no such mirror")
	require.ErrorIs(t, ErrorForCode(42, ""), kerr.InvalidRequest)
	require.Equal(t, "INVALID_REQUEST", ErrorName(42))
	require.Equal(t, "NONE", ErrorName(0))
	require.Equal(t, "UNKNOWN_9999", ErrorName(9999))
}

// FuzzRequest: whatever the bytes, a decoder doesn't panic; what it accepts,
// it encodes, decodes again and encodes to the same bytes.
func FuzzRequest(f *testing.F) {
	all := names()
	for i, name := range all {
		for _, version := range versionsOf(allMessages()[name]) {
			f.Add(uint8(i), uint8(version), readGolden(f, name, version))
		}
	}
	f.Fuzz(func(t *testing.T, which, version uint8, b []byte) {
		name := all[int(which)%len(all)]
		c := allMessages()[name]
		setVersion(c, int16(version%5))
		_, _ = ReadMetadataRecord(b)
		if c.ReadFrom(b) != nil {
			return
		}
		once := c.AppendTo(nil)
		again := allMessages()[name]
		setVersion(again, int16(version%5))
		if err := again.ReadFrom(once); err != nil {
			t.Fatalf("%s doesn't decode its own encoding: %v\n%x\n%x", name, err, b, once)
		}
		if twice := again.AppendTo(nil); string(once) != string(twice) {
			t.Fatalf("%s: %x became %x", name, once, twice)
		}
	})
}
