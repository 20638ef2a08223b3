package fetch

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/internal/clock"
)

// laterClock is the wall clock, put forward.
type laterClock struct {
	clock.Wall
	by time.Duration
}

func (c *laterClock) Now() time.Time { return c.Wall.Now().Add(c.by) }

// endpoint is a token endpoint that knows one client.
type endpoint struct {
	mu     sync.Mutex
	asked  int
	scope  string
	answer func(w http.ResponseWriter) // nil: a token of ten minutes
}

func (e *endpoint) set(f func(http.ResponseWriter)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = f
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	e.scope = r.FormValue("scope")
	user, password, _ := r.BasicAuth()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case user != "app" || password != "app-4711" || r.FormValue("grant_type") != "client_credentials":
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error":"invalid_client","error_description":"%s is wrong"}`, password)
	case e.answer != nil:
		e.answer(w)
	default:
		fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"Bearer","expires_in":600}`, e.asked)
	}
}

func oauthConfig(t *testing.T, url, secret, more string) Config {
	t.Helper()
	c, err := ParseConfig(map[string]string{
		"bootstrap.servers": "a:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": url,
		"sasl.jaas.config": `org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId="app" clientSecret="` + secret + `" scope="read all" extension_cluster="c1" ` + more + `;`,
	})
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", c, c, c), "-4711")
	return c
}

// TestTokens: one token for many sessions, renewed before it ends, kept over a short
// outage of the endpoint, and not over its end.
func TestTokens(t *testing.T) {
	e := &endpoint{}
	server := httptest.NewServer(e)
	defer server.Close()
	tokens := oauthConfig(t, server.URL, "app-4711", "").tokens
	at := &laterClock{}
	tokens.clock = at
	want := func(token string, asked int) {
		t.Helper()
		got, err := tokens.auth(t.Context())
		require.NoError(t, err)
		require.Equal(t, token, got.Token)
		require.Equal(t, map[string]string{"cluster": "c1"}, got.Extensions)
		e.mu.Lock()
		defer e.mu.Unlock()
		require.Equal(t, asked, e.asked)
		require.Equal(t, "read all", e.scope)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { _, _ = tokens.auth(t.Context()) })
	}
	wg.Wait()
	want("token-1", 1)
	at.by = 7 * time.Minute
	want("token-1", 1)
	at.by = 9 * time.Minute
	e.set(func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) })
	want("token-1", 2)
	at.by = 11 * time.Minute
	_, err := tokens.auth(t.Context())
	require.ErrorContains(t, err, "HTTP status 503")
	require.False(t, (&ConnectionError{Err: err}).Auth(), "it may pass")
	e.set(nil)
	at.by = 0
	tokens.now = nil
	want("token-4", 4)

	e.set(func(w http.ResponseWriter) { fmt.Fprint(w, `{"access_token":"endless","token_type":"Bearer"}`) })
	tokens.now = nil
	want("endless", 5)
	want("endless", 6)
}

// TestTokenFaults: what is wrong is told without secrets, and nothing is sent elsewhere.
func TestTokenFaults(t *testing.T) {
	e := &endpoint{}
	server := httptest.NewServer(e)
	defer server.Close()
	other := &endpoint{}
	elsewhere := httptest.NewServer(other)
	defer elsewhere.Close()
	secure := httptest.NewTLSServer(&endpoint{})
	defer secure.Close()
	gone := httptest.NewServer(e)
	gone.Close()
	for name, row := range map[string]struct {
		url, secret string
		answer      func(http.ResponseWriter)
		want        string
		auth        bool
	}{
		"wrong secret": {server.URL, "wrong-4711", nil, "no token, HTTP status 401, invalid_client", true},
		"redirect": {server.URL, "app-4711", func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, "HTTP status 307", false},
		"no token":       {server.URL, "app-4711", func(w http.ResponseWriter) { fmt.Fprint(w, `{"secret":"app-4711"}`) }, "not a token", false},
		"not JSON":       {server.URL, "app-4711", func(w http.ResponseWriter) { fmt.Fprint(w, `app-4711`) }, "not a token", false},
		"long word":      {server.URL, "app-4711", func(w http.ResponseWriter) { fmt.Fprint(w, `{"error":"app-4711"}`) }, "HTTP status 200", true},
		"gone":           {gone.URL, "app-4711", nil, "refused", false},
		"not trusted":    {secure.URL, "app-4711", nil, "certificate", true},
		"TLS on neither": {strings.Replace(server.URL, "http:", "https:", 1), "app-4711", nil, "HTTPS client", false},
	} {
		t.Run(name, func(t *testing.T) {
			e.set(row.answer)
			_, err := oauthConfig(t, row.url, row.secret, "").tokens.auth(t.Context())
			require.ErrorContains(t, err, row.want)
			require.ErrorContains(t, err, row.url)
			require.NotContains(t, err.Error(), "-4711")
			_, ok := errors.AsType[*TokenError](err)
			require.True(t, ok)
			require.True(t, Retriable(err))
			require.Equal(t, row.auth, (&ConnectionError{Err: err}).Auth())
		})
	}
	require.Zero(t, other.asked, "a redirect isn't followed")
}

// TestTokenEndpointTLS: trust for the endpoint is given in the login entry.
func TestTokenEndpointTLS(t *testing.T) {
	server := httptest.NewTLSServer(&endpoint{})
	defer server.Close()
	file := filepath.Join(t.TempDir(), "idp.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	c := oauthConfig(t, server.URL, "app-4711", `ssl.truststore.type="PEM" ssl.truststore.location="`+file+`"`)
	got, err := c.tokens.auth(t.Context())
	require.NoError(t, err)
	require.Equal(t, "token-1", got.Token)
}
