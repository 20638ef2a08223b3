// Package groups holds what clients ask of a group coordinator and what it
// answers, free of the protocol's versions, and the records of
// __consumer_offsets. Its two main types are [Request] and [Record]. Values are
// immutable by convention; the package owns no state and never decides anything:
// that is fsm/group.
package groups

import "kagami/messages/txns"

// Request is something that the coordinator of one group is asked.
type Request interface {
	// GroupID names the group, which names the coordinator.
	GroupID() string
}

// Answer is what comes back: the type that goes with the request.
type Answer interface{ answer() }

// Protocol is one of the ways to assign that a member can do, best first.
type Protocol struct {
	Name     string
	Metadata []byte
}

// Join is JoinGroup; the answer is *Joined.
type Join struct {
	Group           string
	Member          string // "" for a new member
	Instance        string // group.instance.id of a static member, else ""
	SessionMillis   int32
	RebalanceMillis int32
	ProtocolType    string
	Protocols       []Protocol
	ClientID        string
	ClientHost      string
	// NeedsID: a new dynamic member is told its id first and joins again (KIP-394).
	NeedsID bool
	// MaySkip: the member understands a leader that needs not assign (KIP-814).
	MaySkip bool
}

// Joined answers Join. Members are for the leader alone.
type Joined struct {
	Err            error
	Generation     int32
	ProtocolType   string
	Protocol       string
	Leader         string
	Member         string
	SkipAssignment bool
	Members        []JoinedMember
}

// JoinedMember is a member as its leader sees it.
type JoinedMember struct {
	Member   string
	Instance string
	Metadata []byte
}

// Who names a member that speaks, and the generation it believes in.
type Who struct {
	Group      string
	Generation int32
	Member     string
	Instance   string // "" for a dynamic member
}

// GroupID names the group.
func (w Who) GroupID() string { return w.Group }

// Sync is SyncGroup; the answer is *Synced.
type Sync struct {
	Who
	// ProtocolType and Protocol are checked when not nil.
	ProtocolType *string
	Protocol     *string
	Assignments  map[string][]byte // by member, from the leader
}

// Synced answers Sync.
type Synced struct {
	Err          error
	ProtocolType string
	Protocol     string
	Assignment   []byte
}

// Heartbeat is Heartbeat; the answer is *Done.
type Heartbeat struct{ Who }

// Leave is LeaveGroup; the answer is *Left.
type Leave struct {
	Group   string
	Members []Leaver
}

// Leaver is a member that leaves; Member may be "" for a static one, which an
// administrator removes.
type Leaver struct {
	Member   string
	Instance string
}

// Left answers Leave: one error per member, in order. Err is for all.
type Left struct {
	Err     error
	Members []error
}

// Position is a committed position in a partition. Err is of one that is asked for.
type Position struct {
	Err         error
	Topic       string
	Partition   int32
	Offset      int64
	LeaderEpoch int32 // -1 if not known
	Metadata    string
}

// Commit is OffsetCommit; the answer is *Committed. Generation -1 and no member
// is a commit from outside the group.
type Commit struct {
	Who
	// RetentionMillis is how long the positions are kept, as old clients may say; -1 is
	// the rule.
	RetentionMillis int64
	Old             bool // a version that doesn't know member epochs
	Positions       []Position
	// Txn is the producer whose transaction commits this (TxnOffsetCommit); nil without.
	Txn *txns.Producer
	// Holds reports, at the coordinator, whether the transaction is still open in its
	// partition, or as it was when that was verified. Set with Txn.
	Holds func() bool
}

// EndTxn stores a marker of a transaction coordinator in the partition of its group
// coordinator, which it is handed to; the answer is *Done.
type EndTxn struct{ Marker txns.Marker }

// GroupID names none.
func (r EndTxn) GroupID() string { return "" }

// Committed answers Commit: one error per position, in order. Err is for all.
type Committed struct {
	Err       error
	Positions []error
}

// Partitions names partitions of one topic.
type Partitions struct {
	Topic      string
	Partitions []int32
}

// Fetch is OffsetFetch; the answer is *Fetched.
type Fetch struct {
	Group string
	// Member and Epoch are checked in a group of the consumer protocol; "" and -1 ask
	// from outside.
	Member string
	Epoch  int32
	// RequireStable: a position that an open transaction may change is an error.
	RequireStable bool
	All           bool // everything that is committed; Topics is empty
	Topics        []Partitions
}

// Fetched answers Fetch: a position for each that was asked for, in order,
// Offset -1 where there is none; with All what there is, sorted.
type Fetched struct {
	Err       error
	Positions []Position
}

// DeleteOffsets is OffsetDelete; the answer is *Committed, its errors in the
// order of topics and partitions.
type DeleteOffsets struct {
	Group  string
	Topics []Partitions
}

// Describe is DescribeGroups for one group; the answer is *Described.
type Describe struct{ Group string }

// Described answers Describe.
type Described struct {
	Err          error
	State        string
	ProtocolType string
	Protocol     string
	Members      []DescribedMember
}

// DescribedMember is a member as an administrator sees it.
type DescribedMember struct {
	Member     string
	Instance   string
	ClientID   string
	ClientHost string
	Metadata   []byte
	Assignment []byte
}

// Delete is DeleteGroups for one group; the answer is *Done.
type Delete struct{ Group string }

// Done is an answer that says no more than whether it worked.
type Done struct{ Err error }

// Listed is a group in ListGroups.
type Listed struct {
	Group        string
	ProtocolType string
	State        string
	Type         string
	Members      int
	Offsets      int   // partitions with a committed offset
	Epoch        int32 // generation, or group epoch
}

// TypeClassic is the type of groups whose members assign among themselves.
const TypeClassic = "classic"

// GroupID names the group.
func (r Join) GroupID() string { return r.Group }

// GroupID names the group.
func (r Leave) GroupID() string { return r.Group }

// GroupID names the group.
func (r Fetch) GroupID() string { return r.Group }

// GroupID names the group.
func (r DeleteOffsets) GroupID() string { return r.Group }

// GroupID names the group.
func (r Describe) GroupID() string { return r.Group }

// GroupID names the group.
func (r Delete) GroupID() string { return r.Group }

func (*Joined) answer()    {}
func (*Synced) answer()    {}
func (*Left) answer()      {}
func (*Committed) answer() {}
func (*Fetched) answer()   {}
func (*Described) answer() {}
func (*Done) answer()      {}

// Refusal is the answer to a request that isn't carried out at all.
func Refusal(r Request, err error) Answer {
	switch r := r.(type) {
	case Join:
		return &Joined{Err: err, Generation: -1, Member: r.Member}
	case Sync:
		return &Synced{Err: err}
	case Leave:
		return &Left{Err: err}
	case Commit, DeleteOffsets, Follow:
		return &Committed{Err: err}
	case Fetch:
		return &Fetched{Err: err}
	case Describe:
		return &Described{Err: err}
	case LookShare:
		return &ShareLooked{Err: err}
	case Look:
		return &Looked{Err: err}
	case Beat:
		return &Beaten{Err: err, Member: r.Member, Epoch: r.Epoch}
	case DescribeConsumer:
		return &ConsumerDescribed{Err: err}
	default:
		return &Done{Err: err}
	}
}
