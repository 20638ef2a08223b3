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
	"time"

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

// auth is what the next session is authenticated with.
func (t *tokens) auth(ctx context.Context) (oauth.Auth, error) {
	select {
	case <-t.turn:
		defer func() { t.turn <- struct{}{} }()
	case <-ctx.Done():
		return oauth.Auth{}, context.Cause(ctx)
	}
	now := t.clock.Now()
	if t.now != nil && now.Before(t.renewAt) {
		return oauth.Auth{Token: t.now.AccessToken, Extensions: t.extensions}, nil
	}
	next, err := t.credentials.Token(context.WithValue(ctx, oauth2.HTTPClient, t.http))
	switch {
	case err == nil && next.Expiry.IsZero():
		return oauth.Auth{Token: next.AccessToken, Extensions: t.extensions}, nil
	case err == nil:
		t.now, t.renewAt = next, now.Add(next.Expiry.Sub(now)*tokenUse/10)
	case t.now == nil || !now.Before(t.now.Expiry):
		return oauth.Auth{}, t.fault(err)
	default: // the endpoint may be back before the old one ends
	}
	return oauth.Auth{Token: t.now.AccessToken, Extensions: t.extensions}, nil
}

var errorWord = regexp.MustCompile(`^[a-z_]{1,40}$`)

// fault leaves out all that the endpoint said but the word of RFC 6749, 5.2.
func (t *tokens) fault(err error) error {
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
		out.Why, out.Err = network.Err.Error(), network.Err
	}
	return out
}
