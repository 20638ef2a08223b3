package broker

import (
	"container/list"
	"crypto/rand"
	"encoding/binary"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/internal/clock"
	"kagami/messages"
)

// Incremental fetch sessions (KIP-227). A client opens one with a full fetch
// (epoch 0), then sends only what changed, with an epoch that grows by one per
// request; the answers hold only partitions that have something new.
//
//	epoch -1  full fetch, close the session if one is named
//	epoch  0  full fetch, open a new session (and close the one named)
//	epoch  n  incremental: n must be the expected one

const (
	sessionEpochInitial int32 = 0
	sessionEpochFinal   int32 = -1
	// sessionPartitionsMax bounds what all sessions together remember, some 250
	// bytes each; a client that doesn't fit gets session id 0 and full fetches.
	sessionPartitionsMax = 500_000
)

// sessionKey names a partition as the client does: by id from v13 on, else by
// name. A topic that was deleted and created again is a different one by id.
type sessionKey struct {
	topic     string
	id        messages.TopicID
	partition int32
}

// sessionPartition is what a session remembers of one partition. sent is what
// the client was last told.
type sessionPartition struct {
	key          sessionKey
	offset       int64
	maxBytes     int32
	currentEpoch int32
	lastEpoch    int32
	sentHW       int64
	sentStart    int64
}

// fetchSession belongs to one client: nobody else can use or end it, or learn from it
// which partitions there are. Its mutex is held while a request with it
// is set up and while its answer is filtered; two requests at once on one
// session are a client's fault, caught by the epoch.
type fetchSession struct {
	id     int32
	owner  string // principal
	useIDs bool

	mu    sync.Mutex
	epoch int32 // of the next request
	parts map[sessionKey]*list.Element
	order *list.List // of *sessionPartition; partitions that gave data go to the back

	// Owned by the cache.
	used time.Time
	size int
	lru  *list.Element
}

// sessionCache owns all sessions of a server.
type sessionCache struct {
	max    int
	minAge time.Duration
	clock  clock.Clock

	mu    sync.Mutex
	byID  map[int32]*fetchSession
	lru   *list.List // of *fetchSession, least recently used first
	total int        // partitions in all sessions
}

func newSessionCache(slots int, minAge time.Duration, clk clock.Clock) *sessionCache {
	return &sessionCache{max: slots, minAge: minAge, clock: clk, byID: map[int32]*fetchSession{}, lru: list.New()}
}

// get returns a session of the owner and marks it used, nil if there is none.
func (c *sessionCache) get(id int32, owner string) *fetchSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	if s == nil || s.owner != owner {
		return nil
	}
	s.used = c.clock.Now()
	c.lru.MoveToBack(s.lru)
	return s
}

// remove forgets a session of the owner; that there is none is no fault.
func (c *sessionCache) remove(id int32, owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[id]; s != nil && s.owner == owner {
		c.removeLocked(s)
	}
}

func (c *sessionCache) removeLocked(s *fetchSession) {
	delete(c.byID, s.id)
	c.lru.Remove(s.lru)
	c.total -= s.size
}

// add makes a session of size partitions, or returns nil when all slots are
// taken by sessions in use.
func (c *sessionCache) add(owner string, useIDs bool, size int) *fetchSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	if size == 0 || size > sessionPartitionsMax {
		return nil
	}
	for len(c.byID) >= c.max || c.total+size > sessionPartitionsMax {
		oldest := c.lru.Front()
		if oldest == nil {
			return nil
		}
		s := oldest.Value.(*fetchSession)
		if c.clock.Now().Sub(s.used) < c.minAge {
			return nil
		}
		c.removeLocked(s)
	}
	s := &fetchSession{
		id: c.newIDLocked(), owner: owner, useIDs: useIDs, epoch: 1, size: size, used: c.clock.Now(),
		parts: make(map[sessionKey]*list.Element, size), order: list.New(),
	}
	s.lru = c.lru.PushBack(s)
	c.byID[s.id] = s
	c.total += size
	return s
}

// newIDLocked is an id that nobody can guess, as in Kafka.
func (c *sessionCache) newIDLocked() int32 {
	for {
		var b [4]byte
		_, _ = rand.Read(b[:]) // never fails
		if id := int32(binary.BigEndian.Uint32(b[:]) & math.MaxInt32); id > 0 && c.byID[id] == nil {
			return id
		}
	}
}

// resized tells the cache how many partitions a session has now.
func (c *sessionCache) resized(s *fetchSession, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[s.id] != s {
		return
	}
	c.total += size - s.size
	s.size = size
}

// len is the number of sessions.
func (c *sessionCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID)
}

// plan is what one Fetch request asks for, sessions resolved.
type plan struct {
	targets     []*fetchTarget
	session     *fetchSession // nil: full fetch without a session
	sessionID   int32
	incremental bool
}

// plan resolves the session of a request of a principal. The error is the code for the
// whole response.
func (c *sessionCache) plan(req *kmsg.FetchRequest, owner string) (plan, error) {
	useIDs := req.Version >= fetchTopicIDs
	if req.Version < fetchSessions || req.SessionEpoch == sessionEpochFinal || req.SessionEpoch == sessionEpochInitial {
		p := plan{targets: targetsOf(req, useIDs)}
		if req.Version < fetchSessions {
			return p, nil
		}
		if req.SessionID != 0 {
			c.remove(req.SessionID, owner)
		}
		if req.SessionEpoch == sessionEpochInitial {
			if p.session = c.add(owner, useIDs, len(p.targets)); p.session != nil {
				p.sessionID = p.session.id
				p.session.mu.Lock()
				defer p.session.mu.Unlock()
				for _, t := range p.targets {
					p.session.putLocked(t)
				}
			}
		}
		return p, nil
	}
	s := c.get(req.SessionID, owner)
	if s == nil {
		return plan{}, refuse(kerr.FetchSessionIDNotFound, "")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != req.SessionEpoch {
		return plan{}, refuse(kerr.InvalidFetchSessionEpoch, "")
	}
	if s.useIDs != useIDs {
		return plan{}, refuse(kerr.FetchSessionTopicIDError, "")
	}
	s.nextEpochLocked()
	for _, t := range targetsOf(req, useIDs) {
		s.putLocked(t)
	}
	for _, t := range req.ForgottenTopics {
		for _, n := range t.Partitions {
			s.forgetLocked(keyOf(t.Topic, t.TopicID, n, useIDs))
		}
	}
	p := plan{session: s, sessionID: s.id, incremental: true, targets: s.targetsLocked()}
	if len(p.targets) == 0 { // Kafka drops a session that has become empty
		c.remove(s.id, owner)
		return plan{}, nil
	}
	c.resized(s, len(p.targets))
	return p, nil
}

func keyOf(topic string, id messages.TopicID, partition int32, useIDs bool) sessionKey {
	if useIDs {
		return sessionKey{id: id, partition: partition}
	}
	return sessionKey{topic: topic, partition: partition}
}

func (s *fetchSession) nextEpochLocked() {
	s.epoch++
	if s.epoch <= 0 {
		s.epoch = 1
	}
}

func (s *fetchSession) putLocked(t *fetchTarget) {
	e := s.parts[t.key]
	if e == nil {
		// -2: nothing was told yet, so the first answer holds the partition.
		e = s.order.PushBack(&sessionPartition{key: t.key, sentHW: -2, sentStart: -2})
		s.parts[t.key] = e
	}
	p := e.Value.(*sessionPartition)
	p.offset, p.maxBytes, p.currentEpoch, p.lastEpoch = t.offset, t.maxBytes, t.currentEpoch, t.lastEpoch
}

func (s *fetchSession) forgetLocked(k sessionKey) {
	if e := s.parts[k]; e != nil {
		s.order.Remove(e)
		delete(s.parts, k)
	}
}

func (s *fetchSession) targetsLocked() []*fetchTarget {
	out := make([]*fetchTarget, 0, s.order.Len())
	for e := s.order.Front(); e != nil; e = e.Next() {
		p := e.Value.(*sessionPartition)
		out = append(out, &fetchTarget{key: p.key, offset: p.offset, maxBytes: p.maxBytes, currentEpoch: p.currentEpoch, lastEpoch: p.lastEpoch})
	}
	return out
}

// filter remembers what the client is told and returns the targets that its
// answer must hold: all of them in a full answer, else those with data, with an
// error, or with another high watermark or log start than last told.
func (p *plan) filter() []*fetchTarget {
	if p.session == nil {
		return p.targets
	}
	s := p.session
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*fetchTarget
	for _, t := range p.targets {
		e := s.parts[t.key]
		if e == nil { // forgotten by a request that came in between
			continue
		}
		sp := e.Value.(*sessionPartition)
		must := !p.incremental || t.chunk.Len > 0 || t.code != 0 || t.diverging != nil || t.hw != sp.sentHW || t.logStart != sp.sentStart
		if !must {
			continue
		}
		sp.sentHW, sp.sentStart = t.hw, t.logStart
		if t.code != 0 {
			sp.sentHW = -2 // the partition is told again when the error is gone
		}
		if t.chunk.Len > 0 {
			s.order.MoveToBack(e)
		}
		out = append(out, t)
	}
	return out
}
