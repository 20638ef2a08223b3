package messages

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// Commands travel between nodes as JSON: they are few, made by operators and by the
// nodes' own housekeeping, and a field that an older node doesn't know must be
// refused, never dropped.

// commandNames has every command under its name on the wire.
func commandNames() map[string]func(d *json.Decoder) (Command, error) {
	return map[string]func(d *json.Decoder) (Command, error){
		"CreateTopics":        decodeCommand[CreateTopics],
		"DeleteTopics":        decodeCommand[DeleteTopics],
		"CreatePartitions":    decodeCommand[CreatePartitions],
		"AlterConfigs":        decodeCommand[AlterConfigs],
		"CreateMirror":        decodeCommand[CreateMirror],
		"DeleteMirror":        decodeCommand[DeleteMirror],
		"StartMirrorTopics":   decodeCommand[StartMirrorTopics],
		"StopMirrorTopics":    decodeCommand[StopMirrorTopics],
		"PauseMirrorTopics":   decodeCommand[PauseMirrorTopics],
		"ResumeMirrorTopics":  decodeCommand[ResumeMirrorTopics],
		"BumpLeaderEpochs":    decodeCommand[BumpLeaderEpochs],
		"AllocateProducerIDs": decodeCommand[AllocateProducerIDs],
		"RegisterNode":        decodeCommand[RegisterNode],
		"UnregisterNode":      decodeCommand[UnregisterNode],
		"PlaceLeaders":        decodeCommand[PlaceLeaders],
		"AlterClientQuotas":   decodeCommand[AlterClientQuotas],
		"UpdateFeatures":      decodeCommand[UpdateFeatures],
		"ElectLeaders":        decodeCommand[ElectLeaders],
		"ReassignPartitions":  decodeCommand[ReassignPartitions],
		"CreateACLs":          decodeCommand[CreateACLs],
		"DeleteACLs":          decodeCommand[DeleteACLs],
		"FollowACLs":          decodeCommand[FollowACLs],
		"AlterScram":          decodeCommand[AlterScram],
	}
}

func decodeCommand[T Command](d *json.Decoder) (Command, error) {
	var c T
	err := d.Decode(&c)
	return c, err
}

// ForwardedCommand is a command on its way to the controller.
type ForwardedCommand struct {
	From    NodeID // who forwards it
	Who     Requester
	Command Command
}

type forwardedJSON struct {
	From    NodeID
	Who     Requester
	Name    string
	Command json.RawMessage
}

// Encode makes bytes of it.
func (f ForwardedCommand) Encode() ([]byte, error) {
	body, err := json.Marshal(f.Command)
	if err != nil {
		return nil, fmt.Errorf("encode command %T: %w", f.Command, err)
	}
	return json.Marshal(forwardedJSON{From: f.From, Who: f.Who, Name: reflect.TypeOf(f.Command).Name(), Command: body})
}

// DecodeForwardedCommand is the opposite. A command or a field that this build
// doesn't know wraps ErrUnsupportedVersion.
func DecodeForwardedCommand(b []byte) (ForwardedCommand, error) {
	var raw forwardedJSON
	if err := strictDecoder(b).Decode(&raw); err != nil {
		return ForwardedCommand{}, fmt.Errorf("decode forwarded command: %w: %w", ErrUnsupportedVersion, err)
	}
	decode := commandNames()[raw.Name]
	if decode == nil {
		return ForwardedCommand{}, fmt.Errorf("decode forwarded command: %w: %q isn't known to this node", ErrUnsupportedVersion, raw.Name)
	}
	c, err := decode(strictDecoder(raw.Command))
	if err != nil {
		return ForwardedCommand{}, fmt.Errorf("decode forwarded command %s: %w: %w", raw.Name, ErrUnsupportedVersion, err)
	}
	return ForwardedCommand{From: raw.From, Who: raw.Who, Command: c}, nil
}

func strictDecoder(b []byte) *json.Decoder {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d
}

// wireErrors are the sentinels that an outcome can carry between nodes, by name.
func wireErrors() []error {
	return []error{
		ErrUnknownTopicOrPartition, ErrUnknownTopicID, ErrInconsistentTopicID, ErrInvalidTopic, ErrTopicExists,
		ErrInvalidPartitions, ErrInvalidReplication, ErrInvalidAssignment, ErrInvalidConfig, ErrInvalidRequest, ErrInvalidRegex,
		ErrPolicyViolation, ErrUnsupportedVersion, ErrBrokerNotRegistered, ErrNotController, ErrNotCoordinator, ErrCoordinatorLoading,
		ErrCoordinatorNotAvailable, ErrNotLeader, ErrFencedLeaderEpoch, ErrUnknownLeaderEpoch, ErrTimedOut, ErrStorage,
		ErrThrottled, ErrSettingsChanged, ErrReadOnlyTopic, ErrInvalidMirrorName, ErrMirrorExists, ErrUnknownMirror,
		ErrTopicInMirror, ErrTopicNotInMirror, ErrAlreadyPaused, ErrNotPaused, ErrBeingStopped, ErrMirrorNotEmpty,
		ErrInvalidMirrorStates, ErrMirrorNotAuthorized, ErrTopicNotAuthorized, ErrClusterNotAuthorized,
		ErrFeatureUpdate, ErrInvalidUpdateVersion,
		ErrResourceNotFound, ErrDuplicateResource, ErrUnacceptableCredential, ErrUnsupportedSASL,
	}
}

// wireError is an error that came from another node: its text, and the sentinels
// that it wrapped there.
type wireError struct {
	Text string
	Is   []string
}

// remoteError is a decoded wireError.
type remoteError struct {
	text  string
	wraps []error
}

// Error is the text that the other node gave.
func (e *remoteError) Error() string { return e.text }

// Unwrap are the sentinels.
func (e *remoteError) Unwrap() []error { return e.wraps }

func encodeError(err error) *wireError {
	if err == nil {
		return nil
	}
	e := &wireError{Text: err.Error()}
	for _, s := range wireErrors() {
		if errors.Is(err, s) {
			e.Is = append(e.Is, s.Error())
		}
	}
	return e
}

func (e *wireError) decode() error {
	if e == nil {
		return nil
	}
	out := &remoteError{text: e.Text}
	for _, s := range wireErrors() {
		for _, name := range e.Is {
			if s.Error() == name {
				out.wraps = append(out.wraps, s)
			}
		}
	}
	return out
}

type itemJSON struct {
	Item
	Err *wireError
}

type outcomeJSON struct {
	Err    *wireError
	Items  []itemJSON
	Offset int64
}

// EncodeOutcome makes bytes of an outcome.
func EncodeOutcome(o Outcome) ([]byte, error) {
	raw := outcomeJSON{Err: encodeError(o.Err), Offset: o.Offset, Items: make([]itemJSON, len(o.Items))}
	for i, item := range o.Items {
		raw.Items[i] = itemJSON{Item: item, Err: encodeError(item.Err)}
		raw.Items[i].Item.Err = nil
	}
	b, err := json.Marshal(raw)
	if err != nil {
		return nil, fmt.Errorf("encode outcome: %w", err)
	}
	return b, nil
}

// DecodeOutcome is the opposite.
func DecodeOutcome(b []byte) (Outcome, error) {
	var raw outcomeJSON
	if err := json.Unmarshal(b, &raw); err != nil {
		return Outcome{}, fmt.Errorf("decode outcome: %w", err)
	}
	o := Outcome{Err: raw.Err.decode(), Offset: raw.Offset}
	for _, item := range raw.Items {
		it := item.Item
		it.Err = item.Err.decode()
		o.Items = append(o.Items, it)
	}
	return o, nil
}
