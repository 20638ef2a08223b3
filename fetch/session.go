package fetch

import (
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

// want is a partition as it is to stand in the next request.
type want struct {
	tp       messages.TopicPartition
	id       messages.TopicID
	position position

	throttled bool // it counts for the throttle, and isn't known to have caught up
}

// position is what an incremental session remembers per partition: a partition
// is named again only when this changes.
type position struct {
	offset      int64
	leaderEpoch int32
	lastEpoch   int32
	maxBytes    int32
}

// session is the client side of an incremental fetch session (KIP-227). Pure;
// owned by the worker's loop.
//
//	full request (epoch 0) --ok, id--> incremental 1, 2, ... --70/71/106, lost answer--> full
//	                       --ok, no id--> full again (the source keeps no session)
type session struct {
	id    int32
	epoch int32 // 0: the next request is a full one
	byID  bool  // topics are named by id: may not change within a session
	// serial of the wants that known is: rounds with the same one want the same.
	serial uint64
	known  map[messages.TopicPartition]want
	// gone are partitions that were forgotten in this session. One that comes back
	// starts a new session, so that an answer for its old position can't be taken
	// for one for the new (C40).
	gone map[messages.TopicPartition]struct{}
	// wanted are the partitions of the last request; request uses its room again.
	wanted map[messages.TopicPartition]struct{}
}

// restart makes the next request a full one. keepID closes the old session on
// the source in the same request.
func (s *session) restart(keepID bool) {
	if !keepID {
		s.id = 0
	}
	s.epoch = 0
	s.known, s.gone = nil, nil
}

// request fills in topics, forgotten topics, session id and epoch. byID says
// that every partition has a topic id; serial differs for wants that differ.
func (s *session) request(req *kmsg.FetchRequest, wants []want, byID bool, serial uint64) {
	if s.epoch != 0 && serial == s.serial {
		req.SessionID, req.SessionEpoch = s.id, s.epoch
		return
	}
	s.serial = serial
	if s.epoch != 0 && s.mustRestart(wants, byID) {
		s.restart(true)
	}
	s.byID = byID
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	full := s.epoch == 0
	if full {
		s.known = make(map[messages.TopicPartition]want, len(wants))
		s.gone = make(map[messages.TopicPartition]struct{})
	}
	if s.wanted == nil || len(s.wanted) > 4*max(len(wants), 64) {
		s.wanted = make(map[messages.TopicPartition]struct{}, len(wants))
	}
	clear(s.wanted)
	wanted := s.wanted
	index := make(map[string]int)
	for _, w := range wants {
		wanted[w.tp] = struct{}{}
		if was, ok := s.known[w.tp]; ok && was == w {
			continue
		}
		s.known[w.tp] = w
		i, ok := index[w.tp.Topic]
		if !ok {
			i = len(req.Topics)
			index[w.tp.Topic] = i
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = w.tp.Topic, w.id
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition = w.tp.Partition
		p.FetchOffset = w.position.offset
		p.CurrentLeaderEpoch = w.position.leaderEpoch
		p.LastFetchedEpoch = w.position.lastEpoch
		p.PartitionMaxBytes = w.position.maxBytes
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	if !full {
		s.forget(req, wanted)
	}
}

func (s *session) mustRestart(wants []want, byID bool) bool {
	if byID != s.byID {
		return true
	}
	for _, w := range wants {
		if _, ok := s.gone[w.tp]; ok {
			return true
		}
		if was, ok := s.known[w.tp]; ok && was.id != w.id {
			return true
		}
	}
	return false
}

// left marks a partition that was removed, so that one that returns under the
// same name begins a new session even before it could be forgotten.
func (s *session) left(tp messages.TopicPartition) {
	if s.gone != nil {
		s.gone[tp] = struct{}{}
	}
}

func (s *session) forget(req *kmsg.FetchRequest, wanted map[messages.TopicPartition]struct{}) {
	index := make(map[string]int)
	for tp, was := range s.known {
		if _, ok := wanted[tp]; ok {
			continue
		}
		delete(s.known, tp)
		i, ok := index[tp.Topic]
		if !ok {
			i = len(req.ForgottenTopics)
			index[tp.Topic] = i
			t := kmsg.NewFetchRequestForgottenTopic()
			t.Topic, t.TopicID = tp.Topic, was.id
			req.ForgottenTopics = append(req.ForgottenTopics, t)
		}
		req.ForgottenTopics[i].Partitions = append(req.ForgottenTopics[i].Partitions, tp.Partition)
	}
}

// answered takes the head of an answer. usable is false when the answer belongs
// to another session than ours and its data must be dropped.
func (s *session) answered(version int16, id int32) (usable bool) {
	switch {
	case version < 7 || id == 0:
		s.restart(false) // the source keeps no session
		return true
	case s.epoch == 0:
		s.id, s.epoch = id, 1
		return true
	case id != s.id:
		s.restart(true)
		return false
	}
	if s.epoch == math.MaxInt32 {
		s.epoch = 1
	} else {
		s.epoch++
	}
	return true
}
