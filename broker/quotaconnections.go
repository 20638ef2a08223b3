package broker

import (
	"net"
	"time"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// throttledConnectionsMax bounds the connections that wait to be closed; more are closed
// at once.
const throttledConnectionsMax = 1000

// connectionShare is the limit of new connections of an address: its own, or that of each
// address (KIP-612).
func connectionShare(img *metadata.Image, host string) (s share, ok bool) {
	if len(img.Quotas()) == 0 {
		return share{}, false
	}
	for _, part := range []messages.QuotaPart{{Set: true, Name: host}, {Set: true, Default: true}} {
		if rate, set := img.QuotaOf(messages.QuotaEntity{IP: part})[messages.QuotaConnections]; set {
			return share{key: bucketKey{limit: messages.QuotaConnections, user: host}, rate: rate}, true
		}
	}
	return share{}, false
}

// admit takes one, if there is one; else it returns how long that takes, and takes none.
func (q *quotas) admit(now time.Time, s share) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.bucketLocked(now, s)
	if b.tokens < 1 {
		missing := bucket{tokens: b.tokens - 1}
		return min(wait(&missing, s), q.window)
	}
	b.tokens--
	return 0
}

// throttleConnection reports whether an address has opened too many connections. Such a
// one is neither read nor answered, and closed when the address may open the next, as
// Kafka does: a client that tries again at once waits.
func (s *Server) throttleConnection(nc net.Conn, host string) bool {
	sh, ok := connectionShare(s.image(), host)
	if !ok {
		return false
	}
	pause := s.quotas.admit(s.clock.Now(), sh)
	if pause == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.throttled >= throttledConnectionsMax {
		_ = nc.Close()
		return true
	}
	s.throttled++
	s.wg.Go(func() {
		over := make(chan struct{})
		cancel := s.clock.AfterFunc(pause, func() { close(over) })
		select {
		case <-over:
		case <-s.stopping:
			cancel()
		}
		_ = nc.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.throttled--
	})
	return true
}
