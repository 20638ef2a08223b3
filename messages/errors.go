package messages

import "errors"

// Refusals that a client can be told. A part wraps one of them with a text that
// names the thing and the way out; broker.errorCode turns them into Kafka codes.
var (
	ErrUnknownTopicOrPartition = errors.New("unknown topic or partition")
	ErrUnknownTopicID          = errors.New("unknown topic id")
	ErrInconsistentTopicID     = errors.New("inconsistent topic id")
	ErrInvalidTopic            = errors.New("invalid topic")
	ErrTopicExists             = errors.New("topic already exists")
	ErrInvalidPartitions       = errors.New("invalid number of partitions")
	ErrInvalidReplication      = errors.New("invalid replication factor")
	ErrInvalidAssignment       = errors.New("invalid replica assignment")
	ErrInvalidConfig           = errors.New("invalid config")
	ErrInvalidRequest          = errors.New("invalid request")
	ErrInvalidRegex            = errors.New("invalid regular expression")
	ErrPolicyViolation         = errors.New("policy violation")
	ErrUnsupportedVersion      = errors.New("unsupported version")
	ErrBrokerNotRegistered     = errors.New("broker is not registered")
	ErrNotController           = errors.New("not the controller")
	ErrNotCoordinator          = errors.New("not the coordinator")
	ErrCoordinatorLoading      = errors.New("coordinator is loading")
	ErrCoordinatorNotAvailable = errors.New("coordinator not available")
	ErrNotLeader               = errors.New("not the leader")
	ErrFencedLeaderEpoch       = errors.New("fenced leader epoch")
	ErrUnknownLeaderEpoch      = errors.New("unknown leader epoch")
	ErrTimedOut                = errors.New("request timed out")
	ErrStorage                 = errors.New("storage error")
	ErrThrottled               = errors.New("throttled")
	ErrFeatureUpdate           = errors.New("feature update failed")
	ErrInvalidUpdateVersion    = errors.New("invalid update version")
	ErrSettingsChanged         = errors.New("decided on what has changed meanwhile")

	// ErrReadOnlyTopic: a write to a mirror topic that isn't STOPPED. Ordinary
	// clients are told POLICY_VIOLATION (OP-23).
	ErrReadOnlyTopic        = errors.New("READ_ONLY_TOPIC")
	ErrInvalidMirrorName    = errors.New("invalid cluster mirror name")
	ErrMirrorExists         = errors.New("cluster mirror already exists")
	ErrUnknownMirror        = errors.New("unknown cluster mirror")
	ErrTopicInMirror        = errors.New("topic is already in a cluster mirror")
	ErrTopicNotInMirror     = errors.New("topic is in another cluster mirror")
	ErrAlreadyPaused        = errors.New("mirror topic is already paused")
	ErrNotPaused            = errors.New("mirror topic is not paused")
	ErrBeingStopped         = errors.New("mirror topic is being stopped")
	ErrMirrorNotEmpty       = errors.New("cluster mirror is not empty")
	ErrInvalidMirrorStates  = errors.New("invalid cluster mirror states")
	ErrMirrorNotAuthorized  = errors.New("cluster mirror authorization failed")
	ErrTopicNotAuthorized   = errors.New("topic authorization failed")
	ErrClusterNotAuthorized = errors.New("cluster authorization failed")
	ErrSecurityDisabled     = errors.New("No Authorizer is configured.") //nolint:staticcheck // Kafka's own text, which tools show
)

// Refusals of group coordinators.
var (
	ErrGroupNotAuthorized     = errors.New("group authorization failed")
	ErrInvalidGroupID         = errors.New("invalid group id")
	ErrUnknownGroup           = errors.New("group id not found")
	ErrNonEmptyGroup          = errors.New("group is not empty")
	ErrGroupSubscribed        = errors.New("group is subscribed to the topic")
	ErrGroupFull              = errors.New("group has reached its largest size")
	ErrUnknownMember          = errors.New("unknown member")
	ErrMemberIDRequired       = errors.New("member id required")
	ErrFencedInstance         = errors.New("fenced instance id")
	ErrIllegalGeneration      = errors.New("illegal generation")
	ErrInconsistentProtocol   = errors.New("inconsistent group protocol")
	ErrInvalidSessionTimeout  = errors.New("invalid session timeout")
	ErrRebalanceInProgress    = errors.New("rebalance in progress")
	ErrOffsetMetadataTooLarge = errors.New("offset metadata too large")
	ErrUnstableOffset         = errors.New("an open transaction has offsets there")
	ErrFencedMemberEpoch      = errors.New("fenced member epoch")
	ErrStaleMemberEpoch       = errors.New("stale member epoch")
	ErrUnreleasedInstance     = errors.New("unreleased instance id")
	ErrUnsupportedAssignor    = errors.New("unsupported assignor")
)

// Refusals of transaction coordinators, and about transactions.
var (
	ErrProducerFenced           = errors.New("producer is fenced")
	ErrInvalidProducerIDMapping = errors.New("invalid producer id mapping")
	ErrConcurrentTransactions   = errors.New("concurrent transactions")
	ErrInvalidTxnState          = errors.New("invalid transaction state")
	ErrInvalidTxnTimeout        = errors.New("invalid transaction timeout")
	ErrTransactionAbortable     = errors.New("transaction has to be aborted")
	ErrTransactionalIDNotFound  = errors.New("transactional id not found")
	ErrTxnNotAuthorized         = errors.New("transactional id authorization failed")
	ErrTxnCoordinatorFenced     = errors.New("transaction coordinator is fenced")
)
