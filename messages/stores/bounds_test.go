package stores

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"software.sslmate.com/src/go-pkcs12"

	"kagami/test/kafka/pki"
)

// TestNoOrdinaryFile: whoever names a file of a node can't have it read for ever.
func TestNoOrdinaryFile(t *testing.T) {
	dir := t.TempDir()
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	require.NoError(t, os.WriteFile(large, nil, 0o600))
	require.NoError(t, os.Truncate(large, 1<<40))
	for file, want := range map[string]error{"/dev/zero": ErrNoFile, "/dev/tty": ErrNoFile, pipe: ErrNoFile, dir: ErrNoFile, large: ErrLarge} {
		for _, typ := range Types() {
			_, err := Store{Type: typ, File: file}.KeyPair()
			require.ErrorIs(t, err, want, file)
			_, err = Store{Type: typ, File: file}.Certificates()
			require.ErrorIs(t, err, want, file)
		}
	}
}

// TestDamagedJKS: a length that lies costs no memory.
func TestDamagedJKS(t *testing.T) {
	good, err := os.ReadFile(jksFile(t, pki.SelfSigned(t, pkix.Name{CommonName: "node"}), "storepass", "storepass"))
	require.NoError(t, err)
	require.NoError(t, checkJKS(good))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for at := 4; at+4 <= len(good); at++ {
		bad := bytes.Clone(good)
		binary.BigEndian.PutUint32(bad[at:], 0xffffffff)
		_, err := Store{Type: "JKS", Password: "storepass"}.decodeKey(bad)
		require.Error(t, err, "at %d", at)
		_, err = Store{Type: "JKS", Password: "storepass"}.decodeTrust(bad)
		require.Error(t, err, "at %d", at)
	}
	for n := range good {
		_, err := Store{Type: "JKS", Password: "storepass"}.decodeTrust(good[:n])
		require.Error(t, err, "%d bytes of it", n)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<30), "bytes; one length believed is 4 GB")
}

// TestManyIterations: a PKCS12 can't have us count for hours.
func TestManyIterations(t *testing.T) {
	p := pki.SelfSigned(t, pkix.Name{CommonName: "node"})
	for name, enc := range map[string]*pkcs12.Encoder{"modern": pkcs12.Modern2026, "2023": pkcs12.Modern2023, "legacy": pkcs12.LegacyDES} {
		b, err := enc.WithIterations(123_457).Encode(p.Key, p.Cert, nil, "storepass")
		require.NoError(t, err)
		trust, err := enc.WithIterations(123_457).EncodeTrustStore([]*x509.Certificate{p.Cert}, "storepass")
		require.NoError(t, err)
		require.NoError(t, checkIterations(b, 0))
		for _, der := range [][]byte{b, trust} {
			many := bytes.ReplaceAll(der, []byte{2, 3, 1, 0xe2, 0x41}, []byte{2, 3, 0x7f, 0xff, 0xff}) // 8 million
			require.NotEqual(t, der, many, name)
			_, err = Store{Type: "PKCS12", Password: "storepass"}.decodeKey(many)
			require.ErrorIs(t, err, ErrIterations, name)
			_, err = Store{Type: "PKCS12", Password: "storepass"}.decodeTrust(many)
			require.ErrorIs(t, err, ErrIterations, name)
		}
	}
}

// FuzzStores: no bytes of a file do more than be refused, in little time and memory.
func FuzzStores(f *testing.F) {
	p := pki.SelfSigned(f, pkix.Name{CommonName: "node"})
	p12, err := pkcs12.LegacyDES.WithIterations(2).Encode(p.Key, p.Cert, nil, "p")
	require.NoError(f, err)
	p12Trust, err := pkcs12.Modern2023.WithIterations(2).EncodeTrustStore([]*x509.Certificate{p.Cert}, "p")
	require.NoError(f, err)
	jks, err := os.ReadFile(jksFile(f, p, "storepass", "keypass"))
	require.NoError(f, err)
	for _, seed := range [][]byte{p12, p12Trust, jks, p.PEM(f), {}, jksMagic} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		began := time.Now()
		for _, typ := range Types() {
			s := Store{Type: typ, Password: "p"}
			_, _ = s.decodeKey(b)
			_, _ = s.decodeTrust(b)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Fatalf("%d bytes took %s", len(b), took)
		}
	})
}
