package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/client"
	"kagami/messages"
	"kagami/test/e2e"
)

// op is one thing that may happen. Requests may fail: a node may be dead or cut
// off. What must hold is judged later.
type op struct {
	name   string
	weight int
	run    func(w *world)
}

func ops() []op {
	return []op{
		{"pause", 4, func(w *world) { w.mirrorRequest("pause") }},
		{"resume", 4, func(w *world) { w.mirrorRequest("resume") }},
		{"recover", 2, func(w *world) { w.mirrorRequest("recover") }},
		{"start", 3, func(w *world) { w.mirrorRequest("start") }},
		{"stop", 3, (*world).stopOne},
		{"request and kill", 5, (*world).requestAndKill},
		{"new topic", 3, func(w *world) { w.newTopicAndWriter(1 + w.rng.Int32N(3)) }},
		{"grow", 3, (*world).grow},
		{"delete records", 4, (*world).deleteRecords},
		{"delete here", 1, (*world).deleteHere},
		{"new victim", 3, (*world).newVictim},
		{"delete victim", 3, func(w *world) { w.deleteVictim(false) }},
		{"make victim anew", 3, func(w *world) { w.deleteVictim(true) }},
		{"retention", 3, (*world).retain},
		{"doors", 4, (*world).doors},
		{"bootstrap", 3, (*world).moveBootstrap},
		{"black hole", 4, func(w *world) { w.fault(BlackHole) }},
		{"reset", 4, func(w *world) { w.fault(Reset) }},
		{"slow", 2, func(w *world) { w.fault(Slow) }},
		{"open", 5, func(w *world) { w.fault(Open) }},
		{"kill source", 3, func(w *world) { w.crash(w.source(), true) }},
		{"kill destination", 4, func(w *world) { w.crash(w.dest(), true) }},
		{"end source", 1, func(w *world) { w.crash(w.source(), false) }},
		{"end destination", 2, func(w *world) { w.crash(w.dest(), false) }},
		{"freeze source", 2, func(w *world) { w.nap(w.source()) }},
		{"freeze destination", 2, func(w *world) { w.nap(w.dest()) }},
	}
}

func pick(w *world, all []op) op {
	total := 0
	for _, o := range all {
		total += o.weight
	}
	n := w.rng.IntN(total)
	for _, o := range all {
		if n -= o.weight; n < 0 {
			return o
		}
	}
	return all[0]
}

func (w *world) fault(f Fault) {
	w.note("network to %s: %s", w.source().name, f)
	w.source().proxy.Set(f)
}

// crash ends a node, now and then for a while.
func (w *world) crash(c *cluster, hard bool) {
	w.revive(c)
	if hard {
		w.kill(c)
	} else {
		w.terminate(c)
	}
	w.pause(0, 600)
	w.revive(c)
}

func (w *world) nap(c *cluster) {
	w.revive(c)
	w.freeze(c)
	w.pause(200, 2500)
	w.revive(c)
}

// request sends one request for a topic.
func (w *world) request(ctx context.Context, what, name string) error {
	var res client.TopicResults
	var err error
	adm, list := w.dest().adm, []string{name}
	switch what {
	case "pause":
		res, err = adm.PauseMirrorTopics(ctx, mirror, list)
	case "resume":
		res, err = adm.ResumeMirrorTopics(ctx, mirror, list)
	case "recover":
		res, err = adm.RecoverMirrorTopics(ctx, mirror, list)
	case "stop":
		res, err = adm.StopMirrorTopics(ctx, mirror, list)
	case "start":
		if !w.source().usable() {
			return errors.New("the source is down")
		}
		return w.start(ctx, list)
	}
	return errors.Join(err, res.Err())
}

func (w *world) mirrorRequest(what string) {
	name := w.some("t")
	if name == "" || !w.dest().usable() {
		return
	}
	ctx, cancel := w.short()
	defer cancel()
	err := w.request(ctx, what, name)
	w.note("%s %s: %v", what, name, err)
	if errors.Is(err, context.DeadlineExceeded) {
		w.t.Fatalf("%s of %s took longer than %s", what, name, opWithin)
	}
}

// stopOne stops a topic: it must get there whatever the source does.
func (w *world) stopOne() {
	name := w.some("t")
	if name == "" || !w.dest().usable() {
		return
	}
	ctx, cancel := w.short()
	defer cancel()
	err := w.request(ctx, "stop", name)
	w.note("stop %s: %v", name, err)
	if err != nil {
		return // not a member, or not there
	}
	w.poll(stopWithin, name+" STOPPED", func(ctx context.Context) error {
		return e2e.AwaitStates(ctx, w.dest().adm, mirror, []string{name}, 1, "STOPPED")
	})
	w.note("%s is stopped", name)
	if err := w.produceOnce(w.dest(), name, -1); err != nil {
		w.t.Fatalf("%s is STOPPED and takes no write: %v", name, err)
	}
}

// intruders makes their values differ.
var intruders atomic.Int64

// produceOnce writes one record by hand, without retries.
func (w *world) produceOnce(c *cluster, name string, acks int16) error {
	o := append(patient(c.node.Bootstrap()), kgo.RecordRetries(0), kgo.UnknownTopicRetries(0), kgo.DisableIdempotentWrite())
	switch acks {
	case 0:
		o = append(o, kgo.RequiredAcks(kgo.NoAck()))
	case 1:
		o = append(o, kgo.RequiredAcks(kgo.LeaderAck()))
	}
	cl, err := kgo.NewClient(o...)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := w.short()
	defer cancel()
	return cl.ProduceSync(ctx, &kgo.Record{Topic: name, Value: fmt.Appendf(nil, "intruder %d %d", acks, intruders.Add(1))}).FirstErr()
}

// requestAndKill kills the destination in the middle of a request.
func (w *world) requestAndKill() {
	name := w.some("t")
	if name == "" || !w.dest().usable() {
		return
	}
	what := []string{"pause", "resume", "recover", "stop", "start"}[w.rng.IntN(5)]
	ctx, cancel := w.short()
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.request(ctx, what, name) }()
	w.pause(0, 120)
	w.kill(w.dest())
	cancel()
	w.note("%s %s before the kill: %v", what, name, <-done)
	w.pause(0, 300)
	w.revive(w.dest())
}

func (w *world) newTopicAndWriter(partitions int32) {
	if !w.source().usable() || len(w.names("t")) >= 8 {
		return
	}
	if w.newTopic("t", partitions) != nil {
		return
	}
	name := fmt.Sprintf("t-%d", w.made-1)
	w.writer(name)
}

func (w *world) writer(name string) {
	w.t.Helper()
	if err := w.topics[name].write(w.source().node.Bootstrap(), time.Duration(10+w.rng.IntN(60))*time.Millisecond); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) grow() {
	name := w.some("t")
	if name == "" || !w.source().usable() {
		return
	}
	ctx, cancel := w.short()
	defer cancel()
	res, err := w.source().side.Admin.CreatePartitions(ctx, 1, name)
	if err == nil {
		err = res.Error()
	}
	w.note("one more partition of %s: %v", name, err)
}

func (w *world) deleteRecords() {
	name := w.some("t")
	if name == "" || !w.source().usable() {
		return
	}
	ctx, cancel := w.short()
	defer cancel()
	ends, err := w.source().side.TopicEnds(ctx, name)
	if err != nil {
		return
	}
	var offsets kadm.Offsets
	for p, e := range ends {
		if span := e.End - e.Start; span > 0 && w.rng.IntN(2) == 0 {
			offsets.AddOffset(name, p, e.Start+w.rng.Int64N(span+1), -1)
		}
	}
	res, err := w.source().side.Admin.DeleteRecords(ctx, offsets)
	if err == nil {
		err = res.Error()
	}
	w.note("delete records of %s %v: %v", name, offsets[name], err)
}

// deleteHere deletes a mirror topic: discovery brings it back, from the start.
func (w *world) deleteHere() {
	name := w.some("t")
	if name == "" || !w.dest().usable() {
		return
	}
	ctx, cancel := w.short()
	defer cancel()
	_, err := w.dest().side.Admin.DeleteTopic(ctx, name)
	w.note("delete %s on %s: %v", name, w.dest().name, err)
}

// doors tries every way to write to a topic that isn't STOPPED.
func (w *world) doors() {
	if !w.dest().usable() {
		return
	}
	ctx, cancel := w.short()
	defer cancel()
	members, err := w.dest().adm.MirrorTopics(ctx)
	if err != nil {
		return
	}
	for name, m := range members {
		if m.Desired == messages.DesiredStopped {
			continue
		}
		// Only a refusal for being read-only is right: the topic is known to be there.
		for _, acks := range []int16{-1, 1} {
			if err := w.produceOnce(w.dest(), name, acks); !errors.Is(err, kerr.PolicyViolation) {
				w.t.Fatalf("produce to %s (%s), acks %d: %v", name, m.Desired, acks, err)
			}
		}
		_ = w.produceOnce(w.dest(), name, 0) // judged by what is stored
		res, err := w.dest().side.Admin.CreatePartitions(ctx, 1, name)
		if err == nil && res.Error() == nil {
			w.t.Fatalf("%s (%s) can be grown", name, m.Desired)
		}
		var offsets kadm.Offsets
		offsets.AddOffset(name, 0, -1, -1)
		gone, err := w.dest().side.Admin.DeleteRecords(ctx, offsets)
		if err == nil && gone.Error() == nil {
			w.t.Fatalf("records of %s (%s) can be deleted", name, m.Desired)
		}
		empty := ""
		_, err = w.dest().side.Admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: messages.MirrorNameConfig, Value: &empty}}, name)
		if err != nil && ctx.Err() != nil {
			w.t.Fatal(err)
		}
		after, err := w.dest().adm.MirrorTopics(ctx)
		if err == nil && after[name] != m {
			w.t.Fatalf("%s was %v and is %v", name, m, after[name])
		}
		w.note("doors of %s are shut", name)
	}
}

func (w *world) moveBootstrap() {
	if !w.dest().usable() {
		return
	}
	direct := w.rng.IntN(2) == 0
	ctx, cancel := w.short()
	defer cancel()
	w.note("bootstrap direct=%t: %v", direct, w.alterBootstrap(ctx, direct))
}

// alterBootstrap points the mirror at the source itself or at its proxy.
func (w *world) alterBootstrap(ctx context.Context, direct bool) error {
	value := w.bootstrap(direct)
	have, err := w.dest().adm.ListClusterMirrors(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(have, func(m client.ListedMirror) bool { return m.Name == mirror && m.SourceBootstrap == value }) {
		return nil
	}
	const clusterMirror = 64
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = clusterMirror, mirror
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = "bootstrap.servers", &value
	res.Configs = append(res.Configs, c)
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(ctx, w.dest().adm.Kgo())
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Resources[0].ErrorCode)
}
