package wire

// API keys: the prototype's numbers plus 2000 (README OP-22). When a Kafka
// release assigns final numbers they are added here as a second set.
const (
	KeyCreateClusterMirror    int16 = 2094
	KeyStartMirrorTopics      int16 = 2095
	KeyStopMirrorTopics       int16 = 2096
	KeyListClusterMirrors     int16 = 2098
	KeyDescribeClusterMirrors int16 = 2099
	KeyReadMirrorStates       int16 = 2100
	KeyWriteMirrorStates      int16 = 2101
	KeyPauseMirrorTopics      int16 = 2102
	KeyResumeMirrorTopics     int16 = 2103
	KeyDeleteClusterMirror    int16 = 2104
	KeyBumpLeaderEpochs       int16 = 2105
	KeyRecoverMirrorTopics    int16 = 2106

	// Requests of our own tools, private to this project: the KIP has none for
	// what they ask. Their numbers keep clear of the KIP's.
	KeyReadMetadataLog int16 = 2190
	KeyPlanMirrorStart int16 = 2191
)

// Keys lists the API keys in rising order. Every one has version 0 only.
func Keys() []int16 {
	return []int16{
		KeyCreateClusterMirror, KeyStartMirrorTopics, KeyStopMirrorTopics, KeyListClusterMirrors,
		KeyDescribeClusterMirrors, KeyReadMirrorStates, KeyWriteMirrorStates, KeyPauseMirrorTopics,
		KeyResumeMirrorTopics, KeyDeleteClusterMirror, KeyBumpLeaderEpochs, KeyRecoverMirrorTopics,
		KeyReadMetadataLog, KeyPlanMirrorStart,
	}
}

// KeyName is the name of one of [Keys], "" for any other key.
func KeyName(key int16) string {
	switch key {
	case KeyCreateClusterMirror:
		return "CreateClusterMirror"
	case KeyStartMirrorTopics:
		return "StartMirrorTopics"
	case KeyStopMirrorTopics:
		return "StopMirrorTopics"
	case KeyListClusterMirrors:
		return "ListClusterMirrors"
	case KeyDescribeClusterMirrors:
		return "DescribeClusterMirrors"
	case KeyReadMirrorStates:
		return "ReadMirrorStates"
	case KeyWriteMirrorStates:
		return "WriteMirrorStates"
	case KeyPauseMirrorTopics:
		return "PauseMirrorTopics"
	case KeyResumeMirrorTopics:
		return "ResumeMirrorTopics"
	case KeyDeleteClusterMirror:
		return "DeleteClusterMirror"
	case KeyBumpLeaderEpochs:
		return "BumpLeaderEpochs"
	case KeyRecoverMirrorTopics:
		return "RecoverMirrorTopics"
	case KeyReadMetadataLog:
		return "ReadMetadataLog"
	case KeyPlanMirrorStart:
		return "PlanMirrorStart"
	default:
		return ""
	}
}

// RaiseMaxVersions tells a version table (kgo's *kversion.Versions) the KIP's
// keys. kgo refuses to send a key that its table lacks:
//
//	v := kversion.Stable()
//	wire.RaiseMaxVersions(v)
//	kgo.NewClient(kgo.MaxVersions(v), ...)
func RaiseMaxVersions(table interface{ SetMaxKeyVersion(key, version int16) }) {
	for _, key := range Keys() {
		table.SetMaxKeyVersion(key, RequestForKey(key).MaxVersion())
	}
}

// Error codes of the KIP (README OP-22). None is retriable.
const (
	CodeReadOnlyTopic                    int16 = 2134
	CodeInvalidClusterMirrorName         int16 = 2135
	CodeClusterMirrorAlreadyExists       int16 = 2136
	CodeUnknownClusterMirror             int16 = 2137
	CodeTopicAlreadyInClusterMirror      int16 = 2138
	CodeTopicNotInClusterMirror          int16 = 2139
	CodeMirrorTopicAlreadyPaused         int16 = 2140
	CodeMirrorTopicNotPaused             int16 = 2141
	CodeMirrorTopicBeingStopped          int16 = 2142
	CodeClusterMirrorNotEmpty            int16 = 2143
	CodeClusterMirrorAuthorizationFailed int16 = 2144
	CodeInvalidClusterMirrorStates       int16 = 2145
)

// Type numbers of the KIP in Kafka's enumerations (protocol.md, Type numbers).
const (
	ConfigResourceClusterMirror  int8  = 64
	ACLResourceClusterMirror     int8  = 8
	CoordinatorTypeClusterMirror int8  = 3
	ControlTypeAbort             int16 = 0
	ControlTypeCommit            int16 = 1
	ControlTypeMirrorPidReset    int16 = 7
	RecordTypeLastMirrorEpochs   int16 = 1
	RecordTypePartitionState     int16 = 2
)

// MirrorVersionFeature is the feature that turns mirroring on (level 1).
const MirrorVersionFeature = "mirror.version"

// Headers of __mirror_state records: who asked for a transition and why (OP-37).
const (
	HeaderCause     = "cause"
	HeaderPrincipal = "principal"
	HeaderRequestID = "request-id"
	HeaderError     = "error"
	HeaderCut       = "cut" // "records=N bytes=N from=N to=N"
	HeaderGap       = "gap" // "from=N to=N at=MILLIS"
)
