package wire

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"kagami/messages"
)

// Error is an error code of a response with its name and text. errors.Is
// matches it with the sentinel of package messages that stands for the code,
// and Kafka's own codes with kerr's values.
type Error struct {
	Code int16
	Name string // READ_ONLY_TOPIC
	Text string // for people; the server's own words if it sent some
	is   error
}

// Error is the text alone, as Kafka's tools print it.
func (e *Error) Error() string { return e.Text }

// Unwrap is the sentinel of package messages, or kerr's value, or nil.
func (e *Error) Unwrap() error { return e.is }

var mirrorErrors = map[int16]Error{
	CodeReadOnlyTopic:                    {Name: "READ_ONLY_TOPIC", Text: "The topic is read-only because it is mirrored.", is: messages.ErrReadOnlyTopic},
	CodeInvalidClusterMirrorName:         {Name: "INVALID_CLUSTER_MIRROR_NAME", Text: "The cluster mirror name is invalid.", is: messages.ErrInvalidMirrorName},
	CodeClusterMirrorAlreadyExists:       {Name: "CLUSTER_MIRROR_ALREADY_EXISTS", Text: "The cluster mirror already exists.", is: messages.ErrMirrorExists},
	CodeUnknownClusterMirror:             {Name: "UNKNOWN_CLUSTER_MIRROR", Text: "The cluster mirror does not exist, or the topic is in no mirror.", is: messages.ErrUnknownMirror},
	CodeTopicAlreadyInClusterMirror:      {Name: "TOPIC_ALREADY_IN_CLUSTER_MIRROR", Text: "The topic is already in a cluster mirror.", is: messages.ErrTopicInMirror},
	CodeTopicNotInClusterMirror:          {Name: "TOPIC_NOT_IN_CLUSTER_MIRROR", Text: "The topic is not in this cluster mirror.", is: messages.ErrTopicNotInMirror},
	CodeMirrorTopicAlreadyPaused:         {Name: "MIRROR_TOPIC_ALREADY_PAUSED", Text: "The mirror topic is already paused.", is: messages.ErrAlreadyPaused},
	CodeMirrorTopicNotPaused:             {Name: "MIRROR_TOPIC_NOT_PAUSED", Text: "The mirror topic is not paused.", is: messages.ErrNotPaused},
	CodeMirrorTopicBeingStopped:          {Name: "MIRROR_TOPIC_BEING_STOPPED", Text: "The mirror topic is stopped or being stopped.", is: messages.ErrBeingStopped},
	CodeClusterMirrorNotEmpty:            {Name: "CLUSTER_MIRROR_NOT_EMPTY", Text: "The cluster mirror still has active or paused topics.", is: messages.ErrMirrorNotEmpty},
	CodeClusterMirrorAuthorizationFailed: {Name: "CLUSTER_MIRROR_AUTHORIZATION_FAILED", Text: "Cluster mirror authorization failed.", is: messages.ErrMirrorNotAuthorized},
	CodeInvalidClusterMirrorStates:       {Name: "INVALID_CLUSTER_MIRROR_STATES", Text: "Partitions are not in a state that allows the operation.", is: messages.ErrInvalidMirrorStates},
}

// ErrorForCode is the error for a response's code: nil for 0, else an [*Error].
// text replaces the standard text unless it is empty.
func ErrorForCode(code int16, text string) error {
	if code == 0 {
		return nil
	}
	e, ok := mirrorErrors[code]
	if !ok {
		known := kerr.TypedErrorForCode(code)
		if known != nil && known.Code == code {
			e = Error{Name: known.Message, Text: known.Description, is: known}
		} else {
			e = Error{Name: fmt.Sprintf("UNKNOWN_%d", code), Text: fmt.Sprintf("The server answered with error code %d, which is unknown here.", code)}
		}
	}
	e.Code = code
	if text != "" {
		e.Text = text
	}
	return &e
}

// ErrorName is the name of a code, NONE for 0, UNKNOWN_<code> if unknown.
func ErrorName(code int16) string {
	var e *Error
	if err := ErrorForCode(code, ""); err == nil {
		return "NONE"
	} else if e, _ = err.(*Error); e == nil { //nolint:errorlint // made two lines above, never wrapped
		return ""
	}
	return e.Name
}
