package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"

	"kagami/messages"
	"kagami/test/e2e"
)

// A victim is a topic that the source deletes, and may make again, while it is
// mirrored. It is started by name, so that discovery doesn't find it.

func (w *world) newVictim() {
	if !w.source().usable() || !w.dest().usable() || len(w.names("v")) >= 3 {
		return
	}
	if w.newTopic("v", 1+w.rng.Int32N(2)) != nil {
		return
	}
	name := fmt.Sprintf("v-%d", w.made-1)
	ctx, cancel := w.short()
	defer cancel()
	err := e2e.Produce(ctx, w.source().node.Bootstrap(), name, e2e.Records{Count: 20}, wholeInSegment)
	w.note("victim %s: %v, start: %v", name, err, w.start(ctx, []string{name}))
}

func (w *world) deleteVictim(again bool) {
	name := w.some("v")
	if name == "" || !w.source().usable() {
		return
	}
	ctx, cancel := w.short()
	defer cancel()
	adm := w.source().side.Admin
	_, err := adm.DeleteTopic(ctx, name)
	w.note("delete %s on %s: %v", name, w.source().name, err)
	if err != nil || !again {
		return
	}
	w.pause(0, 1500)
	_, err = adm.CreateTopic(ctx, 1+w.rng.Int32N(3), 1, nil, name)
	w.note("%s made anew: %v", name, err)
	if err == nil {
		_ = e2e.Produce(ctx, w.source().node.Bootstrap(), name, e2e.Records{Count: 30, From: 5000}, wholeInSegment)
	}
}

// judgeVictims: what the source deleted is STOPPED with its data, what it made anew
// is never copied over the old one, and the rest mirrors. Then victims go.
func (w *world) judgeVictims() {
	w.t.Helper()
	for _, name := range w.names("v") {
		w.poll(settleWithin, name+" in the state that it belongs in", func(ctx context.Context) error { return w.victimSettled(ctx, name) })
		ctx, cancel := w.short()
		for _, c := range []*cluster{w.dest(), w.source()} {
			_, _ = c.side.Admin.DeleteTopic(ctx, name)
		}
		cancel()
		delete(w.topics, name)
		w.poll(settleWithin, name+" forgotten", func(ctx context.Context) error {
			ps, err := w.partitions(ctx)
			if err == nil && len(ps[name]) > 0 {
				return fmt.Errorf("still described: %v", ps[name])
			}
			return err
		})
	}
}

func (w *world) victimSettled(ctx context.Context, name string) error {
	members, err := w.dest().adm.MirrorTopics(ctx)
	if err != nil {
		return err
	}
	m, member := members[name]
	if !member {
		return nil
	}
	ps, err := w.partitions(ctx)
	if err != nil {
		return err
	}
	theirs, err := freshTopics(ctx, w.source(), name)
	if err != nil {
		return err
	}
	ours, err := freshTopics(ctx, w.dest(), name)
	if err != nil {
		return err
	}
	there, here := theirs[name], ours[name]
	want := []string{"MIRRORING"}
	switch {
	case there.Err != nil: // gone
		want = []string{"STOPPED"}
	case there.ID != here.ID:
		want = []string{"STOPPED", "FAILED"} // whether the deletion was noticed or not
	case m.Desired == messages.DesiredStopped:
		want = []string{"STOPPED"}
	}
	for _, p := range ps[name] {
		if !slices.Contains(want, p.State) {
			return fmt.Errorf("%s-%d is %s (%s), want %v", name, p.Partition, p.State, p.ErrorText, want)
		}
	}
	if want[0] == "MIRRORING" {
		return e2e.Different(ctx, w.source().side, w.dest().side, name, true)
	}
	return nil
}

// freshTopics asks by a client that remembers nothing.
func freshTopics(ctx context.Context, c *cluster, name string) (kadm.TopicDetails, error) {
	s, err := e2e.NewSide(c.name, c.node.Bootstrap())
	if err != nil {
		return nil, err
	}
	defer s.Close()
	list, err := s.Admin.ListTopics(ctx, name)
	if err == nil && len(list) != 1 {
		err = errors.New("no answer for " + name)
	}
	return list, err
}

// keepAll ends the retention that retain set on the source: behind the destination's
// back it would remove what comes back by no failback.
func (w *world) keepAll() {
	w.t.Helper()
	ctx, cancel := w.short()
	defer cancel()
	value := "-1"
	res, err := w.source().side.Admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.bytes", Value: &value}}, w.names("t")...)
	for _, r := range res {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// retain lets the source delete old segments of a topic.
func (w *world) retain() {
	name := w.some("t")
	if name == "" || !w.source().usable() {
		return
	}
	ctx, cancel := w.short()
	defer cancel()
	value := strconv.Itoa([]int{-1, 1, 70_000, 200_000}[w.rng.IntN(4)])
	_, err := w.source().side.Admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.bytes", Value: &value}}, name)
	w.note("retention.bytes of %s: %s: %v", name, value, err)
}
