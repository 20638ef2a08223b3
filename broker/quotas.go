package broker

import (
	"strings"
	"sync"
	"time"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// Quotas are limits per node, as in Kafka (KIP-13, KIP-124, KIP-599): what a client has
// used above its share is waited for. The answer goes out at once and names the wait
// (throttle time), then the connection isn't read for that long, whatever the client does
// (KIP-219).
//
// A share is a bucket: limit tokens come in per second, at most those of the quota window
// stay, and what is used may make it negative. The wait is what the debt takes to be paid.

// quotaBucketsMax bounds the buckets: client ids are the clients' to choose. When there
// are more, full ones go, which are as good as new ones.
const quotaBucketsMax = 20_000

// requestThrottleMax is the longest wait for request time, as in Kafka.
const requestThrottleMax = time.Second

// bucketKey names a bucket: what is limited, and for whom. A limit of a user is shared
// by all its clients, one of a client id by all users of it.
type bucketKey struct {
	limit        string // messages.QuotaProduceRate etc.
	user, client string
	byUser       bool
	byClient     bool
}

type bucket struct {
	tokens float64
	at     time.Time
}

// quotas holds the buckets of a node. Its methods may be called at any time.
type quotas struct {
	window time.Duration

	mu      sync.Mutex
	buckets map[bucketKey]*bucket
}

func newQuotas(window time.Duration) *quotas {
	return &quotas{window: window, buckets: make(map[bucketKey]*bucket)}
}

// share is the bucket that a client draws on, and what comes in per second.
type share struct {
	key  bucketKey
	rate float64
}

// shareOf finds the limit that counts for a client: the first that is set of user and
// client id, user with any client id, user; then the same of the default user; then of
// the client id, and of any (Kafka's order). ok is false without one.
func shareOf(img *metadata.Image, who messages.Requester, limit string) (s share, ok bool) {
	if len(img.Quotas()) == 0 {
		return share{}, false
	}
	user := strings.TrimPrefix(who.Principal, "User:")
	named := func(n string) messages.QuotaPart { return messages.QuotaPart{Set: true, Name: n} }
	any := messages.QuotaPart{Set: true, Default: true}
	none := messages.QuotaPart{}
	for _, e := range []messages.QuotaEntity{
		{User: named(user), ClientID: named(who.ClientID)}, {User: named(user), ClientID: any}, {User: named(user), ClientID: none},
		{User: any, ClientID: named(who.ClientID)}, {User: any, ClientID: any}, {User: any, ClientID: none},
		{ClientID: named(who.ClientID)}, {ClientID: any},
	} {
		rate, set := img.QuotaOf(e)[limit]
		if !set {
			continue
		}
		k := bucketKey{limit: limit, byUser: e.User.Set, byClient: e.ClientID.Set}
		if k.byUser {
			k.user = user
		}
		if k.byClient {
			k.client = who.ClientID
		}
		return share{key: k, rate: rate}, true
	}
	return share{}, false
}

// take uses up amount and returns the wait that follows.
func (q *quotas) take(now time.Time, s share, amount float64) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.bucketLocked(now, s)
	b.tokens -= amount
	return wait(b, s)
}

// debt is the wait that is due now.
func (q *quotas) debt(now time.Time, s share) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return wait(q.bucketLocked(now, s), s)
}

func wait(b *bucket, s share) time.Duration {
	if b.tokens >= 0 {
		return 0
	}
	seconds := -b.tokens / s.rate
	if seconds > time.Hour.Seconds() {
		return time.Hour // a tiny limit and a huge batch; and no overflow
	}
	return time.Duration(seconds * float64(time.Second))
}

// bucketLocked is the bucket as of now.
func (q *quotas) bucketLocked(now time.Time, s share) *bucket {
	full := s.rate * q.window.Seconds()
	b := q.buckets[s.key]
	if b == nil {
		if len(q.buckets) >= quotaBucketsMax {
			q.dropIdleLocked(now)
		}
		b = &bucket{tokens: full, at: now}
		q.buckets[s.key] = b
	}
	if passed := now.Sub(b.at).Seconds(); passed > 0 {
		b.tokens, b.at = min(full, b.tokens+passed*s.rate), now
	}
	b.tokens = min(b.tokens, full) // the limit may be lower than it was
	return b
}

// dropIdleLocked drops buckets that nobody has used for a window, and if those are too few
// any half of them, so that it needn't look again soon: a wait is at most forgotten.
func (q *quotas) dropIdleLocked(now time.Time) {
	for k, b := range q.buckets {
		if now.Sub(b.at) >= q.window {
			delete(q.buckets, k)
		}
	}
	for k := range q.buckets {
		if len(q.buckets) <= quotaBucketsMax/2 {
			return
		}
		delete(q.buckets, k)
	}
}

// timedKey says of which requests the handling is the node's own work: others wait for the
// controller or for other clients.
func timedKey(key int16) bool {
	switch key {
	case keyProduce, 1, 2, 3, 8, 9, 10, 12, 13, 15, 16, keyAPIVersions, 23, 32, 48, 60, 74, 75:
		return true
	default:
		return false
	}
}

// throttle is how long the client has to wait after this request: for its bytes, for
// the time that it took, and for what the handler has counted.
func (s *Server) throttle(r *request, frameBytes int, rep *reply, took time.Duration) time.Duration {
	img, now, out := s.image(), s.clock.Now(), r.throttle
	if len(img.Quotas()) == 0 {
		return out
	}
	if r.api.key == keyProduce {
		if sh, ok := shareOf(img, r.who, messages.QuotaProduceRate); ok {
			out = max(out, s.quotas.take(now, sh, float64(frameBytes)))
		}
	}
	if rep.fetch != nil {
		if sh, ok := shareOf(img, r.who, messages.QuotaFetchRate); ok {
			if s.quotas.debt(now, sh) > 0 {
				rep.fetch.empty() // another connection has used it up
			}
			out = max(out, s.quotas.take(now, sh, float64(rep.fetch.bytes())))
		}
	}
	if timedKey(r.api.key) {
		if sh, ok := shareOf(img, r.who, messages.QuotaRequests); ok {
			sh.rate /= 100
			out = max(out, min(requestThrottleMax, s.quotas.take(now, sh, (took-r.waited).Seconds())))
		}
	}
	return out
}

// mutate counts partitions that are to be created or deleted. Clients that know the error
// are refused while their share is used up (strict), others wait afterwards.
func (s *Server) mutate(r *request, partitions int, strict bool) error {
	sh, ok := shareOf(s.image(), r.who, messages.QuotaMutationRate)
	if !ok {
		return nil
	}
	now := s.clock.Now()
	if strict {
		if due := s.quotas.debt(now, sh); due > 0 {
			r.throttle = max(r.throttle, due)
			return messages.ErrThrottled
		}
	}
	due := s.quotas.take(now, sh, float64(partitions))
	if !strict {
		r.throttle = max(r.throttle, due)
	}
	return nil
}
