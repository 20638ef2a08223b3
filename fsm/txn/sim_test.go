package txn

import (
	"errors"
	"flag"
	"fmt"
	"testing"

	"kagami/messages"
	"kagami/messages/txns"
)

var simSeeds = flag.Int("txn-seeds", 400, "seeds of the simulation of transactions")

// producer is one instance of a transactional producer; there may be several of an id,
// all but the newest of which are zombies.
type producer struct {
	w      *world
	id     string
	v      txns.Version
	p      txns.Producer
	ready  bool
	busy   bool // waits for an answer, which may never come
	txn    int  // number of the open transaction; 0 without
	fenced bool // a newer instance was told its producer id
	ending bool
	commit bool
}

// sim is many producers of few ids, with what they were told.
type sim struct {
	*world
	instances []*producer
	txns      int
	told      map[int]bool // outcome that a client was told: true is a commit
	parts2    map[int]map[*part]bool
}

// TestSimulation: random clients, crashes between any two writes, markers and answers
// lost and repeated. A transaction is all or nothing, what a client was told is true,
// who is fenced commits nothing, and a replay gives what was live.
func TestSimulation(t *testing.T) {
	for seed := range uint64(*simSeeds) {
		s := &sim{world: newWorld(t, seed), told: map[int]bool{}, parts2: map[int]map[*part]bool{}}
		for range 400 {
			s.step()
		}
		s.settle()
		for _, p := range s.instances { // who was fenced or never came back: time aborts it
			p.busy = false
		}
		s.now += 2 * int64(simConfig.TimeoutMax)
		s.perform(s.core.Tick(s.now))
		s.settle()
		s.same()
		s.check(seed)
		if t.Failed() {
			t.Fatalf("again with: go test ./fsm/txn -run TestSimulation, seed %d", seed)
		}
	}
}

func (s *sim) step() {
	s.now += int64(s.r.IntN(200))
	switch n := s.r.IntN(100); {
	case n < 35:
		s.store()
	case n < 60:
		s.deliver()
	case n < 65:
		s.arrive()
	case n < 67:
		s.crash()
	case n < 70:
		s.now += int64(s.r.IntN(40_000))
		if at, ok := s.core.Wake(); ok && at <= s.now {
			s.perform(s.core.Tick(s.now))
		}
	case n < 71:
		s.noIDs = !s.noIDs
	case n < 72:
		s.perform(s.core.Expire(s.now))
	case n < 75 || len(s.instances) == 0:
		id := fmt.Sprintf("id-%d", s.r.IntN(3))
		v := txns.V2
		if s.r.IntN(3) == 0 {
			v = txns.V0
		}
		s.instances = append(s.instances, &producer{w: s.world, id: id, v: v, p: txns.None()})
	default:
		s.act(s.instances[s.r.IntN(len(s.instances))])
	}
	s.same()
}

// act has a producer do its next thing.
func (s *sim) act(p *producer) {
	switch {
	case p.busy:
		if s.r.IntN(5) == 0 {
			p.busy = false // it has waited long enough, and tries again
		}
	case !p.ready:
		s.init(p)
	case p.ending, p.txn != 0 && s.r.IntN(3) == 0:
		if !p.ending {
			p.ending, p.commit = true, s.r.IntN(3) > 0
		}
		s.end(p)
	default:
		s.write(p)
	}
}

func (s *sim) init(p *producer) {
	p.busy = true
	s.ask(txns.Init{Txn: txns.Txn(p.id), TimeoutMillis: 50_000, Producer: txns.None()}, func(a txns.Answer) {
		p.busy = false
		in := a.(*txns.Inited)
		if in.Err != nil {
			return
		}
		p.p, p.ready = in.Producer, true
		s.say("%s is %v", p.id, in.Producer)
		for _, o := range s.instances {
			if o != p && o.id == p.id && o.ready {
				o.fenced = true
			}
		}
	})
}

// write adds a partition and writes into it, in one message for newer clients.
func (s *sim) write(p *producer) {
	if p.txn == 0 {
		s.txns++
		p.txn = s.txns
	}
	to, txn, me := s.parts[s.r.IntN(len(s.parts))], p.txn, p.p
	p.busy = true
	if s.r.IntN(2) == 0 || p.v.Bumps() {
		to.guards[me.ID] = me.Epoch
	}
	s.ask(txns.Add{Txn: txns.Txn(p.id), Producer: me, Version: p.v, Partitions: []messages.TopicPartition{to.tp}}, func(a txns.Answer) {
		p.busy = false
		if err := a.(*txns.Added).Err; err != nil {
			s.failed(p, err)
			return
		}
		if !p.v.Bumps() {
			to.guards[me.ID] = me.Epoch // it is verified, at once
		}
		if p.txn == txn && p.p == me && to.write(txn, me) {
			s.say("%s %v writes %d to %d", p.id, me, txn, to.tp.Partition)
			if s.parts2[txn] == nil {
				s.parts2[txn] = map[*part]bool{}
			}
			s.parts2[txn][to] = true
		}
	})
}

// failed: some refusals are final for an instance.
func (s *sim) failed(p *producer, err error) {
	if !errors.Is(err, messages.ErrConcurrentTransactions) && !errors.Is(err, messages.ErrCoordinatorNotAvailable) {
		p.ready, p.txn, p.ending = false, 0, false
		p.p = txns.None()
		if p.fenced { // it is restarted: a new instance, which fences others
			p.fenced = false
		}
	}
}

func (s *sim) end(p *producer) {
	txn, commit := p.txn, p.commit
	p.busy = true
	s.ask(txns.End{Txn: txns.Txn(p.id), Producer: p.p, Version: p.v, Commit: commit}, func(a txns.Answer) {
		p.busy = false
		out := a.(*txns.Ended)
		if out.Err != nil {
			s.failed(p, out.Err)
			return
		}
		if p.fenced && commit {
			s.fatal("%s commits transaction %d although it is fenced", p.id, txn)
		}
		s.say("%s %v ends %d, commit %v", p.id, p.p, txn, commit)
		if txn != 0 {
			s.told[txn] = commit
		}
		p.txn, p.ending = 0, false
		if p.v.Bumps() {
			p.p = out.Producer
		}
	})
}

// check looks at all partitions after everything has ended.
func (s *sim) check(seed uint64) {
	outcome := map[int]byte{}
	for _, p := range s.parts {
		for _, d := range p.data {
			was, seen := outcome[d.txn]
			switch {
			case d.state == 'o':
				s.fatal("seed %d: transaction %d is open for ever in partition %d", seed, d.txn, p.tp.Partition)
			case seen && was != d.state:
				s.fatal("seed %d: transaction %d is %c and %c", seed, d.txn, was, d.state)
			}
			outcome[d.txn] = d.state
		}
	}
	for txn, commit := range s.told {
		want := byte('a')
		if commit {
			want = 'c'
		}
		if got, ok := outcome[txn]; ok && got != want {
			s.fatal("seed %d: a client was told %c of transaction %d, which is %c", seed, want, txn, got)
		}
	}
}
