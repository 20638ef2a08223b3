package sim

import (
	"kagami/fetch"
	"kagami/fsm"
	"kagami/messages"
	"kagami/messages/batch"
)

const (
	fetchMax   = 3       // records in an answer
	batchLimit = 1 << 20 // bytes; none of the model's comes near
	codeRange  = 1       // OFFSET_OUT_OF_RANGE
	codeLeader = 6       // NOT_LEADER_OR_FOLLOWER
	codeFenced = 74      // FENCED_LEADER_EPOCH
	codeAhead  = 75      // UNKNOWN_LEADER_EPOCH
)

// fetcher is what package fetch keeps of a partition. Its decisions are those of
// [fetch.Decide].
type fetcher struct {
	work      uint32
	sle       int32
	broker    int
	succeeded bool
	asking    bool // a request is on its way, or its answer is being appended
	gone      bool
}

// fetched is an answer of the source.
type fetched struct {
	offset  int
	reply   fetch.Reply
	records []record
}

func (n *node) fetch(p int, o fsm.Fetch, fault bool) fsm.Input {
	switch {
	case !n.holds(p) || fault:
		return fsm.Failed{Work: o.Work, Cause: fsm.CauseInternal, Text: "not leader"}
	case n.c.link != linkUp:
		return fsm.Failed{Work: o.Work, Cause: fsm.CauseConnection, Text: "leader unknown"}
	}
	n.unfetch(p)
	n.c.replicas[p].setMode(messages.ModeMirroring)
	t := n.c.source.image[p]
	n.parts[p].fetcher = &fetcher{work: o.Work, sle: t.epoch, broker: t.leader}
	return nil
}

// unfetch returns when no append runs or can start.
func (n *node) unfetch(p int) {
	if f := n.parts[p].fetcher; f != nil {
		f.gone = true
		n.parts[p].fetcher = nil
	}
}

// ask sends one request.
func (n *node) ask(p int) bool {
	f := n.parts[p].fetcher
	if f == nil || f.asking || n.c.link != linkUp {
		return false
	}
	f.asking = true
	rep := n.c.replicas[p]
	got := n.c.source.serve(p, f, rep.end(), rep.latestEpoch())
	n.c.matching(n, p, got)
	n.c.w.later(&action{
		name: n.name + ":reply:" + topics[p], node: n, net: true,
		lost: func() { f.asking = false },
		run:  func(fault bool) { n.reply(p, f, got, fault) },
	})
	return true
}

// serve answers a Fetch as a broker of this cluster would.
func (c *cluster) serve(p int, f *fetcher, offset int, lastEpoch int32) fetched {
	rep, t := c.replicas[p], c.image[p]
	got := fetched{offset: offset, reply: fetch.Reply{
		HighWatermark: int64(rep.end()), LogStart: int64(rep.start), DivergingEpoch: -1, DivergingEnd: -1, Leader: fetch.Leader{ID: messages.NoNode},
	}}
	r := &got.reply
	if c.hints {
		r.Leader = fetch.Leader{ID: messages.NodeID(t.leader), Epoch: t.epoch}
	}
	switch {
	case f.broker != t.leader || rep.node != t.leader:
		r.Code = codeLeader
		return got
	case f.sle < t.epoch:
		r.Code = codeFenced
		return got
	case f.sle > t.epoch:
		r.Code = codeAhead
		return got
	}
	if epoch, end, differs := rep.diverging(lastEpoch, offset); differs {
		r.DivergingEpoch, r.DivergingEnd = epoch, end
		return got
	}
	if offset < rep.start || offset > rep.end() {
		r.Code = codeRange
		return got
	}
	for i := offset; i < min(rep.end(), offset+fetchMax); i++ {
		b := rep.at(i)
		props := batch.Plain()
		props.BaseOffset, props.LeaderEpoch = int64(i), b.epoch
		r.Batches = batch.Append(r.Batches, props, batch.Record{})
		got.records = append(got.records, b)
	}
	return got
}

// diverging compares the epoch of the asker's last record with this log (KIP-595).
func (r *replica) diverging(lastEpoch int32, offset int) (epoch int32, end int64, differs bool) {
	if lastEpoch < 0 || len(r.log) == 0 {
		return -1, -1, false
	}
	epoch, end, found := r.epochEnd(lastEpoch)
	if !found {
		epoch, end = lastEpoch, int64(r.start)
	}
	return epoch, end, epoch < lastEpoch || end < int64(offset)
}

// reply is what a worker does with an answer.
func (n *node) reply(p int, f *fetcher, got fetched, fault bool) {
	f.asking = false
	if f.gone {
		return
	}
	rep := n.c.replicas[p]
	if fault {
		n.depart(p, f, fsm.Failed{Work: f.work, Cause: fsm.CauseInternal, Text: "injected"})
		return
	}
	v := fetch.View{
		TopicPartition: topicOf(p), FetchOffset: int64(got.offset), SourceEpoch: f.sle, SourceBroker: messages.NodeID(f.broker),
		Local: fetch.LocalState{
			LogStart: int64(rep.start), HighWatermark: int64(rep.end()), End: int64(rep.end()),
			LeaderEpoch: rep.claimed, LatestEpoch: rep.latestEpoch(),
		},
		BatchBytesMax: batchLimit,
	}
	d := fetch.Decide(v, got.reply, rep.epochEnd)
	switch d.Verdict {
	case fetch.VerdictDrop:
	case fetch.VerdictCode:
		n.errorCode(p, f, got)
	case fetch.VerdictNewEpoch:
		f.sle = got.reply.Leader.Epoch
	case fetch.VerdictMoved:
		n.unfetch(p)
		if pt := n.parts[p]; pt.core.State() == messages.StateMirroring {
			n.enqueue(p, fsm.Fetch{Work: f.work}, true)
		}
	case fetch.VerdictLeaderUnknown:
		n.depart(p, f, fsm.Failed{Work: f.work, Cause: fsm.CauseConnection, Text: "source leader unknown"})
	case fetch.VerdictTruncate:
		n.truncate(p, int(d.Offset))
	case fetch.VerdictAboveDLE:
		n.depart(p, f, fsm.EpochAhead{Work: f.work, BatchEpoch: d.Scan.MaxEpoch})
	case fetch.VerdictAboveSLE:
		n.depart(p, f, fsm.Failed{Work: f.work, Cause: fsm.CauseInternal, Text: "batch epoch above the source's"})
	case fetch.VerdictAppend:
		f.asking = true
		generation := rep.generation
		n.local("append:"+topics[p], func(fault bool) { n.append(p, f, got, d, generation, fault) })
	}
}

// depart ends the fetcher and says why.
func (n *node) depart(p int, f *fetcher, in fsm.Input) {
	f.gone = true
	if n.parts[p].fetcher == f {
		n.parts[p].fetcher = nil
	}
	n.tell(p, in)
}

// append is steps 6 to 11 of fetcher.md.
func (n *node) append(p int, f *fetcher, got fetched, d fetch.Decision, generation int64, fault bool) {
	f.asking = false
	rep := n.c.replicas[p]
	if f.gone {
		return // the removal waited for it
	}
	if fault {
		n.depart(p, f, fsm.Failed{Work: f.work, Cause: fsm.CauseInternal, Text: "disk"})
		return
	}
	if !n.holds(p) || rep.generation != generation || rep.end() != got.offset || rep.mode != messages.ModeMirroring {
		return // the journal refuses; fetched again
	}
	if d.Scan.Batches > 0 {
		n.c.landing(n, p)
		for _, b := range got.records[:d.Scan.Batches] {
			rep.append(b)
		}
	}
	if d.LogStart > int64(rep.start) {
		rep.raiseStart(int(d.LogStart))
	}
	if d.Near && n.c.link == linkUp {
		n.bumpAhead(p)
	}
	if !f.succeeded {
		f.succeeded = true
		n.tell(p, fsm.Healthy{Work: f.work})
	}
}

// bumpAhead is the proactive bump, in the background.
func (n *node) bumpAhead(p int) {
	sle := n.c.source.image[p].epoch
	if sle <= n.c.replicas[p].claimed-fsm.BumpThreshold {
		return
	}
	if least, err := fsm.BumpTarget(sle); err == nil && n.c.image[p].epoch <= least {
		n.c.bump(p, least)
	}
}

func (n *node) truncate(p, offset int) {
	if n.holds(p) && n.c.replicas[p].mode != messages.ModeWritable {
		if cut := n.c.cut(p, offset); cut.To > cut.From {
			n.tell(p, fsm.Noted{Cut: cut})
		}
	}
}

// errorCode: workflows.md, "Retention on the source"; the rest backs off.
func (n *node) errorCode(p int, f *fetcher, got fetched) {
	rep, src := n.c.replicas[p], n.c.source.replicas[p]
	if got.reply.Code != codeRange || n.c.link != linkUp || got.offset != rep.end() {
		return
	}
	switch {
	case got.offset < src.start:
		if !n.holds(p) || rep.mode == messages.ModeWritable {
			return
		}
		fresh := rep.end() == 0 && rep.start == 0
		n.c.landing(n, p)
		rep.restartAt(src.start)
		n.c.w.event("%s %s: begins anew at %d", n.c.name, topics[p], src.start)
		if !fresh {
			n.tell(p, fsm.Noted{Gap: fsm.Gap{From: int64(got.offset), To: int64(src.start), AtMillis: 1}})
			n.c.audits[p].gaps++
		}
	case got.offset > src.end():
		n.truncate(p, src.end())
	}
}
