package sasl

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// TestKeySet: keys are read when they are needed, again when an id is unknown or they are
// old, not more often than that, and stay when they can't be read.
func TestKeySet(t *testing.T) {
	var body atomic.Value
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		text := body.Load().(string)
		if text == "" {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte(text))
	}))
	defer server.Close()
	serve := func(ids ...string) {
		var set jose.JSONWebKeySet
		for _, id := range ids {
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			require.NoError(t, err)
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.Public(), KeyID: id})
		}
		b, err := json.Marshal(set)
		require.NoError(t, err)
		body.Store(string(b))
	}
	now := time.Unix(1700000000, 0)
	k, err := NewKeySet(server.URL, time.Hour, func() time.Time { return now }, zap.NewNop())
	require.NoError(t, err)
	find := func(id string, want int) {
		t.Helper()
		keys, err := k.find(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, keys, want)
	}
	body.Store("")
	_, err = k.find(t.Context(), "a")
	require.Error(t, err)
	serve("a", "b")
	_, err = k.find(t.Context(), "a")
	require.Error(t, err, "not twice at once")
	now = now.Add(keySetRetry)
	find("a", 1)
	find("", 2)
	require.EqualValues(t, 2, asked.Load())
	serve("c")
	find("c", 0)
	now = now.Add(keySetRetry)
	find("c", 1)
	require.EqualValues(t, 3, asked.Load())
	for range 10 {
		find("unheard", 0) // a client can't have it read at will
	}
	now = now.Add(keySetRetry)
	body.Store("")
	find("unheard", 0)
	find("c", 1)
	require.EqualValues(t, 4, asked.Load())
	body.Store("garbage")
	now = now.Add(2 * time.Hour)
	find("c", 1)
	require.EqualValues(t, 5, asked.Load())
}

// TestKeySetOfOthers: keys that we can't use are no reason to do without those that we can.
func TestKeySetOfOthers(t *testing.T) {
	const good = `{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0","kid":"good"}`
	k, err := NewKeySet("https://idp.example/keys", time.Hour, time.Now, zap.NewNop())
	require.NoError(t, err)
	for name, other := range map[string]string{
		"a kind of the future": `{"kty":"AKP","alg":"ML-DSA-65","kid":"a","pub":"AAAA"}`,
		"for encryption":       `{"kty":"OKP","crv":"X25519","x":"hSDwCYkwp1R0i33ctD73Wg2_Og0mOBr066SpjqqbTmo","kid":"a"}`,
		"another curve":        `{"kty":"EC","crv":"secp256k1","x":"AAAA","y":"AAAA","kid":"a"}`,
		"not on its curve":     `{"kty":"EC","crv":"P-256","x":"AAAA","y":"AAAA","kid":"a"}`,
		"RSA without a number": `{"kty":"RSA","kid":"a","n":"","e":""}`,
		"no key":               `null`,
		"no object":            `1`,
	} {
		set, err := k.decode([]byte(`{"keys":[` + other + `,` + good + `]}`))
		require.NoError(t, err, name)
		require.Len(t, set.Keys, 1, name)
		require.Equal(t, "good", set.Keys[0].KeyID, name)
		_, err = k.decode([]byte(`{"keys":[` + other + `]}`))
		require.Error(t, err, name)
	}
}

// TestKeySetRedirects: nobody on the way can send us elsewhere for keys.
func TestKeySetRedirects(t *testing.T) {
	keys := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"keys":[]}`)) })
	plain := httptest.NewServer(keys)
	defer plain.Close()
	there := httptest.NewTLSServer(keys)
	defer there.Close()
	for to, followed := range map[string]bool{plain.URL: false, there.URL: true, "file:///etc/passwd": false} {
		at := httptest.NewTLSServer(http.RedirectHandler(to, http.StatusFound))
		k, err := NewKeySet(at.URL, time.Hour, time.Now, zap.NewNop())
		require.NoError(t, err)
		k.client.Transport = at.Client().Transport
		_, err = k.bytes(t.Context())
		require.Equal(t, followed, err == nil, "%s: %v", to, err)
		at.Close()
	}
}

// TestKeySetOfASlowServer: who has a token of a known key waits for nobody, however long the server
// takes and whatever others ask for.
func TestKeySetOfASlowServer(t *testing.T) {
	const good = `{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0","kid":"good"}]}`
	asked, go_ := make(chan struct{}, 10), make(chan struct{})
	var slow atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		if slow.Load() {
			select {
			case <-go_:
			case <-r.Context().Done():
			}
		}
		_, _ = w.Write([]byte(good))
	}))
	defer server.Close()
	var now atomic.Int64
	k, err := NewKeySet(server.URL, time.Hour, func() time.Time { return time.Unix(now.Load(), 0) }, zap.NewNop())
	require.NoError(t, err)
	find := func(id string) int {
		keys, err := k.find(t.Context(), id)
		require.NoError(t, err)
		return len(keys)
	}
	require.Equal(t, 1, find("good"))
	<-asked
	slow.Store(true)
	now.Add(int64(2 * time.Hour / time.Second))
	stranger := make(chan int)
	for range 2 { // the first has it read, the second waits
		go func() { stranger <- find("unheard") }()
	}
	<-asked
	for range 100 {
		require.Equal(t, 1, find("good"))
	}
	close(go_)
	require.Zero(t, <-stranger)
	require.Zero(t, <-stranger)
	require.Empty(t, asked, "it was read once for both")
}

func TestKeySetAddresses(t *testing.T) {
	for address, ok := range map[string]bool{
		"file:///keys.json": true, "https://idp.example/keys": true, "http://127.0.0.1:1/keys": true, "http://localhost/keys": true, "http://[::1]:1/": true,
		"http://idp.example/keys": false, "ftp://x/y": false, "/keys.json": false, "file://host/keys": false, "": false,
	} {
		_, err := NewKeySet(address, time.Hour, time.Now, zap.NewNop())
		require.Equal(t, ok, err == nil, address)
	}
}

// FuzzBearer: no message of a client does more than be refused.
func FuzzBearer(f *testing.F) {
	f.Add([]byte("n,a=u,\x01auth=Bearer t.t.t\x01k=v\x01\x01"))
	f.Add([]byte("n,,\x01auth=Bearer \x01\x01"))
	f.Add([]byte("\x01\x01"))
	f.Add([]byte("n,,"))
	f.Fuzz(func(t *testing.T, message []byte) {
		_, token, ok := bearer(message)
		if ok && token == "" {
			t.Fatal("a token without a byte")
		}
	})
}
