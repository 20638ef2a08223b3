package broker

import (
	"context"
	"errors"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// errCode is an error that already is a Kafka code, for refusals that only the
// protocol knows. text may be empty: then Kafka's own description is told.
type errCode struct {
	code int16
	text string
}

// Error is the text, or the code's description.
func (e *errCode) Error() string {
	if e.text != "" {
		return e.text
	}
	if k := kerr.TypedErrorForCode(e.code); k != nil {
		return k.Description
	}
	return "no error"
}

func refuse(k *kerr.Error, text string) error { return &errCode{code: k.Code, text: text} }

// readOnlyPrefix starts the text of ErrReadOnlyTopic as ordinary clients are told
// it (OP-23), under a code that every client knows.
const readOnlyPrefix = "READ_ONLY_TOPIC: "

var codes = []struct {
	is   error
	code int16
}{
	{messages.ErrUnknownTopicOrPartition, kerr.UnknownTopicOrPartition.Code},
	{messages.ErrUnknownTopicID, kerr.UnknownTopicID.Code},
	{messages.ErrInconsistentTopicID, kerr.InconsistentTopicID.Code},
	{messages.ErrInvalidTopic, kerr.InvalidTopicException.Code},
	{messages.ErrTopicExists, kerr.TopicAlreadyExists.Code},
	{messages.ErrInvalidPartitions, kerr.InvalidPartitions.Code},
	{messages.ErrInvalidReplication, kerr.InvalidReplicationFactor.Code},
	{messages.ErrInvalidAssignment, kerr.InvalidReplicaAssignment.Code},
	{messages.ErrInvalidConfig, kerr.InvalidConfig.Code},
	{messages.ErrInvalidRequest, kerr.InvalidRequest.Code},
	{messages.ErrInvalidRegex, kerr.InvalidRegularExpression.Code},
	{messages.ErrPolicyViolation, kerr.PolicyViolation.Code},
	{messages.ErrUnsupportedVersion, kerr.UnsupportedVersion.Code},
	{messages.ErrInvalidUpdateVersion, kerr.InvalidUpdateVersion.Code},
	{messages.ErrFeatureUpdate, kerr.FeatureUpdateFailed.Code},
	{messages.ErrBrokerNotRegistered, kerr.BrokerIDNotRegistered.Code},
	{messages.ErrNotController, kerr.NotController.Code},
	{messages.ErrNotCoordinator, kerr.NotCoordinator.Code},
	{messages.ErrCoordinatorLoading, kerr.CoordinatorLoadInProgress.Code},
	{messages.ErrCoordinatorNotAvailable, kerr.CoordinatorNotAvailable.Code},
	{messages.ErrNotLeader, kerr.NotLeaderForPartition.Code},
	{messages.ErrFencedLeaderEpoch, kerr.FencedLeaderEpoch.Code},
	{messages.ErrUnknownLeaderEpoch, kerr.UnknownLeaderEpoch.Code},
	{messages.ErrTimedOut, kerr.RequestTimedOut.Code},
	{messages.ErrStorage, kerr.KafkaStorageError.Code},
	{messages.ErrThrottled, kerr.ThrottlingQuotaExceeded.Code},
	{messages.ErrReadOnlyTopic, kerr.PolicyViolation.Code}, // OP-23
	{messages.ErrInvalidMirrorName, wire.CodeInvalidClusterMirrorName},
	{messages.ErrMirrorExists, wire.CodeClusterMirrorAlreadyExists},
	{messages.ErrUnknownMirror, wire.CodeUnknownClusterMirror},
	{messages.ErrTopicInMirror, wire.CodeTopicAlreadyInClusterMirror},
	{messages.ErrTopicNotInMirror, wire.CodeTopicNotInClusterMirror},
	{messages.ErrAlreadyPaused, wire.CodeMirrorTopicAlreadyPaused},
	{messages.ErrNotPaused, wire.CodeMirrorTopicNotPaused},
	{messages.ErrBeingStopped, wire.CodeMirrorTopicBeingStopped},
	{messages.ErrMirrorNotEmpty, wire.CodeClusterMirrorNotEmpty},
	{messages.ErrInvalidMirrorStates, wire.CodeInvalidClusterMirrorStates},
	{messages.ErrMirrorNotAuthorized, wire.CodeClusterMirrorAuthorizationFailed},
	{messages.ErrTopicNotAuthorized, kerr.TopicAuthorizationFailed.Code},
	{messages.ErrClusterNotAuthorized, kerr.ClusterAuthorizationFailed.Code},
	{messages.ErrSecurityDisabled, kerr.SecurityDisabled.Code},
	{messages.ErrResourceNotFound, kerr.ResourceNotFound.Code},
	{messages.ErrDuplicateResource, kerr.DuplicateResource.Code},
	{messages.ErrUnacceptableCredential, kerr.UnacceptableCredential.Code},
	{messages.ErrUnsupportedSASL, kerr.UnsupportedSaslMechanism.Code},
	{messages.ErrGroupNotAuthorized, kerr.GroupAuthorizationFailed.Code},
	{messages.ErrInvalidGroupID, kerr.InvalidGroupID.Code},
	{messages.ErrUnknownGroup, kerr.GroupIDNotFound.Code},
	{messages.ErrNonEmptyGroup, kerr.NonEmptyGroup.Code},
	{messages.ErrGroupSubscribed, kerr.GroupSubscribedToTopic.Code},
	{messages.ErrGroupFull, kerr.GroupMaxSizeReached.Code},
	{messages.ErrUnknownMember, kerr.UnknownMemberID.Code},
	{messages.ErrMemberIDRequired, kerr.MemberIDRequired.Code},
	{messages.ErrFencedInstance, kerr.FencedInstanceID.Code},
	{messages.ErrIllegalGeneration, kerr.IllegalGeneration.Code},
	{messages.ErrInconsistentProtocol, kerr.InconsistentGroupProtocol.Code},
	{messages.ErrInvalidSessionTimeout, kerr.InvalidSessionTimeout.Code},
	{messages.ErrRebalanceInProgress, kerr.RebalanceInProgress.Code},
	{messages.ErrOffsetMetadataTooLarge, kerr.OffsetMetadataTooLarge.Code},
	{messages.ErrUnstableOffset, kerr.UnstableOffsetCommit.Code},
	{messages.ErrFencedMemberEpoch, kerr.FencedMemberEpoch.Code},
	{messages.ErrStaleMemberEpoch, kerr.StaleMemberEpoch.Code},
	{messages.ErrUnreleasedInstance, kerr.UnreleasedInstanceID.Code},
	{messages.ErrUnsupportedAssignor, kerr.UnsupportedAssignor.Code},
	{messages.ErrProducerFenced, kerr.ProducerFenced.Code},
	{messages.ErrInvalidProducerIDMapping, kerr.InvalidProducerIDMapping.Code},
	{messages.ErrConcurrentTransactions, kerr.ConcurrentTransactions.Code},
	{messages.ErrInvalidTxnState, kerr.InvalidTxnState.Code},
	{messages.ErrInvalidTxnTimeout, kerr.InvalidTransactionTimeout.Code},
	{messages.ErrTransactionAbortable, kerr.TransactionAbortable.Code},
	{messages.ErrTransactionalIDNotFound, kerr.TransactionalIDNotFound.Code},
	{messages.ErrTxnNotAuthorized, kerr.TransactionalIDAuthorizationFailed.Code},
	{messages.ErrTxnCoordinatorFenced, kerr.TransactionCoordinatorFenced.Code},
	{persistence.ErrOffsetOutOfRange, kerr.OffsetOutOfRange.Code},
	{metadata.ErrSnapshotGone, kerr.SnapshotNotFound.Code},
	{persistence.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber.Code},
	{persistence.ErrInvalidProducerEpoch, kerr.InvalidProducerEpoch.Code},
	{persistence.ErrUnknownProducer, kerr.UnknownProducerID.Code},
	{persistence.ErrInvalidTxnState, kerr.InvalidTxnState.Code},
	{persistence.ErrStorage, kerr.KafkaStorageError.Code},
	// Damaged data on our own disk is a storage error to clients: CORRUPT_MESSAGE
	// would blame (and repeat) the request.
	{persistence.ErrCorrupt, kerr.KafkaStorageError.Code},
	// A log that was closed under a request belongs to a partition that moved or
	// was deleted: the client refreshes its metadata and asks the right node.
	{persistence.ErrClosed, kerr.NotLeaderForPartition.Code},
	{persistence.ErrNotFound, kerr.NotLeaderForPartition.Code},
	{context.DeadlineExceeded, kerr.RequestTimedOut.Code},
	{context.Canceled, kerr.RequestTimedOut.Code},
}

// errorCode is the only place that turns an error into a Kafka code; nil is 0.
// An error that nothing here knows is UNKNOWN_SERVER_ERROR, and the caller logs
// it (request.fail does).
func errorCode(err error) int16 {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*errCode](err); ok {
		return e.code
	}
	for _, c := range codes {
		if errors.Is(err, c.is) {
			return c.code
		}
	}
	return kerr.UnknownServerError.Code
}

// errorText is the message that goes with errorCode(err), nil without error. An
// unknown error's own text stays in the log: it may name files of this machine.
func errorText(err error) *string {
	if err == nil {
		return nil
	}
	text := err.Error()
	switch {
	case errorCode(err) == kerr.UnknownServerError.Code:
		text = kerr.UnknownServerError.Description
	case errors.Is(err, messages.ErrReadOnlyTopic) && !strings.HasPrefix(text, readOnlyPrefix):
		text = readOnlyPrefix + text
	}
	return &text
}
