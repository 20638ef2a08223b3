package group

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"kagami/messages"
	"kagami/messages/groups"
)

// States of a group of the consumer protocol beside Empty, Stable and Dead, which
// both kinds have.
//
//	Empty -> Assigning -> Reconciling -> Stable
//	             ^             |            |
//	             +-- a member comes, goes, subscribes; topics change
const (
	assigning   = "Assigning"   // members are newer than the target assignment
	reconciling = "Reconciling" // a member is on its way to it
)

// partition is a partition by its topic's id, as members have it.
type partition struct {
	topic  messages.TopicID
	number int32
}

func comparePartitions(a, b partition) int {
	return cmp.Or(bytes.Compare(a.topic[:], b.topic[:]), cmp.Compare(a.number, b.number))
}

// held is partitions of a member, with the member epoch at which each was assigned.
type held map[partition]int32

func (h held) sorted() []partition { return slices.SortedFunc(maps.Keys(h), comparePartitions) }

// record is h as it is stored.
func (h held) record() []groups.TopicPartitions {
	var out []groups.TopicPartitions
	for _, p := range h.sorted() {
		if n := len(out); n == 0 || out[n-1].Topic != p.topic {
			out = append(out, groups.TopicPartitions{Topic: p.topic})
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, p.number)
		last.Epochs = append(last.Epochs, h[p])
	}
	return out
}

// sameKeys reports whether both are the same partitions.
func (h held) sameKeys(other held) bool {
	if len(h) != len(other) {
		return false
	}
	for p := range h {
		if _, ok := other[p]; !ok {
			return false
		}
	}
	return true
}

func heldOf(partitions []groups.TopicPartitions, epoch int32) held {
	out := held{}
	for _, t := range partitions {
		for i, n := range t.Partitions {
			out[partition{t.Topic, n}] = epoch
			if t.Epochs != nil {
				out[partition{t.Topic, n}] = t.Epochs[i]
			}
		}
	}
	return out
}

// topicPartitions is sorted partitions, by topic.
func topicPartitions(sorted []partition) []groups.TopicPartitions {
	out := []groups.TopicPartitions{}
	for _, p := range sorted {
		if n := len(out); n == 0 || out[n-1].Topic != p.topic {
			out = append(out, groups.TopicPartitions{Topic: p.topic})
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, p.number)
	}
	return out
}

// consumer is what a group of the consumer protocol (KIP-848) is beside its offsets.
// Everything in it but seen, session ends and due times is what records say.
type consumer struct {
	epoch       int32 // grows with every change of members, subscriptions and topics
	hash        int64 // of what the topics looked like then
	targetEpoch int32 // that the target assignment was made for
	targetAt    int64 // when it was made, ms; 0 if never
	members     map[string]*consumerMember
	statics     map[string]string // member by instance
	targets     map[string][]partition
	owners      map[partition]string // member that has it, or has still to give it up
	regexes     map[string]groups.Regex
	seen        int64 // version of the topics that hash was compared with; -1 for none
}

func newConsumer() *consumer {
	return &consumer{
		epoch:   1, // as in Kafka; the first member makes it 2
		members: map[string]*consumerMember{}, statics: map[string]string{}, targets: map[string][]partition{},
		owners: map[partition]string{}, regexes: map[string]groups.Regex{}, seen: -1,
	}
}

// standing is where a member is on its way to the target assignment.
type standing struct {
	epoch, previous int32
	stage           groups.MemberStage
	assigned        held // what it may work on
	revoking        held // what it must give up before its epoch grows
}

// owned is all that the member has, until it has given up what it must.
func (s standing) owned() held {
	out := held{}
	maps.Copy(out, s.assigned)
	maps.Copy(out, s.revoking)
	return out
}

func (s standing) equal(o standing) bool {
	return s.epoch == o.epoch && s.previous == o.previous && s.stage == o.stage && maps.Equal(s.assigned, o.assigned) && maps.Equal(s.revoking, o.revoking)
}

func (s standing) record(group, member string) groups.Record {
	return groups.Record{Group: group, Member: member, Kind: groups.KindCurrent, Current: &groups.Current{
		Epoch: s.epoch, Previous: s.previous, State: s.stage, Assigned: s.assigned.record(), Revoking: s.revoking.record(),
	}}
}

// consumerMember is a member of a group of the consumer protocol.
type consumerMember struct {
	standing
	id   string
	info groups.ConsumerMember

	expires  int64 // end of its session, ms
	revokeBy int64 // by when it must have given up what it has to, ms; 0 without
	// rejoinBy is by when a member of the classic protocol must have gone on: joined
	// after it was told to, or synced after it joined; 0 without.
	rejoinBy int64
}

func (m *consumerMember) classic() bool { return m.info.Classic != nil }

func (con *consumer) sorted() []*consumerMember {
	out := make([]*consumerMember, 0, len(con.members))
	for _, id := range sortedKeys(con.members) {
		out = append(out, con.members[id])
	}
	return out
}

func (con *consumer) state() string {
	if len(con.members) == 0 {
		return Empty.String()
	}
	if con.epoch > con.targetEpoch {
		return assigning
	}
	for _, m := range con.members {
		if m.stage != groups.StageStable || m.epoch != con.targetEpoch {
			return reconciling
		}
	}
	return Stable.String()
}

// apply makes true what a stored record says.
func (con *consumer) apply(r groups.Record) {
	switch r.Kind {
	case groups.KindConsumer:
		con.epoch, con.hash = r.Consumer.Epoch, r.Consumer.Hash
	case groups.KindConsumerMember:
		if r.Gone {
			con.forget(r.Member)
			return
		}
		m := con.member(r.Member)
		m.info = *r.ConsumerMember
		if m.info.Instance != "" {
			con.statics[m.info.Instance] = m.id
		}
	case groups.KindTargetEpoch:
		con.targetEpoch, con.targetAt = 0, 0
		if !r.Gone {
			con.targetEpoch, con.targetAt = r.TargetEpoch.Epoch, r.TargetEpoch.Millis
		}
	case groups.KindTarget:
		delete(con.targets, r.Member)
		if !r.Gone {
			con.targets[r.Member] = heldOf(r.Target.Partitions, 0).sorted()
		}
	case groups.KindCurrent:
		if !r.Gone {
			m := con.member(r.Member)
			con.place(m, standing{
				epoch: r.Current.Epoch, previous: r.Current.Previous, stage: r.Current.State,
				assigned: heldOf(r.Current.Assigned, r.Current.Epoch), revoking: heldOf(r.Current.Revoking, r.Current.Previous),
			})
		} else if m := con.members[r.Member]; m != nil {
			con.place(m, standing{epoch: groups.EpochLeaves, previous: groups.EpochLeaves})
		}
	case groups.KindRegex:
		delete(con.regexes, r.Pattern)
		if !r.Gone {
			con.regexes[r.Pattern] = *r.Regex
		}
	case groups.KindConsumerPartitions, groups.KindOffset, groups.KindGroup, groups.KindShare, groups.KindSharePartitions:
	}
}

// member finds a member or makes it: of its records any may come first.
func (con *consumer) member(id string) *consumerMember {
	m := con.members[id]
	if m == nil {
		m = &consumerMember{id: id}
		con.members[id] = m
	}
	return m
}

func (con *consumer) forget(id string) {
	m := con.members[id]
	if m == nil {
		return
	}
	con.place(m, standing{})
	if con.statics[m.info.Instance] == id {
		delete(con.statics, m.info.Instance)
	}
	delete(con.members, id)
}

// place gives a member its new standing, and the partitions their owner.
func (con *consumer) place(m *consumerMember, s standing) {
	for _, h := range []held{m.assigned, m.revoking} {
		for p := range h {
			if con.owners[p] == m.id {
				delete(con.owners, p)
			}
		}
	}
	m.standing = s
	for _, h := range []held{s.assigned, s.revoking} {
		for p := range h {
			con.owners[p] = m.id
		}
	}
}

// free reports whether a member may be given a partition.
func (con *consumer) free(p partition, member string) bool {
	owner, taken := con.owners[p]
	return !taken || owner == member
}

// assignor is what most members want of those that want one, else the first one.
func (con *consumer) assignor(known []string) string {
	votes := map[string]int{}
	for _, m := range con.members {
		if m.info.Assignor != "" {
			votes[m.info.Assignor]++
		}
	}
	best := ""
	for _, name := range known {
		if votes[name] > votes[best] || best == "" {
			best = name
		}
	}
	return best
}
