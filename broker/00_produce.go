package broker

// Produce: served versions 3-13; v0-2 are advertised and answered with an error per
// partition, because librdkafka switches compression off for a server whose
// lowest version isn't 0 (KAFKA-18659).
//
// v3 batches v2; v5 log start; v7 zstd; v8 error texts; v10 leader hints
// (KIP-951); v11 TRANSACTION_ABORTABLE; v12 adds its partitions to the producer's
// transaction (KIP-890); v13 topic ids (KIP-516).
//
// - acks 0, 1 and all mean the same wait: the append is in the journal. acks=0
//   gets no answer, and any error closes the connection instead.
// - Each partition carries exactly one batch. It is opened and its records are
//   walked, as Kafka does. It is stored as it came, unless the topic's
//   compression.type names another codec: then it is recompressed.
// - Refused: control batches, null keys on compacted topics, timestamps outside the
//   topic's limits, transactional batches outside a transaction.
// - A mirror topic that isn't STOPPED: POLICY_VIOLATION with a text that starts
//   with READ_ONLY_TOPIC (OP-23).

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/configs"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// Versions from which Produce has a feature.
const (
	produceBatchV2     = 3
	produceZstd        = 7
	produceFlexible    = 9
	produceLeaderHints = 10
	produceTopicIDs    = 13
)

// produceItemsMax bounds topics and partitions of one request.
const produceItemsMax = 200_000

const (
	acksNone   = 0
	acksLeader = 1
	acksAll    = -1
)

func (s *Server) handleProduce(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.ProduceRequest)
	ctx, cancel := context.WithTimeoutCause(ctx, clampTimeout(millis(req.TimeoutMillis)), messages.ErrTimedOut)
	defer cancel()
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = req.Version
	img := s.image()
	hints := map[messages.NodeID]bool{}
	var failed error
	tx := s.joinTxn(ctx, r, req)
	defer tx.release()
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for j := range t.Partitions {
			p := &t.Partitions[j]
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.BaseOffset = p.Partition, messages.NoOffset
			topic, err := topicOf(img, keyOf(t.Topic, t.TopicID, p.Partition, req.Version >= produceTopicIDs), req.Version >= produceTopicIDs)
			at := [2]int{i, j}
			switch {
			case tx.forbidden:
				err = messages.ErrTxnNotAuthorized
			case err != nil:
				err = s.unknown(r, OpWrite, t.Topic, err)
			default:
				err = tx.errs[at]
			}
			if err == nil {
				err = s.produceOne(ctx, r, req, topic, p, tx.guards[at], &rp)
			}
			if err != nil {
				failed = fmt.Errorf("topic %q partition %d: %w", t.Topic, p.Partition, err)
				rp.ErrorCode, rp.ErrorMessage = r.code(err), errorText(err)
				if bad, ok := errors.AsType[*recordError](err); ok && bad.index >= 0 {
					rp.ErrorRecords = []kmsg.ProduceResponseTopicPartitionErrorRecord{{RelativeOffset: bad.index, ErrorMessage: errorText(bad.err)}}
				}
				hintLeader(&rp, topic, hints)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	s.traffic.produced(req, resp)
	if req.Acks == acksNone {
		if failed != nil {
			return reply{drop: failed}
		}
		return reply{silent: true}
	}
	s.addHintNodes(r, resp, hints)
	return answer(resp)
}

// produceOne checks and stores the batch of one partition.
func (s *Server) produceOne(ctx context.Context, r *request, req *kmsg.ProduceRequest, t *metadata.Topic, p *kmsg.ProduceRequestTopicPartition, guard *persistence.TxnGuard, rp *kmsg.ProduceResponseTopicPartition) error {
	if err := s.mayProduce(r, req, t); err != nil {
		return err
	}
	part, err := s.checkPartition(t, p.Partition, messages.NoEpoch)
	if err != nil {
		return err
	}
	if err := s.writable(ctx, t, p.Partition, part); err != nil {
		return err
	}
	rules := s.produceRules(t, req.Version)
	records, err := rules.check(p.Records, s.opening)
	if err != nil {
		if _, ok := errors.AsType[*recordError](err); ok {
			rp.LogStartOffset = part.State().LogStart
		}
		return err
	}
	if len(records) > s.topicConfigInt(t, configs.SegmentBytes) {
		return refuse(kerr.RecordListTooLarge, fmt.Sprintf("record batch of %d bytes, segment.bytes is %d", len(records), s.topicConfigInt(t, configs.SegmentBytes)))
	}
	if req.Acks == acksAll {
		if mp, ok := t.Partition(p.Partition); ok && len(mp.ISR) < s.topicConfigInt(t, configMinISR) {
			return refuse(kerr.NotEnoughReplicas, "")
		}
	}
	opts := persistence.ClientAppend{LeaderEpoch: messages.NoEpoch, LogAppendTime: rules.logAppendTime, NowMillis: rules.now, Txn: guard}
	info, err := part.AppendClient(ctx, records, opts)
	var dup *persistence.DuplicateError
	switch {
	case errors.As(err, &dup):
		info.FirstOffset = dup.FirstOffset
	case errors.Is(err, messages.ErrReadOnlyTopic) && s.moving(t, p.Partition):
		return fmt.Errorf("%s partition %d moves: %w", t.Name, p.Partition, messages.ErrNotLeader)
	case errors.Is(err, messages.ErrReadOnlyTopic):
		return s.readOnly(t, p.Partition)
	case errors.Is(err, persistence.ErrOutOfOrderSequence), errors.Is(err, persistence.ErrInvalidProducerEpoch), errors.Is(err, persistence.ErrInvalidTxnState):
		rp.LogStartOffset = part.State().LogStart
		return err
	case err != nil:
		return err
	}
	rp.BaseOffset, rp.LogAppendTime, rp.LogStartOffset = info.FirstOffset, -1, part.State().LogStart
	if rules.logAppendTime {
		rp.LogAppendTime = rules.now
	}
	if dup != nil {
		rp.LogAppendTime = dup.Timestamp // whatever the topic's kind of time, as in Kafka
	}
	return nil
}

func (s *Server) mayProduce(r *request, req *kmsg.ProduceRequest, t *metadata.Topic) error {
	switch {
	case !s.allowed(r, OpWrite, KindTopic, t.Name):
		return messages.ErrTopicNotAuthorized
	case req.Acks < acksAll || req.Acks > acksLeader:
		return refuse(kerr.InvalidRequiredAcks, "")
	case req.Version < produceBatchV2:
		return refuse(kerr.UnsupportedForMessageFormat, "record batches of magic 2 and Produce version 3 are needed")
	case messages.IsInternalTopic(t.Name):
		return refuse(kerr.InvalidTopicException, "clients may not write to internal topic "+t.Name)
	default:
		return nil
	}
}

// writable returns nil for a partition that takes writes of clients. A stopped mirror
// topic's partition that came to this node a moment ago is read-only until its state
// has been read (UNKNOWN), and one that is about to go is so already: then the producer
// waits, as it does after the start of a node. A refusal would be final for it. Its own
// time-out ends that, to be tried again.
func (s *Server) writable(ctx context.Context, t *metadata.Topic, partition int32, part Partition) error {
	if !part.State().ReadOnly {
		return nil
	}
	changed := make(chan struct{}, 1)
	cancel := part.Watch(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	defer cancel()
	for part.State().ReadOnly {
		if !s.moving(t, partition) {
			return s.readOnly(t, partition)
		}
		if _, err := s.checkPartition(t, partition, messages.NoEpoch); err != nil {
			return err // it has gone again
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the state of %s partition %d in mirror %s isn't known here yet: %w", t.Name, partition, t.Mirror, context.Cause(ctx))
		}
	}
	return nil
}

// moving: a partition that is read-only here although it is to take writes, for its
// leadership comes, or goes to another node which hasn't claimed it yet.
func (s *Server) moving(t *metadata.Topic, partition int32) bool {
	if t.Desired != messages.DesiredStopped {
		return t.Desired == messages.DesiredNone
	}
	state := s.deps.Mirrors.State(messages.TopicPartition{Topic: t.Name, Partition: partition})
	return state == messages.StateUnknown || state == messages.StateStopped
}

// readOnly is the refusal of a client's change to a mirror partition (OP-23).
func (s *Server) readOnly(t *metadata.Topic, partition int32) error {
	state := s.deps.Mirrors.State(messages.TopicPartition{Topic: t.Name, Partition: partition})
	return fmt.Errorf("%w: topic %s partition %d belongs to mirror %s and is %s; it can be written when the mirror topic is stopped and its state is %s",
		messages.ErrReadOnlyTopic, t.Name, partition, t.Mirror, state, messages.StateStopped)
}

func hintLeader(rp *kmsg.ProduceResponseTopicPartition, t *metadata.Topic, hints map[messages.NodeID]bool) {
	if t == nil || rp.ErrorCode != kerr.NotLeaderForPartition.Code {
		return
	}
	if p, ok := t.Partition(rp.Partition); ok {
		rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = int32(p.Leader), p.LeaderEpoch
		hints[p.Leader] = true
	}
}

func (s *Server) addHintNodes(r *request, resp *kmsg.ProduceResponse, hints map[messages.NodeID]bool) {
	if resp.Version < produceLeaderHints {
		return
	}
	for id := range hints {
		n := s.image().Node(id)
		if e, ok := s.endpointOf(n, r.listener); ok {
			resp.Brokers = append(resp.Brokers, kmsg.ProduceResponseBroker{NodeID: int32(id), Host: e.Host, Port: e.Port, Rack: rackOf(n)})
		}
	}
}

// produceRules are a topic's rules for batches of clients.
type produceRules struct {
	version       int16
	maxBytes      int
	now           int64
	logAppendTime bool
	compacted     bool
	maxOpened     int          // of a record, decompressed
	before, after int64        // allowed distance of timestamps to now, ms
	compress      *compression // nil: as the producer has it
}

func (s *Server) produceRules(t *metadata.Topic, version int16) produceRules {
	var to *compression
	if kind := s.topicConfig(t, configCompression); kind != "producer" {
		if codec, ok := codecOf(kind); ok {
			to = &compression{codec: codec}
			if level := "compression." + kind + ".level"; configs.Topic().Lookup(level) != nil {
				to.level = s.topicConfigInt(t, level)
			}
		}
	}
	return produceRules{
		compress:      to,
		version:       version,
		maxBytes:      s.topicConfigInt(t, configMaxMessageBytes),
		maxOpened:     s.topicConfigInt(t, configs.MaxDecompressedBytes),
		now:           s.clock.Now().UnixMilli(),
		logAppendTime: s.topicConfig(t, configTimestampType) == "LogAppendTime",
		compacted:     strings.Contains(s.topicConfig(t, configCleanupPolicy), "compact"),
		before:        int64(s.topicConfigInt(t, configTimestampBefore)),
		after:         int64(s.topicConfigInt(t, configTimestampAfter)),
	}
}

// check accepts exactly one sound batch and returns it as it is to be stored;
// open bounds how many are opened at a time.
func (p produceRules) check(b []byte, open chan struct{}) ([]byte, error) {
	h, err := p.checkBatch(b)
	if err != nil {
		return nil, err
	}
	change := p.compress != nil && p.compress.codec != h.Codec()
	if h.Codec() != batch.CodecNone || change {
		open <- struct{}{}
		defer func() { <-open }()
	}
	if err := p.checkRecords(b, h); err != nil || !change {
		return b, err
	}
	out, err := recompress(b, h, *p.compress)
	if err == nil && len(out) > p.maxBytes { // Kafka looks at both sizes, too
		return nil, refuse(kerr.MessageTooLarge, fmt.Sprintf("record batch of %d bytes as %s, max.message.bytes is %d", len(out), p.compress.codec, p.maxBytes))
	}
	return out, err
}

// checkBatch checks all of a batch but its records.
func (p produceRules) checkBatch(b []byte) (batch.Header, error) {
	if len(b) < batch.HeaderSize {
		return batch.Header{}, refuse(kerr.InvalidRecord, fmt.Sprintf("%d bytes are no record batch", len(b)))
	}
	switch magic := b[16]; {
	case magic < 2:
		return batch.Header{}, refuse(kerr.InvalidRecord, fmt.Sprintf("record batch of magic %d, only 2 is accepted", magic))
	case magic > 2:
		return batch.Header{}, refuse(kerr.CorruptMessage, fmt.Sprintf("record batch of magic %d, only 2 is known", magic))
	}
	h, err := batch.ParseHeader(b)
	switch {
	case err != nil:
		return h, refuse(kerr.CorruptMessage, err.Error())
	case h.Size() > len(b):
		return h, refuse(kerr.InvalidRecord, fmt.Sprintf("record batch of %d bytes cut off at %d", h.Size(), len(b)))
	case h.Size() < len(b):
		return h, refuse(kerr.InvalidRecord, "more than one record batch for a partition")
	case h.Size() > p.maxBytes:
		return h, refuse(kerr.MessageTooLarge, fmt.Sprintf("record batch of %d bytes, max.message.bytes is %d", h.Size(), p.maxBytes))
	}
	if err := batch.CheckCRC(b); err != nil {
		return h, refuse(kerr.CorruptMessage, err.Error())
	}
	if err := p.checkHeader(h); err != nil {
		return h, &recordError{err: err, index: wholeBatch}
	}
	return h, nil
}

// recordError is a fault of what is in a batch: its answer carries the log start, and
// which record it was.
type recordError struct {
	err   error
	index int32 // of the record in the batch, or wholeBatch
}

const wholeBatch = -1

// Error is that of the fault.
func (e *recordError) Error() string { return e.err.Error() }

// Unwrap is the fault.
func (e *recordError) Unwrap() error { return e.err }

func (p produceRules) checkHeader(h batch.Header) error {
	invalid := func(format string, args ...any) error {
		return refuse(kerr.InvalidRecord, fmt.Sprintf(format, args...))
	}
	switch {
	case h.BaseOffset != 0:
		return invalid("base offset %d, a producer's is 0", h.BaseOffset)
	case h.IsControl():
		return invalid("clients may not write control batches")
	case h.IsTransactional() && h.ProducerID < 0:
		return invalid("a transactional batch without a producer")
	case h.Records == 0 || int64(h.Records) != int64(h.LastOffsetDelta)+1:
		return invalid("%d records, but offsets for %d", h.Records, int64(h.LastOffsetDelta)+1)
	case h.ProducerID >= 0 && (h.BaseSequence < 0 || h.ProducerEpoch < 0):
		return invalid("producer %d with sequence %d and epoch %d", h.ProducerID, h.BaseSequence, h.ProducerEpoch)
	case h.Codec() > batch.CodecZstd:
		return refuse(kerr.UnsupportedCompressionType, fmt.Sprintf("unknown codec %d", h.Codec()))
	case h.Codec() == batch.CodecZstd && p.version < produceZstd:
		return refuse(kerr.UnsupportedCompressionType, "zstd needs Produce version 7")
	case h.Attributes&batch.AttrLogAppendTime != 0:
		return refuse(kerr.InvalidTimestamp, "clients may not set the log append time")
	default:
		return nil
	}
}

// decompressedBytesMax bounds one opened batch.
const decompressedBytesMax = 128 << 20

func (p produceRules) checkRecords(b []byte, h batch.Header) error {
	next := h.BaseOffset
	for rec, err := range batch.DecompressRecords(b, decompressedBytesMax) {
		bad := func(k *kerr.Error, text string) error {
			return &recordError{err: refuse(k, text), index: int32(next - h.BaseOffset)}
		}
		switch {
		case err != nil:
			return &recordError{err: refuse(kerr.CorruptMessage, err.Error()), index: wholeBatch}
		case rec.Offset != next:
			return bad(kerr.InvalidRecord, fmt.Sprintf("record %d has offset delta %d", next-h.BaseOffset, rec.Offset-h.BaseOffset))
		case h.Codec() != batch.CodecNone && len(rec.Key)+len(rec.Value) > p.maxOpened:
			return bad(kerr.InvalidRecord, fmt.Sprintf("record %d has more than max.decompressed.message.bytes, which is %d", next-h.BaseOffset, p.maxOpened))
		case p.compacted && rec.Key == nil:
			return bad(kerr.InvalidRecord, "compacted topic cannot accept a record without key")
		case !p.logAppendTime && (p.now-rec.Timestamp > p.before || rec.Timestamp-p.now > p.after) && rec.Timestamp != -1:
			return bad(kerr.InvalidTimestamp, fmt.Sprintf("timestamp %d of record %d is outside the allowed range around %d", rec.Timestamp, next-h.BaseOffset, p.now))
		}
		next++
	}
	return nil
}

// guardProduce walks a Produce body without taking memory for it: the decoder
// proper allocates by the counts that the client claims.
func guardProduce(body []byte, version int16) error {
	r := kbin.Reader{Src: body}
	flex := version >= produceFlexible
	items := 0
	count := func() int {
		n := 0
		if flex {
			n = int(r.CompactArrayLen())
		} else {
			n = int(r.ArrayLen())
		}
		items += max(n, 0)
		return n
	}
	if version >= produceBatchV2 {
		if flex {
			r.CompactNullableString()
		} else {
			r.NullableString()
		}
	}
	r.Span(2 + 4)
	for topics := count(); topics > 0 && r.Ok() && items <= produceItemsMax; topics-- {
		switch {
		case version >= produceTopicIDs:
			r.Span(16)
		case flex:
			r.CompactString()
		default:
			_ = r.String()
		}
		for parts := count(); parts > 0 && r.Ok() && items <= produceItemsMax; parts-- {
			r.Span(4)
			if flex {
				r.CompactNullableBytes()
			} else {
				r.NullableBytes()
			}
			skipTags(&r, flex)
		}
		skipTags(&r, flex)
	}
	if !r.Ok() || items > produceItemsMax {
		return fmt.Errorf("%w: %d topics and partitions", errFrameShape, items)
	}
	return nil
}

func skipTags(r *kbin.Reader, flex bool) {
	if !flex {
		return
	}
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		r.Uvarint()
		r.Span(int(r.Uvarint()))
	}
}
