package stores

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"software.sslmate.com/src/go-pkcs12"
)

// Faults of stores. They are told with the setting that names the store, and never show
// what is in it.
var (
	ErrStore        = errors.New("bad store")
	ErrNoKey        = errors.New("it holds no private key")
	ErrNoCerts      = errors.New("it holds no certificates")
	ErrKeyPassword  = errors.New("its key is encrypted: set the password of the key")
	ErrNotEncrypted = errors.New("its key isn't encrypted, but a password of the key is set: remove that, or encrypt the key")
	ErrLegacyKey    = errors.New("its key is encrypted in the old form (Proc-Type: 4,ENCRYPTED), which is not supported: convert it with openssl pkcs8 -topk8")
	ErrKeyForm      = errors.New("its key is encrypted in a form that is not supported (PBES2 with PBKDF2, HMAC-SHA1 or -SHA256, and AES-CBC or 3DES is): convert it with openssl pkcs8 -topk8 -v2 aes-256-cbc")
	ErrTwoPasswords = errors.New("its key has another password than the store, which is not supported for PKCS12: give both the same, or use JKS or PEM")
	ErrBadPair      = errors.New("private key and certificates don't belong together, or one of them can't be read")
	ErrPassword     = errors.New("it can't be opened with the password that is set")
	ErrNoPassword   = errors.New("it can't be opened without a password, and none is set")
	ErrType         = errors.New("the type is none of JKS, PKCS12 and PEM")
	ErrIsPEM        = errors.New("it is PEM: set the type of the store to PEM")
)

// Store is a key or trust store: a file of a type, or, with type PEM, text.
type Store struct {
	Type        string // JKS, PKCS12 or PEM; of the first two the file decides
	File        string
	Password    string
	KeyPassword string // of the key in it; "" = Password, and with PEM none
	Key, Chain  string // PEM texts in place of File; of a trust store Chain
}

// Empty reports whether nothing is named.
func (s Store) Empty() bool { return s.File == "" && s.Key == "" && s.Chain == "" }

// jksMagic begins a file of Java's own format.
var jksMagic = []byte{0xfe, 0xed, 0xfe, 0xed}

var pemMark = []byte("-----BEGIN ")

// Types are the types of stores, by Kafka's names.
func Types() []string { return []string{"JKS", "PKCS12", "PEM"} }

// read is the file's bytes, nil for texts.
func (s Store) read() ([]byte, error) {
	if s.File == "" {
		return nil, nil
	}
	b, err := ReadFile(s.File)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	return b, nil
}

func (s Store) fault(err error) error {
	name := s.File
	if name == "" {
		name = "the text"
	}
	return fmt.Errorf("%w: %s: %w", ErrStore, name, err)
}

// KeyPair is the key with its chain. Of several keys in a JKS the first by alias is taken.
func (s Store) KeyPair() (tls.Certificate, error) {
	b, err := s.read()
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := s.decodeKey(b)
	if err != nil {
		return tls.Certificate{}, s.fault(err)
	}
	return pair, nil
}

func (s Store) decodeKey(b []byte) (tls.Certificate, error) {
	switch s.Type {
	case "PEM":
		if b != nil {
			return pemPair(b, b, s.KeyPassword)
		}
		return pemPair([]byte(s.Key), []byte(s.Chain), s.KeyPassword)
	case "JKS", "PKCS12":
	default:
		return tls.Certificate{}, ErrType
	}
	switch {
	case bytes.HasPrefix(b, jksMagic):
		return s.jksPair(b)
	case bytes.Contains(b, pemMark):
		return tls.Certificate{}, ErrIsPEM
	}
	if err := checkIterations(b, 0); err != nil {
		return tls.Certificate{}, err
	}
	key, leaf, chain, err := pkcs12.DecodeChain(b, s.Password)
	if err != nil {
		// The store's own password has been checked when the key doesn't open.
		if text := err.Error(); strings.Contains(text, "shrouded key bag") || strings.Contains(text, "private key: ") {
			err = ErrTwoPasswords
		}
		return tls.Certificate{}, s.pkcs12Fault(err)
	}
	pair := tls.Certificate{PrivateKey: key, Leaf: leaf, Certificate: [][]byte{leaf.Raw}}
	for _, c := range chain {
		pair.Certificate = append(pair.Certificate, c.Raw)
	}
	return pair, nil
}

func (s Store) pkcs12Fault(err error) error {
	switch {
	case errors.Is(err, pkcs12.ErrIncorrectPassword) && s.Password == "":
		return ErrNoPassword
	case errors.Is(err, pkcs12.ErrIncorrectPassword):
		return ErrPassword
	case errors.Is(err, ErrTwoPasswords):
		return err
	case strings.HasSuffix(err.Error(), "private key missing"):
		return ErrNoKey
	}
	return fmt.Errorf("as PKCS12: %w", err)
}

func (s Store) jks(b []byte) (keystore.KeyStore, error) {
	ks := keystore.New(keystore.WithOrderedAliases())
	if err := checkJKS(b); err != nil {
		return ks, err
	}
	if err := ks.Load(bytes.NewReader(b), []byte(s.Password)); err != nil {
		if s.Password == "" {
			return ks, ErrNoPassword
		}
		return ks, ErrPassword // or it is damaged: its digest doesn't tell which
	}
	return ks, nil
}

func (s Store) jksPair(b []byte) (tls.Certificate, error) {
	ks, err := s.jks(b)
	if err != nil {
		return tls.Certificate{}, err
	}
	password := s.KeyPassword
	if password == "" {
		password = s.Password
	}
	for _, alias := range ks.Aliases() {
		if !ks.IsPrivateKeyEntry(alias) {
			continue
		}
		entry, err := ks.GetPrivateKeyEntry(alias, []byte(password))
		if err != nil {
			return tls.Certificate{}, ErrPassword
		}
		key, err := x509.ParsePKCS8PrivateKey(entry.PrivateKey)
		if err != nil || len(entry.CertificateChain) == 0 {
			return tls.Certificate{}, ErrBadPair
		}
		pair := tls.Certificate{PrivateKey: key}
		for _, c := range entry.CertificateChain {
			pair.Certificate = append(pair.Certificate, c.Content)
		}
		return pair, nil
	}
	return tls.Certificate{}, ErrNoKey
}

// Certificates are those that are trusted.
func (s Store) Certificates() (*x509.CertPool, error) {
	b, err := s.read()
	if err != nil {
		return nil, err
	}
	pool, err := s.decodeTrust(b)
	if err != nil {
		return nil, s.fault(err)
	}
	return pool, nil
}

func (s Store) decodeTrust(b []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	switch {
	case s.Type == "PEM":
		if b == nil {
			b = []byte(s.Chain)
		}
		if !pool.AppendCertsFromPEM(b) {
			return nil, ErrNoCerts
		}
		return pool, nil
	case s.Type != "JKS" && s.Type != "PKCS12":
		return nil, ErrType
	case bytes.HasPrefix(b, jksMagic):
		return s.jksTrust(b, pool)
	case bytes.Contains(b, pemMark):
		return nil, ErrIsPEM
	}
	if err := checkIterations(b, 0); err != nil {
		return nil, err
	}
	certs, err := pkcs12.DecodeTrustStore(b, s.Password)
	if err != nil {
		return nil, s.pkcs12Fault(err)
	}
	if len(certs) == 0 {
		return nil, ErrNoCerts
	}
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool, nil
}

func (s Store) jksTrust(b []byte, pool *x509.CertPool) (*x509.CertPool, error) {
	ks, err := s.jks(b)
	if err != nil {
		return nil, err
	}
	found := false
	for _, alias := range ks.Aliases() {
		if !ks.IsTrustedCertificateEntry(alias) {
			continue
		}
		entry, err := ks.GetTrustedCertificateEntry(alias)
		if err != nil {
			return nil, fmt.Errorf("certificate %s: %w", alias, err)
		}
		c, err := x509.ParseCertificate(entry.Certificate.Content)
		if err != nil {
			return nil, fmt.Errorf("certificate %s: %w", alias, err)
		}
		pool.AddCert(c)
		found = true
	}
	if !found {
		return nil, ErrNoCerts
	}
	return pool, nil
}

// pemPair never returns the parser's own text: it could quote the key.
func pemPair(key, chain []byte, password string) (tls.Certificate, error) {
	key, err := clearKey(key, password)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(chain, key)
	switch {
	case err == nil:
		return pair, nil
	case !hasBlock(key, "PRIVATE KEY"):
		return tls.Certificate{}, ErrNoKey
	case !hasBlock(chain, "CERTIFICATE"):
		return tls.Certificate{}, ErrNoCerts
	}
	return tls.Certificate{}, ErrBadPair
}

// hasBlock reports whether one of the PEM blocks is of that type, "RSA PRIVATE KEY" and
// such among those of a key.
func hasBlock(b []byte, suffix string) bool {
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, suffix) {
			return true
		}
	}
	return false
}
