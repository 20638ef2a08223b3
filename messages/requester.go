package messages

// Requester says who asked, for authorization and for the audit headers of
// __mirror_state records (OP-37). It never holds a secret.
type Requester struct {
	Principal string // "User:ANONYMOUS" without authentication, "User:node-<id>" for a node itself
	ClientID  string
	Host      string // client address without the port
	RequestID string // unique text per request
}

// Names of zap fields, so that one thing has one name in every log line.
const (
	FieldMirror    = "mirror"
	FieldTopic     = "topic"
	FieldPartition = "partition"
	FieldEpoch     = "leader_epoch"
	FieldNode      = "node"
	FieldOffset    = "offset"
	FieldState     = "state"
	FieldSource    = "source_broker"
	FieldPrincipal = "principal"
	FieldAttempt   = "attempt"
)
