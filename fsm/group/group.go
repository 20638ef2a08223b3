package group

import (
	"cmp"
	"slices"

	"kagami/messages/groups"
)

// State is a group's, with Kafka's names.
type State int8

// The states.
//
//	Empty -> PreparingRebalance -> CompletingRebalance -> Stable
//	  ^             |  ^                 |                  |
//	  +-- nobody ---+  +---- a member comes, goes, changes -+
const (
	Empty State = iota + 1
	PreparingRebalance
	CompletingRebalance
	Stable
	Dead
)

// String is the name that clients see.
func (s State) String() string {
	switch s {
	case Empty:
		return "Empty"
	case PreparingRebalance:
		return "PreparingRebalance"
	case CompletingRebalance:
		return "CompletingRebalance"
	case Stable:
		return "Stable"
	case Dead:
		return "Dead"
	default:
		return "Unknown"
	}
}

// place is a partition, as offsets are kept.
type place struct {
	topic     string
	partition int32
}

// group is one group. Offsets and stored are what the log says.
type group struct {
	id           string
	state        State
	since        int64 // ms, of the state; -1 if not known
	protocolType string
	protocol     string
	generation   int32
	leader       string
	members      map[string]*member
	statics      map[string]string // member by instance
	pending      map[string]int64  // ids that were given out (KIP-394) and until when, ms
	offsets      map[place]groups.Offset
	txns         map[int64]map[place]groups.Offset // by producer id: offsets that its open transaction commits
	stored       bool                              // a group record is in the log

	joinBy    int64 // end of PreparingRebalance, ms
	initial   bool  // of the first generation: waits for its whole time
	newcomers bool  // somebody joined since the initial delay began
	delayLeft int64 // ms by which the initial delay may still grow
	syncBy    int64 // end of waiting for members to sync, ms; 0 without
	assigning bool  // the leader's assignment is on its way to the log
	storing   int   // writes on their way
	after     []func()
	settling  int               // those of them with records of the classic protocol's group
	settled   []func(now int64) // what waits until there are none

	share    *share          // of a share group, else nil
	consumer *consumer       // of a group of the consumer protocol, else nil
	proposed []groups.Record // that are true and go into the next write
	tail     int64           // newest write of such records
}

func newGroup(id string) *group {
	return &group{
		id: id, state: Empty, since: -1, members: map[string]*member{}, statics: map[string]string{}, pending: map[string]int64{},
		offsets: map[place]groups.Offset{},
	}
}

// member is one member. join and sync are requests of it that wait.
type member struct {
	id, instance       string
	clientID, host     string
	session, rebalance int64 // ms
	protocols          []groups.Protocol
	assignment         []byte
	seq                int64 // order of joining
	fresh              bool  // has never been in a generation
	since              int64 // ms, of the last sign of life
	expires            int64 // ms
	join, sync         Ticket
	synced             bool // in this generation
}

func (m *member) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

func (m *member) supports(protocol string) bool {
	return slices.ContainsFunc(m.protocols, func(p groups.Protocol) bool { return p.Name == protocol })
}

func sameProtocols(a, b []groups.Protocol) bool {
	return slices.EqualFunc(a, b, func(x, y groups.Protocol) bool { return x.Name == y.Name && string(x.Metadata) == string(y.Metadata) })
}

// sorted is the members in the order in which they joined first.
func (g *group) sorted() []*member {
	out := make([]*member, 0, len(g.members))
	for _, m := range g.members {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b *member) int { return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.id, b.id)) })
	return out
}

// empty reports whether a group has no members.
func (g *group) empty() bool {
	if g.consumer != nil {
		return len(g.consumer.members) == 0
	}
	return g.state == Empty
}

// consumes reports whether the group's members are consumers, whose subscriptions
// are known.
func (g *group) consumes() bool { return g.consumer != nil || g.protocolType == consumerType }

func (g *group) become(s State, now int64) { g.state, g.since = s, now }

// load makes the group what its record says.
func (g *group) load(s *groups.State) {
	g.protocolType, g.protocol, g.generation, g.leader, g.since = s.ProtocolType, s.Protocol, s.Generation, s.Leader, s.SinceMillis
	g.state = Empty
	clear(g.members)
	clear(g.statics)
	for i, ms := range s.Members {
		m := &member{
			id: ms.Member, instance: ms.Instance, clientID: ms.ClientID, host: ms.ClientHost,
			session: int64(ms.SessionMillis), rebalance: int64(ms.RebalanceMillis),
			protocols: []groups.Protocol{{Name: s.Protocol, Metadata: ms.Metadata}}, assignment: ms.Assignment, seq: int64(i), synced: true,
		}
		g.members[m.id] = m
		if m.instance != "" {
			g.statics[m.instance] = m.id
		}
		g.state = Stable
	}
}

// record is the group as it is stored; assignments overrule those of the members.
func (g *group) record(assignments map[string][]byte) groups.Record {
	s := &groups.State{ProtocolType: g.protocolType, Generation: g.generation, Protocol: g.protocol, Leader: g.leader, SinceMillis: g.since}
	for _, m := range g.sorted() {
		assignment := m.assignment
		if assignments != nil {
			assignment = assignments[m.id]
		}
		s.Members = append(s.Members, groups.MemberState{
			Member: m.id, Instance: m.instance, ClientID: m.clientID, ClientHost: m.host,
			RebalanceMillis: int32(m.rebalance), SessionMillis: int32(m.session), Metadata: m.metadata(g.protocol), Assignment: assignment,
		})
	}
	return groups.Record{Group: g.id, Kind: groups.KindGroup, State: s}
}

// rebalanceTimeout is the longest of the members'.
func (g *group) rebalanceTimeout() int64 {
	var longest int64
	for _, m := range g.members {
		longest = max(longest, m.rebalance)
	}
	return longest
}

// takes reports whether a member with these protocols fits: it shares one with all
// others.
func (g *group) takes(protocolType string, protocols []groups.Protocol) bool {
	if protocolType == "" || len(protocols) == 0 {
		return false
	}
	if g.state == Empty || len(g.members) == 0 {
		return true
	}
	return g.protocolType == protocolType && slices.ContainsFunc(protocols, func(p groups.Protocol) bool { return g.common(p.Name) })
}

func (g *group) common(protocol string) bool {
	for _, m := range g.members {
		if !m.supports(protocol) {
			return false
		}
	}
	return true
}

// elect is the protocol that most members like best among those that all know;
// the first of the oldest member's among equals.
func (g *group) elect() string {
	votes := map[string]int{}
	best := ""
	for _, m := range g.sorted() {
		for _, p := range m.protocols {
			if g.common(p.Name) {
				votes[p.Name]++
				if best == "" {
					best = p.Name
				}
				break
			}
		}
	}
	for _, name := range sortedKeys(votes) {
		if votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// subscribed reports whether a member reads a topic; known is false if the members'
// metadata doesn't tell.
func (g *group) subscribed(topic string, topics func([]byte) ([]string, bool)) (yes, known bool) {
	if g.consumer != nil {
		return g.consumer.reads(topic), true
	}
	for _, m := range g.members {
		names, ok := topics(m.metadata(g.protocol))
		if !ok {
			return false, false
		}
		if slices.Contains(names, topic) {
			yes = true
		}
	}
	return yes, true
}
