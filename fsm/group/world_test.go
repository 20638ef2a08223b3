package group

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages/groups"
)

// world runs a core over a log in memory. Writes wait in out until store is called,
// at once unless hold is set.
type world struct {
	t       *testing.T
	core    *Core
	now     int64
	ticket  Ticket
	answers map[Ticket]groups.Answer
	log     []groups.Record
	out     []Write
	hold    bool
	topics  *someTopics
}

const (
	session   = 10_000
	rebalance = 30_000
	delay     = 3_000
	retention = 1_000_000

	consumerSession = 9_000
)

func testConfig() Config {
	return Config{
		SessionMin: 6_000, SessionMax: 1_800_000, SizeMax: 4, InitialDelay: delay, MetadataMax: 10, Retention: retention,
		Consumer: ConsumerConfig{Session: consumerSession, Interval: 1_000}, ConsumerSizeMax: 4, Assignors: []string{AssignorUniform, AssignorRange}, Migration: MigrateBoth,
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, core: New(testConfig()), now: 1_000_000, answers: map[Ticket]groups.Answer{}}
}

func (w *world) perform(e Effects) {
	for _, r := range e.Replies {
		require.NotContains(w.t, w.answers, r.Ticket, "one answer per request")
		w.answers[r.Ticket] = r.Answer
	}
	w.out = append(w.out, e.Writes...)
	if !w.hold {
		w.store()
	}
}

func (w *world) store() {
	for len(w.out) > 0 {
		next := w.out[0]
		w.out = w.out[1:]
		w.log = append(w.log, next.Records...)
		w.perform(w.core.Stored(w.now, next.ID))
	}
}

// ask sends a request; the answer is nil while it waits.
func (w *world) ask(req groups.Request) Ticket {
	w.ticket++
	w.perform(w.core.Handle(w.now, w.ticket, fmt.Sprint("u", w.ticket), req))
	return w.ticket
}

// pass lets time pass, with a tick at every deadline.
func (w *world) pass(millis int64) {
	until := w.now + millis
	for {
		at, ok := w.core.Wake()
		if !ok || at > until {
			break
		}
		w.now = max(w.now, at)
		w.perform(w.core.Tick(w.now))
	}
	w.now = until
}

// replay is the core that another node would have.
func (w *world) replay() {
	w.core, w.out = New(testConfig()), nil
	if w.topics != nil {
		w.core.SetTopics(w.topics)
	}
	for _, r := range w.log {
		w.core.ApplyLoaded(r)
	}
	w.core.Loaded(w.now)
}

func answerOf[A groups.Answer](w *world, t Ticket) A {
	w.t.Helper()
	require.Contains(w.t, w.answers, t, "no answer yet")
	a, ok := w.answers[t].(A)
	require.True(w.t, ok, "%T", w.answers[t])
	return a
}

// metadata is a consumer's subscription to topics.
func metadata(topics ...string) []byte {
	out := []byte{0, 0, 0, 0, 0, byte(len(topics))}
	for _, t := range topics {
		out = append(append(out, 0, byte(len(t))), t...)
	}
	return append(out, 0xff, 0xff, 0xff, 0xff)
}

func joinOf(member, instance string, protocols ...string) groups.Join {
	j := groups.Join{
		Group: "g", Member: member, Instance: instance, SessionMillis: session, RebalanceMillis: rebalance, ProtocolType: "consumer",
		ClientID: "c", ClientHost: "/h", MaySkip: true,
	}
	if len(protocols) == 0 {
		protocols = []string{"range"}
	}
	for _, p := range protocols {
		j.Protocols = append(j.Protocols, groups.Protocol{Name: p, Metadata: metadata("t")})
	}
	return j
}

func who(j *groups.Joined) groups.Who {
	return groups.Who{Group: "g", Generation: j.Generation, Member: j.Member}
}

// stable makes a group of n members in a settled generation; the first leads.
func (w *world) stable(n int) []*groups.Joined {
	w.t.Helper()
	var tickets []Ticket
	for range n {
		tickets = append(tickets, w.ask(joinOf("", "")))
	}
	w.pass(n64(n) * delay)
	return w.settle(tickets...)
}

func n64(n int) int64 { return int64(n) }

// settle syncs the members whose joins were answered.
func (w *world) settle(tickets ...Ticket) []*groups.Joined {
	w.t.Helper()
	var joined []*groups.Joined
	var syncs []Ticket
	for _, t := range tickets {
		j := answerOf[*groups.Joined](w, t)
		require.NoError(w.t, j.Err)
		joined = append(joined, j)
		s := groups.Sync{Who: who(j)}
		if j.Leader == j.Member {
			s.Assignments = map[string][]byte{}
			for _, m := range j.Members {
				s.Assignments[m.Member] = []byte("for " + m.Member)
			}
		}
		syncs = append(syncs, w.ask(s))
	}
	for i, t := range syncs {
		s := answerOf[*groups.Synced](w, t)
		require.NoError(w.t, s.Err)
		require.Equal(w.t, "for "+joined[i].Member, string(s.Assignment))
	}
	return joined
}

func (w *world) beat(j *groups.Joined) error {
	return answerOf[*groups.Done](w, w.ask(groups.Heartbeat{Who: who(j)})).Err
}

func (w *world) state() string {
	return answerOf[*groups.Described](w, w.ask(groups.Describe{Group: "g"})).State
}

func commitOf(by groups.Who, topic string, offset int64) groups.Commit {
	return groups.Commit{Who: by, RetentionMillis: -1, Positions: []groups.Position{{Topic: topic, Offset: offset, LeaderEpoch: -1}}}
}

func (w *world) commit(by groups.Who, topic string, offset int64) error {
	a := answerOf[*groups.Committed](w, w.ask(commitOf(by, topic, offset)))
	if a.Err != nil {
		return a.Err
	}
	return a.Positions[0]
}

func (w *world) offset(topic string) int64 {
	return answerOf[*groups.Fetched](w, w.ask(groups.Fetch{Group: "g", Epoch: -1, Topics: []groups.Partitions{{Topic: topic, Partitions: []int32{0}}}})).Positions[0].Offset
}

var outside = groups.Who{Group: "g", Generation: -1}
