package tool

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/magiconair/properties"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"kagami/client"
)

// connectTimeout is how long a tool tries to reach the cluster.
const connectTimeout = 20 * time.Second

// loadProperties reads a file of Java properties. ${x} stays as it is: Java
// doesn't expand it.
func loadProperties(file string) (map[string]string, error) {
	l := properties.Loader{Encoding: properties.ISO_8859_1, DisableExpansion: true}
	p, err := l.LoadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return p.Map(), nil
}

// seeds splits a bootstrap list; `:9094` means localhost.
func seeds(bootstrap string) []string {
	var out []string
	for item := range strings.SplitSeq(bootstrap, ",") {
		item = strings.TrimSpace(item)
		if strings.HasPrefix(item, ":") {
			item = "localhost" + item
		}
		if item != "" {
			out = append(out, item)
		}
	}
	return out
}

// connect makes a client of the destination cluster with the settings of
// --command-config.
func connect(bootstrap, commandConfig string) (*client.Client, error) {
	list := seeds(bootstrap)
	if len(list) == 0 {
		return nil, usagef("--bootstrap-server must be specified")
	}
	for _, s := range list {
		if _, _, err := net.SplitHostPort(s); err != nil {
			return nil, usagef("--bootstrap-server %s: want host:port", s)
		}
	}
	opts := []kgo.Opt{kgo.SeedBrokers(list...), kgo.RetryTimeout(connectTimeout), kgo.DialTimeout(connectTimeout / 2), kgo.RequestRetries(5)}
	if commandConfig != "" {
		props, err := loadProperties(commandConfig)
		if err != nil {
			return nil, err
		}
		more, err := security(props)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", commandConfig, err)
		}
		opts = append(opts, more...)
	}
	return client.New(opts...)
}

// security reads Kafka's client settings: protocol, SASL and TLS with PEM. What
// can't be honoured is refused.
func security(props map[string]string) ([]kgo.Opt, error) {
	var opts []kgo.Opt
	if id := props["client.id"]; id != "" {
		opts = append(opts, kgo.ClientID(id))
	}
	protocol := props["security.protocol"]
	switch protocol {
	case "", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL":
	default:
		return nil, fmt.Errorf("security.protocol %q is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", protocol)
	}
	if strings.HasSuffix(protocol, "SSL") {
		cfg, err := tlsConfig(props)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(cfg))
	}
	if strings.HasPrefix(protocol, "SASL") {
		opt, err := saslOption(props)
		if err != nil {
			return nil, err
		}
		opts = append(opts, opt)
	}
	return opts, nil
}

var (
	errJAAS      = errors.New("sasl.jaas.config needs username=\"...\" and password=\"...\"")
	jaasUser     = regexp.MustCompile(`\busername\s*=\s*"((?:[^"\\]|\\.)*)"`)
	jaasPassword = regexp.MustCompile(`\bpassword\s*=\s*"((?:[^"\\]|\\.)*)"`)
	jaasEscape   = regexp.MustCompile(`\\(.)`)
)

func saslOption(props map[string]string) (kgo.Opt, error) {
	jaas := props["sasl.jaas.config"]
	user, pass := jaasUser.FindStringSubmatch(jaas), jaasPassword.FindStringSubmatch(jaas)
	if user == nil || pass == nil {
		return nil, errJAAS
	}
	u, p := jaasEscape.ReplaceAllString(user[1], "$1"), jaasEscape.ReplaceAllString(pass[1], "$1")
	switch mechanism := props["sasl.mechanism"]; mechanism {
	case "PLAIN":
		return kgo.SASL(plain.Auth{User: u, Pass: p}.AsMechanism()), nil
	case "SCRAM-SHA-256":
		return kgo.SASL(scram.Auth{User: u, Pass: p}.AsSha256Mechanism()), nil
	case "SCRAM-SHA-512":
		return kgo.SASL(scram.Auth{User: u, Pass: p}.AsSha512Mechanism()), nil
	default:
		return nil, fmt.Errorf("sasl.mechanism %q is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512", mechanism)
	}
}

func tlsConfig(props map[string]string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if v, set := props["ssl.endpoint.identification.algorithm"]; set && v == "" {
		return nil, errors.New("ssl.endpoint.identification.algorithm can't be empty here: host names are always checked")
	}
	trust, err := pemText(props, "truststore", "certificates")
	if err != nil {
		return nil, err
	}
	if len(trust) > 0 {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(trust) {
			return nil, errors.New("ssl.truststore has no PEM certificate")
		}
	}
	chain, err := pemText(props, "keystore", "certificate.chain")
	if err != nil || len(chain) == 0 {
		return cfg, err
	}
	key := []byte(props["ssl.keystore.key"])
	if len(key) == 0 {
		key = chain // a PEM key store file holds both
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, errors.New("ssl.keystore: private key and certificate chain don't belong together or aren't PEM")
	}
	cfg.Certificates = []tls.Certificate{pair}
	return cfg, nil
}

// pemText is the PEM text of a store, from the settings or from its file.
func pemText(props map[string]string, store, text string) ([]byte, error) {
	prefix := "ssl." + store + "."
	if v := props[prefix+text]; v != "" {
		return []byte(v), nil
	}
	file := props[prefix+"location"]
	if file == "" {
		return nil, nil
	}
	if typ := props[prefix+"type"]; typ != "PEM" {
		return nil, fmt.Errorf("%stype %q is not supported: use PEM", prefix, typ)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read %slocation: %w", prefix, err)
	}
	return b, nil
}
