package sasl

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"slices"
	"strings"

	"github.com/xdg-go/scram"

	"kagami/messages"
)

// ScramUsers is who has credentials for a mechanism. It may be used by many goroutines at once.
type ScramUsers interface {
	// Credential is a user's.
	Credential(user string) (messages.ScramCredential, bool)
	// Credentials are all there are, in an order that is the same on all nodes. Nobody
	// changes them.
	Credentials() []messages.ScramCredential
}

// scramMechanism looks users up when they come.
type scramMechanism struct {
	mechanism messages.ScramMechanism
	users     ScramUsers
	server    *scram.Server
	secret    [32]byte // makes salts when nobody has credentials
}

// NewScram is SCRAM-SHA-256 or SCRAM-SHA-512 (RFC 5802, RFC 7677).
func NewScram(mechanism messages.ScramMechanism, users ScramUsers) (Mechanism, error) {
	m := &scramMechanism{mechanism: mechanism, users: users}
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
	c, ok := m.users.Credential(user)
	if !ok {
		c = m.pretended(user)
	}
	return scram.StoredCredentials{
		KeyFactors: scram.KeyFactors{Salt: string(c.Salt), Iters: int(c.Iterations)},
		StoredKey:  c.StoredKey, ServerKey: c.ServerKey,
	}, nil
}

// shape is what can be seen of somebody's credentials before the proof.
type shape struct {
	salt       int // bytes
	text       bool
	iterations int32
}

func shapeOf(c messages.ScramCredential) shape {
	other := func(r rune) bool { return !strings.ContainsRune(saltText, r) }
	return shape{salt: len(c.Salt), text: strings.IndexFunc(string(c.Salt), other) < 0, iterations: c.Iterations}
}

// saltText is what salts of Java's tools are made of.
const saltText = "0123456789abcdefghijklmnopqrstuvwxyz"

// pretended are credentials of a user who isn't there. They look like somebody's, and are the same on
// all nodes and after a restart, as those are: the salt is made of the name and of a secret that
// only nodes have.
func (m *scramMechanism) pretended(user string) messages.ScramCredential {
	secret, looks := m.secret[:], []shape(nil)
	for i, c := range m.users.Credentials() {
		if i == 0 {
			secret = c.ServerKey
		}
		if s := shapeOf(c); !slices.Contains(looks, s) {
			looks = append(looks, s)
		}
	}
	if len(looks) == 0 {
		looks = []shape{{salt: sha256.Size, iterations: messages.ScramIterationsMin}}
	}
	slices.SortFunc(looks, func(a, b shape) int {
		return cmp.Or(cmp.Compare(a.iterations, b.iterations), cmp.Compare(a.salt, b.salt), strings.Compare(fmt.Sprint(a.text), fmt.Sprint(b.text)))
	})
	var salt []byte
	mac := hmac.New(sha512.New, secret)
	mac.Write([]byte("salt of " + user))
	sum := mac.Sum(nil)
	look := looks[int(sum[0])%len(looks)]
	for len(salt) < look.salt {
		mac.Reset()
		mac.Write(sum)
		sum = mac.Sum(nil)
		salt = append(salt, sum...)
	}
	salt = salt[:look.salt]
	for i := range salt {
		if look.text {
			salt[i] = saltText[int(salt[i])%len(saltText)]
		}
	}
	none := make([]byte, m.mechanism.KeySize())
	return messages.ScramCredential{Salt: salt, StoredKey: none, ServerKey: none, Iterations: look.iterations}
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
	sent         string // nonce of both sides, as the client was told it
}

// nonceTwice reports whether a final message has the client's nonce once more in front of the nonce
// of both sides. Releases of Kafka 3 take that, Kafka 4 compares the whole (CVE-2024-56128), and so does this.
func (e *scramExchange) nonceTwice(final string) bool {
	_, rest, _ := strings.Cut(final, ",r=")
	nonce, _, _ := strings.Cut(rest, ",")
	again, ok := strings.CutSuffix(nonce, e.sent)
	return ok && e.sent != "" && again != "" && strings.HasPrefix(e.sent, again)
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
	if err == nil && !e.conversation.Done() {
		e.sent, _, _ = strings.Cut(strings.TrimPrefix(answer, "r="), ",")
	}
	as := e.conversation.AuthzID()
	switch {
	case err != nil && e.nonceTwice(string(token)):
		return nil, false, fmt.Errorf("%w: the client's last message has its nonce twice, as librdkafka before 2.6.1 sends it, which Kafka 4 refuses, too: update the client's library", ErrRefused)
	case err != nil:
		return nil, false, invalid(e.mechanism.Name())
	case as != "" && as != e.conversation.Username():
		return nil, false, fmt.Errorf("%w: Client requested an authorization id that is different from username", ErrRefused)
	case e.conversation.Done() && !e.conversation.Valid():
		return nil, false, invalid(e.mechanism.Name())
	case e.conversation.Done():
		// The proof counts only if the user is still there.
		if _, ok := e.mechanism.users.Credential(e.conversation.Username()); !ok {
			return nil, false, invalid(e.mechanism.Name())
		}
	}
	return []byte(answer), e.conversation.Done(), nil
}

// Identity is the user.
func (e *scramExchange) Identity() Identity { return Identity{User: e.conversation.Username()} }

// Claim is the user that the client named.
func (e *scramExchange) Claim() (string, error) { return e.conversation.Username(), nil }

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
