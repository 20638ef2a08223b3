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
