package actors

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"kagami/fsm"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
)

// Headers of __mirror_state records beside those of package wire: what a replay
// needs and keys and values, which stay as specified, have no room for.
const (
	headerWriter  = "writer"        // "epoch=N number=N", of the last accepted write (OP-42)
	headerCreated = "topic-created" // metadata offset of the topic's creation
)

// encodeStateRecord is one uncompressed single-record batch (records.md).
func encodeStateRecord(r fsm.Record, millis int64) ([]byte, error) {
	headers := auditHeaders(r)
	switch r.Kind {
	case fsm.RecordState:
		key := wire.NewMirrorPartitionStateKey()
		key.MirrorName = r.Mirror
		v := wire.NewMirrorPartitionStateValue()
		v.TopicName, v.Partition = r.Partition.Topic, r.Partition.Partition
		v.State, v.PreviousState, v.RetryAttempt = int8(r.State.State), int8(r.State.Previous), r.State.RetryAttempt
		return batch.Single(millis, key.AppendTo(nil), v.AppendTo(nil), append(headers, stateHeaders(r)...)...), nil
	case fsm.RecordEpochs:
		key := wire.NewLastMirrorEpochsKey()
		key.MirrorName = r.Mirror
		return batch.Single(millis, key.AppendTo(nil), epochsValue(r.Epochs), headers...), nil
	case fsm.RecordStatesTombstone:
		key := wire.NewMirrorPartitionStateKey()
		key.MirrorName = r.Mirror
		return batch.Single(millis, key.AppendTo(nil), nil, headers...), nil
	case fsm.RecordEpochsTombstone:
		key := wire.NewLastMirrorEpochsKey()
		key.MirrorName = r.Mirror
		return batch.Single(millis, key.AppendTo(nil), nil, headers...), nil
	default:
		return nil, fmt.Errorf("encode %s record of mirror %s: %w", r.Kind, r.Mirror, messages.ErrInvalidRequest)
	}
}

func epochsValue(epochs map[messages.TopicPartition]int32) []byte {
	byTopic := map[string][]wire.LastMirrorEpochsValuePartitionEpoch{}
	for tp, epoch := range epochs {
		p := wire.NewLastMirrorEpochsValuePartitionEpoch()
		p.PartitionIndex, p.LastMirrorEpoch = tp.Partition, epoch
		byTopic[tp.Topic] = append(byTopic[tp.Topic], p)
	}
	v := wire.NewLastMirrorEpochsValue()
	for _, name := range slices.Sorted(maps.Keys(byTopic)) {
		t := wire.NewLastMirrorEpochsValueTopicEpochs()
		t.Name, t.Partitions = name, byTopic[name]
		slices.SortFunc(t.Partitions, func(a, b wire.LastMirrorEpochsValuePartitionEpoch) int {
			return int(a.PartitionIndex) - int(b.PartitionIndex)
		})
		v.Topics = append(v.Topics, t)
	}
	return v.AppendTo(nil)
}

func auditHeaders(r fsm.Record) []batch.RecordHeader {
	var out []batch.RecordHeader
	add := func(key, value string) {
		if value != "" {
			out = append(out, batch.RecordHeader{Key: key, Value: []byte(value)})
		}
	}
	add(wire.HeaderCause, r.Cause)
	add(wire.HeaderPrincipal, r.Principal)
	add(wire.HeaderRequestID, r.RequestID)
	return out
}

// stateHeaders hold all private facts each time: the record before this one may
// be compacted away.
func stateHeaders(r fsm.Record) []batch.RecordHeader {
	var out []batch.RecordHeader
	add := func(key, value string) { out = append(out, batch.RecordHeader{Key: key, Value: []byte(value)}) }
	s := r.State
	if s.Error != "" {
		add(wire.HeaderError, s.Error)
	}
	if s.CutRecords != 0 || s.CutBytes != 0 || s.CutFrom != messages.NoOffset {
		add(wire.HeaderCut, fmt.Sprintf("records=%d bytes=%d from=%d to=%d", s.CutRecords, s.CutBytes, s.CutFrom, s.CutTo))
	}
	if s.GapFrom != messages.NoOffset {
		add(wire.HeaderGap, fmt.Sprintf("from=%d to=%d at=%d", s.GapFrom, s.GapTo, s.GapAtMillis))
	}
	if s.LeaderEpoch != messages.NoEpoch {
		add(headerWriter, fmt.Sprintf("epoch=%d number=%d", s.LeaderEpoch, s.WriteNumber))
	}
	if r.Created != messages.NoOffset {
		add(headerCreated, strconv.FormatInt(r.Created, 10))
	}
	return out
}

// errOtherRecord: a record of a type or version that this build doesn't know.
var errOtherRecord = errors.New("record of an unknown type")

// decodeStateRecord reads one record of __mirror_state.
func decodeStateRecord(rec batch.Record) (fsm.Record, error) {
	kind, err := wire.MirrorStateType(rec.Key)
	if err != nil {
		return fsm.Record{}, err
	}
	out := fsm.Record{Created: messages.NoOffset}
	switch kind {
	case wire.RecordTypePartitionState:
		err = decodeState(rec, &out)
	case wire.RecordTypeLastMirrorEpochs:
		err = decodeEpochs(rec, &out)
	default:
		return out, fmt.Errorf("%w: %d", errOtherRecord, kind)
	}
	out.Cause, out.Principal, out.RequestID = header(rec, wire.HeaderCause), header(rec, wire.HeaderPrincipal), header(rec, wire.HeaderRequestID)
	return out, err
}

func decodeState(rec batch.Record, out *fsm.Record) error {
	key := wire.NewMirrorPartitionStateKey()
	if err := key.ReadFrom(rec.Key); err != nil {
		return err
	}
	out.Mirror, out.Kind = key.MirrorName, fsm.RecordStatesTombstone
	if rec.Value == nil {
		return nil
	}
	v := wire.NewMirrorPartitionStateValue()
	if err := v.ReadFrom(rec.Value); err != nil {
		return err
	}
	out.Kind = fsm.RecordState
	out.Partition = messages.TopicPartition{Topic: v.TopicName, Partition: v.Partition}
	s := messages.UnknownPartitionState()
	s.State, s.Previous, s.RetryAttempt = messages.State(v.State), messages.State(v.PreviousState), v.RetryAttempt
	s.Error = header(rec, wire.HeaderError)
	if n := numbers(header(rec, wire.HeaderCut)); n != nil {
		s.CutRecords, s.CutBytes, s.CutFrom, s.CutTo = n["records"], n["bytes"], n["from"], n["to"]
	}
	if n := numbers(header(rec, wire.HeaderGap)); n != nil {
		s.GapFrom, s.GapTo, s.GapAtMillis = n["from"], n["to"], n["at"]
	}
	if n := numbers(header(rec, headerWriter)); n != nil {
		s.LeaderEpoch, s.WriteNumber = int32(n["epoch"]), n["number"]
	}
	if created, err := strconv.ParseInt(header(rec, headerCreated), 10, 64); err == nil {
		out.Created = created
	}
	out.State = s
	return nil
}

func decodeEpochs(rec batch.Record, out *fsm.Record) error {
	key := wire.NewLastMirrorEpochsKey()
	if err := key.ReadFrom(rec.Key); err != nil {
		return err
	}
	out.Mirror, out.Kind = key.MirrorName, fsm.RecordEpochsTombstone
	if rec.Value == nil {
		return nil
	}
	v := wire.NewLastMirrorEpochsValue()
	if err := v.ReadFrom(rec.Value); err != nil {
		return err
	}
	out.Kind, out.Epochs = fsm.RecordEpochs, map[messages.TopicPartition]int32{}
	for _, t := range v.Topics {
		for _, p := range t.Partitions {
			out.Epochs[messages.TopicPartition{Topic: t.Name, Partition: p.PartitionIndex}] = p.LastMirrorEpoch
		}
	}
	return nil
}

func header(rec batch.Record, key string) string {
	v, _ := rec.Header(key)
	return string(v)
}

// numbers reads "a=1 b=2"; nil if there is nothing or it isn't that.
func numbers(text string) map[string]int64 {
	if text == "" {
		return nil
	}
	out := map[string]int64{}
	for field := range strings.FieldsSeq(text) {
		name, value, ok := strings.Cut(field, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		if !ok || err != nil {
			return nil
		}
		out[name] = n
	}
	return out
}

// writesOf turns a WriteMirrorStates request into the core's writes, in order.
func writesOf(req *wire.WriteMirrorStatesRequest, lives fsm.Lives) []fsm.Write {
	var out []fsm.Write
	for _, t := range req.Topics {
		created := messages.NoOffset
		if c, ok := lives(t.Name); ok {
			created = c
		}
		for _, p := range t.Partitions {
			w := fsm.NewWrite(req.MirrorName, messages.TopicPartition{Topic: t.Name, Partition: p.PartitionIndex})
			w.State, w.LME = messages.State(p.State), p.LastMirrorEpoch
			w.LeaderEpoch, w.Number, w.Ticket, w.Created = p.LeaderEpoch, p.WriteNumber, p.Ticket, created
			w.Cause, w.Principal, w.RequestID = p.Cause, p.Principal, p.RequestID
			w.Notes = fsm.Notes{
				Error: p.ErrorText, CutRecords: p.CutRecords, CutBytes: p.CutBytes, CutFrom: p.CutFrom, CutTo: p.CutTo,
				GapFrom: p.GapFrom, GapTo: p.GapTo, GapAtMillis: p.GapAtMs,
			}
			out = append(out, w)
		}
	}
	return out
}

// writeAnswer answers a request; answers are in the order of writesOf.
func writeAnswer(req *wire.WriteMirrorStatesRequest, answers []fsm.Answer) []byte {
	resp := wire.NewWriteMirrorStatesResponse()
	n := 0
	for _, t := range req.Topics {
		rt := wire.NewWriteMirrorStatesResponseTopicResult()
		rt.Name = t.Name
		for _, p := range t.Partitions {
			a := answers[n]
			n++
			rp := wire.NewWriteMirrorStatesResponsePartitionResult()
			rp.PartitionIndex, rp.ErrorCode = p.PartitionIndex, coordinatorCode(a.Err)
			rp.PreviousState, rp.RetryAttempt = int8(a.Previous), a.Attempt
			if a.Err != nil {
				rp.ErrorMessage = a.Err.Error()
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp.AppendTo(nil)
}

// writeRefusal answers every partition of a request with the same error.
func writeRefusal(req *wire.WriteMirrorStatesRequest, err error) []byte {
	n := 0
	for _, t := range req.Topics {
		n += len(t.Partitions)
	}
	return writeAnswer(req, slices.Repeat([]fsm.Answer{{Err: err, Previous: messages.StateUnknown}}, n))
}

// readAnswer answers a read, or refuses every partition with err.
func readAnswer(req *wire.ReadMirrorStatesRequest, read func(tp messages.TopicPartition, epoch int32, number int64) messages.PartitionState, ticket int64, err error) []byte {
	resp := wire.NewReadMirrorStatesResponse()
	for _, t := range req.Topics {
		rt := wire.NewReadMirrorStatesResponseTopicStates()
		rt.Name = t.Name
		for _, p := range t.Partitions {
			rp := wire.NewReadMirrorStatesResponsePartitionStateData()
			rp.PartitionIndex, rp.State, rp.ErrorCode = p.PartitionIndex, int8(messages.StateUnknown), coordinatorCode(err)
			if err == nil {
				fillState(&rp, read(messages.TopicPartition{Topic: t.Name, Partition: p.PartitionIndex}, p.LeaderEpoch, p.WriteNumber))
				rp.Ticket = ticket
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp.AppendTo(nil)
}

func fillState(p *wire.ReadMirrorStatesResponsePartitionStateData, s messages.PartitionState) {
	p.LastMirrorEpoch, p.State, p.PreviousState, p.RetryAttempt = s.LME, int8(s.State), int8(s.Previous), s.RetryAttempt
	p.ErrorText, p.CutRecords, p.CutBytes, p.CutFrom, p.CutTo = s.Error, s.CutRecords, s.CutBytes, s.CutFrom, s.CutTo
	p.GapFrom, p.GapTo, p.GapAtMs = s.GapFrom, s.GapTo, s.GapAtMillis
	p.LeaderEpoch, p.WriteNumber = s.LeaderEpoch, s.WriteNumber
}

// stateOf is the other way round. -1 and 16 count as UNKNOWN, and so does any
// code that isn't one.
func stateOf(p wire.ReadMirrorStatesResponsePartitionStateData) messages.PartitionState {
	s := messages.PartitionState{
		State: messages.State(p.State), Previous: messages.State(p.PreviousState), RetryAttempt: p.RetryAttempt, LME: p.LastMirrorEpoch,
		Error: p.ErrorText, CutRecords: p.CutRecords, CutBytes: p.CutBytes, CutFrom: p.CutFrom, CutTo: p.CutTo,
		GapFrom: p.GapFrom, GapTo: p.GapTo, GapAtMillis: p.GapAtMs, LeaderEpoch: p.LeaderEpoch, WriteNumber: p.WriteNumber,
	}
	if !s.State.Storable() {
		s.State = messages.StateUnknown
	}
	return s
}

// Kafka's codes that pass between leaders, coordinators and the controller.
const (
	kafkaNone                 int16 = 0
	kafkaRequestTimedOut      int16 = 7
	kafkaCoordinatorLoading   int16 = 14
	kafkaCoordinatorMissing   int16 = 15
	kafkaNotCoordinator       int16 = 16
	kafkaInvalidRequest       int16 = 42
	kafkaStorage              int16 = 56
	kafkaFencedLeaderEpoch    int16 = 74
	kafkaUnknownServerFailure int16 = -1
)

// coordinatorCode is the only place here that makes Kafka codes.
func coordinatorCode(err error) int16 {
	switch {
	case err == nil:
		return kafkaNone
	case errors.Is(err, messages.ErrFencedLeaderEpoch):
		return kafkaFencedLeaderEpoch // a write of an older leader, or a late copy
	case errors.Is(err, messages.ErrInvalidMirrorStates):
		return wire.CodeInvalidClusterMirrorStates // outside the transition table
	case errors.Is(err, messages.ErrNotCoordinator), errors.Is(err, messages.ErrNotLeader):
		return kafkaNotCoordinator // another node's shard, or ours no more
	case errors.Is(err, messages.ErrCoordinatorLoading):
		return kafkaCoordinatorLoading // replay isn't done
	case errors.Is(err, messages.ErrTimedOut):
		return kafkaRequestTimedOut // too much is waiting, or the append took too long
	case errors.Is(err, messages.ErrStorage):
		return kafkaStorage // the disk failed
	case errors.Is(err, messages.ErrInvalidRequest):
		return kafkaInvalidRequest
	default:
		return kafkaUnknownServerFailure
	}
}
