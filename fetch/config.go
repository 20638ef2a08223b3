package fetch

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"kagami/messages"
	"kagami/messages/configs"
)

// Names of a mirror's connection configs (spec: configs.md "Connection").
const (
	keyBootstrap        = "bootstrap.servers"
	keyProtocol         = "security.protocol"
	keyMechanism        = "sasl.mechanism"
	keyJAAS             = configs.SASLJAAS
	keyClientCallback   = "sasl.client.callback.handler.class"
	keyLoginCallback    = "sasl.login.callback.handler.class"
	keyLoginClass       = "sasl.login.class"
	keyKerberosService  = "sasl.kerberos.service.name"
	keyTokenEndpoint    = "sasl.oauthbearer.token.endpoint.url" //nolint:gosec // the name of a setting
	keyTLSProtocol      = configs.SSLProtocol
	keyTLSProtocols     = configs.SSLProtocols
	keyTLSCiphers       = configs.SSLCiphers
	keyTLSIdentify      = "ssl.endpoint.identification.algorithm"
	keyKeyStoreType     = configs.SSLKeystoreType
	keyKeyStoreFile     = configs.SSLKeystoreLocation
	keyKeyStorePassword = configs.SSLKeystorePassword
	keyKeyPassword      = configs.SSLKeyPassword
	keyKey              = configs.SSLKeystoreKey
	keyCertChain        = configs.SSLKeystoreChain
	keyTrustType        = configs.SSLTruststoreType
	keyTrustFile        = configs.SSLTruststoreLocation
	keyTrustPassword    = configs.SSLTruststorePassword
	keyTrustCerts       = configs.SSLTruststoreCerts
)

// Config is a mirror's connection to its source, ready for use. It holds
// secrets: its String and its errors never show them, and it must not be logged
// field by field.
type Config struct {
	// Bootstrap are host:port, with brackets around IPv6 addresses.
	Bootstrap []string
	// Protocol is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
	Protocol string
	// Mechanism is PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI; "" without SASL.
	Mechanism string
	// User is the login name, of OAUTHBEARER the client id, of GSSAPI the principal; "" without SASL.
	User string

	password string
	tokens   *tokens        // of OAUTHBEARER, shared by all connections; else nil
	kerberos *kerberosLogin // of GSSAPI, else nil
	tls      *tlsSettings   // nil without TLS
	// unusable is a setting that may be stored but not used: refused at connect
	// time (configs.md, callback handler classes).
	unusable error
}

// String shows where to and as whom, no secret.
func (c Config) String() string {
	s := c.Protocol + " " + strings.Join(c.Bootstrap, ",")
	if c.User != "" {
		s += " as " + c.User + " by " + c.Mechanism
	}
	return s
}

// GoString keeps %#v from printing secrets.
func (c Config) GoString() string { return "fetch.Config{" + c.String() + "}" }

// ParseConfig reads the connection part of a mirror's configs; other keys are
// not looked at. All faults are reported together; each wraps
// messages.ErrInvalidConfig, names the key, and never shows a password, key or
// login entry. Files that are named are not opened: they need to exist only
// where and when a connection is made.
func ParseConfig(configs map[string]string) (Config, error) {
	c := Config{Protocol: valueOr(configs, keyProtocol, "PLAINTEXT")}
	var faults []error
	var err error
	if c.Bootstrap, err = parseBootstrap(configs[keyBootstrap]); err != nil {
		faults = append(faults, err)
	}
	useTLS, useSASL := false, false
	switch c.Protocol {
	case "PLAINTEXT":
	case "SSL":
		useTLS = true
	case "SASL_PLAINTEXT":
		useSASL = true
	case "SASL_SSL":
		useTLS, useSASL = true, true
	default:
		faults = append(faults, invalid(keyProtocol, "%q is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", c.Protocol))
	}
	faults = append(faults, c.parseSASL(configs, useSASL)...)
	settings, tlsFaults := parseTLS(configs)
	faults = append(faults, tlsFaults...)
	if useTLS {
		c.tls = settings
	}
	if len(faults) > 0 {
		return Config{}, errors.Join(faults...)
	}
	return c, nil
}

// parseBootstrap splits a list of host:port. IPv6 addresses stand in brackets,
// with a zone if they need one: [fe80::1%eth0]:9092.
func parseBootstrap(list string) ([]string, error) {
	var out []string
	var faults []error
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		addr, why := parseAddress(item)
		if why != "" {
			faults = append(faults, invalid(keyBootstrap, "%q %s", item, why))
			continue
		}
		if !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	if len(out) == 0 && len(faults) == 0 {
		faults = append(faults, invalid(keyBootstrap, "is required: host:port of one broker of the source at least"))
	}
	return out, errors.Join(faults...)
}

func parseAddress(item string) (addr, why string) {
	if strings.Contains(item, "://") {
		// Kafka clients take a listener form too: PLAINTEXT://host:port.
		_, rest, _ := strings.Cut(item, "://")
		item = rest
	}
	host, port, err := net.SplitHostPort(item)
	switch {
	case err != nil && strings.Count(item, ":") > 1 && item[0] != '[':
		return "", "looks like an IPv6 address: write [address]:port"
	case err != nil:
		return "", "must be host:port"
	case host == "":
		return "", "has no host"
	}
	n, err := strconv.ParseUint(port, 10, 32)
	if err != nil || n == 0 || n > 65535 {
		return "", fmt.Sprintf("has port %q, must be 1 to 65535", port)
	}
	if strings.ContainsAny(host, " \t/@") {
		return "", "has a character that no host name has"
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), ""
}

func valueOr(configs map[string]string, key, otherwise string) string {
	if v, ok := configs[key]; ok && strings.TrimSpace(v) != "" {
		return strings.TrimSpace(v)
	}
	return otherwise
}

func invalid(key, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", messages.ErrInvalidConfig, key, fmt.Sprintf(format, args...))
}
