package fetch

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// tlsSettings are the ssl.* configs. Files are read again for every new
// connection, so that renewed certificates work without a restart (C44).
type tlsSettings struct {
	trustFile  string
	trustPEM   []byte
	keyFile    string // PEM with private key and certificate chain
	keyPEM     []byte
	chainPEM   []byte
	minVersion uint16
	maxVersion uint16
	ciphers    []uint16
	checkHost  bool
}

// SecretFileError says that a PEM file which the settings name can't be used. It
// never shows what is in the file.
type SecretFileError struct {
	Key  string // name of the config
	File string
	Err  error
}

// Error names config, file and fault.
func (e *SecretFileError) Error() string { return fmt.Sprintf("%s %s: %v", e.Key, e.File, e.Err) }

// Unwrap is the file system's or parser's error.
func (e *SecretFileError) Unwrap() error { return e.Err }

var (
	errNoCertificates = errors.New("no PEM certificate in it")
	errBadKeyPair     = errors.New("private key and certificate chain don't belong together or aren't PEM")
	errEncryptedKey   = errors.New("encrypted private keys are not supported; give an unencrypted PKCS#8 key")
)

func parseTLS(configs map[string]string) (*tlsSettings, []error) {
	t := &tlsSettings{checkHost: true, minVersion: tls.VersionTLS12, maxVersion: tls.VersionTLS13}
	var faults []error
	add := func(err error) {
		if err != nil {
			faults = append(faults, err)
		}
	}
	switch v, set := configs[keyTLSIdentify]; {
	case !set || v == "https":
	case v == "":
		t.checkHost = false
	default:
		add(invalid(keyTLSIdentify, "%q is neither https nor empty", v))
	}
	add(t.parseVersions(configs))
	add(t.parseCiphers(configs))
	add(t.parseTrust(configs))
	add(t.parseKeys(configs))
	return t, faults
}

func (t *tlsSettings) parseVersions(configs map[string]string) error {
	if v := valueOr(configs, keyTLSProtocol, "TLSv1.3"); !slices.Contains([]string{"TLS", "TLSv1.2", "TLSv1.3"}, v) {
		return invalid(keyTLSProtocol, "%q is none of TLSv1.3, TLSv1.2, TLS", v)
	}
	known := map[string]uint16{"TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}
	low, high := uint16(0), uint16(0)
	for item := range strings.SplitSeq(valueOr(configs, keyTLSProtocols, "TLSv1.2,TLSv1.3"), ",") {
		v, ok := known[strings.TrimSpace(item)]
		if !ok {
			return invalid(keyTLSProtocols, "%q is neither TLSv1.2 nor TLSv1.3", strings.TrimSpace(item))
		}
		if low == 0 || v < low {
			low = v
		}
		high = max(high, v)
	}
	t.minVersion, t.maxVersion = low, high
	return nil
}

func (t *tlsSettings) parseCiphers(configs map[string]string) error {
	for item := range strings.SplitSeq(valueOr(configs, keyTLSCiphers, ""), ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		i := slices.IndexFunc(tls.CipherSuites(), func(c *tls.CipherSuite) bool { return c.Name == item })
		if i < 0 {
			return invalid(keyTLSCiphers, "%q is unknown or insecure", item)
		}
		t.ciphers = append(t.ciphers, tls.CipherSuites()[i].ID)
	}
	return nil
}

func (t *tlsSettings) parseTrust(configs map[string]string) error {
	file, text := configs[keyTrustFile], configs[keyTrustCerts]
	switch typ := valueOr(configs, keyTrustType, "JKS"); {
	case file == "" && text == "":
		return nil // the system's certificates
	case typ != "PEM":
		return invalid(keyTrustType, "%s is not supported: set it to PEM", typ)
	case file != "" && text != "":
		return invalid(keyTrustCerts, "can't be set together with %s", keyTrustFile)
	case configs[keyTrustPassword] != "":
		return invalid(keyTrustPassword, "a PEM trust store has no password")
	case text != "":
		if _, err := certPool([]byte(text)); err != nil {
			return invalid(keyTrustCerts, "%v", err)
		}
		t.trustPEM = []byte(text)
	}
	t.trustFile = file
	return nil
}

func (t *tlsSettings) parseKeys(configs map[string]string) error {
	file, key, chain := configs[keyKeyStoreFile], configs[keyKey], configs[keyCertChain]
	switch typ := valueOr(configs, keyKeyStoreType, "JKS"); {
	case file == "" && key == "" && chain == "":
		return nil // no client certificate
	case typ != "PEM":
		return invalid(keyKeyStoreType, "%s is not supported: set it to PEM", typ)
	case file != "" && (key != "" || chain != ""):
		return invalid(keyKey, "can't be set together with %s", keyKeyStoreFile)
	case configs[keyKeyStorePassword] != "":
		return invalid(keyKeyStorePassword, "a PEM key store has no password of its own")
	case configs[keyKeyPassword] != "":
		return invalid(keyKeyPassword, "%v", errEncryptedKey)
	case file == "" && (key == "" || chain == ""):
		return invalid(keyKey, "needs %s as well, and the other way round", keyCertChain)
	case file == "":
		if _, err := keyPair([]byte(key), []byte(chain)); err != nil {
			return invalid(keyKey, "%v", err)
		}
		t.keyPEM, t.chainPEM = []byte(key), []byte(chain)
	}
	t.keyFile = file
	return nil
}

// config builds the settings of one connection to host.
func (t *tlsSettings) config(host string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: t.minVersion, MaxVersion: t.maxVersion, CipherSuites: t.ciphers, ServerName: host}
	trust := t.trustPEM
	if t.trustFile != "" {
		b, err := os.ReadFile(t.trustFile)
		if err != nil {
			return nil, &SecretFileError{Key: keyTrustFile, File: t.trustFile, Err: err}
		}
		trust = b
	}
	if len(trust) > 0 {
		pool, err := certPool(trust)
		if err != nil {
			return nil, &SecretFileError{Key: keyTrustFile, File: t.trustFile, Err: err}
		}
		c.RootCAs = pool
	}
	key, chain := t.keyPEM, t.chainPEM
	if t.keyFile != "" {
		b, err := os.ReadFile(t.keyFile)
		if err != nil {
			return nil, &SecretFileError{Key: keyKeyStoreFile, File: t.keyFile, Err: err}
		}
		key, chain = b, b
	}
	if len(key) > 0 {
		pair, err := keyPair(key, chain)
		if err != nil {
			return nil, &SecretFileError{Key: keyKeyStoreFile, File: t.keyFile, Err: err}
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if !t.checkHost {
		withoutHostName(c)
	}
	return c, nil
}

// withoutHostName keeps the check of the chain and drops the one of the name.
// InsecureSkipVerify alone would drop both.
func withoutHostName(c *tls.Config) {
	c.InsecureSkipVerify = true // VerifyConnection below checks the chain
	c.VerifyConnection = func(s tls.ConnectionState) error {
		o := x509.VerifyOptions{Roots: c.RootCAs, Intermediates: x509.NewCertPool()}
		for _, cert := range s.PeerCertificates[1:] {
			o.Intermediates.AddCert(cert)
		}
		if _, err := s.PeerCertificates[0].Verify(o); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
		}
		return nil
	}
}

func certPool(text []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errNoCertificates
	}
	return pool, nil
}

// keyPair never returns the parser's own text: it could quote the key.
func keyPair(key, chain []byte) (tls.Certificate, error) {
	for rest := key; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if strings.Contains(block.Type, "ENCRYPTED") || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return tls.Certificate{}, errEncryptedKey
		}
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return tls.Certificate{}, errBadKeyPair
	}
	return pair, nil
}
