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
	// keySetRetry is the least pause between two readings, whatever key ids clients name.
	keySetRetry = 10 * time.Second
)

// KeySet is the public keys that sign tokens (JWKS), from a file or an HTTPS server. They
// are read when the first client comes, again when they are old or a key id isn't among
// them, and kept when that fails.
type KeySet struct {
	at      *url.URL
	refresh time.Duration
	now     func() time.Time
	log     *zap.Logger
	client  *http.Client

	mu   sync.Mutex // held while it is read: others wait for the outcome
	set  jose.JSONWebKeySet
	read time.Time // when it was read last, well or not; zero: never
	good time.Time
}

// NewKeySet is the set at a file:// or https:// address (http:// of this machine only),
// which is read again after refresh. It isn't read yet.
func NewKeySet(address string, refresh time.Duration, now func() time.Time, log *zap.Logger) (*KeySet, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%q is no address: %w", address, err)
	}
	local := func() bool {
		ip := net.ParseIP(u.Hostname())
		return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	}
	switch {
	case u.Scheme == "file" && u.Host == "" && u.Path != "", u.Scheme == "https" && u.Host != "", u.Scheme == "http" && local():
	default:
		return nil, fmt.Errorf("%q is neither file:///path nor https://host/path", address)
	}
	return &KeySet{at: u, refresh: refresh, now: now, log: log, client: &http.Client{Timeout: keySetTimeout}}, nil
}

// find gives the keys with that id, all for a token without an id.
func (k *KeySet) find(ctx context.Context, id string) ([]jose.JSONWebKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	due := k.good.IsZero() || now.Sub(k.good) >= k.refresh || id != "" && len(k.set.Key(id)) == 0
	if due && (k.read.IsZero() || now.Sub(k.read) >= keySetRetry) {
		k.read = now
		if set, err := k.fetch(ctx); err != nil {
			k.log.Error("key set for tokens can't be read", zap.String("address", k.at.Redacted()), zap.Error(err))
		} else {
			k.set, k.good = set, now
		}
	}
	if k.good.IsZero() {
		return nil, errors.New("the key set couldn't be read yet")
	}
	if id == "" {
		return k.set.Keys, nil
	}
	return k.set.Key(id), nil
}

func (k *KeySet) fetch(ctx context.Context) (jose.JSONWebKeySet, error) {
	var set jose.JSONWebKeySet
	b, err := k.bytes(ctx)
	if err != nil {
		return set, err
	}
	if err := json.Unmarshal(b, &set); err != nil {
		return set, fmt.Errorf("decode key set: %w", err)
	}
	if len(set.Keys) == 0 {
		return set, errors.New("it has no keys")
	}
	return set, nil
}

func (k *KeySet) bytes(ctx context.Context) ([]byte, error) {
	if k.at.Scheme == "file" {
		return os.ReadFile(k.at.Path)
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
