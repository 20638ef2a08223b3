package group

import (
	"iter"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/groups"
)

// someTopics is topics by name with their numbers of partitions; the id is the name.
type someTopics struct {
	version int64
	counts  map[string]int32
}

func topicID(name string) (id messages.TopicID) {
	copy(id[:], name)
	return id
}

func (s *someTopics) Version() int64 { return s.version }

func (s *someTopics) Topic(name string) (messages.TopicID, int32, bool) {
	n, ok := s.counts[name]
	return topicID(name), n, ok
}

func (s *someTopics) Name(id messages.TopicID) (string, bool) {
	for name := range s.counts {
		if topicID(name) == id {
			return name, true
		}
	}
	return "", false
}

func (s *someTopics) Names() iter.Seq[string] { return maps.Keys(s.counts) }

// set is the topics after a change.
func (s *someTopics) set(name string, partitions int32) *someTopics {
	next := &someTopics{version: s.version + 1, counts: maps.Clone(s.counts)}
	if next.counts == nil {
		next.counts = map[string]int32{}
	}
	if next.counts[name] = partitions; partitions == 0 {
		delete(next.counts, name)
	}
	return next
}

// consumerWorld is a world with topic "t" of so many partitions.
func consumerWorld(t *testing.T, partitions int32) *world {
	t.Helper()
	w := newWorld(t)
	w.setTopics((&someTopics{}).set("t", partitions))
	return w
}

func (w *world) setTopics(s *someTopics) {
	w.topics = s
	w.core.SetTopics(s)
}

// peer is a member of the consumer protocol that does as it is told.
type peer struct {
	w     *world
	beat  groups.Beat // as it joins
	epoch int32
	has   []groups.TopicPartitions
}

func (w *world) peer(id string) *peer {
	return &peer{w: w, beat: groups.Beat{Group: "g", Member: id, RebalanceMillis: rebalance, Topics: []string{"t"}, ClientID: "c", ClientHost: "/h"}}
}

// joins sends the first heartbeat.
func (p *peer) joins() *groups.Beaten {
	p.w.t.Helper()
	r := p.beat
	r.Owned = []groups.TopicPartitions{}
	p.epoch, p.has = 0, nil
	return p.hears(p.w.ask(r))
}

// beats sends a heartbeat that says what the member has.
func (p *peer) beats() *groups.Beaten {
	p.w.t.Helper()
	owned := p.has
	if owned == nil {
		owned = []groups.TopicPartitions{}
	}
	return p.hears(p.w.ask(groups.Beat{Group: "g", Member: p.beat.Member, Instance: p.beat.Instance, Epoch: p.epoch, RebalanceMillis: -1, Owned: owned, ClientID: "c", ClientHost: "/h"}))
}

func (p *peer) says(epoch int32) *groups.Beaten {
	p.w.t.Helper()
	return answerOf[*groups.Beaten](p.w, p.w.ask(groups.Beat{Group: "g", Member: p.beat.Member, Instance: p.beat.Instance, Epoch: epoch, RebalanceMillis: -1}))
}

func (p *peer) hears(t Ticket) *groups.Beaten {
	p.w.t.Helper()
	a := answerOf[*groups.Beaten](p.w, t)
	if a.Err == nil {
		p.epoch = a.Epoch
		if a.Assigned != nil {
			p.has = a.Assigned
		}
	}
	return a
}

// numbers is the partitions of a topic that the member has.
func (p *peer) numbers(topic string) []int32 {
	out := []int32{}
	for _, t := range p.has {
		if t.Topic == topicID(topic) {
			out = append(out, t.Partitions...)
		}
	}
	return out
}

// settle has all beat until nothing changes.
func settle(peers ...*peer) {
	for range 2 + len(peers)*3 {
		for _, p := range peers {
			p.beats()
		}
	}
}

func (w *world) described() *groups.ConsumerDescribed {
	return answerOf[*groups.ConsumerDescribed](w, w.ask(groups.DescribeConsumer{Group: "g"}))
}

// TestConsumerReconciles: what one must give up is given to the other only after it
// has, and epochs grow then.
func TestConsumerReconciles(t *testing.T) {
	w := consumerWorld(t, 4)
	a, b := w.peer("a"), w.peer("b")
	require.NoError(t, a.joins().Err)
	require.Equal(t, []int32{0, 1, 2, 3}, a.numbers("t"))
	require.Equal(t, int32(2), a.epoch)
	require.Equal(t, "Stable", w.described().State)

	require.NoError(t, b.joins().Err)
	require.Empty(t, b.numbers("t"), "a has everything still")
	require.Equal(t, int32(3), b.epoch)
	require.Equal(t, "Reconciling", w.described().State)
	kept := a.has
	got := a.beats()
	require.Equal(t, int32(2), got.Epoch, "not before it has given up")
	require.Equal(t, []int32{0, 1}, a.numbers("t"))
	require.Equal(t, []int32{0, 1, 2, 3}, w.described().Members[0].Assigned[0].Partitions, "it has them still")
	require.Nil(t, b.beats().Assigned)
	now := a.has
	a.has = kept // it hasn't given up yet
	require.Equal(t, int32(2), a.beats().Epoch)
	require.Nil(t, b.beats().Assigned)
	a.has = now
	require.Equal(t, int32(3), a.beats().Epoch)
	b.beats()
	require.Equal(t, []int32{2, 3}, b.numbers("t"))
	require.Equal(t, "Stable", w.described().State)
	require.Equal(t, int32(-1), b.says(groups.EpochLeaves).Epoch)
	require.Equal(t, "Assigning", w.described().State)
	settle(a)
	require.Equal(t, []int32{0, 1, 2, 3}, a.numbers("t"))
	require.NoError(t, a.says(groups.EpochLeaves).Err)
	require.Equal(t, "Empty", w.described().State)
	require.Equal(t, w.described().Epoch, w.described().TargetEpoch)
}

// TestConsumerAssignmentInterval: what changes soon after an assignment waits for a
// heartbeat after the interval, in a replay too; who comes into an empty group doesn't
// wait (KIP-1263).
func TestConsumerAssignmentInterval(t *testing.T) {
	w := consumerWorld(t, 4)
	config := testConfig()
	config.Consumer.Assignment = 2000
	w.core.SetConfig(config)
	a, b := w.peer("a"), w.peer("b")
	require.NoError(t, a.joins().Err)
	require.Equal(t, []int32{0, 1, 2, 3}, a.numbers("t"))
	w.pass(1000)
	require.NoError(t, b.joins().Err)
	require.Equal(t, int32(2), b.epoch, "that of the assignment")
	settle(a, b)
	require.Equal(t, []int32{0, 1, 2, 3}, a.numbers("t"))
	require.Equal(t, "Assigning", w.described().State)
	w.replay()
	w.core.SetConfig(config)
	w.core.SetTopics(w.topics)
	settle(a, b)
	require.Empty(t, b.numbers("t"))
	w.pass(1000)
	settle(a, b)
	require.Len(t, a.numbers("t"), 2)
	require.Len(t, b.numbers("t"), 2)
	require.Equal(t, int32(3), b.epoch)
	require.Equal(t, "Stable", w.described().State)
	a.says(groups.EpochLeaves)
	settle(b)
	require.Len(t, b.numbers("t"), 2, "it waits, alone, too")
	b.says(groups.EpochLeaves)
	require.NoError(t, a.joins().Err)
	require.Equal(t, []int32{0, 1, 2, 3}, a.numbers("t"))
}

// TestConsumerRebalanceTimeout: who doesn't give up in time is out.
func TestConsumerRebalanceTimeout(t *testing.T) {
	w := consumerWorld(t, 2)
	a, b := w.peer("a"), w.peer("b")
	a.joins()
	b.joins()
	kept := a.has
	a.beats()
	for range 3 {
		w.pass(consumerSession - 1)
		a.has = kept
		require.NoError(t, a.beats().Err)
		require.NoError(t, b.beats().Err)
	}
	w.pass(rebalance)
	require.ErrorIs(t, a.beats().Err, messages.ErrUnknownMember)
}

func TestConsumerSessionEnds(t *testing.T) {
	w := consumerWorld(t, 2)
	a, b := w.peer("a"), w.peer("b")
	a.joins()
	b.joins()
	settle(a, b)
	w.pass(consumerSession - 1)
	require.NoError(t, b.beats().Err)
	w.pass(1)
	require.ErrorIs(t, a.beats().Err, messages.ErrUnknownMember)
	settle(b)
	require.Equal(t, []int32{0, 1}, b.numbers("t"))
	w.core.SetConfig(func() Config {
		c := testConfig()
		c.ConsumerOf = map[string]ConsumerConfig{"g": {Session: 3 * consumerSession, Interval: 7}}
		return c
	}())
	require.Equal(t, int32(7), b.beats().IntervalMillis, "the group's own setting")
	w.pass(2 * consumerSession)
	require.NoError(t, b.beats().Err)
}

func TestConsumerRefusals(t *testing.T) {
	text := func(s string) *string { return &s }
	join := func(change func(*groups.Beat)) groups.Beat {
		b := groups.Beat{Group: "g", Member: "x", RebalanceMillis: 1, Topics: []string{"t"}, Owned: []groups.TopicPartitions{}}
		change(&b)
		return b
	}
	for _, row := range []struct {
		name string
		req  groups.Beat
		want error
	}{
		{"no group", join(func(b *groups.Beat) { b.Group = "" }), messages.ErrInvalidRequest},
		{"no member", join(func(b *groups.Beat) { b.Member, b.Epoch = "", 1 }), messages.ErrInvalidRequest},
		{"epoch -3", join(func(b *groups.Beat) { b.Epoch = -3 }), messages.ErrInvalidRequest},
		{"away without an instance", join(func(b *groups.Beat) { b.Epoch = groups.EpochAway }), messages.ErrInvalidRequest},
		{"no rebalance timeout", join(func(b *groups.Beat) { b.RebalanceMillis = -1 }), messages.ErrInvalidRequest},
		{"partitions unsaid", join(func(b *groups.Beat) { b.Owned = nil }), messages.ErrInvalidRequest},
		{"comes with partitions", join(func(b *groups.Beat) { b.Owned = []groups.TopicPartitions{{Topic: topicID("t")}} }), messages.ErrInvalidRequest},
		{"no subscription", join(func(b *groups.Beat) { b.Topics = nil }), messages.ErrInvalidRequest},
		{"bad regular expression", join(func(b *groups.Beat) { b.Regex = text("(") }), messages.ErrInvalidRegex},
		{"not in RE2", join(func(b *groups.Beat) { b.Regex = text(`(?=a)`) }), messages.ErrInvalidRegex},
		{"assignor", join(func(b *groups.Beat) { b.Assignor = text("none") }), messages.ErrUnsupportedAssignor},
		{"another group", join(func(b *groups.Beat) { b.Group, b.Epoch = "other", 1 }), messages.ErrUnknownGroup},
		{"leaves another group", join(func(b *groups.Beat) { b.Group, b.Epoch = "other", -1 }), messages.ErrUnknownGroup},
		{"unknown member", join(func(b *groups.Beat) { b.Epoch = 1 }), messages.ErrUnknownMember},
		{"unknown member leaves", join(func(b *groups.Beat) { b.Epoch = -1 }), messages.ErrUnknownMember},
		{"unknown instance", join(func(b *groups.Beat) { b.Epoch, b.Instance = 1, "j" }), messages.ErrUnknownMember},
		{"instance of another", join(func(b *groups.Beat) { b.Instance = "i" }), messages.ErrUnreleasedInstance},
		{"instance of another, later", join(func(b *groups.Beat) { b.Epoch, b.Instance = 1, "i" }), messages.ErrFencedInstance},
		{"leaves for another", join(func(b *groups.Beat) { b.Epoch, b.Instance = -1, "i" }), messages.ErrFencedInstance},
		{"epoch too new", join(func(b *groups.Beat) { b.Member, b.Instance, b.Epoch = "a", "i", 9 }), messages.ErrFencedMemberEpoch},
		{"full", join(func(*groups.Beat) {}), messages.ErrGroupFull},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := consumerWorld(t, 2)
			a := w.peer("a")
			a.beat.Instance = "i"
			a.joins()
			if row.name == "full" {
				for _, id := range []string{"b", "c", "d"} {
					w.peer(id).joins()
				}
			}
			before := len(w.log)
			got := answerOf[*groups.Beaten](w, w.ask(row.req))
			require.ErrorIs(t, got.Err, row.want)
			require.Len(t, w.log, before, "nothing is stored")
		})
	}
}

// TestConsumerEpochLost: a member that hasn't heard of its new epoch goes on with the
// one before, if it has nothing that it may not have; an older one is fenced.
func TestConsumerEpochLost(t *testing.T) {
	w := consumerWorld(t, 2)
	a, b := w.peer("a"), w.peer("b")
	a.joins()
	b.joins()
	a.beats()
	old := a.epoch
	a.beats()
	require.Equal(t, old+1, a.epoch)
	a.epoch = old
	require.NoError(t, a.beats().Err)
	require.Equal(t, old+1, a.epoch)
	a.epoch, a.has = old, []groups.TopicPartitions{{Topic: topicID("t"), Partitions: []int32{0, 1}}}
	require.ErrorIs(t, a.beats().Err, messages.ErrFencedMemberEpoch)
	require.NoError(t, a.joins().Err, "it may join again under its id")
	require.Equal(t, []int32{0}, a.numbers("t"))
}

// TestConsumerStatic: a static member that is away keeps what it has for as long as
// its session, and another process takes it over.
func TestConsumerStatic(t *testing.T) {
	w := consumerWorld(t, 2)
	a, b := w.peer("a"), w.peer("b")
	a.beat.Instance = "i"
	a.joins()
	b.joins()
	settle(a, b)
	epoch := w.described().Epoch
	require.Equal(t, groups.EpochAway, a.says(groups.EpochAway).Epoch)
	require.Nil(t, b.beats().Assigned)
	again := w.peer("a2")
	again.beat.Instance = "i"
	require.NoError(t, again.joins().Err)
	require.Equal(t, a.numbers("t"), again.numbers("t"))
	require.Equal(t, epoch, w.described().Epoch, "nothing changes for others")
	require.ErrorIs(t, a.beats().Err, messages.ErrFencedInstance)

	again.says(groups.EpochAway)
	w.pass(consumerSession - 1)
	b.beats()
	w.pass(1)
	settle(b)
	require.Equal(t, []int32{0, 1}, b.numbers("t"), "it didn't come back")
}

// TestConsumerRegex: whole names match, new topics are found, topics that a member may
// not see aren't.
func TestConsumerRegex(t *testing.T) {
	w := consumerWorld(t, 2)
	a := w.peer("a")
	pattern := "t.*"
	a.beat.Topics, a.beat.Regex = nil, &pattern
	a.beat.Visible = func(name string) bool { return name != "t-secret" }
	a.joins()
	require.Equal(t, []int32{0, 1}, a.numbers("t"))
	w.setTopics(w.topics.set("t-secret", 1).set("not-t", 1))
	r := a.beat
	r.Epoch, r.Owned = a.epoch, a.has
	a.hears(w.ask(r))
	require.Equal(t, []string{"t"}, w.core.groups["g"].consumer.regexes[pattern].Topics)
	w.setTopics(w.topics.set("t2", 1))
	a.hears(w.ask(r))
	require.Equal(t, []int32{0}, a.numbers("t2"))
	w.setTopics(w.topics.set("t", 3))
	r.Epoch, r.Owned = a.epoch, a.has
	a.hears(w.ask(r))
	require.Equal(t, []int32{0, 1, 2}, a.numbers("t"), "more partitions")
	none, topics := "", []string{"t"}
	r.Regex, r.Topics, r.Epoch, r.Owned = &none, topics, a.epoch, a.has
	a.hears(w.ask(r))
	require.Empty(t, w.core.groups["g"].consumer.regexes, "nobody needs it any more")
	require.Empty(t, a.numbers("t2"))
}

// TestConsumerCommits: member epochs fence commits; an older one is good for what the
// member has had since (KIP-1251).
func TestConsumerCommits(t *testing.T) {
	w := consumerWorld(t, 2)
	a, b := w.peer("a"), w.peer("b")
	a.joins()
	commit := func(member string, epoch, partition int32) error {
		c := commitOf(groups.Who{Group: "g", Member: member, Generation: epoch}, "t", 5)
		c.Positions[0].Partition = partition
		a := answerOf[*groups.Committed](w, w.ask(c))
		return a.Err
	}
	require.NoError(t, commit("a", 2, 0))
	require.ErrorIs(t, commit("a", 3, 0), messages.ErrStaleMemberEpoch)
	require.ErrorIs(t, commit("x", 2, 0), messages.ErrUnknownMember)
	require.ErrorIs(t, commit("", -1, 0), messages.ErrUnknownMember)
	b.joins()
	settle(a, b)
	require.Equal(t, int32(3), a.epoch)
	require.NoError(t, commit("a", 3, a.numbers("t")[0]))
	require.NoError(t, commit("a", 2, a.numbers("t")[0]), "it has had it since epoch 2")
	require.ErrorIs(t, commit("a", 2, b.numbers("t")[0]), messages.ErrStaleMemberEpoch)
	require.ErrorIs(t, commit("b", 2, b.numbers("t")[0]), messages.ErrStaleMemberEpoch)

	fetch := func(member string, epoch int32) error {
		return answerOf[*groups.Fetched](w, w.ask(groups.Fetch{Group: "g", Member: member, Epoch: epoch, All: true})).Err
	}
	require.NoError(t, fetch("", -1))
	require.NoError(t, fetch("a", 3))
	require.ErrorIs(t, fetch("a", 2), messages.ErrStaleMemberEpoch)
	require.ErrorIs(t, fetch("x", 2), messages.ErrUnknownMember)

	del := groups.DeleteOffsets{Group: "g", Topics: []groups.Partitions{{Topic: "t", Partitions: []int32{0}}}}
	require.ErrorIs(t, answerOf[*groups.Committed](w, w.ask(del)).Positions[0], messages.ErrGroupSubscribed)
	require.ErrorIs(t, answerOf[*groups.Done](w, w.ask(groups.Delete{Group: "g"})).Err, messages.ErrNonEmptyGroup)
	a.says(groups.EpochLeaves)
	b.says(groups.EpochLeaves)
	require.NoError(t, commit("", -1, 0), "nobody is there")
	require.NoError(t, answerOf[*groups.Done](w, w.ask(groups.Delete{Group: "g"})).Err)
	require.Zero(t, w.core.Groups())
	w.replay()
	require.Zero(t, w.core.Groups(), "nothing stays in the log either")
}

// TestConsumerAnswersWait: nobody hears of what isn't stored, and many beat while an
// append is on its way.
func TestConsumerAnswersWait(t *testing.T) {
	w := consumerWorld(t, 4)
	w.hold = true
	a, b := w.peer("a"), w.peer("b")
	ra, rb := a.beat, b.beat
	ra.Owned, rb.Owned = []groups.TopicPartitions{}, []groups.TopicPartitions{}
	ta, tb := w.ask(ra), w.ask(rb)
	again := groups.Beat{Group: "g", Member: "a", Epoch: 2, RebalanceMillis: -1}
	tc, td := w.ask(again), w.ask(groups.DescribeConsumer{Group: "g"})
	require.Empty(t, w.answers)
	w.store()
	require.Equal(t, int32(2), a.hears(ta).Epoch)
	require.Equal(t, int32(3), b.hears(tb).Epoch)
	a.hears(tc)
	require.Len(t, answerOf[*groups.ConsumerDescribed](w, td).Members, 2)
	require.Equal(t, []int32{0, 1}, a.numbers("t"))
}

// TestConsumerOffsetsExpire: offsets of topics that members read stay.
func TestConsumerOffsetsExpire(t *testing.T) {
	w := consumerWorld(t, 1)
	a := w.peer("a")
	a.joins()
	for _, topic := range []string{"t", "u"} {
		require.NoError(t, w.commit(groups.Who{Group: "g", Member: "a", Generation: a.epoch}, topic, 1))
	}
	w.now += retention
	w.perform(w.core.Expire(w.now))
	require.Equal(t, int64(1), w.offset("t"))
	require.Equal(t, int64(-1), w.offset("u"))
	a.says(groups.EpochLeaves)
	w.perform(w.core.Expire(w.now))
	require.Zero(t, w.core.Groups())
}

func TestAssignors(t *testing.T) {
	ids := func(names ...string) (out []messages.TopicID) {
		for _, n := range names {
			out = append(out, topicID(n))
		}
		return out
	}
	parts := func(name string, numbers ...int32) (out []partition) {
		for _, n := range numbers {
			out = append(out, partition{topicID(name), n})
		}
		return out
	}
	topics := map[messages.TopicID]int32{topicID("a"): 4, topicID("b"): 3}
	for _, row := range []struct {
		name, assignor string
		members        []specMember
		want           [][]partition
	}{
		{"range", AssignorRange, []specMember{{id: "1", topics: ids("a", "b")}, {id: "2", topics: ids("a", "b")}}, [][]partition{
			slices.Concat(parts("a", 0, 1), parts("b", 0, 1)), slices.Concat(parts("a", 2, 3), parts("b", 2)),
		}},
		{"range, static first", AssignorRange, []specMember{{id: "1", topics: ids("a")}, {id: "2", instance: "i", topics: ids("a")}}, [][]partition{parts("a", 2, 3), parts("a", 0, 1)}},
		{"range, more members than partitions", AssignorRange, []specMember{
			{id: "1", topics: ids("b")}, {id: "2", topics: ids("b")}, {id: "3", topics: ids("b")}, {id: "4", topics: ids("b")},
		}, [][]partition{parts("b", 0), parts("b", 1), parts("b", 2), nil}},
		{"uniform keeps", AssignorUniform, []specMember{{id: "1", topics: ids("a"), current: parts("a", 1, 2, 3)}, {id: "2", topics: ids("a")}}, [][]partition{parts("a", 1, 2), parts("a", 0, 3)}},
		{"uniform, one more", AssignorUniform, []specMember{{id: "1", topics: ids("b")}, {id: "2", topics: ids("b"), current: parts("b", 0, 2)}}, [][]partition{parts("b", 1), parts("b", 0, 2)}},
		{"uniform drops what isn't there", AssignorUniform, []specMember{{id: "1", topics: ids("b"), current: append(parts("b", 7), parts("c", 0)...)}}, [][]partition{parts("b", 0, 1, 2)}},
		{"uniform, different topics", AssignorUniform, []specMember{{id: "1", topics: ids("a")}, {id: "2", topics: ids("a", "b")}}, [][]partition{parts("a", 0, 1, 2, 3), parts("b", 0, 1, 2)}},
		{"uniform, different topics, moves", AssignorUniform, []specMember{
			{id: "1", topics: ids("a"), current: nil}, {id: "2", topics: ids("a", "b"), current: slices.Concat(parts("a", 0, 1, 2, 3), parts("b", 0, 1, 2))},
		}, [][]partition{parts("a", 0, 1, 2), slices.Concat(parts("a", 3), parts("b", 0, 1, 2))}},
		{"nobody reads it", AssignorUniform, []specMember{{id: "1"}}, [][]partition{nil}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := spec{members: row.members, topics: topics}.assign(row.assignor)
			require.Equal(t, len(row.want), len(got))
			for i := range got {
				require.ElementsMatch(t, row.want[i], got[i], "member %d", i)
			}
		})
	}
}
