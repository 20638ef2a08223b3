package broker

import (
	"context"
	"time"

	"kagami/messages"
	"kagami/messages/groups"
	"kagami/messages/txns"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// Deps is all that the server needs from the rest of the node. Every field must
// be set, except Authorizer (nil allows everything). All methods may be called
// by many goroutines at once. Errors wrap a sentinel of package messages or
// persistence, which errorCode turns into a Kafka code; any other error is told
// to the client as UNKNOWN_SERVER_ERROR and logged.
type Deps struct {
	Partitions Partitions
	Images     Images
	Controller Controller
	Mirrors    Mirrors
	Planner    Planner
	History    History
	Bus        Bus
	Groups     Groups
	Shares     Shares
	// Transactions are the transaction coordinators.
	Transactions Transactions
	Authorizer   Authorizer
}

// Partition is the leader's replica of one partition. cluster.Replica is one.
type Partition interface {
	// Log is for reading only; whoever writes goes through the methods below.
	Log() persistence.Log
	State() persistence.ReplicaState
	// AppendClient stores a producer's batches, already checked by the server,
	// and returns the offsets it gave them. It may change the batches in place.
	// *persistence.DuplicateError is a success at the offsets it carries.
	AppendClient(ctx context.Context, batches []byte, opts persistence.ClientAppend) (persistence.AppendInfo, error)
	// GuardTxn is asked before a producer's coordinator is, and goes with the append as
	// ClientAppend.Txn; nil: the transaction is open in the partition already. It must be
	// released by ReleaseTxn.
	GuardTxn(p txns.Producer, v txns.Version, sequence int32) *persistence.TxnGuard
	ReleaseTxn(id int64, guard *persistence.TxnGuard)
	// HoldsTxn reports whether the transaction is open in the partition, or the guard
	// still stands.
	HoldsTxn(p txns.Producer, guard *persistence.TxnGuard) bool
	// RaiseLogStart is DeleteRecords: durable before it returns.
	RaiseLogStart(ctx context.Context, offset int64) error
	// Watch calls f, which doesn't block, after high watermark, log start, leader
	// epoch, mode or write gate changed, until cancel is called.
	Watch(f func()) (cancel func())
}

// Partitions finds the partitions that this node leads.
type Partitions interface {
	// Partition wraps ErrNotLeader where this node has no replica that leads, and
	// ErrUnknownTopicOrPartition where there is no such partition at all. The topic
	// id, when not zero, must be that of the replica: else ErrUnknownTopicID.
	Partition(tp messages.TopicPartition, id messages.TopicID) (Partition, error)
}

// Images gives the newest metadata image that this node has applied.
type Images interface {
	Image() *metadata.Image
	// WaitFor returns when the image's offset is at least offset and this node has
	// acted on it (opened the logs of new partitions), so that a client that
	// created a topic can use it at once.
	WaitFor(ctx context.Context, offset int64) error
}

// Controller changes metadata, wherever the controller runs.
type Controller interface {
	Submit(ctx context.Context, who messages.Requester, cmd messages.Command) messages.Outcome
}

// Mirrors answers for mirror partitions: those that this node leads (Describe,
// State), or all of a mirror by asking around (the checks and Recover).
type Mirrors interface {
	// Describe lists the partitions of a mirror that this node leads, in any order.
	// It doesn't block on the network.
	Describe(ctx context.Context, mirror string) ([]MirrorPartition, error)
	// State is what this node knows about a partition it leads, StateUnknown if
	// nothing: only for texts shown to people.
	State(tp messages.TopicPartition) messages.State
	// CheckStart is workflows.md "Start" step 3 and the loop check of OP-35. It
	// returns one error per topic in order (nil = may start), or an error for all.
	CheckStart(ctx context.Context, mirror string, topics []messages.MirrorTopic) ([]error, error)
	// CheckDelete is workflows.md "Delete" step 1: nil when every partition of
	// every topic of the mirror is STOPPED, else wraps ErrInvalidMirrorStates, or
	// the coordinator's refusal.
	CheckDelete(ctx context.Context, mirror string) error
	// Recover is workflows.md "Recover" for topics whose membership has been
	// checked. One item per topic in order.
	Recover(ctx context.Context, who messages.Requester, mirror string, topics []string) []messages.Item
}

// Planner says what a start would do, and does nothing.
type Planner interface {
	// PlanStart plans for the topics that a start with these patterns would name.
	// Partitions that another node leads are left out. An error is for all.
	PlanStart(ctx context.Context, mirror string, topics messages.TopicPatterns) ([]messages.PlannedStart, error)
}

// History reads the metadata log. *metadata.Store is one.
type History interface {
	ReadPage(req metadata.PageRequest) (metadata.Page, error)
}

// MirrorPartition is one row of DescribeClusterMirrors.
type MirrorPartition struct {
	Topic     string
	Partition int32
	// Offsets and Lag are -1 without lag data, i.e. without a fetcher.
	SourceOffset      int64
	DestinationOffset int64
	Lag               int64
	LeaderEpoch       int32 // -1 if unknown
	OpenTransactions  int32 // -1 if unknown
	LogEnd            int64 // in every state; -1 if unknown
	// SeenSourceOffset is the source's high watermark when it last answered, in every
	// state, SeenSourceAge how long ago that was; -1 if it never did since the start.
	SeenSourceOffset int64
	SeenSourceAge    time.Duration
	State            messages.PartitionState
}

// Bus carries the KIP's internal requests as the KIP's own bytes: a request
// body of version 0 without header goes in, a response body comes back.
type Bus interface {
	// ReadMirrorStates and WriteMirrorStates ask the coordinator of a mirror; the
	// error wraps ErrCoordinatorNotAvailable while __mirror_state doesn't exist.
	ReadMirrorStates(ctx context.Context, mirror string, body []byte) ([]byte, error)
	WriteMirrorStates(ctx context.Context, mirror string, body []byte) ([]byte, error)
}

// Groups are the coordinators of consumer groups on this node. *actors.Groups is one.
type Groups interface {
	// Ask hands a request to its group's coordinator and waits for the answer, of the
	// type that goes with the request, as long as a rebalance takes, or until ctx ends
	// or gone is closed. A refusal is an answer: its error wraps ErrNotCoordinator
	// where another node coordinates the group.
	Ask(ctx context.Context, gone <-chan struct{}, req groups.Request) groups.Answer
	// List is the groups that this node coordinates, in no order.
	List(ctx context.Context) ([]groups.Listed, error)
}

// Shares are the share groups that this node coordinates; their states may be
// anywhere. Errors wrap ErrNotCoordinator where another node coordinates the group, and
// ErrUnknownGroup where there is no share group of that name. *actors.ShareGroups is one.
type Shares interface {
	Look(ctx context.Context, group string) (*groups.ShareLooked, map[groups.ShareKey]groups.ShareState, error)
	// Alter begins states anew; a group that isn't there is made.
	Alter(ctx context.Context, group string, set []groups.ShareSet) error
	// Forget removes states of topics, and reports of which the group had some.
	Forget(ctx context.Context, group string, topics []messages.TopicID) (map[messages.TopicID]bool, error)
	Delete(ctx context.Context, group string) error
}

// Operation is an ACL operation.
type Operation = messages.ACLOperation

// The operations that requests ask for.
const (
	OpRead            = messages.ACLRead
	OpWrite           = messages.ACLWrite
	OpCreate          = messages.ACLCreate
	OpDelete          = messages.ACLDelete
	OpAlter           = messages.ACLAlter
	OpDescribe        = messages.ACLDescribe
	OpClusterAction   = messages.ACLClusterAction
	OpDescribeConfigs = messages.ACLDescribeConfigs
	OpAlterConfigs    = messages.ACLAlterConfigs
	OpIdempotentWrite = messages.ACLIdempotentWrite
)

// ResourceKind is an ACL resource type.
type ResourceKind = messages.ACLResourceType

// The resources that requests name.
const (
	KindTopic         = messages.ACLTopic
	KindGroup         = messages.ACLGroup
	KindCluster       = messages.ACLCluster
	KindTxn           = messages.ACLTransactionalID
	KindClusterMirror = messages.ACLClusterMirror
)

// ClusterResourceName is the name of the only resource of KindCluster.
const ClusterResourceName = messages.ACLClusterName

// Authorizer decides who may do what. Every handler asks it.
type Authorizer interface {
	// Allowed must be quick: it is asked per topic of every request.
	Allowed(who messages.Requester, op Operation, on ResourceKind, name string) bool
	// AllowedAny says whether there can be a resource of the kind that it is allowed on.
	AllowedAny(who messages.Requester, op Operation, on ResourceKind) bool
}

// AllowAll is the Authorizer that never refuses.
type AllowAll struct{}

// Allowed is always true.
func (AllowAll) Allowed(messages.Requester, Operation, ResourceKind, string) bool { return true }

// AllowedAny is always true.
func (AllowAll) AllowedAny(messages.Requester, Operation, ResourceKind) bool { return true }
