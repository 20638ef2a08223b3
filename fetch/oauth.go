package fetch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"kagami/internal/clock"
)

const (
	// tokenTimeout bounds one request to a token endpoint.
	tokenTimeout = 10 * time.Second
	// tokenUse is the part of a token's life after which another one is asked for, in
	// tenths, as with Kafka's sasl.login.refresh.window.factor.
	tokenUse = 8
	// tokenPause is how long a token that is good is used before another one is asked for
	// again, after the endpoint gave none, or the source refused this one.
	tokenPause = 10 * time.Second
)

// tokens are the bearer tokens of one login: one at a time, got from the endpoint by the
// client's credentials (RFC 6749, 4.4), kept until most of its life is over, and shared
// by all connections of a mirror. Without a told life it is asked for each time.
type tokens struct {
	credentials clientcredentials.Config
	extensions  map[string]string
	http        *http.Client
	clock       clock.Clock

	turn    chan struct{} // holds one item while nobody uses what follows
	now     *oauth2.Token // nil = none
	renewAt time.Time
	askedAt time.Time
	fault   error // of the last request, if that failed

	failed  atomic.Int64           // requests that have failed
	refused atomic.Pointer[string] // token that the source has refused; nil = none
}

// TokenError says that a token endpoint gave no token. It shows neither what was sent
// nor what came back.
type TokenError struct {
	Endpoint string
	Refused  bool // the endpoint answered, and refuses this login
	Why      string
	Err      error // of the network; nil if the endpoint answered
}

// Error names the endpoint and the fault.
func (e *TokenError) Error() string {
	return fmt.Sprintf("%s %s: %s", keyTokenEndpoint, e.Endpoint, e.Why)
}

// Unwrap is the network's error.
func (e *TokenError) Unwrap() error { return e.Err }

// parseEndpoint returns "" if nothing is set.
func parseEndpoint(text string) (string, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return "", nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || (u.Scheme != "https" && u.Scheme != "http"):
		return "", invalid(keyTokenEndpoint, "want https://host[:port]/path") // the parser would quote it
	case u.User != nil:
		return "", invalid(keyTokenEndpoint, "must not hold a password: give clientId and clientSecret in %s", keyJAAS)
	}
	return text, nil
}

var extensionName = regexp.MustCompile(`^[A-Za-z]+$`)

// parseTokens reads the options of the login entry: clientId, clientSecret, scope,
// extension_NAME, and ssl.* for the connection to the endpoint, as Kafka's clients do.
func (c *Config) parseTokens(endpoint string, options map[string]string) []error {
	var faults []error
	if endpoint == "" {
		faults = append(faults, invalid(keyTokenEndpoint, "is required with OAUTHBEARER"))
	}
	if options["clientId"] == "" || options["clientSecret"] == "" {
		faults = append(faults, invalid(keyJAAS, "clientId and clientSecret are required with OAUTHBEARER"))
	}
	settings, tlsFaults := parseTLS(options)
	for _, err := range tlsFaults {
		faults = append(faults, fmt.Errorf("%s, for the token endpoint: %w", keyJAAS, err))
	}
	extensions := map[string]string{}
	for key, value := range options {
		name, is := strings.CutPrefix(key, "extension_")
		if !is {
			continue
		}
		if !extensionName.MatchString(name) || name == "auth" || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }) {
			faults = append(faults, invalid(keyJAAS, "an extension needs a name of letters other than auth, and a value of plain characters"))
			continue
		}
		extensions[name] = value
	}
	c.User = options["clientId"]
	c.tokens = newTokens(clientcredentials.Config{
		ClientID: options["clientId"], ClientSecret: options["clientSecret"], TokenURL: endpoint,
		Scopes: strings.Fields(options["scope"]), AuthStyle: oauth2.AuthStyleInHeader,
	}, settings, extensions)
	return faults
}

func newTokens(credentials clientcredentials.Config, settings *tlsSettings, extensions map[string]string) *tokens {
	secure := Config{tls: settings}
	t := &tokens{credentials: credentials, extensions: extensions, clock: clock.Wall{}, turn: make(chan struct{}, 1)}
	t.turn <- struct{}{}
	t.http = &http.Client{
		Timeout: tokenTimeout,
		// A redirect would carry the request to who knows where.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DisableKeepAlives: true, // it is asked once in a long while
			DialContext:       (&net.Dialer{Timeout: dialTimeout}).DialContext,
			DialTLSContext:    secure.dial,
		},
	}
	return t
}

// auth is what the next session is authenticated with. Who waits while a request fails has
// that answer too: an endpoint that hangs costs all of them one timeout.
func (t *tokens) auth(ctx context.Context) (oauth.Auth, error) {
	before := t.failed.Load()
	select {
	case <-t.turn:
		defer func() { t.turn <- struct{}{} }()
	case <-ctx.Done():
		return oauth.Auth{}, context.Cause(ctx)
	}
	now := t.clock.Now()
	if refused := t.refused.Swap(nil); refused != nil && t.now != nil && t.now.AccessToken == *refused && now.Sub(t.askedAt) >= tokenPause {
		t.now = nil
	}
	switch good := t.now != nil && now.Before(t.now.Expiry); {
	case good && (now.Before(t.renewAt) || t.failed.Load() != before):
		return oauth.Auth{Token: t.now.AccessToken, Extensions: t.extensions}, nil
	case t.failed.Load() != before:
		return oauth.Auth{}, t.fault
	}
	t.askedAt = now
	next, err := t.credentials.Token(context.WithValue(ctx, oauth2.HTTPClient, t.http))
	now = t.clock.Now()
	if err != nil {
		if t.fault = t.told(err); ctx.Err() == nil { // else it was given up here, which says nothing
			t.failed.Add(1)
		}
	}
	switch {
	case err == nil && next.Expiry.IsZero():
		return oauth.Auth{Token: next.AccessToken, Extensions: t.extensions}, nil
	case err == nil:
		t.now, t.renewAt = next, now.Add(next.Expiry.Sub(now)*tokenUse/10)
	case t.now == nil || !now.Before(t.now.Expiry):
		return oauth.Auth{}, t.fault
	default: // the endpoint may be back before the old one ends
		t.renewAt = now.Add(tokenPause)
	}
	return oauth.Auth{Token: t.now.AccessToken, Extensions: t.extensions}, nil
}

// Name is the mechanism's.
func (t *tokens) Name() string { return "OAUTHBEARER" }

// Authenticate begins a session.
func (t *tokens) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	auth, err := t.auth(ctx)
	if err != nil {
		return nil, nil, err
	}
	session, first, err := auth.AsMechanism().Authenticate(ctx, host)
	if err != nil {
		return nil, nil, err
	}
	return &tokenSession{Session: session, tokens: t, token: auth.Token}, first, nil
}

// tokenSession notes that the source refuses a token: it may have been made with keys that
// the source doesn't know any more, and another one help.
type tokenSession struct {
	sasl.Session
	tokens *tokens
	token  string
}

// Challenge has the source's complaint, or nothing (RFC 7628, 3.2.2).
func (s *tokenSession) Challenge(resp []byte) (bool, []byte, error) {
	if len(resp) > 0 {
		s.tokens.refused.Store(&s.token)
	}
	return s.Session.Challenge(resp)
}

var errorWord = regexp.MustCompile(`^[a-z_]{1,40}$`)

// told leaves out all that the endpoint said but the word of RFC 6749, 5.2.
func (t *tokens) told(err error) error {
	out := &TokenError{Endpoint: t.credentials.TokenURL, Why: "its answer is not a token"}
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		out.Why = fmt.Sprintf("no token, HTTP status %d", refused.Response.StatusCode)
		if errorWord.MatchString(refused.ErrorCode) {
			out.Why += ", " + refused.ErrorCode
		}
		out.Refused = refused.Response.StatusCode/100 == 4 || refused.ErrorCode != ""
		return out
	}
	if network, ok := errors.AsType[*url.Error](err); ok {
		if out.Why, out.Err = network.Err.Error(), network.Err; network.Timeout() {
			out.Why = fmt.Sprintf("no answer within %s", tokenTimeout)
		}
	}
	return out
}
