package diff

import (
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// malformedKeys are the requests that are sent with bodies that aren't theirs.
var malformedKeys = []int16{
	0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 32, 33, 34, 35, 37, 42, 43, 44, 45, 46, 47,
	48, 49, 57, 60, 61, 64, 65, 66, 68, 69, 74, 75,
}

// malformedSteps are bodies that can't be read: each costs its connection.
func malformedSteps() []step {
	var out []step
	for _, key := range malformedKeys {
		add := func(name string, body func(version int16) []byte) {
			out = append(out, step{
				name: "malformed: " + name, once: true, req: one(func() kmsg.Request { return kmsg.RequestForKey(key) }),
				body: func(_ *side, version int16) []byte { return body(version) },
			})
		}
		add("nothing", func(int16) []byte { return []byte{} })
		add("one byte", func(int16) []byte { return []byte{0xff} })
		add("many elements", func(int16) []byte { // lengths that the body doesn't have, in old and new encodings
			b := kbin.AppendInt32(nil, 1<<30)
			for range 8 {
				b = append(b, 0xff, 0xff, 0xff, 0xff, 0x07)
			}
			return b
		})
		add("a part of itself", func(version int16) []byte {
			r := kmsg.RequestForKey(key)
			r.SetVersion(version)
			b := r.AppendTo(nil)
			return b[:len(b)/2]
		})
	}
	behind := func(name string, key int16) step {
		return step{
			name: "malformed: bytes behind " + name, once: true, req: one(func() kmsg.Request { return kmsg.RequestForKey(key) }),
			body: func(_ *side, version int16) []byte {
				r := kmsg.RequestForKey(key)
				r.SetVersion(version)
				return append(r.AppendTo(nil), 1, 2, 3)
			},
		}
	}
	return append(out, behind("heartbeat", 12), behind("describe groups", 15))
}
