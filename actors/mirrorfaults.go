package actors

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"

	"kagami/fetch"
	"kagami/messages"
)

// suspect is a topic whose partitions have failed, or are about to, because of
// something that only people can end.
type suspect struct {
	decides int64 // number of the first refresh that can say that it is over
	loop    bool  // the source may mirror it (OP-35): refreshes look
}

// suspect notes a topic for the refreshes to come. Without loop a worker saw the
// topic made anew; the next refresh may still be of the same moment, so the one
// after it decides.
func (m *mirror) suspect(msg mirrorSuspect) {
	s := m.suspects[msg.topic]
	if msg.loop {
		s.loop = true
		s.decides = max(s.decides, m.cycle+1)
	} else {
		s.decides = max(s.decides, m.cycle+2)
	}
	m.suspects[msg.topic] = s
}

// loopSuspects are the topics that the next refresh looks for loops of.
func (m *mirror) loopSuspects() []string {
	var out []string
	for topic, s := range m.suspects {
		if s.loop {
			out = append(out, topic)
		}
	}
	slices.Sort(out)
	return out
}

// judge tells the faults that a refresh found and returns the topics without
// one. What this refresh can't say yet is in neither.
func (m *mirror) judge(r refreshResult) map[string]struct{} {
	for _, f := range r.faults {
		m.listener.TopicFault(m.name, f.topic, f.text)
		if s := m.suspects[f.topic]; !s.loop {
			delete(m.suspects, f.topic) // found by every refresh, suspected or not
		}
	}
	well := make(map[string]struct{}, len(r.healthy))
	for _, topic := range r.healthy {
		if s, ok := m.suspects[topic]; ok && s.decides > m.cycle {
			continue
		}
		delete(m.suspects, topic)
		well[topic] = struct{}{}
	}
	image := m.outside.Image()
	for topic := range m.suspects {
		if t := image.Topic(topic); t == nil || t.Mirror != m.name || t.Desired == messages.DesiredStopped {
			delete(m.suspects, topic)
		}
	}
	return well
}

// judgeLoops moves suspected topics that are in a loop now from the healthy ones
// to the faults. While the source doesn't say, they are neither.
func (r refresher) judgeLoops(ctx context.Context, own string, result *refreshResult) {
	if len(r.loops) == 0 {
		return
	}
	mirrors, err := r.source.AllMirrors(ctx)
	if err != nil {
		r.log.Warn("look for the end of mirror loops", zap.Error(err))
	}
	result.healthy = slices.DeleteFunc(result.healthy, func(topic string) bool {
		if !slices.Contains(r.loops, topic) {
			return false
		}
		if err != nil {
			return true
		}
		loop := mirrors.CheckLoop(topic, own, result.view.ClusterID)
		if errors.Is(loop, fetch.ErrMirrorLoop) {
			result.faults = append(result.faults, topicFault{topic: topic, text: loop.Error()})
		}
		return loop != nil
	})
}
