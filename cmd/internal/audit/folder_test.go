package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// began is when the folder's history begins, ms.
var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMilli()

// testFolder is a data folder that is written record by record; time goes on by
// one second with each.
type testFolder struct {
	t      *testing.T
	dir    string
	millis int64
	next   map[string]int64 // offsets, by partition folder

	rollAlways bool // a segment for each batch
}

func newTestFolder(t *testing.T) *testFolder {
	t.Helper()
	return &testFolder{t: t, dir: t.TempDir(), millis: began, next: map[string]int64{}}
}

const (
	metaFolder  = "__cluster_metadata-0"
	stateFolder = "__mirror_state-0"
)

func (f *testFolder) append(folder string, records ...batch.Record) {
	f.t.Helper()
	for i := range records {
		records[i].Timestamp = f.millis
	}
	f.millis += 1000
	props := batch.Plain()
	props.BaseOffset = f.next[folder]
	if f.rollAlways && f.next[folder] > 0 {
		f.roll(folder)
	}
	f.next[folder] += int64(len(records))
	f.raw(folder, batch.Append(nil, props, records...))
}

func (f *testFolder) raw(folder string, b []byte) {
	f.t.Helper()
	dir := filepath.Join(f.dir, folder)
	require.NoError(f.t, os.MkdirAll(dir, 0o755))
	segs, err := segments(dir)
	require.NoError(f.t, err)
	path := filepath.Join(dir, fmt.Sprintf("%020d.log", f.next[folder]-1))
	if len(segs) > 0 {
		path = segs[len(segs)-1].path
	} else if f.next[folder] > 0 {
		h, err := batch.ParseHeader(b)
		require.NoError(f.t, err)
		path = filepath.Join(dir, fmt.Sprintf("%020d.log", h.BaseOffset))
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(f.t, err)
	_, err = file.Write(b)
	require.NoError(f.t, err)
	require.NoError(f.t, file.Close())
}

// roll begins another segment.
func (f *testFolder) roll(folder string) {
	f.t.Helper()
	path := filepath.Join(f.dir, folder, fmt.Sprintf("%020d.log", f.next[folder]))
	require.NoError(f.t, os.WriteFile(path, nil, 0o644))
}

func (f *testFolder) change(by messages.Requester, records ...metadata.Record) {
	f.t.Helper()
	out := make([]batch.Record, len(records))
	for i, r := range records {
		r.SetVersion(r.MaxVersion())
		out[i].Value = wire.AppendMetadataRecord(nil, r)
	}
	out[0].Headers = headers("claim", "1", "principal", by.Principal, "client-id", by.ClientID, "host", by.Host, "request-id", by.RequestID)
	f.append(metaFolder, out...)
}

func headers(pairs ...string) []batch.RecordHeader {
	var out []batch.RecordHeader
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, batch.RecordHeader{Key: pairs[i], Value: []byte(pairs[i+1])})
		}
	}
	return out
}

func config(kind messages.ResourceType, name, key, value string) *wire.ConfigRecord {
	r := wire.NewPtrConfigRecord()
	r.ResourceType, r.ResourceName, r.Name, r.Value = int8(kind), name, key, &value
	return r
}

func unset(r *wire.ConfigRecord) *wire.ConfigRecord {
	r.Value = nil
	return r
}

func mirrorConfig(key, value string) *wire.ConfigRecord {
	return config(messages.ResourceClusterMirror, "m", key, value)
}

func topicRecords(name string, id byte, partitions int32) []metadata.Record {
	t := wire.NewPtrTopicRecord()
	t.Name, t.TopicID = name, messages.TopicID{15: id}
	out := []metadata.Record{t}
	for i := range partitions {
		p := wire.NewPtrPartitionRecord()
		p.TopicID, p.PartitionID, p.Leader, p.LeaderEpoch, p.PartitionEpoch = t.TopicID, i, 1, 0, 0
		p.Replicas, p.Isr = []int32{1}, []int32{1}
		out = append(out, p)
	}
	return out
}

func bump(id byte, partition, epoch int32) *wire.PartitionChangeRecord {
	r := wire.NewPtrPartitionChangeRecord()
	r.TopicID, r.PartitionID, r.MinLeaderEpoch = messages.TopicID{15: id}, partition, epoch
	return r
}

func remove(id byte) *wire.RemoveTopicRecord {
	r := wire.NewPtrRemoveTopicRecord()
	r.TopicID = messages.TopicID{15: id}
	return r
}

func stateKey(mirror string) []byte {
	k := wire.NewMirrorPartitionStateKey()
	k.MirrorName = mirror
	return k.AppendTo(nil)
}

func epochsKey(mirror string) []byte {
	k := wire.NewLastMirrorEpochsKey()
	k.MirrorName = mirror
	return k.AppendTo(nil)
}

// state writes a state record; pairs are headers.
func (f *testFolder) state(mirror, topic string, partition int32, state, previous messages.State, attempt int16, pairs ...string) {
	f.t.Helper()
	v := wire.NewMirrorPartitionStateValue()
	v.TopicName, v.Partition, v.State, v.PreviousState, v.RetryAttempt = topic, partition, int8(state), int8(previous), attempt
	f.append(stateFolder, batch.Record{Key: stateKey(mirror), Value: v.AppendTo(nil), Headers: headers(pairs...)})
}

// lmes writes the LMEs of all partitions of a topic.
func (f *testFolder) lmes(mirror, topic string, epochs ...int32) {
	f.t.Helper()
	v := wire.NewLastMirrorEpochsValue()
	t := wire.NewLastMirrorEpochsValueTopicEpochs()
	t.Name = topic
	for i, e := range epochs {
		p := wire.NewLastMirrorEpochsValuePartitionEpoch()
		p.PartitionIndex, p.LastMirrorEpoch = int32(i), e
		t.Partitions = append(t.Partitions, p)
	}
	if len(epochs) > 0 {
		v.Topics = append(v.Topics, t)
	}
	f.append(stateFolder, batch.Record{Key: epochsKey(mirror), Value: v.AppendTo(nil), Headers: headers("cause", "stop step 2: last mirror epoch", "principal", "User:node-1")})
}

// life writes a whole life of mirror m: everything that an audit can show.
func (f *testFolder) life() {
	f.t.Helper()
	alice := messages.Requester{Principal: "User:alice", ClientID: "kagami-admin", Host: "10.0.0.7", RequestID: "1-a-1"}
	node := messages.Requester{Principal: "User:node-1"}
	f.change(node, topicRecords(messages.MirrorStateTopic, 9, 1)...)
	f.change(alice, mirrorConfig("bootstrap.servers", "a1:9092,a2:9092"), mirrorConfig("sasl.jaas.config", "s3cret"), mirrorConfig("of.a.newer.build", "s3cret too"))
	f.change(node, config(messages.ResourceClusterMirror, "another", "bootstrap.servers", "z:1"))
	alice.RequestID = "1-a-2"
	f.change(alice, append(topicRecords("t", 1, 2), config(messages.ResourceTopic, "t", messages.MirrorNameConfig, "m"))...)
	f.change(node, topicRecords("unrelated", 2, 1)...)
	const gone = messages.StateUnknown
	by := []string{"principal", "User:node-1", "writer", "epoch=0 number=1"}
	with := func(cause string, more ...string) []string {
		return append(append([]string{"cause", cause}, by...), more...)
	}
	f.state("m", "t", 0, messages.StateLogTruncation, gone, 0, with("desired active (row 1)")...)
	f.state("m", "t", 1, messages.StateLogTruncation, gone, 0, with("desired active (row 1)")...)
	f.state("another", "u", 0, messages.StateMirroring, gone, 0)
	f.state("m", "t", 0, messages.StateFailed, messages.StateLogTruncation, 1, with("error (row 4)", "error", "look up last mirror epoch: dial tcp: refused")...)
	f.state("m", "t", 0, messages.StateLogTruncation, messages.StateLogTruncation, 1, with("retry (row 15)", "error", "look up last mirror epoch: dial tcp: refused")...)
	cut := []string{"cut", "records=12 bytes=900 from=100 to=112"}
	f.state("m", "t", 0, messages.StateMirroring, messages.StateLogTruncation, 1, with("aligned (row 3)", cut...)...)
	f.state("m", "t", 0, messages.StateMirroring, gone, 0, with("healthy", cut...)...)
	f.state("m", "t", 1, messages.StateMirroring, gone, 0, with("aligned (row 3)")...)
	gap := []string{"gap", fmt.Sprintf("from=5 to=9 at=%d", f.millis)}
	f.state("m", "t", 1, messages.StateMirroring, gone, 0, with("cut or gap", gap...)...)
	f.change(node, config(messages.ResourceTopic, "t", "retention.ms", "1000"), config(messages.ResourceTopic, "t", "mirror.copied.configs", "retention.ms"))
	f.change(node, bump(1, 0, 10), bump(1, 1, 10))
	bob := messages.Requester{Principal: "User:bob", ClientID: "ops", Host: "10.0.0.8", RequestID: "2-b-9"}
	f.change(bob, mirrorConfig("bootstrap.servers", "a3:9092"), unset(mirrorConfig("sasl.jaas.config", "")))
	for _, wish := range []string{"m.paused", "m", "m.stopped"} {
		f.change(bob, config(messages.ResourceTopic, "t", messages.MirrorNameConfig, wish))
	}
	f.roll(stateFolder)
	f.state("m", "t", 0, messages.StateStopping, gone, 0, with("desired stopped (row 11)", cut...)...)
	f.state("m", "t", 1, messages.StateStopping, gone, 0, with("desired stopped (row 11)", gap...)...)
	f.lmes("m", "t", 5, 7)
	f.state("m", "t", 0, messages.StateStopped, gone, 0, with("stop done (row 12)", "cut", "records=14 bytes=1000 from=90 to=92")...)
	f.state("m", "t", 1, messages.StateStopped, gone, 0, with("stop done (row 12)", gap...)...)
	f.append(stateFolder, batch.Record{Key: stateKey("m"), Value: []byte{0, 0, 1}})
}

// death deletes the topic and the mirror.
func (f *testFolder) death() {
	f.t.Helper()
	carol := messages.Requester{Principal: "User:carol", RequestID: "3-c-1"}
	f.change(carol, remove(1))
	f.lmes("m", "t")
	f.state("m", "t", 1, 9, 9, 0) // damaged
	f.change(carol, unset(mirrorConfig("bootstrap.servers", "")), unset(mirrorConfig("of.a.newer.build", "")))
	f.append(stateFolder, batch.Record{Key: epochsKey("m"), Headers: headers("cause", "mirror deleted")})
	f.append(stateFolder, batch.Record{Key: stateKey("m"), Headers: headers("cause", "mirror deleted")})
}

// snapshot writes a metadata snapshot that covers the log below offset, which is
// gone: the log goes on there.
func (f *testFolder) snapshot(offset int64, records ...metadata.Record) {
	f.t.Helper()
	dir := filepath.Join(f.dir, metaFolder)
	require.NoError(f.t, os.MkdirAll(dir, 0o755))
	control := batch.Plain()
	control.Attributes = batch.AttrControl
	b := batch.Append(nil, control, batch.Record{Key: []byte{0, 0, 0, 3}, Value: make([]byte, 11)})
	for _, r := range records {
		r.SetVersion(r.MaxVersion())
		b = append(b, batch.Single(f.millis, nil, wire.AppendMetadataRecord(nil, r))...)
	}
	b = batch.Append(b, control, batch.Record{Key: []byte{0, 0, 0, 4}, Value: make([]byte, 3)})
	require.NoError(f.t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%020d-%010d.checkpoint", offset, 1)), b, 0o644))
	f.next[metaFolder] = offset
	f.roll(metaFolder)
}
