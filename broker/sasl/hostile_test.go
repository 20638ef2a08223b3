package sasl

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/messages"
)

// idp is a mechanism with two keys, and the tokens that a hostile client makes of what it can know.
type idp struct {
	mechanism *oauthMechanism
	good      string            // alice's
	bad       map[string]string // by what is wrong
}

func newIDP(tb testing.TB) *idp {
	tb.Helper()
	now := time.Unix(1_700_000_000, 0)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(tb, err)
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(tb, err)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(tb, err)
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: ec.Public(), KeyID: "ec"}, {Key: rs.Public(), KeyID: "rs"}, {Key: []byte("a shared secret of 32 bytes or so"), KeyID: "oct"}}})
	require.NoError(tb, err)
	file := filepath.Join(tb.TempDir(), "jwks.json")
	require.NoError(tb, os.WriteFile(file, set, 0o600))
	keys, err := NewKeySet("file://"+file, time.Hour, func() time.Time { return now }, zap.NewNop())
	require.NoError(tb, err)
	p := &idp{mechanism: NewOAuthBearer(OAuth{Keys: keys, Issuer: "idp", Audience: []string{"kafka"}, Now: func() time.Time { return now }}).(*oauthMechanism)}
	exp := now.Add(time.Hour).Unix()
	claims := fmt.Sprintf(`{"sub":"alice","iss":"idp","aud":"kafka","exp":%d}`, exp)
	sign := func(key *ecdsa.PrivateKey, opts *jose.SignerOptions, payload string) string {
		s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "ec"}}, opts)
		require.NoError(tb, err)
		o, err := s.Sign([]byte(payload))
		require.NoError(tb, err)
		text, err := o.CompactSerialize()
		require.NoError(tb, err)
		return text
	}
	b64 := base64.RawURLEncoding.EncodeToString
	parts := func(header string, sig []byte) string {
		return b64([]byte(header)) + "." + b64([]byte(claims)) + "." + b64(sig)
	}
	mac := func(header string, secret []byte) string {
		m := hmac.New(sha256.New, secret)
		m.Write([]byte(b64([]byte(header)) + "." + b64([]byte(claims))))
		return parts(header, m.Sum(nil))
	}
	p.good = sign(ec, nil, claims)
	signature := p.good[strings.LastIndexByte(p.good, '.')+1:]
	der, err := x509.MarshalPKIXPublicKey(rs.Public())
	require.NoError(tb, err)
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	jwk, err := json.Marshal(jose.JSONWebKey{Key: other.Public(), KeyID: "ec"})
	require.NoError(tb, err)
	p.bad = map[string]string{
		"no algorithm":                  parts(`{"alg":"none"}`, nil),
		"no algorithm, other case":      parts(`{"alg":"nOnE","kid":"ec"}`, nil),
		"a secret that is public":       mac(`{"alg":"HS256","kid":"rs"}`, public),
		"a secret that is public, DER":  mac(`{"alg":"HS256","kid":"rs"}`, der),
		"a secret of the set":           mac(`{"alg":"HS256","kid":"oct"}`, []byte("a shared secret of 32 bytes or so")),
		"the empty secret":              mac(`{"alg":"HS256"}`, nil),
		"another's key":                 sign(other, nil, claims),
		"a key of its own":              sign(other, &jose.SignerOptions{ExtraHeaders: map[jose.HeaderKey]any{"jwk": json.RawMessage(jwk)}}, claims),
		"a key to be fetched":           sign(other, &jose.SignerOptions{ExtraHeaders: map[jose.HeaderKey]any{"jku": "http://127.0.0.1:1/"}}, claims),
		"what must be understood":       sign(ec, &jose.SignerOptions{ExtraHeaders: map[jose.HeaderKey]any{"crit": []string{"exp"}, "exp": 1}}, claims),
		"an unknown key id":             sign(ec, &jose.SignerOptions{ExtraHeaders: map[jose.HeaderKey]any{"kid": "nobody"}}, claims),
		"no signature":                  p.good[:strings.LastIndexByte(p.good, '.')+1],
		"half a signature":              p.good[:len(p.good)-10],
		"zeros for a signature":         p.good[:strings.LastIndexByte(p.good, '.')+1] + b64(make([]byte, 64)),
		"other claims":                  b64([]byte(`{"alg":"ES256","kid":"ec"}`)) + "." + b64([]byte(strings.Replace(claims, "alice", "admin", 1))) + "." + signature,
		"in JSON":                       `{"payload":"` + b64([]byte(claims)) + `","signatures":[]}`,
		"encrypted":                     b64([]byte(`{"alg":"dir","enc":"A128GCM"}`)) + "..AAAA.AAAA.AAAA",
		"no end":                        sign(ec, nil, `{"sub":"alice","iss":"idp","aud":"kafka"}`),
		"an end as text":                sign(ec, nil, fmt.Sprintf(`{"sub":"alice","iss":"idp","aud":"kafka","exp":"%d"}`, exp)),
		"an end before the beginning":   sign(ec, nil, `{"sub":"alice","iss":"idp","aud":"kafka","exp":-1}`),
		"the largest end":               sign(ec, nil, `{"sub":"alice","iss":"idp","aud":"kafka","exp":1e300}`),
		"a null end":                    sign(ec, nil, `{"sub":"alice","iss":"idp","aud":"kafka","exp":null}`),
		"two users":                     sign(ec, nil, fmt.Sprintf(`{"sub":"bob","sub":"alice","iss":"idp","aud":"kafka","exp":%d}`, exp)),
		"a user that is no text":        sign(ec, nil, fmt.Sprintf(`{"sub":["alice"],"iss":"idp","aud":"kafka","exp":%d}`, exp)),
		"no user":                       sign(ec, nil, fmt.Sprintf(`{"sub":"","iss":"idp","aud":"kafka","exp":%d}`, exp)),
		"a user in other letters":       sign(ec, nil, fmt.Sprintf(`{"SUB":"alice","iss":"idp","aud":"kafka","exp":%d}`, exp)),
		"for others":                    sign(ec, nil, fmt.Sprintf(`{"sub":"alice","iss":"idp","aud":["a","kafka2"],"exp":%d}`, exp)),
		"for nobody":                    sign(ec, nil, fmt.Sprintf(`{"sub":"alice","iss":"idp","exp":%d}`, exp)),
		"of another issuer":             sign(ec, nil, fmt.Sprintf(`{"sub":"alice","iss":"idp2","aud":"kafka","exp":%d}`, exp)),
		"not yet":                       sign(ec, nil, fmt.Sprintf(`{"sub":"alice","iss":"idp","aud":"kafka","exp":%d,"nbf":%d}`, exp, exp-10)),
		"no object":                     sign(ec, nil, `"alice"`),
		"nested beyond reason":          sign(ec, nil, strings.Repeat("[", 100_000)),
		"a header nested beyond reason": parts(`{"alg":"ES256","kid":"ec","x":`+strings.Repeat("[", 100_000), nil),
		"a large key":                   parts(`{"alg":"RS256","jwk":{"kty":"RSA","n":"`+strings.Repeat("_", 300_000)+`","e":"AQAB"}}`, nil),
		"nothing":                       "..",
	}
	return p
}

// TestHostileTokens: only a token that a key of the set has signed, with a user, an end and for us, is good.
func TestHostileTokens(t *testing.T) {
	p := newIDP(t)
	who, err := p.mechanism.check(t.Context(), p.good)
	require.NoError(t, err)
	require.Equal(t, "alice", who.User)
	for name, token := range p.bad {
		t.Run(name, func(t *testing.T) {
			_, err := p.mechanism.check(t.Context(), token)
			require.Error(t, err)
			if len(token) > 100 {
				require.NotContains(t, err.Error(), token[len(token)-20:])
			}
			require.Less(t, len(err.Error()), 300, "the log isn't the client's")
		})
	}
}

// FuzzBearerToken: whatever else is in a token, what it says was signed by the key.
func FuzzBearerToken(f *testing.F) {
	p := newIDP(f)
	f.Add(p.good)
	for _, token := range p.bad {
		f.Add(token)
	}
	signed := p.good[:strings.LastIndexByte(p.good, '.')]
	f.Fuzz(func(t *testing.T, token string) {
		if who, err := p.mechanism.check(t.Context(), token); err == nil && (who.User != "alice" || !strings.HasPrefix(strings.TrimSpace(token), signed)) {
			t.Fatalf("%q is %s's", token, who.User)
		}
	})
}

// FuzzKeySet: a document is refused or gives keys, all of which are public and whole.
func FuzzKeySet(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0","kid":"good"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},{"kty":"oct","k":"AAAA"},{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`))
	f.Add([]byte(`{"keys":{}}`))
	k, err := NewKeySet("https://idp.example/keys", time.Hour, time.Now, zap.NewNop())
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, document []byte) {
		set, err := k.decode(document)
		if err == nil && len(set.Keys) == 0 {
			t.Fatal("a set without keys")
		}
		for _, key := range set.Keys {
			if !key.Valid() {
				t.Fatalf("%+v", key)
			}
		}
	})
}

// FuzzScram: no two messages make a user of somebody who doesn't know the password.
func FuzzScram(f *testing.F) {
	c, err := NewCredential(messages.ScramSHA256, "u0", "password", messages.ScramIterationsMin)
	require.NoError(f, err)
	m, err := NewScram(messages.ScramSHA256, users{c})
	require.NoError(f, err)
	f.Add("n,,n=u0,r=abc", "c=biws,r=abc%s,p=AAAA")
	f.Add("n,,n=u0,r=abc", "c=biws,r=%s,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	f.Add("n,a=u0,n=u0,r=abc", "c=biws,r=%s,p=")
	f.Add("p=tls-unique,,n=u0,r=abc,tokenauth=true", "")
	f.Add("y,,n=nobody,r=,m=ext", "c=biws,r=%s,v=1,p=AAAA")
	f.Fuzz(func(t *testing.T, first, final string) {
		e := m.Start()
		answer, done, err := e.Next(t.Context(), []byte(first))
		if done {
			t.Fatalf("%q is enough", first)
		}
		if err != nil {
			return
		}
		nonce := strings.TrimPrefix(strings.Split(string(answer), ",")[0], "r=")
		if _, done, err = e.Next(t.Context(), []byte(strings.Replace(final, "%s", nonce, 1))); done || err == nil {
			t.Fatalf("%q and %q: %v", first, final, err)
		}
		if _, done, _ = e.Next(t.Context(), []byte(final)); done {
			t.Fatal("a third message")
		}
	})
}

// FuzzPlain: only the user's own password is good.
func FuzzPlain(f *testing.F) {
	m := NewPlain(map[string]string{"alice": "alice-4711"})
	f.Add([]byte("\x00alice\x00alice-4711"))
	f.Add([]byte("bob\x00alice\x00alice-4711"))
	f.Add([]byte("\x00alice\x00"))
	f.Fuzz(func(t *testing.T, token []byte) {
		e := m.Start()
		_, done, err := e.Next(t.Context(), token)
		good := string(token) == "\x00alice\x00alice-4711" || string(token) == "alice\x00alice\x00alice-4711"
		if done != good || done != (err == nil) || done && e.Identity().User != "alice" {
			t.Fatalf("%q: %v %v", token, done, err)
		}
	})
}
