package stub

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/internal/clock"
	"kagami/messages"
)

// Codes that Fetch answers with.
const (
	codeOffsetOutOfRange   int16 = 1
	codeUnknownTopic       int16 = 3
	codeNotLeader          int16 = 6
	codeSessionNotFound    int16 = 70
	codeSessionEpoch       int16 = 71
	codeFencedLeaderEpoch  int16 = 74
	codeUnknownLeaderEpoch int16 = 75
	codeUnknownTopicID     int16 = 100
)

// fetchSession is the source's side of KIP-227.
type fetchSession struct {
	id, epoch  int32
	order      []fetchKey
	partitions map[fetchKey]*sessionPartition
}

type fetchKey struct {
	topic     string
	id        messages.TopicID
	partition int32
}

type sessionPartition struct {
	req       kmsg.FetchRequestTopicPartition
	sentHW    int64
	sentStart int64
	sent      bool
}

// Sessions are the positions that the broker's fetch sessions hold, by session
// id, for tests.
func (b *Broker) Sessions() map[int32]map[messages.TopicPartition]int64 {
	names := make(map[messages.TopicID]string)
	b.c.Read(func(st *State) {
		for _, t := range st.Topics {
			names[t.ID] = t.Name
		}
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[int32]map[messages.TopicPartition]int64)
	for id, s := range b.sessions {
		out[id] = make(map[messages.TopicPartition]int64)
		for k, p := range s.partitions {
			name := k.topic
			if name == "" {
				name = names[k.id]
			}
			out[id][messages.TopicPartition{Topic: name, Partition: k.partition}] = p.req.FetchOffset
		}
	}
	return out
}

func (b *Broker) fetch(req *Request) kmsg.Response {
	body, ok := req.Body.(*kmsg.FetchRequest)
	if !ok {
		return nil
	}
	session, incremental, code := b.openSession(body)
	if code != 0 {
		resp := kmsg.NewPtrFetchResponse()
		resp.Version, resp.ErrorCode = body.Version, code
		return resp
	}
	over := make(chan struct{})
	stop := clock.Wall{}.AfterFunc(time.Duration(body.MaxWaitMillis)*time.Millisecond, func() { close(over) })
	defer stop()
	for last := false; ; {
		b.c.mu.Lock()
		resp, ready := b.collectLocked(body, session, incremental, last)
		wake, closed := b.c.changed, b.c.closed
		b.c.mu.Unlock()
		if ready || last || closed {
			return resp
		}
		select {
		case <-wake:
		case <-over:
			last = true
		}
	}
}

// openSession applies the request to its session.
func (b *Broker) openSession(req *kmsg.FetchRequest) (s *fetchSession, incremental bool, code int16) {
	var none, sticky bool
	b.c.Read(func(st *State) { none, sticky = st.NoSessions, st.StickySessions })
	b.mu.Lock()
	defer b.mu.Unlock()
	if req.Version < 7 || req.SessionEpoch <= 0 {
		delete(b.sessions, req.SessionID)
		s = &fetchSession{partitions: make(map[fetchKey]*sessionPartition)}
		if req.Version >= 7 && req.SessionEpoch == 0 && !none {
			b.lastID++
			s.id, s.epoch = b.lastID, 1
			b.sessions[s.id] = s
		}
	} else {
		incremental = true
		s = b.sessions[req.SessionID]
		switch {
		case s == nil:
			return nil, true, codeSessionNotFound
		case s.epoch != req.SessionEpoch:
			return nil, true, codeSessionEpoch
		}
		s.epoch++
	}
	if !sticky && len(req.ForgottenTopics) > 0 {
		for _, t := range req.ForgottenTopics {
			for _, p := range t.Partitions {
				delete(s.partitions, fetchKey{topic: t.Topic, id: t.TopicID, partition: p})
			}
		}
		s.order = slices.DeleteFunc(s.order, func(o fetchKey) bool { return s.partitions[o] == nil })
	}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			k := fetchKey{topic: t.Topic, id: t.TopicID, partition: p.Partition}
			if was, ok := s.partitions[k]; ok {
				if !sticky {
					was.req = p
				}
				continue
			}
			s.partitions[k] = &sessionPartition{req: p}
			s.order = append(s.order, k)
		}
	}
	return s, incremental, 0
}

// collectLocked makes an answer from the tables; ready is false when it should
// wait for more.
func (b *Broker) collectLocked(req *kmsg.FetchRequest, s *fetchSession, incremental, last bool) (*kmsg.FetchResponse, bool) {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version, resp.SessionID = req.Version, s.id
	room, total, ready := int(req.MaxBytes), 0, false
	index := make(map[fetchKey]int)
	type update struct {
		sp        *sessionPartition
		hw, start int64
	}
	var updates []update
	fed := make(map[fetchKey]bool)
	for _, k := range s.order {
		sp := s.partitions[k]
		kp, urgent := b.partitionLocked(resp, k, sp.req, room, total == 0)
		n := len(kp.RecordBatches)
		room -= n
		total += n
		ready = ready || urgent
		if n > 0 {
			fed[k] = true
		}
		moved := !sp.sent || sp.sentHW != kp.HighWatermark || sp.sentStart != kp.LogStartOffset
		if incremental && n == 0 && !urgent && !moved {
			continue
		}
		updates = append(updates, update{sp, kp.HighWatermark, kp.LogStartOffset})
		tk := fetchKey{topic: k.topic, id: k.id}
		i, ok := index[tk]
		if !ok {
			i = len(resp.Topics)
			index[tk] = i
			t := kmsg.NewFetchResponseTopic()
			t.Topic, t.TopicID = k.topic, k.id
			resp.Topics = append(resp.Topics, t)
		}
		resp.Topics[i].Partitions = append(resp.Topics[i].Partitions, kp)
	}
	ready = ready || total >= int(req.MinBytes)
	if ready || last {
		for _, u := range updates {
			u.sp.sent, u.sp.sentHW, u.sp.sentStart = true, u.hw, u.start
		}
		if len(fed) > 0 { // those with data go to the end, as Kafka has it
			slices.SortStableFunc(s.order, func(x, y fetchKey) int { return rank(fed[x]) - rank(fed[y]) })
		}
	}
	return resp, ready
}

func rank(fed bool) int {
	if fed {
		return 1
	}
	return 0
}

// partitionLocked answers for one partition; urgent = don't wait.
func (b *Broker) partitionLocked(resp *kmsg.FetchResponse, k fetchKey, req kmsg.FetchRequestTopicPartition, room int, first bool) (kp kmsg.FetchResponseTopicPartition, urgent bool) {
	kp = kmsg.NewFetchResponseTopicPartition()
	kp.Partition, kp.HighWatermark, kp.LastStableOffset = k.partition, -1, -1
	refuse := func(code int16) (kmsg.FetchResponseTopicPartition, bool) {
		kp.ErrorCode = code
		return kp, true
	}
	t := b.c.state.Topics[k.topic]
	unknown := codeUnknownTopic
	if resp.Version >= 13 {
		t, unknown = b.c.state.byID(k.id), codeUnknownTopicID
	}
	if t == nil || k.partition < 0 || int(k.partition) >= len(t.Partitions) {
		return refuse(unknown)
	}
	p := t.Partitions[k.partition]
	hint := func() {
		if resp.Version < 16 || p.NoHint {
			return
		}
		kp.CurrentLeader.LeaderID, kp.CurrentLeader.LeaderEpoch = p.Leader, p.Epoch
		if p.Leader >= 0 && int(p.Leader) < len(b.c.brokers) {
			n := kmsg.NewFetchResponseBroker()
			n.NodeID = p.Leader
			n.Host, n.Port = b.c.brokers[p.Leader].hostPort()
			resp.Brokers = append(resp.Brokers, n)
		}
	}
	checkEpoch := resp.Version >= 9 && req.CurrentLeaderEpoch >= 0
	switch {
	case p.Code != 0:
		if p.Code == codeNotLeader || p.Code == codeFencedLeaderEpoch {
			hint()
		}
		return refuse(p.Code)
	case p.Leader != b.ID:
		hint()
		return refuse(codeNotLeader)
	case checkEpoch && req.CurrentLeaderEpoch < p.Epoch:
		hint()
		return refuse(codeFencedLeaderEpoch)
	case checkEpoch && req.CurrentLeaderEpoch > p.Epoch:
		return refuse(codeUnknownLeaderEpoch)
	case req.FetchOffset < p.LogStart || req.FetchOffset > p.End():
		return refuse(codeOffsetOutOfRange)
	}
	kp.HighWatermark, kp.LastStableOffset, kp.LogStartOffset = p.HighWatermark(), p.HighWatermark(), p.LogStart
	if resp.Version >= 12 && req.LastFetchedEpoch >= 0 {
		e, end := p.epochEnd(req.LastFetchedEpoch)
		if e < 0 {
			return refuse(codeOffsetOutOfRange)
		}
		if e < req.LastFetchedEpoch || end < req.FetchOffset {
			kp.DivergingEpoch.Epoch, kp.DivergingEpoch.EndOffset = e, end
			return kp, true
		}
	}
	kp.RecordBatches = p.read(req.FetchOffset, min(int(req.PartitionMaxBytes), room), first, b.c.state.CutOffTails)
	return kp, false
}

// read returns batches from the one that holds offset, below the high
// watermark. The first one of an answer comes whole.
func (p *Partition) read(offset int64, room int, first, cutOff bool) []byte {
	out := []byte{}
	for _, b := range p.Batches {
		if b.Last < offset || b.Base >= p.HighWatermark() {
			continue
		}
		if len(out)+len(b.Bytes) <= room || (first && len(out) == 0) {
			out = append(out, b.Bytes...)
			continue
		}
		if cutOff && len(out) > 0 {
			out = append(out, b.Bytes[:min(len(b.Bytes)-1, max(17, room-len(out)))]...)
		}
		break
	}
	return out
}
