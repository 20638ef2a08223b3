package stores

import (
	"encoding/asn1"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func fixture(tb testing.TB, name string) string {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(tb, err)
	return string(b)
}

// TestEncryptedKeys: what OpenSSL makes of a key with a password, as texts and as a file.
func TestEncryptedKeys(t *testing.T) {
	cert := fixture(t, "cert.pem")
	for name, want := range map[string]error{
		"aes256.key": nil, "aes128sha1.key": nil, "des3.key": nil, "scrypt.key": nil,
		"sha512.key": ErrKeyForm, "camellia.key": ErrKeyForm, "pbes1.key": ErrKeyForm, "costly.key": ErrIterations, "legacy.key": ErrLegacyKey,
	} {
		t.Run(name, func(t *testing.T) {
			key := fixture(t, name)
			texts := Store{Type: "PEM", Key: key, Chain: cert, KeyPassword: "keypass"}
			file := Store{Type: "PEM", File: write(t, "both.pem", []byte(cert+key)), KeyPassword: "keypass"}
			for _, s := range []Store{texts, file} {
				pair, err := s.KeyPair()
				if want != nil {
					require.ErrorIs(t, err, want)
					require.NotContains(t, err.Error(), "keypass")
					continue
				}
				require.NoError(t, err)
				require.NotNil(t, pair.PrivateKey)
				for password, want := range map[string]error{"": ErrKeyPassword, "s3cret-wrong": ErrPassword} {
					s.KeyPassword = password
					_, err = s.KeyPair()
					require.ErrorIs(t, err, want)
					require.NotContains(t, err.Error(), "s3cret")
				}
			}
		})
	}
}

// TestKeyPasswords: of a key that has none, and of one in a PKCS12 file.
func TestKeyPasswords(t *testing.T) {
	clear, err := clearKey([]byte(fixture(t, "aes256.key")), "keypass")
	require.NoError(t, err)
	s := Store{Type: "PEM", Key: string(clear), Chain: fixture(t, "cert.pem")}
	_, err = s.KeyPair()
	require.NoError(t, err)
	s.KeyPassword = "s3cret"
	_, err = s.KeyPair()
	require.ErrorIs(t, err, ErrNotEncrypted)
	_, err = Store{Type: "PKCS12", File: filepath.Join("testdata", "two.p12"), Password: "storepass", KeyPassword: "keypass"}.KeyPair()
	require.ErrorIs(t, err, ErrTwoPasswords)
	_, err = Store{Type: "PKCS12", File: filepath.Join("testdata", "two.p12"), Password: "s3cret-wrong", KeyPassword: "keypass"}.KeyPair()
	require.ErrorIs(t, err, ErrPassword)
}

// FuzzEncryptedKey: no text makes the node panic or work for long, and no error tells of it.
func FuzzEncryptedKey(f *testing.F) {
	for _, name := range []string{"aes256.key", "des3.key", "scrypt.key", "pbes1.key", "costly.key"} {
		block, _ := pem.Decode([]byte(fixture(f, name)))
		f.Add(block.Bytes)
		var key encryptedKey
		_, err := asn1.Unmarshal(block.Bytes, &key)
		require.NoError(f, err)
		key.Data = key.Data[:len(key.Data)-3]
		cut, err := asn1.Marshal(key)
		require.NoError(f, err)
		f.Add(cut)
	}
	f.Fuzz(func(t *testing.T, der []byte) {
		_, err := clearKey(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: der}), "keypass")
		if err != nil {
			require.NotContains(t, err.Error(), "keypass")
		}
	})
}
