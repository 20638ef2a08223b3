package group

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/groups"
	"kagami/messages/wire"
)

// simPeer is a client: it does as it is told, may be slow to give up, may not hear
// an answer, and may die.
type simPeer struct {
	classic  bool
	id       string // "" for a member of the classic protocol that hasn't been told
	instance string
	regex    bool
	epoch    int32
	joined   bool
	has      map[partition]struct{}
	wants    []groups.TopicPartitions // told, not carried out yet; nil for nothing
	leader   *groups.Joined           // it has joined a generation and is to sync
	pending  Ticket
	lastBeat int64
	alive    bool
	full     bool
}

type sim struct {
	*world
	seed  uint64
	rng   *rand.Rand
	peers []*simPeer
	ids   int
	steps []string
}

func (s *sim) note(format string, args ...any) {
	s.steps = append(s.steps, fmt.Sprintf("%d "+format, append([]any{s.now}, args...)...))
}

func (s *sim) fail(format string, args ...any) {
	s.t.Helper()
	last := s.steps[max(0, len(s.steps)-60):]
	for _, l := range last {
		s.t.Log(l)
	}
	s.t.Fatalf("seed %d: %s (GROUP_SIM_SEED=%d go test ./fsm/group -run TestConsumerSim)", s.seed, fmt.Sprintf(format, args...), s.seed)
}

func (p *simPeer) name() string { return p.id + "/" + p.instance }

// forget: the member is fenced, or dead: it has nothing.
func (p *simPeer) forget() {
	p.has, p.wants, p.joined, p.epoch, p.leader = map[partition]struct{}{}, nil, false, 0, nil
}

func (p *simPeer) owned() []groups.TopicPartitions {
	h := held{}
	for q := range p.has {
		h[q] = 0
	}
	return topicPartitions(h.sorted())
}

// start makes a new process of a peer.
func (s *sim) start(p *simPeer) {
	s.ids++
	*p = simPeer{classic: s.rng.IntN(3) == 0, instance: p.instance, regex: s.rng.IntN(3) == 0, alive: true, pending: 0, lastBeat: s.now}
	if !p.classic {
		p.id = fmt.Sprint("m", s.ids)
	}
	p.forget()
	s.note("start %s classic=%v", p.name(), p.classic)
}

// speak sends what the peer has to say next.
func (s *sim) speak(p *simPeer) {
	if p.pending != 0 {
		return
	}
	p.lastBeat = s.now
	switch {
	case p.classic:
		p.pending = s.ask(s.classicRequest(p))
	default:
		b := groups.Beat{Group: "g", Member: p.id, Instance: p.instance, Epoch: p.epoch, RebalanceMillis: -1}
		if !p.joined {
			b.Epoch, b.RebalanceMillis, b.Owned = 0, rebalance, []groups.TopicPartitions{}
			p.subscribe(&b)
			p.has = map[partition]struct{}{}
		} else if p.full { // it says all again when it hasn't heard an answer
			b.RebalanceMillis, b.Owned = rebalance, p.owned()
			p.subscribe(&b)
			p.full = false
		} else if p.wants == nil || s.rng.IntN(2) == 0 {
			s.obey(p)
			b.Owned = p.owned()
		}
		p.pending = s.ask(b)
	}
}

func (p *simPeer) subscribe(b *groups.Beat) {
	if b.Topics = []string{"t"}; p.regex {
		pattern := "[tu].*"
		b.Topics, b.Regex = nil, &pattern
	}
}

// obey gives up what the peer was told to, and takes the rest.
func (s *sim) obey(p *simPeer) {
	if p.wants != nil {
		p.has = map[partition]struct{}{}
		for q := range heldOf(p.wants, 0) {
			p.has[q] = struct{}{}
		}
		p.wants = nil
	}
}

func (s *sim) classicRequest(p *simPeer) groups.Request {
	by := groups.Who{Group: "g", Generation: p.epoch, Member: p.id, Instance: p.instance}
	switch {
	case p.leader != nil:
		r := groups.Sync{Who: by, Assignments: map[string][]byte{}}
		if p.leader.Leader == p.id {
			sp := spec{topics: map[messages.TopicID]int32{topicID("t"): s.topics.counts["t"]}}
			for _, m := range p.leader.Members {
				sp.members = append(sp.members, specMember{id: m.Member, topics: []messages.TopicID{topicID("t")}})
			}
			for i, ps := range sp.assign(AssignorRange) {
				var numbers []int32
				for _, q := range ps {
					numbers = append(numbers, q.number)
				}
				r.Assignments[sp.members[i].id] = wire.EncodeAssignment(3, []groups.Partitions{{Topic: "t", Partitions: numbers}})
			}
		}
		return r
	case !p.joined:
		p.has = map[partition]struct{}{} // eagerly
		j := joinOf(p.id, p.instance)
		j.NeedsID = true
		return j
	default:
		return groups.Heartbeat{Who: by}
	}
}

// hear takes the answers that have come.
func (s *sim) hear() {
	for _, p := range s.peers {
		a, ok := s.answers[p.pending]
		if p.pending == 0 || !ok {
			continue
		}
		p.pending = 0
		if !p.alive {
			continue
		}
		if s.rng.IntN(10) == 0 && !p.classic && p.joined {
			s.note("%s doesn't hear %T", p.name(), a)
			p.full = true
			continue
		}
		switch a := a.(type) {
		case *groups.Beaten:
			s.heardBeat(p, a)
		case *groups.Joined:
			s.heardJoin(p, a)
		case *groups.Synced:
			if p.leader = nil; a.Err != nil {
				s.fenced(p, a.Err)
				continue
			}
			assigned, ok := wire.DecodeAssignment(a.Assignment)
			require.True(s.t, ok)
			p.joined, p.has = true, map[partition]struct{}{}
			for q := range partitionsOf(assigned, s.topics) {
				p.has[q] = struct{}{}
			}
		case *groups.Done:
			if a.Err != nil {
				s.fenced(p, a.Err)
			}
		}
	}
}

func (s *sim) fenced(p *simPeer, err error) {
	s.note("%s: %v", p.name(), err)
	id := p.id
	p.forget()
	if p.classic && errors.Is(err, messages.ErrUnknownMember) {
		p.id = ""
	} else if !p.classic {
		p.id = id
	}
	if errors.Is(err, messages.ErrFencedInstance) {
		p.alive = false
	}
}

func (s *sim) heardJoin(p *simPeer, a *groups.Joined) {
	switch {
	case errors.Is(a.Err, messages.ErrMemberIDRequired):
		p.id = a.Member
	case a.Err != nil:
		s.fenced(p, a.Err)
	default:
		p.id, p.epoch, p.leader = a.Member, a.Generation, a
	}
}

func (s *sim) heardBeat(p *simPeer, a *groups.Beaten) {
	if a.Err != nil {
		s.fenced(p, a.Err)
		return
	}
	if p.joined && a.Epoch < p.epoch {
		s.fail("%s: epoch %d after %d", p.name(), a.Epoch, p.epoch)
	}
	p.joined, p.epoch = true, a.Epoch
	if a.Assigned != nil {
		s.note("%s is told %v in epoch %d", p.name(), a.Assigned, a.Epoch)
		p.wants = a.Assigned
	}
}

// once: no partition is owned by two members.
func (s *sim) once() {
	owner := map[partition]string{}
	for _, p := range s.peers {
		for q := range p.has {
			if !p.alive {
				continue
			}
			if o, ok := owner[q]; ok {
				s.fail("%v is owned by %s and %s", q.number, o, p.name())
			}
			owner[q] = p.name()
		}
	}
}

// reload is another node that takes over: of what was to be stored some is.
func (s *sim) reload() {
	s.note("reload, %d writes on their way", len(s.out))
	for _, wr := range s.out[:s.rng.IntN(len(s.out)+1)] {
		s.log = append(s.log, wr.Records...)
	}
	s.replay()
	for _, p := range s.peers {
		if _, ok := s.answers[p.pending]; !ok {
			p.pending = 0 // refused: ask again
			if p.classic {
				p.leader = nil
			}
		}
	}
}

// same compares the core with a replay of the log.
func (s *sim) same() {
	if len(s.core.open) > 0 {
		return
	}
	other := New(testConfig())
	other.SetTopics(s.topics)
	for _, r := range s.log {
		other.ApplyLoaded(r)
	}
	live, replayed := s.core.groups["g"], other.groups["g"]
	if live == nil || replayed == nil {
		if replayed != nil || live != nil && (live.consumer != nil || live.stored) {
			s.fail("live %v, replayed %v", live, replayed)
		}
		return
	}
	type shown struct {
		Epoch, Target int32
		Hash          int64
		Members       map[string]groups.ConsumerMember
		Current       map[string]groups.Record
		Targets       map[string][]groups.TopicPartitions
		Owners        map[string]string
		Statics       map[string]string
		Regexes       map[string]groups.Regex
		Stored        bool
	}
	show := func(g *group) *shown {
		out := &shown{Stored: g.stored}
		con := g.consumer
		if con == nil {
			return out
		}
		out.Epoch, out.Target, out.Hash, out.Statics, out.Regexes = con.epoch, con.targetEpoch, con.hash, con.statics, con.regexes
		out.Members, out.Current, out.Targets, out.Owners = map[string]groups.ConsumerMember{}, map[string]groups.Record{}, map[string][]groups.TopicPartitions{}, map[string]string{}
		for id, m := range con.members {
			out.Members[id], out.Current[id] = m.info, m.record("g", id)
		}
		for id, ps := range con.targets {
			out.Targets[id] = topicPartitions(ps)
		}
		for q, id := range con.owners {
			out.Owners[fmt.Sprint(q)] = id
		}
		return out
	}
	if d := cmp.Diff(show(live), show(replayed)); d != "" {
		s.fail("live and replayed differ: %s", d)
	}
}

func (s *sim) step() {
	s.hold = true
	p := s.peers[s.rng.IntN(len(s.peers))]
	switch n := s.rng.IntN(100); {
	case n < 60:
		if p.alive {
			s.speak(p)
		}
	case n < 64 && p.alive:
		s.note("%s dies", p.name())
		p.alive = false
		p.forget()
	case n < 72 && !p.alive && p.pending == 0:
		s.start(p)
	case n < 75 && p.alive && !p.classic && p.joined && p.pending == 0:
		epoch := groups.EpochLeaves
		if p.instance != "" && s.rng.IntN(2) == 0 {
			epoch = groups.EpochAway
		}
		s.note("%s leaves with %d", p.name(), epoch)
		p.forget()
		p.alive = false
		s.ask(groups.Beat{Group: "g", Member: p.id, Instance: p.instance, Epoch: epoch, RebalanceMillis: -1})
	case n < 77:
		s.setTopics(s.topics.set([]string{"t", "u", "v"}[s.rng.IntN(3)], int32(2+s.rng.IntN(4))))
	case n < 79:
		s.reload()
	case n < 90:
		if len(s.out) > 0 { // one write is stored
			s.hold = false
			rest := s.out[1:]
			s.out = s.out[:1]
			wr := s.out[0]
			s.out = rest
			s.hold = true
			s.log = append(s.log, wr.Records...)
			s.perform(s.core.Stored(s.now, wr.ID))
		}
	default:
		s.store()
	}
	s.pass(int64(s.rng.IntN(150)))
	for _, p := range s.peers { // who lives isn't silent for long
		if p.alive && s.now-p.lastBeat > 2_000 {
			s.store()
			s.hear()
			s.speak(p)
		}
	}
	s.hear()
	s.once()
	s.same()
}

// calm: everybody who is there beats until nothing moves; then all is shared.
func (s *sim) calm() {
	s.hold = false
	s.store()
	for range 60 {
		for _, p := range s.peers {
			s.hear()
			if p.alive {
				s.obey(p)
				s.speak(p)
			}
		}
		s.store()
		s.hear()
		s.pass(900)
		s.once()
	}
	for range 4 {
		for _, p := range s.peers {
			s.obey(p)
		}
	}
	s.once()
	s.same()
	owned, reads := 0, map[string]bool{}
	for _, p := range s.peers {
		if p.alive {
			reads["t"] = true
			if p.regex && !p.classic {
				reads["u"] = true
			}
			owned += len(p.has)
		}
	}
	want := int32(0)
	for topic := range reads {
		want += s.topics.counts[topic]
	}
	if int32(owned) != want {
		s.fail("%d of %d partitions are owned in the end; %+v", owned, want, s.described())
	}
}

func runSim(t *testing.T, seed uint64) {
	t.Helper()
	s := &sim{world: consumerWorld(t, 4), seed: seed, rng: rand.New(rand.NewPCG(seed, 1))}
	for i := range 4 {
		p := &simPeer{}
		if i == 0 {
			p.instance = "i"
		}
		s.peers = append(s.peers, p)
		s.start(p)
	}
	for range 300 {
		s.step()
	}
	s.calm()
}

// TestConsumerSim: members of both protocols come, go, die, are slow and don't hear
// answers; topics change; coordinators move with writes on their way. No partition is
// owned twice, epochs of a member only grow, a replay is the same as what lives, and in
// the end everything is assigned.
func TestConsumerSim(t *testing.T) {
	if seed, err := strconv.ParseUint(os.Getenv("GROUP_SIM_SEED"), 10, 64); err == nil {
		runSim(t, seed)
		return
	}
	seeds := uint64(30)
	if n, err := strconv.ParseUint(os.Getenv("GROUP_SIM_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	for seed := range seeds {
		runSim(t, seed)
	}
}
