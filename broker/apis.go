package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/wire"
)

// API keys that code names; the table has all of them.
const (
	keyProduce     int16 = 0
	keyFetch       int16 = 1
	keyJoinGroup   int16 = 11
	keySyncGroup   int16 = 14
	keyAPIVersions int16 = 18

	keySASLHandshake    int16 = 17
	keySASLAuthenticate int16 = 36
)

// api is one row of the table: a key, the versions served, and who serves it.
type api struct {
	key      int16
	name     string
	min, max int16
	listed   bool // in ApiVersions
	new      func() kmsg.Request
	handle   func(*Server, context.Context, *request) reply
	// guard checks a body before it is decoded, where the decoder would take
	// memory on the client's word. nil for none.
	guard func(body []byte, version int16) error
}

// apis is the table of everything that this server answers, in order of the
// keys. A key that isn't here costs the connection.
func apis() []api { return append(dataAPIs(), otherAPIs()...) }

// dataAPIs are the keys below 29: those of producers, consumers and topics.
func dataAPIs() []api {
	return []api{
		{0, "Produce", 0, 13, true, func() kmsg.Request { return kmsg.NewPtrProduceRequest() }, (*Server).handleProduce, guardProduce},
		{1, "Fetch", 4, 18, true, func() kmsg.Request { return kmsg.NewPtrFetchRequest() }, (*Server).handleFetch, nil},
		{2, "ListOffsets", 1, 11, true, func() kmsg.Request { return kmsg.NewPtrListOffsetsRequest() }, (*Server).handleListOffsets, nil},
		{3, "Metadata", 0, 13, true, func() kmsg.Request { return kmsg.NewPtrMetadataRequest() }, (*Server).handleMetadata, nil},
		{8, "OffsetCommit", 2, 10, true, func() kmsg.Request { return kmsg.NewPtrOffsetCommitRequest() }, (*Server).handleOffsetCommit, nil},
		{9, "OffsetFetch", 1, 10, true, func() kmsg.Request { return kmsg.NewPtrOffsetFetchRequest() }, (*Server).handleOffsetFetch, nil},
		{10, "FindCoordinator", 0, 7, true, func() kmsg.Request { return kmsg.NewPtrFindCoordinatorRequest() }, (*Server).handleFindCoordinator, nil},
		{11, "JoinGroup", 0, 9, true, func() kmsg.Request { return kmsg.NewPtrJoinGroupRequest() }, (*Server).handleJoinGroup, nil},
		{12, "Heartbeat", 0, 4, true, func() kmsg.Request { return kmsg.NewPtrHeartbeatRequest() }, (*Server).handleHeartbeat, nil},
		{13, "LeaveGroup", 0, 5, true, func() kmsg.Request { return kmsg.NewPtrLeaveGroupRequest() }, (*Server).handleLeaveGroup, nil},
		{14, "SyncGroup", 0, 5, true, func() kmsg.Request { return kmsg.NewPtrSyncGroupRequest() }, (*Server).handleSyncGroup, nil},
		{15, "DescribeGroups", 0, 6, true, func() kmsg.Request { return kmsg.NewPtrDescribeGroupsRequest() }, (*Server).handleDescribeGroups, nil},
		{16, "ListGroups", 0, 5, true, func() kmsg.Request { return kmsg.NewPtrListGroupsRequest() }, (*Server).handleListGroups, nil},
		{17, "SaslHandshake", 0, 1, true, func() kmsg.Request { return kmsg.NewPtrSASLHandshakeRequest() }, (*Server).handleSASLHandshake, nil},
		{18, "ApiVersions", 0, apiVersionsMax, true, func() kmsg.Request { return kmsg.NewPtrApiVersionsRequest() }, (*Server).handleAPIVersions, nil},
		{19, "CreateTopics", 2, 7, true, func() kmsg.Request { return kmsg.NewPtrCreateTopicsRequest() }, (*Server).handleCreateTopics, nil},
		{20, "DeleteTopics", 1, 6, true, func() kmsg.Request { return kmsg.NewPtrDeleteTopicsRequest() }, (*Server).handleDeleteTopics, nil},
		{21, "DeleteRecords", 0, 2, true, func() kmsg.Request { return kmsg.NewPtrDeleteRecordsRequest() }, (*Server).handleDeleteRecords, nil},
		{22, "InitProducerId", 0, 5, true, func() kmsg.Request { return kmsg.NewPtrInitProducerIDRequest() }, (*Server).handleInitProducerID, nil},
		{23, "OffsetForLeaderEpoch", 2, 4, true, func() kmsg.Request { return kmsg.NewPtrOffsetForLeaderEpochRequest() }, (*Server).handleOffsetForLeaderEpoch, nil},
		{24, "AddPartitionsToTxn", 0, 5, true, func() kmsg.Request { return kmsg.NewPtrAddPartitionsToTxnRequest() }, (*Server).handleAddPartitionsToTxn, nil},
		{25, "AddOffsetsToTxn", 0, 4, true, func() kmsg.Request { return kmsg.NewPtrAddOffsetsToTxnRequest() }, (*Server).handleAddOffsetsToTxn, nil},
		{26, "EndTxn", 0, 5, true, func() kmsg.Request { return kmsg.NewPtrEndTxnRequest() }, (*Server).handleEndTxn, nil},
		{27, "WriteTxnMarkers", 1, 2, true, func() kmsg.Request { return kmsg.NewPtrWriteTxnMarkersRequest() }, (*Server).handleWriteTxnMarkers, nil},
		{28, "TxnOffsetCommit", 0, 6, true, func() kmsg.Request { return kmsg.NewPtrTxnOffsetCommitRequest() }, (*Server).handleTxnOffsetCommit, nil},
	}
}

// otherAPIs are the rest, the KIP's among them.
func otherAPIs() []api {
	return []api{
		{29, "DescribeAcls", 1, 3, true, func() kmsg.Request { return kmsg.NewPtrDescribeACLsRequest() }, (*Server).handleDescribeACLs, nil},
		{30, "CreateAcls", 1, 3, true, func() kmsg.Request { return kmsg.NewPtrCreateACLsRequest() }, (*Server).handleCreateACLs, nil},
		{31, "DeleteAcls", 1, 3, true, func() kmsg.Request { return kmsg.NewPtrDeleteACLsRequest() }, (*Server).handleDeleteACLs, nil},
		{32, "DescribeConfigs", 1, 4, true, func() kmsg.Request { return kmsg.NewPtrDescribeConfigsRequest() }, (*Server).handleDescribeConfigs, nil},
		{33, "AlterConfigs", 0, 2, true, func() kmsg.Request { return kmsg.NewPtrAlterConfigsRequest() }, (*Server).handleAlterConfigs, nil},
		{34, "AlterReplicaLogDirs", 1, 2, true, func() kmsg.Request { return kmsg.NewPtrAlterReplicaLogDirsRequest() }, (*Server).handleAlterReplicaLogDirs, nil},
		{35, "DescribeLogDirs", 1, 5, true, func() kmsg.Request { return kmsg.NewPtrDescribeLogDirsRequest() }, (*Server).handleDescribeLogDirs, nil},
		{36, "SaslAuthenticate", 0, 2, true, func() kmsg.Request { return kmsg.NewPtrSASLAuthenticateRequest() }, (*Server).handleSASLAuthenticate, nil},
		{37, "CreatePartitions", 0, 3, true, func() kmsg.Request { return kmsg.NewPtrCreatePartitionsRequest() }, (*Server).handleCreatePartitions, nil},
		{38, "CreateDelegationToken", 1, 3, true, func() kmsg.Request { return kmsg.NewPtrCreateDelegationTokenRequest() }, (*Server).handleDelegationTokens, nil},
		{39, "RenewDelegationToken", 1, 2, true, func() kmsg.Request { return kmsg.NewPtrRenewDelegationTokenRequest() }, (*Server).handleDelegationTokens, nil},
		{40, "ExpireDelegationToken", 1, 2, true, func() kmsg.Request { return kmsg.NewPtrExpireDelegationTokenRequest() }, (*Server).handleDelegationTokens, nil},
		{41, "DescribeDelegationToken", 1, 3, true, func() kmsg.Request { return kmsg.NewPtrDescribeDelegationTokenRequest() }, (*Server).handleDelegationTokens, nil},
		{42, "DeleteGroups", 0, 3, true, func() kmsg.Request { return kmsg.NewPtrDeleteGroupsRequest() }, (*Server).handleDeleteGroups, nil},
		{43, "ElectLeaders", 0, 2, true, func() kmsg.Request { return kmsg.NewPtrElectLeadersRequest() }, (*Server).handleElectLeaders, nil},
		{44, "IncrementalAlterConfigs", 0, 1, true, func() kmsg.Request { return kmsg.NewPtrIncrementalAlterConfigsRequest() }, (*Server).handleIncrementalAlterConfigs, nil},
		{45, "AlterPartitionReassignments", 0, 1, true, func() kmsg.Request { return kmsg.NewPtrAlterPartitionAssignmentsRequest() }, (*Server).handleAlterPartitionAssignments, nil},
		{46, "ListPartitionReassignments", 0, 0, true, func() kmsg.Request { return kmsg.NewPtrListPartitionReassignmentsRequest() }, (*Server).handleListPartitionReassignments, nil},
		{47, "OffsetDelete", 0, 0, true, func() kmsg.Request { return kmsg.NewPtrOffsetDeleteRequest() }, (*Server).handleOffsetDelete, nil},
		{48, "DescribeClientQuotas", 0, 1, true, func() kmsg.Request { return kmsg.NewPtrDescribeClientQuotasRequest() }, (*Server).handleDescribeClientQuotas, nil},
		{49, "AlterClientQuotas", 0, 1, true, func() kmsg.Request { return kmsg.NewPtrAlterClientQuotasRequest() }, (*Server).handleAlterClientQuotas, nil},
		{50, "DescribeUserScramCredentials", 0, 0, true, func() kmsg.Request { return kmsg.NewPtrDescribeUserSCRAMCredentialsRequest() }, (*Server).handleDescribeUserScramCredentials, nil},
		{51, "AlterUserScramCredentials", 0, 0, true, func() kmsg.Request { return kmsg.NewPtrAlterUserSCRAMCredentialsRequest() }, (*Server).handleAlterUserScramCredentials, nil},
		{57, "UpdateFeatures", 0, 2, true, func() kmsg.Request { return kmsg.NewPtrUpdateFeaturesRequest() }, (*Server).handleUpdateFeatures, nil},
		{60, "DescribeCluster", 0, 2, true, func() kmsg.Request { return kmsg.NewPtrDescribeClusterRequest() }, (*Server).handleDescribeCluster, nil},
		{61, "DescribeProducers", 0, 0, true, func() kmsg.Request { return kmsg.NewPtrDescribeProducersRequest() }, (*Server).handleDescribeProducers, nil},
		{64, "UnregisterBroker", 0, 0, true, func() kmsg.Request { return kmsg.NewPtrUnregisterBrokerRequest() }, (*Server).handleUnregisterBroker, nil},
		{65, "DescribeTransactions", 0, 0, true, func() kmsg.Request { return kmsg.NewPtrDescribeTransactionsRequest() }, (*Server).handleDescribeTransactions, nil},
		{66, "ListTransactions", 0, 2, true, func() kmsg.Request { return kmsg.NewPtrListTransactionsRequest() }, (*Server).handleListTransactions, nil},
		{68, "ConsumerGroupHeartbeat", 0, 1, true, func() kmsg.Request { return kmsg.NewPtrConsumerGroupHeartbeatRequest() }, (*Server).handleConsumerGroupHeartbeat, nil},
		{69, "ConsumerGroupDescribe", 0, 1, true, func() kmsg.Request { return kmsg.NewPtrConsumerGroupDescribeRequest() }, (*Server).handleConsumerGroupDescribe, nil},
		{74, "ListConfigResources", 0, 1, true, func() kmsg.Request { return kmsg.NewPtrListConfigResourcesRequest() }, (*Server).handleListConfigResources, nil},
		{75, "DescribeTopicPartitions", 0, 0, true, func() kmsg.Request { return kmsg.NewPtrDescribeTopicPartitionsRequest() }, (*Server).handleDescribeTopicPartitions, nil},
		{77, "ShareGroupDescribe", 1, 1, true, func() kmsg.Request { return kmsg.NewPtrShareGroupDescribeRequest() }, (*Server).handleShareGroupDescribe, nil},
		{90, "DescribeShareGroupOffsets", 0, 1, true, func() kmsg.Request { return kmsg.NewPtrDescribeShareGroupOffsetsRequest() }, (*Server).handleDescribeShareGroupOffsets, nil},
		{91, "AlterShareGroupOffsets", 0, 0, true, func() kmsg.Request { return kmsg.NewPtrAlterShareGroupOffsetsRequest() }, (*Server).handleAlterShareGroupOffsets, nil},
		{92, "DeleteShareGroupOffsets", 0, 0, true, func() kmsg.Request { return kmsg.NewPtrDeleteShareGroupOffsetsRequest() }, (*Server).handleDeleteShareGroupOffsets, nil},
		mirrorAPI(wire.KeyCreateClusterMirror, (*Server).handleCreateClusterMirror),
		mirrorAPI(wire.KeyStartMirrorTopics, (*Server).handleStartMirrorTopics),
		mirrorAPI(wire.KeyStopMirrorTopics, (*Server).handleStopMirrorTopics),
		mirrorAPI(wire.KeyListClusterMirrors, (*Server).handleListClusterMirrors),
		mirrorAPI(wire.KeyDescribeClusterMirrors, (*Server).handleDescribeClusterMirrors),
		mirrorAPI(wire.KeyReadMirrorStates, (*Server).handleReadMirrorStates),
		mirrorAPI(wire.KeyWriteMirrorStates, (*Server).handleWriteMirrorStates),
		mirrorAPI(wire.KeyPauseMirrorTopics, (*Server).handlePauseMirrorTopics),
		mirrorAPI(wire.KeyResumeMirrorTopics, (*Server).handleResumeMirrorTopics),
		mirrorAPI(wire.KeyDeleteClusterMirror, (*Server).handleDeleteClusterMirror),
		mirrorAPI(wire.KeyBumpLeaderEpochs, (*Server).handleBumpLeaderEpochs),
		mirrorAPI(wire.KeyRecoverMirrorTopics, (*Server).handleRecoverMirrorTopics),
		mirrorAPI(wire.KeyReadMetadataLog, (*Server).handleReadMetadataLog),
		mirrorAPI(wire.KeyPlanMirrorStart, (*Server).handlePlanMirrorStart),
	}
}

// mirrorAPI is a row for one of the KIP's requests: version 0, always listed
// (OP-30).
func mirrorAPI(key int16, handle func(*Server, context.Context, *request) reply) api {
	return api{key, wire.KeyName(key), 0, 0, true, func() kmsg.Request { return wire.RequestForKey(key) }, handle, nil}
}
