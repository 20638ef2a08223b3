package sasl

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"unicode/utf8"
)

// plainMechanism knows users by the hash of their passwords.
type plainMechanism struct {
	users map[string][sha256.Size]byte
}

// NewPlain is PLAIN with these users and passwords.
func NewPlain(users map[string]string) Mechanism {
	m := &plainMechanism{users: make(map[string][sha256.Size]byte, len(users))}
	for user, password := range users {
		m.users[user] = sha256.Sum256([]byte(password))
	}
	return m
}

// Name is PLAIN.
func (*plainMechanism) Name() string { return Plain }

// Start begins an exchange.
func (m *plainMechanism) Start() Exchange { return &plainExchange{users: m.users} }

type plainExchange struct {
	users map[string][sha256.Size]byte
	user  string
	claim string
}

// Next takes the only token: authorization id, user and password, NUL between them
// (RFC 4616).
func (e *plainExchange) Next(_ context.Context, token []byte) ([]byte, bool, error) {
	parts := bytes.Split(token, []byte{0})
	if len(parts) != 3 || !utf8.Valid(token) || len(parts[1]) == 0 || len(parts[2]) == 0 {
		return nil, false, malformed(Plain)
	}
	as, user, password := string(parts[0]), string(parts[1]), sha256.Sum256(parts[2])
	e.claim = user
	want, known := e.users[user] // of a user that isn't there: zeros, which no password has
	same := subtle.ConstantTimeCompare(want[:], password[:]) == 1
	switch {
	case !known || !same:
		return nil, false, fmt.Errorf("%w: Invalid username or password", ErrRefused)
	case as != "" && as != user:
		return nil, false, fmt.Errorf("%w: Client requested an authorization id that is different from username", ErrRefused)
	}
	e.user = user
	return []byte{}, true, nil
}

// Identity is the user.
func (e *plainExchange) Identity() Identity { return Identity{User: e.user} }

// Claim is the user that the client named.
func (e *plainExchange) Claim() (string, error) { return e.claim, nil }
