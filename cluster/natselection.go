package cluster

import (
	"fmt"
	"sync"
	"time"
	_ "unsafe" // for go:linkname
)

// The embedded server has no option for the timers of its elections, only these
// package variables. They are the process's: every stream and every server in it has
// the same. natsTimersKnown says whether they are still what this program knows.
//
//go:linkname natsElectionMin github.com/nats-io/nats-server/v2/server.minElectionTimeout
var natsElectionMin time.Duration

//go:linkname natsElectionMax github.com/nats-io/nats-server/v2/server.maxElectionTimeout
var natsElectionMax time.Duration

//go:linkname natsHeartbeat github.com/nats-io/nats-server/v2/server.hbInterval
var natsHeartbeat time.Duration

// The server's own timers: a follower that hears nothing for 4 to 9 s is a candidate,
// a leader is heard every second.
const (
	electionMinDefault = 4 * time.Second
	electionMaxDefault = 9 * time.Second
	heartbeatDefault   = time.Second
	// ElectionTimeoutMin is the lowest ElectionTimeout. Below it a pause of a busy
	// machine is taken for a death.
	ElectionTimeoutMin = 500 * time.Millisecond
)

// electionTimers is what the timers of this process were set to.
var electionTimers struct {
	sync.Mutex
	checked, known bool
	set            time.Duration // 0: the server's own
}

// setElectionTimeout makes the elections of this process take between timeout and
// twice that, with four heartbeats in the shortest. 0 leaves them alone. It comes
// before the first server: its goroutines read the timers without a lock, so that
// another value than the first one is refused.
func setElectionTimeout(timeout time.Duration) error {
	t := &electionTimers
	t.Lock()
	defer t.Unlock()
	if !t.checked {
		t.checked = true
		t.known = natsElectionMin == electionMinDefault && natsElectionMax == electionMaxDefault && natsHeartbeat == heartbeatDefault
		t.set = timeout
		if t.known && timeout > 0 {
			natsElectionMin, natsElectionMax, natsHeartbeat = timeout, 2*timeout, timeout/4
		}
	}
	switch {
	case timeout > 0 && !t.known:
		return fmt.Errorf("%w: election timeout %v: the embedded server's timers aren't those that this program knows; leave it at 0", ErrBadOption, timeout)
	case timeout != t.set:
		return fmt.Errorf("%w: election timeout %v: a server of this process has %v", ErrBadOption, timeout, t.set)
	default:
		return nil
	}
}
