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
	ErrEncryptedKey = errors.New("encrypted PEM keys are not supported: give the key in clear, in a file that only this user may read, or use PKCS12")
	ErrBadPair      = errors.New("private key and certificates don't belong together, or one of them can't be read")
	ErrPassword     = errors.New("it can't be opened with the password that is set")
	ErrType         = errors.New("the type is none of JKS, PKCS12 and PEM")
	ErrIsPEM        = errors.New("it is PEM: set the type of the store to PEM")
)

// Store is a key or trust store: a file of a type, or, with type PEM, text.
type Store struct {
	Type        string // JKS, PKCS12 or PEM; of the first two the file decides
	File        string
	Password    string
	KeyPassword string // of the key in it; "" = Password
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
			return pemPair(b, b)
		}
		return pemPair([]byte(s.Key), []byte(s.Chain))
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
		return tls.Certificate{}, pkcs12Fault(err)
	}
	pair := tls.Certificate{PrivateKey: key, Leaf: leaf, Certificate: [][]byte{leaf.Raw}}
	for _, c := range chain {
		pair.Certificate = append(pair.Certificate, c.Raw)
	}
	return pair, nil
}

func pkcs12Fault(err error) error {
	if errors.Is(err, pkcs12.ErrIncorrectPassword) {
		return ErrPassword
	}
	return fmt.Errorf("as PKCS12: %w", err)
}

func (s Store) jks(b []byte) (keystore.KeyStore, error) {
	ks := keystore.New(keystore.WithOrderedAliases())
	if err := checkJKS(b); err != nil {
		return ks, err
	}
	if err := ks.Load(bytes.NewReader(b), []byte(s.Password)); err != nil {
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
		return nil, pkcs12Fault(err)
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
func pemPair(key, chain []byte) (tls.Certificate, error) {
	for rest := key; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if strings.Contains(block.Type, "ENCRYPTED") || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return tls.Certificate{}, ErrEncryptedKey
		}
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return tls.Certificate{}, ErrBadPair
	}
	return pair, nil
}
