package audit

import (
	"encoding/json"
	"time"

	"kagami/messages"
)

// Kind of an event. The texts are those of --json.
type Kind string

// The kinds. The first four are of a partition and from __mirror_state.
const (
	KindTransition Kind = "transition"     // also FAILED over FAILED: one more failure
	KindNote       Kind = "note"           // same state, new facts: a cut, a gap, health, a reset
	KindLME        Kind = "last-epoch"     // a stop stored the last mirror epoch
	KindLMEGone    Kind = "no-last-epoch"  // it was dropped: the topic is gone
	KindForgotten  Kind = "forgotten"      // all states or last epochs of the mirror
	KindDamaged    Kind = "damaged"        // a record that can't be read
	KindCreated    Kind = "created"        // from here on: the mirror, from the metadata log
	KindConfigs    Kind = "configs"        // its settings were altered
	KindDeleted    Kind = "deleted"        //
	KindStart      Kind = "start"          // a topic: it was asked to mirror
	KindPause      Kind = "pause"          //
	KindResume     Kind = "resume"         //
	KindStop       Kind = "stop"           //
	KindLeft       Kind = "left"           // the topic is in this mirror no more
	KindTopicGone  Kind = "topic-deleted"  //
	KindTopicSet   Kind = "topic-configs"  // other settings of a mirror topic
	KindGrown      Kind = "partitions"     // it has more partitions
	KindLeader     Kind = "leader-changed" // a partition: leader or leader epoch
	KindACLs       Kind = "acls-copied"    // from the source
	KindACLsGone   Kind = "acls-removed"   // that this mirror had copied
	KindACLsLeft   Kind = "acls-left"      // they are the operator's, or another mirror's, alone from here on
)

// Where an event was read.
const (
	LogStates   = "states"
	LogMetadata = "metadata"
)

// timeFormat is RFC 3339 with milliseconds, UTC.
const timeFormat = "2006-01-02T15:04:05.000Z"

// Event is one thing that happened.
type Event struct {
	Millis int64 // by the record's timestamp, ms since 1970
	Kind   Kind
	Log    string // LogStates or LogMetadata
	Offset int64  // of its record there

	Mirror    string
	Topic     string // "" if it is about the mirror
	Partition int32  // -1 if it is about the topic or the mirror

	From, To    string // states, or leaders
	Cause       string
	By          messages.Requester  // who wrote it
	For         *messages.Requester // whose request made the partition do it, where the metadata log tells
	Attempt     int16               // failures in a row
	LME         int32               // NoEpoch if it isn't about one
	LeaderEpoch int32               // NoEpoch if unknown
	Cut         *Cut
	Gap         *Gap
	Error       string
	Configs     map[string]string // set to what; see shownConfig
	Detail      string            // anything else in words
}

// Cut is what a truncation removed.
type Cut struct {
	Records      int64 `json:"records"` // by this cut
	Bytes        int64 `json:"bytes"`
	From         int64 `json:"from"` // offsets [from, to)
	To           int64 `json:"to"`
	TotalRecords int64 `json:"totalRecords"` // in this mirror's life
	TotalBytes   int64 `json:"totalBytes"`
}

// Gap is what was never copied.
type Gap struct {
	From int64  `json:"from"` // offsets [from, to)
	To   int64  `json:"to"`
	Time string `json:"time,omitempty"` // when it was met
}

func newEvent(kind Kind, log, mirror string, millis, offset int64) Event {
	return Event{
		Kind: kind, Log: log, Mirror: mirror, Millis: millis, Offset: offset,
		Partition: -1, LME: messages.NoEpoch, LeaderEpoch: messages.NoEpoch,
	}
}

func timeText(millis int64) string { return time.UnixMilli(millis).UTC().Format(timeFormat) }

type requesterJSON struct {
	Principal string `json:"principal,omitempty"`
	ClientID  string `json:"clientId,omitempty"`
	Host      string `json:"host,omitempty"`
	RequestID string `json:"requestId,omitempty"`
}

type eventJSON struct {
	Time        string            `json:"time"`
	Event       Kind              `json:"event"`
	Mirror      string            `json:"mirror"`
	Topic       string            `json:"topic,omitempty"`
	Partition   *int32            `json:"partition,omitempty"`
	From        string            `json:"from,omitempty"`
	To          string            `json:"to,omitempty"`
	Cause       string            `json:"cause,omitempty"`
	By          *requesterJSON    `json:"by,omitempty"`
	For         *requesterJSON    `json:"for,omitempty"`
	Attempt     int16             `json:"attempt,omitempty"`
	LME         *int32            `json:"lastMirrorEpoch,omitempty"`
	LeaderEpoch *int32            `json:"leaderEpoch,omitempty"`
	Cut         *Cut              `json:"cut,omitempty"`
	Gap         *Gap              `json:"gap,omitempty"`
	Error       string            `json:"error,omitempty"`
	Configs     map[string]string `json:"configs,omitempty"`
	Detail      string            `json:"detail,omitempty"`
	Log         string            `json:"log"`
	Offset      int64             `json:"offset"`
}

// MarshalJSON is one object of --json; what there is nothing to say about is
// left out.
func (e Event) MarshalJSON() ([]byte, error) {
	out := eventJSON{
		Time: timeText(e.Millis), Event: e.Kind, Mirror: e.Mirror, Topic: e.Topic, From: e.From, To: e.To, Cause: e.Cause,
		Attempt: e.Attempt, Cut: e.Cut, Gap: e.Gap, Error: e.Error, Configs: e.Configs, Detail: e.Detail, Log: e.Log, Offset: e.Offset,
	}
	if e.Partition >= 0 {
		out.Partition = &e.Partition
	}
	if e.LME != messages.NoEpoch {
		out.LME = &e.LME
	}
	if e.LeaderEpoch != messages.NoEpoch {
		out.LeaderEpoch = &e.LeaderEpoch
	}
	if e.By != (messages.Requester{}) {
		by := requesterJSON(e.By)
		out.By = &by
	}
	if e.For != nil {
		asked := requesterJSON(*e.For)
		out.For = &asked
	}
	return json.Marshal(out)
}
