package fetch

import (
	"crypto/tls"
	"crypto/x509"
	"slices"

	"kagami/messages"
	"kagami/messages/stores"
)

// tlsSettings are the ssl.* configs. Files are read again for every new
// connection, so that renewed certificates work without a restart (C44).
type tlsSettings struct {
	trust     stores.Store // empty: the system's certificates
	key       stores.Store // empty: no client certificate
	versions  stores.Versions
	checkHost bool
}

// StoreError says that a key or trust store which the settings name can't be used.
// It never shows what is in it.
type StoreError struct {
	Key string // name of the config
	Err error  // names the file, wraps stores.ErrStore
}

// Error names config, file and fault.
func (e *StoreError) Error() string { return e.Key + ": " + e.Err.Error() }

// Unwrap is the store's error.
func (e *StoreError) Unwrap() error { return e.Err }

func parseTLS(configs map[string]string) (*tlsSettings, []error) {
	t := &tlsSettings{checkHost: true}
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
	versions, wrong := stores.ParseVersions(configs[keyTLSProtocol], messages.ParseList(configs[keyTLSProtocols]), messages.ParseList(configs[keyTLSCiphers]))
	t.versions = versions
	for _, f := range wrong {
		add(invalid(f.Setting, "%s", f.Why))
	}
	add(t.parseTrust(configs))
	add(t.parseKeys(configs))
	return t, faults
}

func (t *tlsSettings) parseTrust(configs map[string]string) error {
	t.trust = stores.Store{
		Type: valueOr(configs, keyTrustType, "JKS"), File: configs[keyTrustFile], Password: configs[keyTrustPassword], Chain: configs[keyTrustCerts],
	}
	switch {
	case !slices.Contains(stores.Types(), t.trust.Type):
		return invalid(keyTrustType, "%q is not supported: want JKS, PKCS12 or PEM", t.trust.Type)
	case t.trust.Empty():
		return nil
	case t.trust.File != "" && t.trust.Chain != "":
		return invalid(keyTrustCerts, "can't be set together with %s", keyTrustFile)
	case t.trust.Chain != "" && t.trust.Type != "PEM":
		return invalid(keyTrustType, "%s: set it to PEM with %s", t.trust.Type, keyTrustCerts)
	case t.trust.Type == "PEM" && t.trust.Password != "":
		return invalid(keyTrustPassword, "a PEM trust store has no password")
	case t.trust.Chain != "":
		if _, err := t.trust.Certificates(); err != nil {
			return invalid(keyTrustCerts, "%v", err)
		}
	}
	return nil
}

func (t *tlsSettings) parseKeys(configs map[string]string) error {
	t.key = stores.Store{
		Type: valueOr(configs, keyKeyStoreType, "JKS"), File: configs[keyKeyStoreFile], Password: configs[keyKeyStorePassword],
		KeyPassword: configs[keyKeyPassword], Key: configs[keyKey], Chain: configs[keyCertChain],
	}
	k, isPEM := t.key, t.key.Type == "PEM"
	text := k.Key != "" || k.Chain != ""
	switch {
	case !slices.Contains(stores.Types(), k.Type):
		return invalid(keyKeyStoreType, "%q is not supported: want JKS, PKCS12 or PEM", k.Type)
	case k.Empty():
		return nil
	case k.File != "" && text:
		return invalid(keyKey, "can't be set together with %s", keyKeyStoreFile)
	case text && !isPEM:
		return invalid(keyKeyStoreType, "%s: set it to PEM with %s", k.Type, keyKey)
	case isPEM && k.Password != "":
		return invalid(keyKeyStorePassword, "a PEM key store has no password of its own")
	case text && (k.Key == "" || k.Chain == ""):
		return invalid(keyKey, "needs %s as well, and the other way round", keyCertChain)
	case text:
		if _, err := k.KeyPair(); err != nil {
			return invalid(keyKey, "%v", err)
		}
	}
	return nil
}

// config builds the settings of one connection to host.
func (t *tlsSettings) config(host string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: t.versions.Min, MaxVersion: t.versions.Max, CipherSuites: t.versions.Suites, ServerName: host}
	if !t.trust.Empty() {
		pool, err := t.trust.Certificates()
		if err != nil {
			return nil, &StoreError{Key: keyTrustFile, Err: err}
		}
		c.RootCAs = pool
	}
	if !t.key.Empty() {
		pair, err := t.key.KeyPair()
		if err != nil {
			return nil, &StoreError{Key: keyKeyStoreFile, Err: err}
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
