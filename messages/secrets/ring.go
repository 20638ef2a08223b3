package secrets

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
)

// A sealed value is text, whatever it was:
//
//	kagami-sealed:1:<key id>:<base64 of nonce, ciphertext and tag>
//
// AES-256-GCM with a random nonce of 12 bytes; the place is the additional data, so that
// a value that is moved elsewhere opens nowhere. 2^32 values may be sealed by one key.
const (
	prefix  = "kagami-sealed:"
	version = "1:"
)

// KeyBytes is the size of a key.
const KeyBytes = 32

// clearWord in place of a first key: values are written in clear, and opened by the keys
// that follow.
const clearWord = "clear"

// Errors of opening and reading keys.
var (
	ErrNoKey   = errors.New("there is no key for it here")
	ErrDamaged = errors.New("it doesn't open with its key: it was changed, or comes from another place")
	ErrKeys    = errors.New("secrets keys")
)

// Place is where a value stands: it opens there only. Parts are taken as they are; order
// and number count.
type Place []string

// bytes can't be the same for two places.
func (p Place) bytes() []byte {
	var out []byte
	for _, part := range p {
		out = binary.AppendUvarint(out, uint64(len(part)))
		out = append(out, part...)
	}
	return out
}

type key struct {
	id   string
	aead cipher.AEAD
}

// Ring is the keys of a node: the first seals, all open. A nil ring has none: it leaves
// values as they are and opens only what isn't sealed.
type Ring struct {
	clear bool
	keys  []key
}

// Parse reads keys: base64 of 32 bytes each, one a line; lines that begin with # and empty
// ones don't count. "clear" in place of the first key has values written in clear, and
// opened by the keys that follow. Errors wrap [ErrKeys] and show no key.
func Parse(text string) (*Ring, error) {
	r := &Ring{}
	seen := make(map[string]int)
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
			continue
		case line == clearWord && len(r.keys) == 0 && !r.clear:
			r.clear = true
			continue
		}
		b, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(b) != KeyBytes {
			return nil, fmt.Errorf("%w: line %d isn't base64 of %d bytes, as `kagami secrets new-key` makes it", ErrKeys, n, KeyBytes)
		}
		k, err := newKey(b)
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrKeys, n, err)
		}
		if first, twice := seen[k.id]; twice {
			return nil, fmt.Errorf("%w: lines %d and %d are the same key", ErrKeys, first, n)
		}
		seen[k.id] = n
		r.keys = append(r.keys, k)
	}
	if len(r.keys) == 0 {
		return nil, fmt.Errorf("%w: there is none", ErrKeys)
	}
	return r, nil
}

func newKey(b []byte) (key, error) {
	block, err := aes.NewCipher(b)
	if err != nil {
		return key{}, err
	}
	aead, err := cipher.NewGCM(block)
	return key{id: keyID(b), aead: aead}, err
}

// keyID names a key and tells nothing of it.
func keyID(b []byte) string {
	sum := sha256.Sum256(append([]byte("kagami secrets key id\n"), b...))
	return hex.EncodeToString(sum[:6])
}

// NewKey is a fresh key, as [Parse] reads it.
func NewKey() (string, error) {
	b := make([]byte, KeyBytes)
	if _, err := io.ReadFull(rand.Reader, b); err != nil {
		return "", fmt.Errorf("make a secrets key: %w", err)
	}
	return base64.StdEncoding.EncodeToString(b), nil
}

// Primary is the id of the key that seals, "" if values are written in clear.
func (r *Ring) Primary() string {
	if r == nil || r.clear {
		return ""
	}
	return r.keys[0].id
}

// IDs are the ids of all keys, the first one first.
func (r *Ring) IDs() []string {
	if r == nil {
		return nil
	}
	out := make([]string, len(r.keys))
	for i, k := range r.keys {
		out[i] = k.id
	}
	return out
}

// Has reports whether the key of that id is there; "", no key, always is.
func (r *Ring) Has(id string) bool { return id == "" || r.find(id) != nil }

func (r *Ring) find(id string) *key {
	if r != nil {
		for i := range r.keys {
			if r.keys[i].id == id {
				return &r.keys[i]
			}
		}
	}
	return nil
}

// Seal encrypts a value for its place, or returns it as it is when values are written in
// clear.
func (r *Ring) Seal(value string, at Place) (string, error) {
	if r.Primary() == "" {
		return value, nil
	}
	k := r.keys[0]
	nonce := make([]byte, k.aead.NonceSize(), k.aead.NonceSize()+len(value)+k.aead.Overhead())
	if _, err := io.ReadFull(rand.Reader, nonce); err != nil {
		return "", fmt.Errorf("encrypt a secret: %w", err)
	}
	sealed := k.aead.Seal(nonce, nonce, []byte(value), at.bytes())
	return prefix + version + k.id + ":" + base64.RawStdEncoding.EncodeToString(sealed), nil
}

// Open decrypts a value at its place; one that isn't sealed comes back as it is. Errors
// wrap [ErrNoKey] or [ErrDamaged] and name the key, never the value.
func (r *Ring) Open(value string, at Place) (string, error) {
	if !strings.HasPrefix(value, prefix) {
		return value, nil
	}
	id, text, ok := strings.Cut(strings.TrimPrefix(value, prefix+version), ":")
	if !ok || !strings.HasPrefix(value, prefix+version) {
		return "", fmt.Errorf("open a secret: %w", ErrDamaged)
	}
	k := r.find(id)
	if k == nil {
		return "", fmt.Errorf("a secret is encrypted with key %s: %w", id, ErrNoKey)
	}
	b, err := base64.RawStdEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < k.aead.NonceSize() || strings.ContainsAny(text, "\r\n") {
		return "", fmt.Errorf("a secret is encrypted with key %s: %w", id, ErrDamaged)
	}
	opened, err := k.aead.Open(nil, b[:k.aead.NonceSize()], b[k.aead.NonceSize():], at.bytes())
	if err != nil {
		return "", fmt.Errorf("a secret is encrypted with key %s: %w", id, ErrDamaged)
	}
	return string(opened), nil
}

// Sealed reports whether a value is in the sealed form, and with which key: "" if it isn't.
func Sealed(value string) (keyID string, ok bool) {
	if !strings.HasPrefix(value, prefix) {
		return "", false
	}
	keyID, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(value, prefix), version), ":")
	return keyID, true
}

// Format shows the ids of keys only, whatever the verb.
func (r *Ring) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "secrets keys %v", r.IDs())
}
