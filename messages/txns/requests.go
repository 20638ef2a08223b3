package txns

import "kagami/messages"

// Request is something that the coordinator of one transactional id is asked.
type Request interface {
	// TransactionalID names the id, which names the coordinator.
	TransactionalID() string
}

// Answer is what comes back: the type that goes with the request.
type Answer interface{ answer() }

// Txn is a transactional id, as part of a request.
type Txn string

// TransactionalID names the id.
func (t Txn) TransactionalID() string { return string(t) }

// Init is InitProducerId; the answer is *Inited.
type Init struct {
	Txn
	TimeoutMillis int32
	// Producer is what the client believes to be (KIP-360), None for a new one.
	Producer
}

// Inited answers Init with the producer to be.
type Inited struct {
	Err error
	Producer
}

// Add is AddPartitionsToTxn, and what produce requests and offset commits imply;
// the answer is *Added.
type Add struct {
	Txn
	Producer
	Version    Version
	VerifyOnly bool // nothing is added
	Partitions []messages.TopicPartition
}

// Added answers Add. Partitions has the errors, in order, of a verification; Err is
// for all.
type Added struct {
	Err        error
	Partitions []error
}

// End is EndTxn; the answer is *Ended.
type End struct {
	Txn
	Producer
	Version Version
	Commit  bool
}

// Ended answers End. Producer is that of the next transaction, for V2.
type Ended struct {
	Err error
	Producer
}

// Describe is DescribeTransactions for one id; the answer is *Described.
type Describe struct{ Txn }

// Described answers Describe. While a transaction ends, Partitions are those
// without their marker.
type Described struct {
	Err error
	State
}

// Listed is an id in ListTransactions.
type Listed struct {
	ID            string
	ProducerID    int64
	Status        Status
	StartedMillis int64 // -1 without a transaction
}

func (*Inited) answer()    {}
func (*Added) answer()     {}
func (*Ended) answer()     {}
func (*Described) answer() {}

// Refusal is the answer to a request that isn't carried out at all.
func Refusal(r Request, err error) Answer {
	switch r.(type) {
	case Init:
		return &Inited{Err: err, Producer: None()}
	case Add:
		return &Added{Err: err}
	case End:
		return &Ended{Err: err, Producer: None()}
	default:
		return &Described{Err: err}
	}
}

// Marker ends the transaction of a producer in some partitions
// (WriteTxnMarkers).
type Marker struct {
	Producer
	Commit           bool
	CoordinatorEpoch int32
	Version          Version
	Partitions       []messages.TopicPartition
}
