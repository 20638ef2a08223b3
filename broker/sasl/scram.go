package sasl

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/xdg-go/scram"

	"kagami/messages"
)

// scramMechanism looks users up when they come.
type scramMechanism struct {
	mechanism messages.ScramMechanism
	lookup    func(user string) (messages.ScramCredential, bool)
	server    *scram.Server
	secret    [32]byte // makes salts of users that aren't there
}

// NewScram is SCRAM-SHA-256 or SCRAM-SHA-512 (RFC 5802, RFC 7677) with users that lookup
// finds.
func NewScram(mechanism messages.ScramMechanism, lookup func(user string) (messages.ScramCredential, bool)) (Mechanism, error) {
	m := &scramMechanism{mechanism: mechanism, lookup: lookup}
	if _, err := rand.Read(m.secret[:]); err != nil {
		return nil, fmt.Errorf("random bytes for %s: %w", mechanism, err)
	}
	var hash scram.HashGeneratorFcn
	switch mechanism {
	case messages.ScramSHA256:
		hash = scram.SHA256
	case messages.ScramSHA512:
		hash = scram.SHA512
	default:
		return nil, fmt.Errorf("no SCRAM mechanism %s", mechanism)
	}
	var err error
	if m.server, err = hash.NewServer(m.credentials); err != nil {
		return nil, fmt.Errorf("make a server for %s: %w", mechanism, err)
	}
	return m, nil
}

// credentials finds a user's, or makes some that no password fits: whoever asks doesn't
// learn which users there are.
func (m *scramMechanism) credentials(user string) (scram.StoredCredentials, error) {
	c, ok := m.lookup(user)
	if !ok {
		mac := hmac.New(sha256.New, m.secret[:])
		mac.Write([]byte(user))
		c = messages.ScramCredential{Salt: mac.Sum(nil)[:20], StoredKey: make([]byte, m.mechanism.KeySize()), ServerKey: make([]byte, m.mechanism.KeySize()), Iterations: messages.ScramIterationsMin}
	}
	return scram.StoredCredentials{
		KeyFactors: scram.KeyFactors{Salt: string(c.Salt), Iters: int(c.Iterations)},
		StoredKey:  c.StoredKey, ServerKey: c.ServerKey,
	}, nil
}

// Name is that of the mechanism.
func (m *scramMechanism) Name() string { return m.mechanism.String() }

// Start begins an exchange.
func (m *scramMechanism) Start() Exchange {
	return &scramExchange{mechanism: m, conversation: m.server.NewConversation()}
}

type scramExchange struct {
	mechanism    *scramMechanism
	conversation *scram.ServerConversation
	begun        bool
}

// Next takes the first, then the final message of the client.
func (e *scramExchange) Next(_ context.Context, token []byte) ([]byte, bool, error) {
	if !e.begun {
		e.begun = true
		if strings.Contains(string(token), ",tokenauth=true") {
			return nil, false, fmt.Errorf("%w: delegation tokens are not supported", ErrRefused)
		}
	}
	answer, err := e.conversation.Step(string(token))
	as := e.conversation.AuthzID()
	switch {
	case err != nil:
		return nil, false, invalid(e.mechanism.Name())
	case as != "" && as != e.conversation.Username():
		return nil, false, fmt.Errorf("%w: Client requested an authorization id that is different from username", ErrRefused)
	case e.conversation.Done() && !e.conversation.Valid():
		return nil, false, invalid(e.mechanism.Name())
	case e.conversation.Done():
		// The proof counts only if the user is still there.
		if _, ok := e.mechanism.lookup(e.conversation.Username()); !ok {
			return nil, false, invalid(e.mechanism.Name())
		}
	}
	return []byte(answer), e.conversation.Done(), nil
}

// Identity is the user.
func (e *scramExchange) Identity() Identity { return Identity{User: e.conversation.Username()} }

// NewCredential makes what is kept of a password.
func NewCredential(m messages.ScramMechanism, user, password string, iterations int) (messages.ScramCredential, error) {
	salt := make([]byte, sha256.Size)
	if _, err := rand.Read(salt); err != nil {
		return messages.ScramCredential{}, fmt.Errorf("random bytes for a salt: %w", err)
	}
	hash := scram.SHA256
	if m == messages.ScramSHA512 {
		hash = scram.SHA512
	}
	client, err := hash.NewClientUnprepped(user, password, "") // as Kafka's tools have it
	if err != nil {
		return messages.ScramCredential{}, fmt.Errorf("make credentials: %w", err)
	}
	stored, err := client.GetStoredCredentialsWithError(scram.KeyFactors{Salt: string(salt), Iters: iterations})
	if err != nil {
		return messages.ScramCredential{}, fmt.Errorf("make credentials: %w", err)
	}
	return messages.ScramCredential{Salt: salt, StoredKey: stored.StoredKey, ServerKey: stored.ServerKey, Iterations: int32(iterations)}, nil
}
