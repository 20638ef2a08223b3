package messages

import (
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
)

// ScramMechanism is a SCRAM mechanism, with Kafka's numbers.
type ScramMechanism int8

// The mechanisms.
const (
	ScramSHA256 ScramMechanism = 1
	ScramSHA512 ScramMechanism = 2
)

// Bounds of iterations, as in Kafka.
const (
	ScramIterationsMin = 4096
	ScramIterationsMax = 16384
)

// String is the name of the mechanism.
func (m ScramMechanism) String() string {
	switch m {
	case ScramSHA256:
		return "SCRAM-SHA-256"
	case ScramSHA512:
		return "SCRAM-SHA-512"
	default:
		return fmt.Sprintf("ScramMechanism(%d)", int8(m))
	}
}

// KeySize is the bytes of a key, 0 of an unknown mechanism.
func (m ScramMechanism) KeySize() int {
	switch m {
	case ScramSHA256:
		return sha256.Size
	case ScramSHA512:
		return sha512.Size
	default:
		return 0
	}
}

// ScramCredential is what is kept of a user's password: not the password. It is a secret
// all the same: who has it can pretend to be the server.
type ScramCredential struct {
	Salt, StoredKey, ServerKey []byte
	Iterations                 int32
}

// String and GoString keep keys out of logs.
func (c ScramCredential) String() string { return fmt.Sprintf("scram(%d iterations)", c.Iterations) }

// GoString is String.
func (c ScramCredential) GoString() string { return c.String() }

// ScramChange sets the credentials of a user for a mechanism, or takes them away.
type ScramChange struct {
	User      string
	Mechanism ScramMechanism
	Delete    bool
	Set       ScramCredential
}

// AlterScram changes credentials; one item per change in the answer. OnlyFirst: nothing
// is done when there are credentials of anybody.
type AlterScram struct {
	Changes   []ScramChange
	OnlyFirst bool
}

func (AlterScram) command() {}

// ResealSecrets has secrets of the metadata log that aren't under the controller's first
// key written again, as many as one change may have. The controller gives it to itself; it
// never travels.
type ResealSecrets struct{}

func (ResealSecrets) command() {}

// Refusals about SCRAM credentials.
var (
	ErrResourceNotFound       = errors.New("resource not found")
	ErrDuplicateResource      = errors.New("duplicate resource")
	ErrUnacceptableCredential = errors.New("unacceptable credential")
	ErrUnsupportedSASL        = errors.New("unsupported SASL mechanism")
)

// CheckScram returns nil if the change can be made, whoever has what.
func CheckScram(c ScramChange) error {
	switch {
	case c.User == "":
		return fmt.Errorf("%w: Username must not be empty", ErrUnacceptableCredential)
	case c.Mechanism.KeySize() == 0:
		return fmt.Errorf("%w: Unknown SCRAM mechanism", ErrUnsupportedSASL)
	case c.Delete:
		return nil
	case c.Set.Iterations < ScramIterationsMin:
		return fmt.Errorf("%w: Too few iterations", ErrUnacceptableCredential)
	case c.Set.Iterations > ScramIterationsMax:
		return fmt.Errorf("%w: Too many iterations", ErrUnacceptableCredential)
	case len(c.Set.Salt) == 0:
		return fmt.Errorf("%w: there is no salt", ErrUnacceptableCredential)
	case len(c.Set.StoredKey) != c.Mechanism.KeySize() || len(c.Set.ServerKey) != c.Mechanism.KeySize():
		return fmt.Errorf("%w: keys of %s have %d bytes", ErrUnacceptableCredential, c.Mechanism, c.Mechanism.KeySize())
	}
	return nil
}
