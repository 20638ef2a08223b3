package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/configs"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// hidden stands for the value of a secret, and of a setting that this build
// doesn't know: it might be one.
const hidden = "(hidden)"

// shownConfig is what may be shown of a setting: never a secret.
func shownConfig(set *configs.Set, name string, value *string) string {
	def := set.Lookup(name)
	switch {
	case value == nil:
		return "(removed)"
	case def == nil || def.Sensitive():
		return hidden
	}
	return *value
}

// requests follows the mirror's part of the metadata log.
type requests struct {
	mirror string
	image  *metadata.Image
	others map[string]struct{} // names of mirrors met, this one too
	frozen *metadata.Image     // as it was at the time that was asked for
}

func newRequests(mirror string, base *metadata.Image) *requests {
	r := &requests{mirror: mirror, image: base, others: map[string]struct{}{}}
	for _, m := range base.Mirrors() {
		r.others[m.Name] = struct{}{}
	}
	return r
}

func (r *requests) freeze() { r.frozen = r.image }

// take applies one batch and returns what it tells of the mirror.
func (r *requests) take(b []byte) ([]Event, error) {
	h, err := batch.ParseHeader(b)
	if err != nil {
		return nil, err
	}
	step, err := r.image.Replay(b)
	if err != nil {
		return nil, err
	}
	r.image = step.Delta.New
	if step.Stale {
		return nil, nil
	}
	at := newEvent("", LogMetadata, r.mirror, h.MaxTimestamp, h.BaseOffset)
	at.By = step.Requester
	var out []Event
	if e, ok := r.mirrorEvent(step, at); ok {
		out = append(out, e)
	}
	out = append(out, r.aclEvents(step, at)...)
	for _, name := range slices.Sorted(maps.Keys(step.Delta.Topics)) {
		out = append(out, r.topicEvents(step, name, at)...)
	}
	return out, nil
}

func (r *requests) mirrorEvent(step metadata.Step, e Event) (Event, bool) {
	for name := range step.Delta.Mirrors {
		r.others[name] = struct{}{}
	}
	if _, touched := step.Delta.Mirrors[r.mirror]; !touched {
		return e, false
	}
	before, now := step.Delta.Old.Mirror(r.mirror), step.Delta.New.Mirror(r.mirror)
	switch {
	case now == nil:
		e.Kind = KindDeleted
		return e, before != nil
	case before == nil:
		e.Kind = KindCreated
	default:
		e.Kind = KindConfigs
	}
	e.Configs = changedConfigs(step.Records, messages.ResourceClusterMirror, r.mirror, configs.Mirror())
	return e, true
}

func changedConfigs(records []metadata.Record, kind messages.ResourceType, name string, set *configs.Set) map[string]string {
	out := map[string]string{}
	for _, rec := range records {
		c, ok := rec.(*wire.ConfigRecord)
		if !ok || messages.ResourceType(c.ResourceType) != kind || c.ResourceName != name {
			continue
		}
		if def := set.Lookup(c.Name); def != nil && def.Internal || c.Name == messages.MirrorNameConfig {
			continue
		}
		out[c.Name] = shownConfig(set, c.Name, c.Value)
	}
	return out
}

// topicEvents tells what happened to one topic, if it is or was the mirror's.
func (r *requests) topicEvents(step metadata.Step, name string, at Event) []Event {
	before, now := step.Delta.Old.Topic(name), step.Delta.New.Topic(name)
	was, is := before != nil && before.Mirror == r.mirror, now != nil && now.Mirror == r.mirror
	if !was && !is {
		return nil
	}
	at.Topic = name
	another := before != nil && now != nil && before.CreatedAt != now.CreatedAt
	var out []Event
	if was && (now == nil || another) {
		e := at
		e.Kind, e.Detail = KindTopicGone, "id "+before.ID.String()
		out = append(out, e)
		was, before = false, nil
	}
	if now == nil {
		return out
	}
	if kind := wishKind(before, now, was, is); kind != "" {
		e := at
		e.Kind = kind
		if before == nil {
			e.Detail = fmt.Sprintf("topic created, id %s, partitions: %d", now.ID, len(now.Partitions))
		}
		out = append(out, e)
	}
	if !was || !is {
		return out
	}
	if set := changedConfigs(step.Records, messages.ResourceTopic, name, configs.Topic()); len(set) > 0 {
		e := at
		e.Kind, e.Configs = KindTopicSet, set
		out = append(out, e)
	}
	return append(out, leaderEvents(before, now, at)...)
}

// wishKind is what mirror.name asks for now and didn't before; "" if nothing.
func wishKind(before, now *metadata.Topic, was, is bool) Kind {
	if !is {
		return KindLeft
	}
	if was && before.Desired == now.Desired {
		return ""
	}
	switch now.Desired {
	case messages.DesiredActive:
		if was && before.Desired == messages.DesiredPaused {
			return KindResume
		}
		return KindStart
	case messages.DesiredPaused:
		return KindPause
	case messages.DesiredStopped:
		return KindStop
	case messages.DesiredNone:
	}
	return KindLeft
}

func leaderEvents(before, now *metadata.Topic, at Event) []Event {
	var out []Event
	if len(now.Partitions) > len(before.Partitions) {
		e := at
		e.Kind, e.Detail = KindGrown, fmt.Sprintf("now %d, were %d", len(now.Partitions), len(before.Partitions))
		out = append(out, e)
	}
	for i, old := range before.Partitions {
		p, ok := now.Partition(int32(i))
		if !ok || p.Leader == old.Leader && p.LeaderEpoch == old.LeaderEpoch {
			continue
		}
		e := at
		e.Kind, e.Partition, e.LeaderEpoch = KindLeader, int32(i), p.LeaderEpoch
		e.Detail = fmt.Sprintf("epoch was %d", old.LeaderEpoch)
		if p.Leader != old.Leader {
			e.From, e.To = fmt.Sprintf("node %d", old.Leader), fmt.Sprintf("node %d", p.Leader)
		}
		out = append(out, e)
	}
	return out
}

func sortByPartition(events []Event) {
	slices.SortStableFunc(events, func(a, b Event) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}
