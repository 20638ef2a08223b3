package sasl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// OAuth says which tokens are good.
type OAuth struct {
	Keys      *KeySet
	Issuer    string        // sasl.oauthbearer.expected.issuer; "" any
	Audience  []string      // sasl.oauthbearer.expected.audience, one of them; none: any
	UserClaim string        // sasl.oauthbearer.sub.claim.name; "" = sub
	ClockSkew time.Duration // sasl.oauthbearer.clock.skew.seconds
	Now       func() time.Time
}

// signatures are those with public keys: a shared secret has no place in a key set.
var signatures = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// NewOAuthBearer is OAUTHBEARER (RFC 7628, KIP-255) with signed tokens (JWT).
func NewOAuthBearer(o OAuth) Mechanism {
	if o.UserClaim == "" {
		o.UserClaim = "sub"
	}
	return &oauthMechanism{o}
}

type oauthMechanism struct{ OAuth }

// Name is OAUTHBEARER.
func (*oauthMechanism) Name() string { return OAuthBearer }

// Start begins an exchange.
func (m *oauthMechanism) Start() Exchange { return &oauthExchange{m: m} }

type oauthExchange struct {
	m       *oauthMechanism
	refused error
	who     Identity
}

// invalidToken is what a client is answered whose token isn't good (RFC 7628, 3.2.2). It
// acknowledges that, and is refused then.
const invalidToken = `{"status":"invalid_token"}` //nolint:gosec // an answer, no credentials

// Next takes the token. Of one that isn't good the client learns nothing but that.
func (e *oauthExchange) Next(ctx context.Context, message []byte) ([]byte, bool, error) {
	if e.refused != nil {
		return nil, false, invalid(OAuthBearer)
	}
	as, token, ok := bearer(message)
	if !ok {
		return nil, false, malformed(OAuthBearer)
	}
	who, err := e.m.check(ctx, token)
	if err == nil && as != "" && as != who.User {
		err = errors.New("authorization id is another one's")
	}
	e.who = who
	if err != nil {
		e.refused = err
		return []byte(invalidToken), false, nil //nolint:nilerr // the client is told in the next step, the log by Claim
	}
	return []byte{}, true, nil
}

// Claim is the user of a token that was signed well, and what was wrong with the token.
func (e *oauthExchange) Claim() (string, error) { return e.who.User, e.refused }

// Identity is the user, and when the token ends.
func (e *oauthExchange) Identity() Identity { return e.who }

// bearer takes authorization id and token out of the client's message:
//
//	n,a=id,^Aauth=Bearer token^Akey=value^A^A
func bearer(message []byte) (as, token string, ok bool) {
	header, rest, ok := bytes.Cut(message, []byte{1})
	parts := strings.Split(string(header), ",")
	if !ok || len(parts) != 3 || parts[0] != "n" || parts[2] != "" || !bytes.HasSuffix(rest, []byte{1, 1}) {
		return "", "", false
	}
	if parts[1] != "" && !strings.HasPrefix(parts[1], "a=") {
		return "", "", false
	}
	for pair := range bytes.SplitSeq(rest[:len(rest)-2], []byte{1}) {
		key, value, ok := strings.Cut(string(pair), "=")
		if !ok {
			return "", "", false
		}
		if key != "auth" {
			continue // extensions (KIP-342) mean nothing here
		}
		scheme, t, ok := strings.Cut(value, " ")
		if !ok || token != "" || !strings.EqualFold(scheme, "bearer") {
			return "", "", false
		}
		token = strings.TrimSpace(t)
	}
	return strings.TrimPrefix(parts[1], "a="), token, token != ""
}

// lastYear is the last in which a token may end.
const lastYear = 9999

// check returns whose token it is. Errors are for the log: they hold no part of the token.
func (m *oauthMechanism) check(ctx context.Context, token string) (Identity, error) {
	parsed, err := jwt.ParseSigned(token, signatures)
	if err != nil || len(parsed.Headers) != 1 {
		return Identity{}, errors.New("it isn't a signed token with an algorithm of public keys")
	}
	var claims jwt.Claims
	var all map[string]any
	verified := false
	keys, err := m.Keys.find(ctx, parsed.Headers[0].KeyID)
	if err != nil {
		return Identity{}, err
	}
	for _, key := range keys {
		if (key.Use == "" || key.Use == "sig") && key.IsPublic() && (key.Algorithm == "" || key.Algorithm == parsed.Headers[0].Algorithm) &&
			parsed.Claims(key.Key, &claims, &all) == nil {
			verified = true
			break
		}
	}
	if !verified {
		return Identity{}, errors.New("no key of the key set has signed it")
	}
	if claims.Expiry == nil || claims.Expiry.Time().Year() > lastYear { // beyond that times are computed wrongly
		return Identity{}, errors.New("it has no end (exp), or none in this age")
	}
	user, _ := all[m.UserClaim].(string)
	expected := jwt.Expected{Issuer: m.Issuer, AnyAudience: m.Audience, Time: m.Now()}
	if err := claims.ValidateWithLeeway(expected, m.ClockSkew); err != nil {
		return Identity{User: user}, err
	}
	if user == "" {
		return Identity{}, fmt.Errorf("it has no user in claim %s", m.UserClaim)
	}
	return Identity{User: user, Expires: claims.Expiry.Time().Add(m.ClockSkew)}, nil
}
