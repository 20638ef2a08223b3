package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"kagami/messages/batch"
	"kagami/messages/wire"
)

// decompressedMax bounds the records of one batch in memory, bytes.
const decompressedMax = 1 << 30

// printer prints batches and records as Kafka's DumpLogSegments does.
type printer struct {
	tool *dumpTool
}

func (p *printer) batch(b []byte, pos int64) error {
	h, err := batch.ParseHeader(b)
	if err != nil {
		return err
	}
	if *p.tool.format == formatText {
		p.header(h, b, pos)
	}
	if !*p.tool.deep {
		return nil
	}
	for r, err := range batch.DecompressRecords(b, decompressedMax) {
		if err != nil {
			p.tool.errf("Error in batch at position %d: %v\n", pos, err)
			return nil
		}
		if *p.tool.format == formatJSONLines {
			if !h.IsControl() {
				p.jsonLine(r)
			}
			continue
		}
		p.record(h, r)
	}
	return nil
}

func (p *printer) header(h batch.Header, b []byte, pos int64) {
	horizon := "OptionalLong.empty"
	if h.Attributes&batch.AttrDeleteHorizon != 0 {
		horizon = fmt.Sprintf("OptionalLong[%d]", h.BaseTimestamp)
	}
	p.tool.outf("baseOffset: %d lastOffset: %d count: %d baseSequence: %d lastSequence: %d producerId: %d producerEpoch: %d"+
		" partitionLeaderEpoch: %d isTransactional: %t isControl: %t deleteHorizonMs: %s position: %d %s: %d size: %d magic: %d"+
		" compresscodec: %s crc: %d isvalid: %t\n",
		h.BaseOffset, h.LastOffset(), h.Records, h.BaseSequence, h.LastSequence(), h.ProducerID, h.ProducerEpoch,
		h.LeaderEpoch, h.IsTransactional(), h.IsControl(), horizon, pos, timeKind(h), h.MaxTimestamp, h.Size(), h.Magic,
		h.Codec(), h.CRC, batch.CheckCRC(b) == nil)
}

func timeKind(h batch.Header) string {
	if h.Attributes&batch.AttrLogAppendTime != 0 {
		return "LogAppendTime"
	}
	return "CreateTime"
}

func (p *printer) record(h batch.Header, r batch.Record) {
	var line strings.Builder
	if *p.tool.skipMeta && h.IsControl() {
		p.tool.outln() // so does Kafka's tool
		return
	}
	line.WriteString("|")
	if !*p.tool.skipMeta {
		fmt.Fprintf(&line, " offset: %d %s: %d keySize: %d valueSize: %d", r.Offset, timeKind(h), r.Timestamp, size(r.Key), size(r.Value))
		keys := make([]string, len(r.Headers))
		for i, hd := range r.Headers {
			keys[i] = hd.Key
		}
		fmt.Fprintf(&line, " sequence: %d headerKeys: [%s]", r.Sequence, strings.Join(keys, ","))
	}
	switch {
	case h.IsControl():
		line.WriteString(control(r))
	case *p.tool.mirrorState:
		key, payload := mirrorStateText(r)
		line.WriteString(key + payload)
	case *p.tool.metadata:
		line.WriteString(metadataText(r))
	case *p.tool.printData:
		if r.Key != nil {
			line.WriteString(" key: " + string(r.Key))
		}
		if r.Value != nil {
			line.WriteString(" payload: " + string(r.Value))
		}
	}
	p.tool.outln(line.String())
}

func size(b []byte) int {
	if b == nil {
		return -1
	}
	return len(b)
}

// control is what a control record says.
func control(r batch.Record) string {
	one := batch.Plain()
	one.Attributes = batch.AttrControl
	c, err := batch.ParseControl(batch.Append(nil, one, r))
	if err != nil {
		return " controlType: UNKNOWN"
	}
	switch c.Type {
	case batch.ControlAbort, batch.ControlCommit:
		return fmt.Sprintf(" endTxnMarker: %s coordinatorEpoch: %d", c.Type, c.CoordinatorEpoch)
	case batch.ControlMirrorPIDReset:
		var v wire.MirrorPidReset
		if v.ReadFrom(c.Value) == nil {
			return " MirrorPidReset: " + toJSON(&v)
		}
	}
	return fmt.Sprintf(" controlType: %s(%d)", c.Type, c.Type)
}

func toJSON(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "?"
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// mirrorStateRecord is a decoded record of __mirror_state.
type mirrorStateRecord struct {
	typ     int16
	key     any
	version int16
	value   any // nil: tombstone
}

func decodeMirrorState(r batch.Record) (mirrorStateRecord, error) {
	var out mirrorStateRecord
	typ, err := wire.MirrorStateType(r.Key)
	if err != nil {
		return out, err
	}
	out.typ = typ
	type codec interface{ ReadFrom(b []byte) error }
	var key, value codec
	switch typ {
	case wire.RecordTypeLastMirrorEpochs:
		key, value = &wire.LastMirrorEpochsKey{}, &wire.LastMirrorEpochsValue{}
	case wire.RecordTypePartitionState:
		key, value = &wire.MirrorPartitionStateKey{}, &wire.MirrorPartitionStateValue{}
	default:
		return out, fmt.Errorf("%w: %d", wire.ErrUnknownType, typ)
	}
	out.key = key
	if err := key.ReadFrom(r.Key); err != nil || r.Value == nil {
		return out, err
	}
	out.value = value
	if err := value.ReadFrom(r.Value); err != nil {
		return out, err
	}
	if v, ok := value.(interface{ GetVersion() int16 }); ok {
		out.version = v.GetVersion()
	}
	return out, nil
}

// mirrorStateText is key and payload of a decoded line; type and version are
// JSON strings there (records.md, Dump output).
func mirrorStateText(r batch.Record) (key, payload string) {
	m, err := decodeMirrorState(r)
	if errors.Is(err, wire.ErrUnknownType) {
		return fmt.Sprintf(" key: Unknown record type %d at offset %d, skipping.", m.typ, r.Offset), ""
	}
	if err != nil {
		return fmt.Sprintf(" key: Error at offset %d, skipping. %v", r.Offset, err), ""
	}
	key = fmt.Sprintf(` key: {"type":"%d","data":%s}`, m.typ, toJSON(m.key))
	if m.value == nil {
		return key, " payload: <DELETE>"
	}
	return key, fmt.Sprintf(` payload: {"version":"%d","data":%s}`, m.version, toJSON(m.value))
}

// jsonLine is the line of MirrorStateMessageFormatter; type and version are
// numbers there. Records of unknown types are left out, as the formatter does.
func (p *printer) jsonLine(r batch.Record) {
	m, err := decodeMirrorState(r)
	if err != nil {
		return
	}
	value := "null"
	if m.value != nil {
		value = fmt.Sprintf(`{"version":%d,"data":%s}`, m.version, toJSON(m.value))
	}
	p.tool.outf(`{"key":{"type":%d,"data":%s},"value":%s}`+"\n", m.typ, toJSON(m.key), value)
}

// metadataText is the decoded form of a record of the metadata log.
func metadataText(r batch.Record) string {
	rec, err := wire.ReadMetadataRecord(r.Value)
	if err != nil {
		return fmt.Sprintf(" payload: Error at %d, skipping. %v", r.Offset, err)
	}
	return fmt.Sprintf(` payload: {"type":%q,"version":%d,"data":%s}`, upperSnake(wire.MetadataRecordName(rec.Key())), rec.GetVersion(), toJSON(rec))
}

// upperSnake turns TopicRecord into TOPIC_RECORD.
func upperSnake(s string) string {
	var b strings.Builder
	for i, r := range s {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String())
}
