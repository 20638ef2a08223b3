package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/jcmturner/gokrb5/v8/krberror"
	"github.com/twmb/franz-go/pkg/kerr"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
)

// Sentinels of this package.
var (
	// ErrCorrupt: a whole batch from the source is damaged (OP-39). Errors that
	// wrap it are a *CorruptError with offset and reason.
	ErrCorrupt = batch.ErrCorrupt
	// ErrTopicRecreated: the source has another topic under the same name. Not
	// retried: an operator must decide (workflows.md "Topic deleted or recreated").
	ErrTopicRecreated = errors.New("topic was recreated on the source")
	// ErrEpochAboveSource: a batch is newer than the source leader epoch we know.
	ErrEpochAboveSource = errors.New("batch epoch is above the known source leader epoch")
	// ErrSourceBehind: the source's log ends below ours and nothing explains it.
	ErrSourceBehind = errors.New("source log ends below the copy")
	// ErrSourceRange: the source refuses an offset that its own log contains.
	ErrSourceRange = errors.New("source refuses an offset within its own range")
	// ErrUnsupported: the source doesn't know the request.
	ErrUnsupported = errors.New("not supported by the source")
	// ErrMirrorLoop: the topic is mirrored on the source as well, or the source is
	// this cluster (OP-35). Not retried.
	ErrMirrorLoop = errors.New("mirror loop")
	// ErrMirrorMoving: the source mirrors the partition itself, or did, and none of its
	// brokers answers for it now. What was agreed on isn't known, so nothing may be cut.
	ErrMirrorMoving = errors.New("no broker of the source answers for the mirrored partition now")
	// ErrOtherCluster: a broker of another cluster is at the source broker's address.
	ErrOtherCluster = errors.New("the broker is of another cluster than the mirror's source")
	// ErrClosed: the worker or source was closed.
	ErrClosed = errors.New("closed")
	// ErrNotHere: the partition isn't with this worker.
	ErrNotHere = errors.New("partition is not with this worker")
)

// CorruptError is damage in one batch of a source partition.
type CorruptError struct {
	TopicPartition messages.TopicPartition
	Offset         int64 // base offset of the damaged batch, or the offset asked for
	Reason         string
}

// Error names the partition, the offset and what is wrong.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("corrupt batch of %s at offset %d: %s", e.TopicPartition, e.Offset, e.Reason)
}

// Unwrap makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Unwrap() error { return ErrCorrupt }

// CodeError is an error code in an answer of the source.
type CodeError struct {
	Request string // name of the request, "Fetch" for instance
	Code    int16
	Text    string // the source's own message, may be empty
}

// Error is the request, Kafka's name for the code, the source's text, and the right that is
// missing where no other message of ours tells it.
func (e *CodeError) Error() string {
	out := fmt.Sprintf("%s answered by the source with %s (%d)", e.Request, wire.ErrorName(e.Code), e.Code)
	if e.Text != "" {
		out += ": " + e.Text
	}
	if e.Code == wire.CodeClusterMirrorAuthorizationFailed {
		out += ": the mirror's user needs DESCRIBE on the cluster mirror of this name there, also while there is none"
	}
	return out
}

// Is makes errors.Is(err, kerr.X) work without text compares.
func (e *CodeError) Is(target error) bool {
	k, ok := errors.AsType[*kerr.Error](target)
	return ok && k.Code == e.Code
}

func codeError(request string, code int16, text *string) error {
	if code == 0 {
		return nil
	}
	e := &CodeError{Request: request, Code: code}
	if text != nil {
		e.Text = *text
	}
	return e
}

// Retriable reports whether trying the same again may help without anybody
// changing a setting or a topic. It is the only classifier of this package.
func Retriable(err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, ErrTopicRecreated), errors.Is(err, ErrMirrorLoop):
		return false // an operator must decide which topic is the right one
	case errors.Is(err, messages.ErrInvalidConfig):
		return false // the mirror's settings must change first
	case errors.Is(err, ErrUnsupported), errors.Is(err, kerr.UnsupportedVersion):
		return false // a source doesn't learn a request while it runs
	case errors.Is(err, context.Canceled), errors.Is(err, ErrClosed):
		return false // we were told to stop
	}
	// The rest may pass: connections, authentication (rights and passwords change
	// on the source), corrupt batches (another replica may have a good one), disk.
	return true
}

// IsConnection reports whether err is a lost or refused connection, a timeout,
// a DNS, TLS or authentication failure: the source wasn't reached at all. A
// failure of that kind is re-armed when the source answers again (OP-21).
func IsConnection(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, ErrClosed) {
		return false
	}
	_, isConn := errors.AsType[*ConnectionError](err)
	return isConn
}

// ConnectionError is a request that didn't get an answer.
type ConnectionError struct {
	Address string // host:port of the broker, or the bootstrap list
	Request string
	Err     error
}

// Error names the address as the source advertises it, so that one that can't
// be reached from here is recognised.
func (e *ConnectionError) Error() string {
	out := fmt.Sprintf("%s to source %s: %v", e.Request, e.Address, e.Err)
	if advice := Advice(e.Err); advice != "" {
		out += " (" + advice + ")"
	}
	return out
}

// Advice names the settings of a connection to look at after an error of TLS or of a login; "" if
// the error says it itself.
func Advice(err error) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "is the broker's CA among those of ssl.truststore.*?"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "connect by a name that the broker's certificate has, or set ssl.endpoint.identification.algorithm to nothing"
	}
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return "are user and password in sasl.jaas.config right?"
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return "is sasl.mechanism one that the listener offers?"
	case err != nil && strings.HasSuffix(err.Error(), "tls: certificate required"):
		return "the listener wants a certificate of its clients: set ssl.keystore.*"
	}
	return ""
}

// Unwrap is the network's error.
func (e *ConnectionError) Unwrap() error { return e.Err }

// Auth reports a failure of authentication or TLS, which is logged as an error
// because time alone rarely heals it.
func (e *ConnectionError) Auth() bool {
	if errors.Is(e.Err, kerr.SaslAuthenticationFailed) || errors.Is(e.Err, kerr.IllegalSaslState) ||
		errors.Is(e.Err, kerr.UnsupportedSaslMechanism) {
		return true
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](e.Err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](e.Err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.AlertError](e.Err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](e.Err); ok {
		return true
	}
	if token, ok := errors.AsType[*TokenError](e.Err); ok && token.Refused {
		return true
	}
	if _, ok := errors.AsType[*KerberosError](e.Err); ok {
		return true
	}
	if kdc, ok := errors.AsType[krberror.Krberror](e.Err); ok && kdc.RootCause == krberror.KDCError {
		return true
	}
	_, ok := errors.AsType[*StoreError](e.Err)
	return ok
}
