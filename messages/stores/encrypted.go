package stores

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"strings"

	"github.com/youmark/pkcs8"
)

// Bounds of what opening an encrypted key may cost. Who may create a mirror gives such
// keys, and they say themselves how much work they are.
const (
	scryptBytesMax = 256 << 20
	scryptLanesMax = 16
)

var (
	oidPBES2  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 13}
	oidPBKDF2 = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 12}
	oidScrypt = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11591, 4, 11}
)

// encryptedKey is EncryptedPrivateKeyInfo (RFC 5958).
type encryptedKey struct {
	Algorithm pkix.AlgorithmIdentifier
	Data      []byte
}

// clearKey is the PEM text with its key in clear.
func clearKey(text []byte, password string) ([]byte, error) {
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		switch {
		case strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
			return nil, ErrLegacyKey
		case block.Type == "ENCRYPTED PRIVATE KEY" && password == "":
			return nil, ErrKeyPassword
		case block.Type == "ENCRYPTED PRIVATE KEY":
			return decrypt(block.Bytes, password)
		case strings.HasSuffix(block.Type, "PRIVATE KEY") && password != "":
			return nil, ErrNotEncrypted
		}
	}
	return text, nil
}

func decrypt(der []byte, password string) ([]byte, error) {
	if err := affordable(der); err != nil {
		return nil, err
	}
	key, err := pkcs8.ParsePKCS8PrivateKey(der, []byte(password))
	switch {
	case err != nil && strings.Contains(err.Error(), "unsupported"): // it names a cipher or function
		return nil, fmt.Errorf("%w: %w", ErrKeyForm, err)
	case err != nil:
		return nil, ErrPassword
	}
	der, err = x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, ErrBadPair
	}
	var out bytes.Buffer
	if err := pem.Encode(&out, &pem.Block{Type: "PRIVATE KEY", Bytes: der}); err != nil {
		return nil, ErrBadPair
	}
	return out.Bytes(), nil
}

// affordable looks at how a key is encrypted: the library takes PBES2 only, any amount of
// work, and lengths on trust.
func affordable(der []byte) error {
	var key encryptedKey
	if rest, err := asn1.Unmarshal(der, &key); err != nil || len(rest) > 0 {
		return ErrBadPair
	}
	if !key.Algorithm.Algorithm.Equal(oidPBES2) {
		return fmt.Errorf("%w: it is encrypted by %s", ErrKeyForm, key.Algorithm.Algorithm)
	}
	var how struct{ Function, Cipher pkix.AlgorithmIdentifier }
	var iv []byte
	if _, err := asn1.Unmarshal(key.Algorithm.Parameters.FullBytes, &how); err != nil {
		return ErrBadPair
	}
	if _, err := asn1.Unmarshal(how.Cipher.Parameters.FullBytes, &iv); err != nil {
		return fmt.Errorf("%w: its cipher is %s", ErrKeyForm, how.Cipher.Algorithm)
	}
	block := 16
	if how.Cipher.Algorithm.Equal(asn1.ObjectIdentifier{1, 2, 840, 113549, 3, 7}) {
		block = 8 // DES-EDE3-CBC
	}
	if len(iv) != block || len(key.Data) == 0 || len(key.Data)%block != 0 {
		return ErrBadPair
	}
	parameters := how.Function.Parameters.FullBytes
	switch {
	case how.Function.Algorithm.Equal(oidPBKDF2):
		var p struct {
			Salt       []byte
			Iterations int
			KeyBytes   int                      `asn1:"optional"`
			Hash       pkix.AlgorithmIdentifier `asn1:"optional"`
		}
		if _, err := asn1.Unmarshal(parameters, &p); err != nil {
			return ErrBadPair
		}
		if p.Iterations < 1 || p.Iterations > iterationsMax {
			return ErrIterations
		}
	case how.Function.Algorithm.Equal(oidScrypt):
		var p struct {
			Salt           []byte
			Cost, R, Lanes int
			KeyBytes       int `asn1:"optional"`
		}
		if _, err := asn1.Unmarshal(parameters, &p); err != nil {
			return ErrBadPair
		}
		if p.Cost < 2 || p.R < 1 || p.Lanes < 1 || p.Lanes > scryptLanesMax || p.R > scryptBytesMax/128 || p.Cost > scryptBytesMax/128/p.R {
			return fmt.Errorf("%w: scrypt with cost %d, block %d, lanes %d is too much work", ErrKeyForm, p.Cost, p.R, p.Lanes)
		}
	default:
		return fmt.Errorf("%w: its key function is %s", ErrKeyForm, how.Function.Algorithm)
	}
	return nil
}
