package sasl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"
)

const (
	keySetBytesMax = 1 << 20
	keySetTimeout  = 10 * time.Second
	// keySetRedirects is how often the server may send on, to https:// only.
	keySetRedirects = 3
	// keySetRetry is the least pause between two readings, whatever key ids clients name.
	keySetRetry = 10 * time.Second
)

// KeySet is the public keys that sign tokens (JWKS), from a file or an HTTPS server. They
// are read when the first client comes, again when they are old or a key id isn't among
// them, and kept when that fails. Who has a token of a key that is there waits for no
// reading but the one it makes itself.
type KeySet struct {
	at      *url.URL
	refresh time.Duration
	now     func() time.Time
	log     *zap.Logger
	client  *http.Client

	mu      sync.Mutex
	set     jose.JSONWebKeySet
	read    time.Time // when a reading has ended last, well or not; zero: never
	good    time.Time
	reading chan struct{} // closed when the reading under way has ended; nil: none is
}

// NewKeySet is the set at a file:// or https:// address (http:// of this machine only),
// which is read again after refresh. It isn't read yet.
func NewKeySet(address string, refresh time.Duration, now func() time.Time, log *zap.Logger) (*KeySet, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%q is no address: %w", address, err)
	}
	if !trustedAddress(u) && (u.Scheme != "file" || u.Host != "" || u.Path == "") {
		return nil, fmt.Errorf("%q is neither file:///path nor https://host/path", address)
	}
	client := &http.Client{Timeout: keySetTimeout, CheckRedirect: func(to *http.Request, via []*http.Request) error {
		if !trustedAddress(to.URL) || to.URL.Scheme != u.Scheme || len(via) > keySetRedirects {
			return fmt.Errorf("it sends on to %s, which isn't followed", to.URL.Redacted())
		}
		return nil
	}}
	return &KeySet{at: u, refresh: refresh, now: now, log: log, client: client}, nil
}

// CheckFile reads the set once if it is a file, and tells what is wrong with it. A server may come
// up after the node.
func (k *KeySet) CheckFile() error {
	if k.at.Scheme != "file" {
		return nil
	}
	b, err := readFile(k.at.Path)
	if err == nil {
		_, err = k.decode(b)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", k.at.Path, err)
	}
	return nil
}

// trustedAddress: what comes from there can't be forged on the way.
func trustedAddress(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	return u.Scheme == "https" && u.Host != "" || u.Scheme == "http" && local
}

// find gives the keys with that id, all for a token without an id.
func (k *KeySet) find(ctx context.Context, id string) ([]jose.JSONWebKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	missing := k.good.IsZero() || id != "" && len(k.set.Key(id)) == 0
	now := k.now()
	switch {
	case k.reading != nil && missing:
		done := k.reading
		k.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
		}
		k.mu.Lock()
	case k.reading == nil && (missing || now.Sub(k.good) >= k.refresh) && (k.read.IsZero() || now.Sub(k.read) >= keySetRetry):
		k.readLocked(ctx)
	}
	if k.good.IsZero() {
		return nil, errors.New("the key set couldn't be read yet")
	}
	if id == "" {
		return k.set.Keys, nil
	}
	return k.set.Key(id), nil
}

// readLocked reads the set; others may use the old one meanwhile.
func (k *KeySet) readLocked(ctx context.Context) {
	k.reading = make(chan struct{})
	defer func() {
		close(k.reading)
		k.reading = nil
	}()
	k.mu.Unlock()
	set, err := k.fetch(ctx)
	k.mu.Lock()
	k.read = k.now()
	if err != nil {
		k.log.Error("key set for tokens can't be read", zap.String("address", k.at.Redacted()), zap.Error(err))
		return
	}
	k.set, k.good = set, k.read
}

func (k *KeySet) fetch(ctx context.Context) (jose.JSONWebKeySet, error) {
	b, err := k.bytes(ctx)
	if err != nil {
		return jose.JSONWebKeySet{}, err
	}
	return k.decode(b)
}

// decode reads a key set. Keys of a kind that isn't known, and such as are wrong, are left out
// (RFC 7517, 5): they are for others, and no reason to refuse everybody.
func (k *KeySet) decode(b []byte) (set jose.JSONWebKeySet, err error) {
	var raw struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return set, fmt.Errorf("decode key set: %w", err)
	}
	for _, text := range raw.Keys {
		var key jose.JSONWebKey
		if err := json.Unmarshal(text, &key); err != nil {
			k.log.Debug("a key of the key set is left out", zap.Error(err))
			continue
		}
		if key.Valid() {
			set.Keys = append(set.Keys, key)
		}
	}
	if len(set.Keys) == 0 {
		return set, errors.New("it has no keys that can be used")
	}
	return set, nil
}

func (k *KeySet) bytes(ctx context.Context) ([]byte, error) {
	if k.at.Scheme == "file" {
		return readFile(k.at.Path)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.at.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered %s", resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, keySetBytesMax))
}

// readFile reads a file as far as a key set can be long.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, keySetBytesMax))
}
