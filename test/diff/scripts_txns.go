package diff

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/batch"
)

// txnTopic has two partitions and serves the transactions of the script.
const txnTopic = "ledger"

// txnClient is what a client of transactions sends: the versions of its requests.
type txnClient struct {
	name                                        string
	init, add, produce, offsets, ending, adding int16
	joins                                       bool // a partition joins the transaction with its first batch
}

// One is a Java client of Kafka 3.x (transaction.version 0 and 1), the other one of 4.x.
func txnClients() []txnClient {
	return []txnClient{
		{name: "older client", init: 4, add: 3, produce: 11, offsets: 3, ending: 4, adding: 3},
		{name: "newer client", init: 5, add: 3, produce: 12, offsets: 5, ending: 5, adding: 4, joins: true},
	}
}

func txnSteps() []step {
	all := slices.Concat(txnFixtures(), txnVersions())
	for _, c := range txnClients() {
		all = slices.Concat(all, c.inits(), c.adds(), c.batches(), c.ends(), c.groupOffsets(), c.timesOut())
	}
	return slices.Concat(all, txnMarkers())
}

func txnFixtures() []step {
	metadata := func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrMetadataRequest()
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(s.n(txnTopic))
		r.Topics = []kmsg.MetadataRequestTopic{t}
		return r
	}
	find := func(keys ...string) func(*side, int16) kmsg.Request {
		return func(s *side, version int16) kmsg.Request {
			r := kmsg.NewPtrFindCoordinatorRequest()
			r.CoordinatorType = 1
			for _, k := range keys {
				r.CoordinatorKeys = append(r.CoordinatorKeys, named(s, k))
			}
			if version < 4 {
				r.CoordinatorKey = r.CoordinatorKeys[0]
			}
			return r
		}
	}
	found := func(resp kmsg.Response) bool {
		r := resp.(*kmsg.FindCoordinatorResponse)
		return r.ErrorCode == 0 && !slices.ContainsFunc(r.Coordinators, func(c kmsg.FindCoordinatorResponseCoordinator) bool { return c.ErrorCode != 0 })
	}
	return []step{
		{name: "for transactions", once: true, req: func(s *side, _ int16) kmsg.Request { return create(newTopic(s.n(txnTopic), 2, 1)) }},
		{
			name: "of transactions", once: true, req: metadata,
			until: func(resp kmsg.Response) bool { return len(resp.(*kmsg.MetadataResponse).Topics[0].Partitions) == 2 },
			keep: func(s *side, resp kmsg.Response) {
				t := resp.(*kmsg.MetadataResponse).Topics[0]
				s.learn(*t.Topic, t.TopicID)
			},
		},
		{name: "of a transactional id, for the first time", req: find("t"), once: true, until: found},
		{name: "of a transactional id", req: find("t"), from: 1, until: found},
		{name: "of an empty transactional id", req: find(""), from: 1},
		{name: "until the coordinator of transactions has loaded", once: true, req: initTxn("loading", nil), until: calm},
	}
}

// txnProducer is what a side has been given for a transactional id.
type txnProducer struct {
	id    int64
	epoch int16
}

func (s *side) producer(txn string) txnProducer {
	p, ok := s.kept["producer "+txn].(txnProducer)
	if !ok {
		return txnProducer{-1, -1}
	}
	return p
}

func (s *side) keepProducer(txn string, id int64, epoch int16) {
	s.kept["producer "+txn] = txnProducer{id, epoch}
	s.producers[id] = txn
}

// calm: the coordinator isn't busy with the transaction before.
func calm(resp kmsg.Response) bool {
	code := int16(0)
	switch r := resp.(type) {
	case *kmsg.InitProducerIDResponse:
		code = r.ErrorCode
	case *kmsg.EndTxnResponse:
		code = r.ErrorCode
	case *kmsg.AddOffsetsToTxnResponse:
		code = r.ErrorCode
	case *kmsg.AddPartitionsToTxnResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				code = max(code, p.ErrorCode)
			}
		}
	case *kmsg.TxnOffsetCommitResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				code = max(code, p.ErrorCode)
			}
		}
	case *kmsg.ProduceResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				code = max(code, p.ErrorCode)
			}
		}
	}
	return code != kerr.ConcurrentTransactions.Code && code != kerr.CoordinatorLoadInProgress.Code && code != kerr.CoordinatorNotAvailable.Code && code != kerr.NotCoordinator.Code
}

// initTxn is InitProducerId.
func initTxn(txn string, change func(s *side, r *kmsg.InitProducerIDRequest)) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrInitProducerIDRequest()
		r.TransactionalID, r.TransactionTimeoutMillis, r.ProducerID, r.ProducerEpoch = new(named(s, txn)), 60000, -1, -1
		if change != nil {
			change(s, r)
		}
		return r
	}
}

func keepInit(txn string) func(*side, kmsg.Response) {
	return func(s *side, resp kmsg.Response) {
		if r := resp.(*kmsg.InitProducerIDResponse); r.ErrorCode == 0 {
			s.keepProducer(txn, r.ProducerID, r.ProducerEpoch)
		}
	}
}

// txn is the client's own transactional id of a name.
func (c txnClient) txn(name string) string { return name + "-" + c.name[:1] }

func (c txnClient) step(name string, version int16, req func(*side, int16) kmsg.Request) step {
	return step{name: c.name + ": " + name, exact: &version, req: req, until: calm}
}

func (c txnClient) begin(name string) step {
	st := c.step("init "+name, c.init, initTxn(c.txn(name), nil))
	st.keep = keepInit(c.txn(name))
	return st
}

// as is the identity of a producer, changed by so much.
func as(s *side, txn string, epochs int16, ids int64) (int64, int16) {
	p := s.producer(txn)
	return p.id + ids, p.epoch + epochs
}

func txnVersions() []step {
	return []step{
		{name: "without a time-out", req: initTxn("v", func(_ *side, r *kmsg.InitProducerIDRequest) { r.TransactionTimeoutMillis = 0 }), until: calm},
		{name: "with a negative time-out", req: initTxn("v", func(_ *side, r *kmsg.InitProducerIDRequest) { r.TransactionTimeoutMillis = -1 }), until: calm},
		{name: "with a long time-out", req: initTxn("v", func(_ *side, r *kmsg.InitProducerIDRequest) { r.TransactionTimeoutMillis = 1 << 30 }), until: calm},
		{name: "with an empty transactional id", req: initTxn("", nil), until: calm},
		{name: "of a transaction", req: initTxn("v", nil), until: calm},
		{name: "of a transaction, half an identity", from: 3, req: initTxn("v", func(_ *side, r *kmsg.InitProducerIDRequest) { r.ProducerID = 5 }), until: calm},
		{name: "of a transaction, the other half", from: 3, req: initTxn("v", func(_ *side, r *kmsg.InitProducerIDRequest) { r.ProducerEpoch = 5 }), until: calm},
		{name: "of an unknown id", req: endTxn("nobody", true, 0, 0), until: calm},
		{name: "of an empty id", req: endTxn("", true, 0, 0), until: calm},
		{name: "of an unknown id", req: addOffsets("nobody", "g", 0, 0), until: calm},
		{name: "of an empty group", req: addOffsets("nobody", "", 0, 0), until: calm},
		{name: "of an unknown id", to: 3, req: addTo("nobody", 0, 0, txnTopic), until: calm},
		{name: "of an empty id", to: 3, req: addTo("", 0, 0, txnTopic), until: calm},
		{name: "verified, of an unknown id", from: 4, req: verify("nobody", 0, 0, txnTopic)},
		{name: "transactions of unknown ids", req: describeTxns("nobody", ""), until: nil},
		{name: "transactions in an unknown state", req: one(func() kmsg.Request {
			r := kmsg.NewPtrListTransactionsRequest()
			r.StateFilters = []string{"None", "Ongoing"}
			return r
		})},
		{name: "transactions of an unknown producer", req: one(func() kmsg.Request {
			r := kmsg.NewPtrListTransactionsRequest()
			r.ProducerIDFilters = []int64{1 << 50}
			return r
		})},
		{name: "transactions by a bad pattern", from: 2, req: one(func() kmsg.Request {
			r := kmsg.NewPtrListTransactionsRequest()
			r.TransactionalIDPattern = new("(")
			return r
		})},
	}
}

func (c txnClient) inits() []step {
	id := c.txn("a")
	keep := func(st step) step { st.keep = keepInit(id); return st }
	known := func(name string, epochs int16, ids int64) step {
		return c.step(name, c.init, initTxn(id, func(s *side, r *kmsg.InitProducerIDRequest) { r.ProducerID, r.ProducerEpoch = as(s, id, epochs, ids) }))
	}
	return []step{
		c.begin("a"),
		c.begin("a"),
		known("init with an older epoch", -1, 0),
		known("init with a newer epoch", 1, 0),
		known("init with another producer's id", 0, 7),
		keep(known("init with its identity", 0, 0)),
		known("init with the epoch before", -1, 0),
		known("init with a fenced epoch", -2, 0),
		c.begin("f"),
		c.step("add to what is fenced", c.add, addTo(c.txn("f"), 0, 0, txnTopic)),
		c.step("init over an open transaction", c.init, initTxn(c.txn("f"), nil)),
		c.step("init of who was fenced", c.init, initTxn(c.txn("f"), func(s *side, r *kmsg.InitProducerIDRequest) { r.ProducerID, r.ProducerEpoch = as(s, c.txn("f"), 0, 0) })),
		c.begin("f"),
		c.step("add to what goes on", c.add, addTo(c.txn("f"), 0, 0, txnTopic)),
		c.step("init of an open transaction with its identity", c.init, initTxn(c.txn("f"), func(s *side, r *kmsg.InitProducerIDRequest) { r.ProducerID, r.ProducerEpoch = as(s, c.txn("f"), 0, 0) })),
	}
}

// addTo is AddPartitionsToTxn of a client.
func addTo(txn string, epochs int16, ids int64, topics ...string) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrAddPartitionsToTxnRequest()
		r.TransactionalID = named(s, txn)
		r.ProducerID, r.ProducerEpoch = as(s, txn, epochs, ids)
		for _, topic := range topics {
			t := kmsg.NewAddPartitionsToTxnRequestTopic()
			t.Topic, t.Partitions = s.n(topic), []int32{0}
			r.Topics = append(r.Topics, t)
		}
		return r
	}
}

// verify is AddPartitionsToTxn of a broker, which only asks.
func verify(txn string, epochs int16, ids int64, topics ...string) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrAddPartitionsToTxnRequest()
		t := kmsg.NewAddPartitionsToTxnRequestTransaction()
		t.TransactionalID, t.VerifyOnly = named(s, txn), true
		t.ProducerID, t.ProducerEpoch = as(s, txn, epochs, ids)
		for _, topic := range topics {
			rt := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
			rt.Topic, rt.Partitions = s.n(topic), []int32{0, 1}
			t.Topics = append(t.Topics, rt)
		}
		r.Transactions = append(r.Transactions, t)
		return r
	}
}

func endTxn(txn string, commit bool, epochs int16, ids int64) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrEndTxnRequest()
		r.TransactionalID, r.Commit = named(s, txn), commit
		r.ProducerID, r.ProducerEpoch = as(s, txn, epochs, ids)
		return r
	}
}

func addOffsets(txn, group string, epochs int16, ids int64) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrAddOffsetsToTxnRequest()
		r.TransactionalID, r.Group = named(s, txn), named(s, group)
		r.ProducerID, r.ProducerEpoch = as(s, txn, epochs, ids)
		return r
	}
}

func describeTxns(ids ...string) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrDescribeTransactionsRequest()
		for _, id := range ids {
			r.TransactionalIDs = append(r.TransactionalIDs, named(s, id))
		}
		return r
	}
}

// adds is who may make a transaction larger, and what is told of it.
func (c txnClient) adds() []step {
	id := c.txn("a")
	add := func(name string, epochs int16, ids int64, topics ...string) step {
		return c.step(name, c.add, addTo(id, epochs, ids, topics...))
	}
	describe := func(name string) step {
		return step{name: c.name + ": transaction " + name, req: describeTxns(id)}
	}
	return []step{
		describe("that is empty"),
		add("add with an older epoch", -1, 0, txnTopic),
		add("add with a newer epoch", 1, 0, txnTopic),
		add("add with another producer's id", 0, 7, txnTopic),
		add("add an unknown topic", 0, 0, "nowhere"),
		add("add one and an unknown topic", 0, 0, txnTopic, "nowhere"),
		add("add nothing", 0, 0),
		describe("that is still empty"),
		add("add a partition", 0, 0, txnTopic),
		add("add it again", 0, 0, txnTopic),
		describe("that is open"),
		{name: c.name + ": verified", from: 4, req: verify(id, 0, 0, txnTopic)},
		{name: c.name + ": verified with an older epoch", from: 4, req: verify(id, -1, 0, txnTopic)},
		{name: c.name + ": verified with another producer's id", from: 4, req: verify(id, 0, 7, txnTopic)},
		c.listed("that is open", id, "Ongoing"),
		c.listed("in another state", id, "PrepareCommit"),
	}
}

func (c txnClient) listed(name, txn string, states ...string) step {
	return step{name: c.name + ": transactions " + name, once: true, req: func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrListTransactionsRequest()
		r.StateFilters, r.ProducerIDFilters, r.DurationFilterMillis = states, []int64{s.producer(txn).id}, -1
		return r
	}}
}

// txnBatch is a batch of a transaction.
func txnBatch(s *side, txn string, epochs int16, ids int64, sequence int32) []byte {
	id, epoch := as(s, txn, epochs, ids)
	return batch.Append(nil, batch.Props{ProducerID: id, ProducerEpoch: epoch, BaseSequence: sequence, Attributes: batch.AttrTransactional}, values(2, 5)...)
}

func (c txnClient) put(name, txn string, partition int32, epochs int16, ids int64, sequence int32) step {
	return c.step(name, c.produce, func(s *side, v int16) kmsg.Request {
		r := put(s, v, txnTopic, partition, txnBatch(s, txn, epochs, ids, sequence))
		r.TransactionID = new(named(s, txn))
		return r
	})
}

// stable is where committed readers may read up to.
func (c txnClient) stable(name string, partition int32, settled bool) []step {
	ends := step{name: c.name + ": stable end " + name, once: true, req: func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrListOffsetsRequest()
		r.ReplicaID, r.IsolationLevel = -1, 1
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = s.n(txnTopic)
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, -1, -1
		t.Partitions = append(t.Partitions, p)
		r.Topics = append(r.Topics, t)
		return r
	}}
	fetch := step{name: c.name + ": committed records " + name, once: true, req: func(s *side, v int16) kmsg.Request {
		r := take(s, v, txnTopic, partition, 0)
		r.IsolationLevel = 1
		return r
	}}
	producers := step{name: c.name + ": producers " + name, once: true, req: func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrDescribeProducersRequest()
		t := kmsg.NewDescribeProducersRequestTopic()
		t.Topic, t.Partitions = s.n(txnTopic), []int32{partition, 9}
		r.Topics = append(r.Topics, t)
		return r
	}}
	if settled {
		open := func(resp kmsg.Response) bool {
			for _, p := range resp.(*kmsg.DescribeProducersResponse).Topics[0].Partitions {
				for _, a := range p.ActiveProducers {
					if a.CurrentTxnStartOffset >= 0 {
						return false
					}
				}
			}
			return true
		}
		producers.until = open
		return []step{producers, ends, fetch}
	}
	return []step{ends, fetch, producers}
}

// batches are those of the transaction that adds has opened.
func (c txnClient) batches() []step {
	id := c.txn("a")
	bare := c.step("a transactional batch without transactional id", c.produce, func(s *side, v int16) kmsg.Request {
		return put(s, v, txnTopic, 0, txnBatch(s, id, 0, 0, 0))
	})
	other := c.step("a batch of another transactional id", c.produce, func(s *side, v int16) kmsg.Request {
		r := put(s, v, txnTopic, 0, txnBatch(s, id, 0, 0, 0))
		r.TransactionID = new(named(s, "nobody"))
		return r
	})
	mixed := c.step("a batch that isn't transactional", c.produce, func(s *side, v int16) kmsg.Request {
		p := s.producer(id)
		r := put(s, v, txnTopic, 0, batch.Append(nil, batch.Props{ProducerID: p.id, ProducerEpoch: p.epoch, BaseSequence: 4}, values(1, 5)...))
		r.TransactionID = new(named(s, id))
		return r
	})
	return slices.Concat([]step{
		bare, other,
		c.put("a batch with a sequence above 0", id, 0, 0, 0, 5),
		c.put("a batch", id, 0, 0, 0, 0),
		c.put("a batch again", id, 0, 0, 0, 0),
		c.put("a batch with a gap in its sequence", id, 0, 0, 0, 9),
		c.put("a batch of an older epoch", id, 0, -1, 0, 0),
		c.put("a batch of a newer epoch", id, 0, 1, 0, 0),
		c.put("a batch of another producer", id, 0, 0, 7, 0),
		mixed,
		c.put("a batch for a partition that wasn't added", id, 1, 0, 0, 0),
	}, c.stable("of an open transaction", 0, false))
}

func (c txnClient) end(name, txn string, commit bool, epochs int16, ids int64) step {
	return c.step(name, c.ending, endTxn(txn, commit, epochs, ids))
}

// ends is who may end a transaction, and how often.
func (c txnClient) ends() []step {
	id := c.txn("a")
	done := func(st step) step {
		st.keep = func(s *side, resp kmsg.Response) {
			if r := resp.(*kmsg.EndTxnResponse); r.ErrorCode == 0 && r.ProducerID >= 0 && c.joins {
				s.keepProducer(id, r.ProducerID, r.ProducerEpoch)
			}
		}
		return st
	}
	before := int16(0) // of a newer client, the epoch of the transaction that has ended
	if c.joins {
		before = -1
	}
	again := func(name string, commit bool) step { return c.end(name, id, commit, before, 0) }
	describe := func(name, state string) step {
		return step{name: c.name + ": transaction " + name, once: true, req: describeTxns(id), until: func(resp kmsg.Response) bool {
			return resp.(*kmsg.DescribeTransactionsResponse).TransactionStates[0].State == state
		}}
	}
	return slices.Concat([]step{
		c.end("end with an older epoch", id, true, -1, 0),
		c.end("end with a newer epoch", id, true, 1, 0),
		c.end("end with another producer's id", id, true, 0, 7),
		done(c.end("commit", id, true, 0, 0)),
		describe("that is committed", "CompleteCommit"),
		again("commit again", true),
		again("abort after the commit", false),
	}, c.stable("of a committed transaction", 0, true), []step{
		c.end("commit of nothing", id, true, 0, 0),
		done(c.end("abort of nothing", id, false, 0, 0)),
		c.step("add after that", c.add, addTo(id, 0, 0, txnTopic)),
		c.put("a batch of the next transaction", id, 0, 0, 0, c.next(2)),
		done(c.end("abort", id, false, 0, 0)),
		describe("that is aborted", "CompleteAbort"),
		again("abort again", false),
		again("commit after the abort", true),
	}, c.stable("of an aborted transaction", 0, true))
}

// next is the next sequence of a producer: a newer client begins anew with its epoch.
func (c txnClient) next(sequence int32) int32 {
	if c.joins {
		return 0
	}
	return sequence
}

// txnCommit is TxnOffsetCommit.
func txnCommit(txn, group, member string, generation int32, epochs int16, ids int64, topics ...string) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrTxnOffsetCommitRequest()
		r.TransactionalID, r.Group, r.MemberID, r.Generation = named(s, txn), named(s, group), memberOf(s, member), generation
		r.ProducerID, r.ProducerEpoch = as(s, txn, epochs, ids)
		for _, topic := range topics {
			t := kmsg.NewTxnOffsetCommitRequestTopic()
			t.Topic = s.n(topic)
			p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			p.Offset, p.LeaderEpoch, p.Metadata = 3, -1, new("m")
			t.Partitions = append(t.Partitions, p)
			r.Topics = append(r.Topics, t)
		}
		return r
	}
}

// groupOffsets are those of a transaction, of groups of all kinds.
func (c txnClient) groupOffsets() []step {
	id := c.txn("o")
	classic, consumer, none := c.txn("tc"), c.txn("tk"), c.txn("tn")
	commit := func(name, group, member string, generation int32, epochs int16, ids int64, topics ...string) step {
		if topics == nil {
			topics = []string{txnTopic}
		}
		return c.step(name, c.offsets, txnCommit(id, group, member, generation, epochs, ids, topics...))
	}
	offsets := func(name, group string, stable bool, want int64) step {
		st := step{name: c.name + ": " + name, once: true, req: func(s *side, v int16) kmsg.Request {
			r := committed(group, "", -1, txnTopic)(s, v).(*kmsg.OffsetFetchRequest)
			r.RequireStable = stable
			return r
		}}
		if want >= -1 {
			st.until = func(resp kmsg.Response) bool {
				return resp.(*kmsg.OffsetFetchResponse).Groups[0].Topics[0].Partitions[0].Offset == want
			}
		}
		return st
	}
	return []step{
		c.begin("o"),
		commit("offsets without a transaction", none, "", -1, 0, 0),
		c.step("add the offsets of a group, with an older epoch", c.adding, addOffsets(id, none, -1, 0)),
		c.step("add the offsets of a group, with another producer's id", c.adding, addOffsets(id, none, 0, 7)),
		c.step("add the offsets of a group", c.adding, addOffsets(id, none, 0, 0)),
		c.step("add the offsets of a classic group", c.adding, addOffsets(id, classic, 0, 0)),
		c.step("add the offsets of a consumer group", c.adding, addOffsets(id, consumer, 0, 0)),
		commit("offsets of nobody's group", none, "", -1, 0, 0),
		commit("offsets of a generation of nobody's group", none, "", 1, 0, 0),
		commit("offsets of a member of nobody's group", none, "x", 1, 0, 0),
		commit("offsets of an unknown topic", none, "", -1, 0, 0, "nowhere", txnTopic),
		commit("offsets with an older epoch", none, "", -1, -1, 0),
		commit("offsets with another producer's id", none, "", -1, 0, 7),
		commit("offsets without a group", "", "", -1, 0, 0),
		{name: c.name + ": is told its id", once: true, req: joining(classic, "", nil), keep: keepMember(classic)},
		{name: c.name + ": leads", once: true, req: joining(classic, classic, nil), keep: keepMember(classic)},
		{name: c.name + ": syncs", once: true, req: syncing(classic, 1, classic, 0)},
		commit("offsets of a classic member", classic, classic, 1, 0, 0),
		commit("offsets of a classic member, another generation", classic, classic, 2, 0, 0),
		commit("offsets of an unknown classic member", classic, "x", 1, 0, 0),
		commit("offsets of a classic group from outside", classic, "", -1, 0, 0),
		{name: c.name + ": joins the consumer group", once: true, req: consumerBeat("m1", 0, func(s *side, r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.Group, r.SubscribedTopicNames = s.n(consumer), []string{s.n(txnTopic)}
		}), keep: func(s *side, resp kmsg.Response) {
			s.kept["epoch "+consumer] = resp.(*kmsg.ConsumerGroupHeartbeatResponse).MemberEpoch
		}},
		c.ofConsumer("offsets of a consumer member", id, consumer, "m1", 0),
		c.ofConsumer("offsets of a consumer member, an older epoch", id, consumer, "m1", -1),
		c.ofConsumer("offsets of a consumer member, a newer epoch", id, consumer, "m1", 1),
		c.ofConsumer("offsets of an unknown consumer member", id, consumer, "m9", 0),
		commit("offsets of a consumer group from outside", consumer, "", -1, 0, 0),
		offsets("pending offsets", none, false, -2),
		offsets("pending offsets, stable ones wanted", none, true, -2),
		{name: c.name + ": with offsets of an open transaction", once: true, req: deletingOffsets(none, txnTopic, 0)},
		{name: c.name + ": with offsets of an open transaction", once: true, req: deletingGroups(none)},
		{name: c.name + ": transaction with offsets", once: true, req: describeTxns(id)},
		c.end("commit of offsets", id, true, 0, 0),
		offsets("offsets that are committed", none, true, 3),
		offsets("offsets of the classic group", classic, true, 3),
		offsets("offsets of the consumer group", consumer, true, 3),
		{name: c.name + ": the classic member", once: true, req: leaving(classic, [2]string{classic, ""})},
		{name: c.name + ": leaves the consumer group", once: true, req: consumerBeat("m1", -1, func(s *side, r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = s.n(consumer) })},
		{name: c.name + ": groups of transactions", once: true, req: deletingGroups(none, classic, consumer)},
	}
}

func (c txnClient) ofConsumer(name, txn, group, member string, epochs int32) step {
	return c.step(name, c.offsets, func(s *side, v int16) kmsg.Request {
		epoch, _ := s.kept["epoch "+group].(int32)
		return txnCommit(txn, group, member, epoch+epochs, 0, 0, txnTopic)(s, v)
	})
}

// timesOut is what a producer is told whose transaction was aborted for it.
func (c txnClient) timesOut() []step {
	id := c.txn("late")
	short := c.step("init with a short time-out", c.init, initTxn(id, func(_ *side, r *kmsg.InitProducerIDRequest) { r.TransactionTimeoutMillis = 500 }))
	short.keep = keepInit(id)
	open := c.step("add to what will be late", c.add, addTo(id, 0, 0, txnTopic))
	if c.joins {
		open = c.put("the first batch that will be late", id, 1, 0, 0, 0)
	}
	return []step{
		short,
		open,
		c.put("a batch that will be late", id, 0, 0, 0, 0),
		{name: c.name + ": transaction that was late", once: true, req: describeTxns(id), until: func(resp kmsg.Response) bool {
			return resp.(*kmsg.DescribeTransactionsResponse).TransactionStates[0].State == "CompleteAbort"
		}},
		c.put("a batch after the time-out", id, 0, 0, 0, 2),
		c.step("add after the time-out", c.add, addTo(id, 0, 0, txnTopic)),
		c.step("add offsets after the time-out", c.adding, addOffsets(id, "g", 0, 0)),
		c.end("commit after the time-out", id, true, 0, 0),
		c.end("abort after the time-out", id, false, 0, 0),
		c.step("init after the time-out, with the old identity", c.init, initTxn(id, func(s *side, r *kmsg.InitProducerIDRequest) { r.ProducerID, r.ProducerEpoch = as(s, id, 0, 0) })),
		c.begin("late"),
	}
}

// txnMarkers are WriteTxnMarkers, as a coordinator or an administrator sends them.
func txnMarkers() []step {
	marker := func(name string, change func(s *side, m *kmsg.WriteTxnMarkersRequestMarker)) step {
		return step{name: name, req: func(s *side, _ int16) kmsg.Request {
			r := kmsg.NewPtrWriteTxnMarkersRequest()
			m := kmsg.NewWriteTxnMarkersRequestMarker()
			t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
			t.Topic, t.Partitions = s.n(txnTopic), []int32{0}
			m.Topics = append(m.Topics, t)
			p := s.producer("late-o")
			m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch = p.id, p.epoch, 1<<20
			change(s, &m)
			r.Markers = append(r.Markers, m)
			return r
		}}
	}
	return []step{
		marker("of an unknown topic", func(s *side, m *kmsg.WriteTxnMarkersRequestMarker) { m.Topics[0].Topic = s.n("nowhere") }),
		marker("of an unknown partition", func(_ *side, m *kmsg.WriteTxnMarkersRequestMarker) { m.Topics[0].Partitions = []int32{9} }),
		marker("of an older epoch", func(_ *side, m *kmsg.WriteTxnMarkersRequestMarker) { m.ProducerEpoch = 0 }),
		marker("of an older coordinator", func(_ *side, m *kmsg.WriteTxnMarkersRequestMarker) { m.CoordinatorEpoch = -1 }),
		marker("without partitions", func(_ *side, m *kmsg.WriteTxnMarkersRequestMarker) { m.Topics = nil }),
	}
}
