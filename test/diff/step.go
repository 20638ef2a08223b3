package diff

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/wire"
)

// step is one request of the script, sent in every version that both sides serve.
type step struct {
	name string
	// req makes the request for one side, which may know ids by name. The version is
	// set afterwards.
	req func(s *side, version int16) kmsg.Request
	// from and to narrow the versions; to 0: no upper bound.
	from, to int16
	// body replaces the encoded body, header excluded; nil: as req encodes it.
	body func(s *side, version int16) []byte
	// keep reads from the answer what later steps need.
	keep func(s *side, resp kmsg.Response)
	// until repeats the request until it is true, or patience ends: for what a cluster
	// does some time after it has answered.
	until func(resp kmsg.Response) bool
	// once: in the newest common version only.
	once bool
	// exact is a version to send whether the sides serve it or not.
	exact *int16
}

func key(s step) int16 { return s.req(newSide("", "", ""), 0).Key() }

func apiName(key int16) string {
	if n := wire.KeyName(key); n != "" {
		return n
	}
	return kmsg.NameForKey(key)
}

// one wraps a request that is the same on both sides.
func one(f func() kmsg.Request) func(*side, int16) kmsg.Request {
	return func(*side, int16) kmsg.Request { return f() }
}
