package diff

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/batch"
)

// madeAt is the create time of the records: the same on both sides.
var madeAt = time.Now().Add(-time.Minute).UnixMilli()

func values(n, size int) []batch.Record {
	out := make([]batch.Record, n)
	for i := range out {
		out[i] = batch.Record{Timestamp: madeAt + int64(i), Key: []byte("k"), Value: bytes.Repeat([]byte{'v'}, size)}
	}
	return out
}

func plain(n, size int) []byte { return batch.Append(nil, batch.Plain(), values(n, size)...) }

// withCRC changes a batch and makes its CRC right again.
func withCRC(b []byte, change func(b []byte)) []byte {
	change(b)
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// put is a Produce request with one partition.
func put(s *side, v int16, topic string, partition int32, b []byte) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Acks, r.TimeoutMillis = -1, 10000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = s.n(topic)
	if v >= 13 {
		t.TopicID = s.id(s.n(topic))
	}
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, b
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

func produceSteps() []step {
	to := func(what, topic string, partition int32, b func() []byte) step {
		return step{name: what, from: 3, req: func(s *side, v int16) kmsg.Request { return put(s, v, topic, partition, b()) }}
	}
	one := func() []byte { return plain(1, 5) }
	steps := []step{
		to("a batch", "data", 0, func() []byte { return plain(3, 10) }),
		to("unknown topic", "nowhere", 0, one),
		to("unknown partition", "data", 9, one),
		to("negative partition", "data", -1, one),
		{name: "null records", once: true, req: func(s *side, v int16) kmsg.Request { return put(s, v, "t", 0, nil) }},
		to("empty records", "t", 0, func() []byte { return []byte{} }),
		to("two batches", "t", 0, func() []byte { return append(one(), one()...) }),
		to("bad CRC", "t", 0, func() []byte { b := one(); b[17] ^= 1; return b }),
		to("cut off", "t", 0, func() []byte { b := one(); return b[:len(b)-3] }),
		to("bytes behind", "t2", 0, func() []byte { return append(one(), 1, 2, 3) }),
		to("garbage", "t", 0, func() []byte { return bytes.Repeat([]byte{7}, 90) }),
		to("magic 1", "t", 0, func() []byte { b := one(); b[16] = 1; return b }),
		to("magic 3", "t", 0, func() []byte { b := one(); b[16] = 3; return b }),
		to("count too high", "t", 0, func() []byte { return withCRC(one(), func(b []byte) { binary.BigEndian.PutUint32(b[57:], 2) }) }),
		to("base offset not 0", "t", 0, func() []byte { return withCRC(one(), func(b []byte) { binary.BigEndian.PutUint64(b, 5) }) }),
		to("last offset delta too high", "t", 0, func() []byte { return withCRC(one(), func(b []byte) { binary.BigEndian.PutUint32(b[23:], 3) }) }),
		to("control batch", "t", 0, func() []byte { return withCRC(one(), func(b []byte) { b[22] |= 0x20 }) }),
		to("transactional without a transaction", "t", 0, func() []byte { return withCRC(one(), func(b []byte) { b[22] |= 0x10 }) }),
		to("unknown codec", "t", 0, func() []byte { return withCRC(one(), func(b []byte) { b[22] |= 7 }) }),
		to("says gzip and isn't", "t", 0, func() []byte { return withCRC(one(), func(b []byte) { b[22] |= 1 }) }),
		to("sequence without producer", "t", 0, func() []byte { return withCRC(one(), func(b []byte) { binary.BigEndian.PutUint32(b[53:], 5) }) }),
		to("too large", "small", 0, func() []byte { return plain(1, 500) }),
		to("larger than a segment", "segments", 0, func() []byte { return plain(1, 1<<20+100) }),
		to("as large as fits a segment", "segments", 0, func() []byte { return plain(1, 1<<20-100) }),
		to("log append time", "time", 0, one),
		to("null key on a compacted topic", "compacted", 0, func() []byte {
			return batch.Append(nil, batch.Plain(), batch.Record{Timestamp: madeAt, Value: []byte("x")})
		}),
		to("time in the future", "t", 0, func() []byte {
			return batch.Append(nil, batch.Plain(), batch.Record{Timestamp: madeAt + (48 * time.Hour).Milliseconds(), Value: []byte("x")})
		}),
		to("unknown producer, sequence 5", "t", 0, func() []byte {
			return batch.Append(nil, batch.Props{ProducerID: 1 << 40, ProducerEpoch: 0, BaseSequence: 5}, values(1, 5)...)
		}),
		{name: "acks 2", from: 3, req: func(s *side, v int16) kmsg.Request {
			r := put(s, v, "t", 0, one())
			r.Acks = 2
			return r
		}},
		{name: "acks 1", from: 3, req: func(s *side, v int16) kmsg.Request {
			r := put(s, v, "t", 0, one())
			r.Acks = 1
			return r
		}},
		{name: "a partition twice", from: 3, req: func(s *side, v int16) kmsg.Request {
			r := put(s, v, "t2", 1, one())
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, r.Topics[0].Partitions[0])
			return r
		}},
		{name: "good and unknown", from: 3, req: func(s *side, v int16) kmsg.Request {
			r := put(s, v, "t", 1, one())
			r.Topics = append(r.Topics, put(s, v, "nowhere", 0, one()).Topics...)
			return r
		}},
		{name: "no topics", from: 3, req: func(s *side, v int16) kmsg.Request {
			r := put(s, v, "t", 1, one())
			r.Topics = nil
			return r
		}},
		{name: "unknown id", from: 13, req: func(s *side, v int16) kmsg.Request {
			r := put(s, v, "t", 0, one())
			r.Topics[0].TopicID = [16]byte{1, 2, 3}
			return r
		}},
		{name: "zero id", from: 13, req: func(s *side, v int16) kmsg.Request {
			r := put(s, v, "t", 0, one())
			r.Topics[0].TopicID = [16]byte{}
			return r
		}},
		{name: "old version", to: 2, req: func(s *side, v int16) kmsg.Request { return put(s, v, "t", 0, one()) }},
	}
	return steps
}

// take is a Fetch request with one partition.
func take(s *side, v int16, topic string, partition int32, offset int64) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.MaxBytes, r.MinBytes, r.MaxWaitMillis = 1<<20, 1, 0
	r.SessionEpoch = -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = s.n(topic)
	if v >= 13 {
		t.TopicID = s.id(s.n(topic))
	}
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 1<<20
	p.CurrentLeaderEpoch, p.LastFetchedEpoch, p.LogStartOffset = -1, -1, -1
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

func fetchSteps() []step {
	from := func(what, topic string, partition int32, offset int64, change ...func(r *kmsg.FetchRequest)) step {
		return step{name: what, req: func(s *side, v int16) kmsg.Request {
			r := take(s, v, topic, partition, offset)
			for _, f := range change {
				f(r)
			}
			return r
		}}
	}
	part := func(f func(p *kmsg.FetchRequestTopicPartition)) func(r *kmsg.FetchRequest) {
		return func(r *kmsg.FetchRequest) { f(&r.Topics[0].Partitions[0]) }
	}
	since := func(v int16, st step) step { st.from = v; return st }
	return []step{
		from("from the start", "data", 0, 0),
		from("in the middle of a batch", "data", 0, 1),
		from("at the end", "data", 0, 33),
		from("an empty partition", "data", 1, 0),
		from("above the end", "data", 0, 1000),
		from("below the start", "data", 0, -5),
		from("unknown topic", "nowhere", 0, 0),
		from("unknown partition", "data", 9, 0),
		from("few bytes", "data", 0, 0, func(r *kmsg.FetchRequest) { r.MaxBytes = 1 }),
		from("few bytes of the partition", "data", 0, 0, part(func(p *kmsg.FetchRequestTopicPartition) { p.PartitionMaxBytes = 1 })),
		from("no bytes", "data", 0, 0, func(r *kmsg.FetchRequest) { r.MaxBytes = 0 }),
		from("no bytes of the partition", "data", 0, 0, part(func(p *kmsg.FetchRequestTopicPartition) { p.PartitionMaxBytes = 0 })),
		from("read committed", "data", 0, 0, func(r *kmsg.FetchRequest) { r.IsolationLevel = 1 }),
		from("unknown isolation", "data", 0, 0, func(r *kmsg.FetchRequest) { r.IsolationLevel = 9 }),
		from("log append time", "time", 0, 0, func(r *kmsg.FetchRequest) { r.MaxBytes = 1 }),
		since(9, from("negative leader epoch", "data", 0, 0, part(func(p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = -2 }))),
		since(9, from("leader epoch to come", "data", 0, 0, part(func(p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = 1000 }))),
		since(12, from("diverged epoch", "data", 0, 2, part(func(p *kmsg.FetchRequestTopicPartition) { p.LastFetchedEpoch = 5 }))),
		since(7, from("unknown session", "data", 0, 0, func(r *kmsg.FetchRequest) { r.SessionID, r.SessionEpoch = 12345, 1 })),
		since(7, from("session epoch without session", "data", 0, 0, func(r *kmsg.FetchRequest) { r.SessionEpoch = 1 })),
		since(7, from("a session", "data", 0, 33, func(r *kmsg.FetchRequest) { r.SessionEpoch = 0 })),
		from("no topics", "data", 0, 0, func(r *kmsg.FetchRequest) { r.Topics = nil }),
		from("a partition twice", "data", 0, 0, func(r *kmsg.FetchRequest) {
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, r.Topics[0].Partitions[0])
		}),
		since(13, from("unknown id", "data", 0, 0, func(r *kmsg.FetchRequest) { r.Topics[0].TopicID = [16]byte{1, 2, 3} })),
		since(13, from("zero id", "data", 0, 0, func(r *kmsg.FetchRequest) { r.Topics[0].TopicID = [16]byte{} })),
		{name: "as a replica by its state", from: 15, req: func(s *side, v int16) kmsg.Request {
			r := take(s, v, "data", 0, 0)
			r.ReplicaState.ID, r.ReplicaState.Epoch = 5, 1
			return r
		}},
		from("as a replica", "data", 0, 0, func(r *kmsg.FetchRequest) { r.ReplicaID = 5 }),
	}
}

func offsetSteps() []step {
	at := func(what, topic string, partition int32, timestamp int64, change ...func(r *kmsg.ListOffsetsRequest)) step {
		return step{name: what, req: func(s *side, v int16) kmsg.Request {
			r := kmsg.NewPtrListOffsetsRequest()
			r.ReplicaID, r.TimeoutMillis = -1, 5000
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = s.n(topic)
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, timestamp, -1
			t.Partitions = append(t.Partitions, p)
			r.Topics = append(r.Topics, t)
			for _, f := range change {
				f(r)
			}
			return r
		}}
	}
	epoch := func(e int32) func(r *kmsg.ListOffsetsRequest) {
		return func(r *kmsg.ListOffsetsRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = e }
	}
	since := func(v int16, st step) step { st.from = v; return st }
	return []step{
		at("latest", "data", 0, -1),
		at("earliest", "data", 0, -2),
		at("largest time", "data", 0, -3),
		at("earliest local", "data", 0, -4),
		at("latest tiered", "data", 0, -5),
		at("earliest pending upload", "data", 0, -6),
		at("time -7", "data", 0, -7),
		at("by time", "data", 0, madeAt+1),
		at("by time before all", "data", 0, 5),
		at("by time after all", "data", 0, madeAt+1_000_000_000),
		at("latest of an empty partition", "data", 1, -1),
		at("largest time of an empty partition", "data", 1, -3),
		at("by time in an empty partition", "data", 1, 5),
		at("unknown topic", "nowhere", 0, -1),
		at("unknown partition", "data", 9, -1),
		at("read committed", "data", 0, -1, func(r *kmsg.ListOffsetsRequest) { r.IsolationLevel = 1 }),
		since(4, at("leader epoch to come", "data", 0, -1, epoch(1000))),
		at("a partition twice", "data", 0, -1, func(r *kmsg.ListOffsetsRequest) {
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, r.Topics[0].Partitions[0])
		}),
		at("no topics", "data", 0, -1, func(r *kmsg.ListOffsetsRequest) { r.Topics = nil }),
		at("as a replica", "data", 0, -1, func(r *kmsg.ListOffsetsRequest) { r.ReplicaID = 5 }),
	}
}
