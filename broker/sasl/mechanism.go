package sasl

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Names of mechanisms.
const (
	Plain       = "PLAIN"
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
	OAuthBearer = "OAUTHBEARER"
)

// ErrRefused tells that the client isn't who it says it is, or didn't say it well. Its text is for
// the client.
var ErrRefused = errors.New("Authentication failed") //nolint:staticcheck // Kafka's own text

// Mechanism makes exchanges. It may be used by many goroutines at once.
type Mechanism interface {
	Name() string
	Start() Exchange
}

// Exchange is one authentication under way, of one connection.
type Exchange interface {
	// Next takes a token of the client and returns what it is answered. done: the user is
	// known, and the answer is the last. An error ends the exchange; it wraps ErrRefused
	// unless the server is at fault.
	Next(ctx context.Context, token []byte) (answer []byte, done bool, err error)
	// Identity is who it was, once done.
	Identity() Identity
	// Claim is for the log, when it fails: who the client says it is, "" if that isn't known,
	// and why it was refused, if the client isn't told.
	Claim() (user string, why error)
}

// Identity is who has authenticated.
type Identity struct {
	User    string
	Expires time.Time // of the credentials themselves; zero: they don't
}

// invalid is what Kafka says to all wrong credentials of a mechanism.
func invalid(mechanism string) error {
	return fmt.Errorf("%w during authentication due to invalid credentials with SASL mechanism %s", ErrRefused, mechanism)
}

func malformed(mechanism string) error {
	return fmt.Errorf("%w: malformed %s message", ErrRefused, mechanism)
}
