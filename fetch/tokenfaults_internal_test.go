package fetch

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// hanging is a token endpoint that takes requests and doesn't answer, while it hangs.
type hanging struct {
	mu    sync.Mutex
	asked int
	hangs bool
}

// RoundTrip stands in for the network.
func (h *hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	h.mu.Lock()
	h.asked++
	hangs, body := h.hangs, fmt.Sprintf(`{"access_token":"token-%d","token_type":"Bearer","expires_in":600}`, h.asked)
	h.mu.Unlock()
	if hangs {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	rec := httptest.NewRecorder()
	rec.Header().Set("Content-Type", "application/json")
	rec.Body = bytes.NewBufferString(body)
	return rec.Result(), nil
}

func (h *hanging) set(hangs bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hangs = hangs
}

// TestTokenEndpointHangs: an endpoint that hangs costs all sessions that wait one timeout
// together, and those that still have a good token nothing but the first attempt.
func TestTokenEndpointHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{hangs: true}
		tokens := oauthConfig(t, "https://idp:1", "app-4711", "").tokens
		tokens.http.Transport = h
		all := func() (errs []error, got map[string]int) {
			var mu sync.Mutex
			var wg sync.WaitGroup
			got = map[string]int{}
			for range 20 {
				wg.Go(func() {
					auth, err := tokens.auth(t.Context())
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						errs = append(errs, err)
					}
					got[auth.Token]++
				})
			}
			wg.Wait()
			return errs, got
		}
		began := time.Now()
		errs, _ := all()
		require.Len(t, errs, 20)
		for _, err := range errs {
			require.ErrorContains(t, err, "https://idp:1")
			require.ErrorContains(t, err, "no answer within 10s")
			require.False(t, (&ConnectionError{Err: err}).Auth())
		}
		require.Equal(t, tokenTimeout, time.Since(began))
		require.Equal(t, 1, h.asked)

		h.set(false)
		errs, got := all()
		require.Empty(t, errs)
		require.Equal(t, map[string]int{"token-2": 20}, got)

		// It hangs when the token is to be renewed: that is tried at times, and the token used.
		time.Sleep(9 * time.Minute)
		h.set(true)
		for round := range 3 {
			began = time.Now()
			errs, got = all()
			require.Empty(t, errs)
			require.Equal(t, map[string]int{"token-2": 20}, got)
			require.Equal(t, tokenTimeout, time.Since(began), "one of them asks")
			require.Equal(t, 3+round, h.asked)
			began = time.Now()
			errs, _ = all()
			require.Empty(t, errs)
			require.LessOrEqual(t, time.Since(began), tokenTimeout)
			require.Equal(t, 3+round, h.asked, "not again at once")
			time.Sleep(tokenPause)
		}
		time.Sleep(time.Minute)
		errs, _ = all()
		require.Len(t, errs, 20, "it has ended")
		h.set(false)
		errs, _ = all()
		require.Empty(t, errs)
	})
}

// TestTokenRequestGivenUp: a session that is given up while it asks for a token, as its fetcher
// ends, is no answer to those that wait for the same.
func TestTokenRequestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{hangs: true}
		tokens := oauthConfig(t, "https://idp:1", "app-4711", "").tokens
		tokens.http.Transport = h
		ctx, giveUp := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { _, err := tokens.auth(ctx); first <- err }()
		synctest.Wait()
		go func() { _, err := tokens.auth(t.Context()); second <- err }()
		synctest.Wait()
		h.set(false)
		giveUp()
		require.ErrorIs(t, <-first, context.Canceled)
		require.NoError(t, <-second)
		require.Equal(t, 2, h.asked)
	})
}

// TestTokenRefusedBySource: a token that the source refuses isn't used for the rest of its
// life, but another one is asked for; not with every attempt.
func TestTokenRefusedBySource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{}
		tokens := oauthConfig(t, "https://idp:1", "app-4711", "").tokens
		tokens.http.Transport = h
		session := func(complaint string) string {
			s, first, err := tokens.Authenticate(t.Context(), "source:9092")
			require.NoError(t, err)
			done, next, err := s.Challenge([]byte(complaint))
			require.NoError(t, err)
			require.Equal(t, complaint == "", done)
			require.Equal(t, complaint != "", string(next) == "\x01", "so that the source says more")
			_, token, _ := strings.Cut(string(first), "Bearer ")
			token, _, _ = strings.Cut(token, "\x01")
			return token
		}
		require.Equal(t, "token-1", session(""))
		time.Sleep(time.Minute)
		require.Equal(t, "token-1", session(`{"status":"invalid_token"}`))
		require.Equal(t, "token-2", session(`{"status":"invalid_token"}`))
		require.Equal(t, "token-2", session(`{"status":"invalid_token"}`), "it is new, so that is no help")
		time.Sleep(tokenPause)
		require.Equal(t, "token-3", session(""))
		require.Equal(t, "token-3", session(""))
		require.Equal(t, 3, h.asked)
	})
}

// TestTokenAnswers: what endpoints answer that are broken, or no endpoints at all, is told
// alike, costs little memory, shows nothing of it, and leaves nothing behind.
func TestTokenAnswers(t *testing.T) {
	e := &endpoint{}
	server := httptest.NewServer(e)
	defer server.Close()
	tokens := oauthConfig(t, server.URL, "app-4711", "").tokens
	page := "<html><body>please log in as app with app-4711</body></html>"
	html := func(status int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
			fmt.Fprint(w, page)
		}
	}
	json := func(text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { fmt.Fprint(w, text) }
	}
	huge := func(w http.ResponseWriter) {
		fmt.Fprint(w, `{"access_token":"`)
		for range 64 {
			if _, err := w.Write(bytes.Repeat([]byte("a"), 1<<20)); err != nil {
				return // who asked has had enough
			}
		}
		fmt.Fprint(w, `","token_type":"Bearer","expires_in":600}`)
	}
	for _, row := range []struct {
		name   string
		answer func(http.ResponseWriter)
		want   string // "": a token
	}{
		{"a page", html(200), "not a token"},
		{"a page of errors", html(500), "HTTP status 500"},
		{"a page of a proxy", html(502), "HTTP status 502"},
		{"forbidden", html(403), "HTTP status 403"},
		{"empty", json(""), "not a token"},
		{"null", json("null"), "not a token"},
		{"no text", json(`{"access_token":17}`), "not a token"},
		{"empty token", json(`{"access_token":"","token_type":"Bearer"}`), "not a token"},
		{"huge", huge, "not a token"},
		{"cut off", func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"access_token":"app-4711`)
		}, "not a token"},
		{"life as text", json(`{"access_token":"x","token_type":"Bearer","expires_in":"600"}`), ""},
		{"no life", json(`{"access_token":"x","token_type":"Bearer"}`), ""},
		{"life of nothing", json(`{"access_token":"x","token_type":"Bearer","expires_in":0}`), ""},
		{"over already", json(`{"access_token":"x","token_type":"Bearer","expires_in":-5}`), ""},
		{"for ever", json(`{"access_token":"x","token_type":"Bearer","expires_in":1e30}`), "not a token"},
	} {
		e.set(row.answer)
		tokens.now = nil
		for range 3 {
			auth, err := tokens.auth(t.Context())
			if row.want == "" {
				require.NoError(t, err, row.name)
				require.Equal(t, "x", auth.Token, row.name)
				continue
			}
			require.ErrorContains(t, err, row.want, row.name)
			require.NotContains(t, err.Error(), "-4711", row.name)
			require.NotContains(t, err.Error(), "html", row.name)
			require.Less(t, len(err.Error()), 200, row.name)
		}
	}
	e.set(nil)
	tokens.now = nil
	_, err := tokens.auth(t.Context())
	require.NoError(t, err)
	server.CloseClientConnections()
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		stacks := make([]byte, 1<<20)
		left := strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "http.(*persistConn)")
		if left == 0 {
			break
		}
		require.True(t, time.Now().Before(until), "%d connections to the endpoint are left", left)
	}
}
