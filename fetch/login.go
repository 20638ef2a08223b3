package fetch

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"kagami/messages/jaas"
)

// loginModules are the mechanisms that we have, with the class that Kafka's login
// entries name for each (without its package).
var loginModules = map[string]string{ //nolint:gosec // names of classes
	"PLAIN": "PlainLoginModule", "SCRAM-SHA-256": "ScramLoginModule", "SCRAM-SHA-512": "ScramLoginModule",
	"OAUTHBEARER": "OAuthBearerLoginModule", "GSSAPI": "Krb5LoginModule",
}

const mechanisms = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER and GSSAPI are supported"

// tokenHandlers are Kafka's own classes that ask a token endpoint, which is what we do
// without being told.
var tokenHandlers = []string{
	"org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
	"org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
}

// parseSASL refuses mechanisms that we don't have even where SASL isn't used:
// the mirror would fail on the day its protocol is switched.
func (c *Config) parseSASL(configs map[string]string, use bool) []error {
	var faults []error
	mechanism := valueOr(configs, keyMechanism, "PLAIN")
	module, known := loginModules[mechanism]
	if !known {
		return []error{invalid(keyMechanism, "%q is not supported; %s", mechanism, mechanisms)}
	}
	for _, key := range []string{keyClientCallback, keyLoginCallback, keyLoginClass} {
		own := key == keyLoginCallback && mechanism == "OAUTHBEARER" && slices.Contains(tokenHandlers, configs[key])
		if configs[key] != "" && use && !own {
			c.unusable = invalid(key, "Java classes can't be used here; remove it and give the login in %s", keyJAAS)
		}
	}
	endpoint, err := parseEndpoint(configs[keyTokenEndpoint])
	if err != nil {
		faults = append(faults, err)
	}
	text := configs[keyJAAS]
	if text == "" {
		if use && c.unusable == nil {
			faults = append(faults, invalid(keyJAAS, "is required with security.protocol %s", c.Protocol))
		}
		return faults
	}
	entry, err := jaas.Parse(text)
	switch {
	case err != nil:
		return append(faults, invalid(keyJAAS, "%s", err.Error()))
	case !use || c.unusable != nil:
		return faults
	case entry.Module[strings.LastIndexByte(entry.Module, '.')+1:] != module:
		return append(faults, invalid(keyJAAS, "login module for %s must be %s", mechanism, module))
	case mechanism == "OAUTHBEARER":
		c.Mechanism = mechanism
		return append(faults, c.parseTokens(endpoint, entry.Options)...)
	case mechanism == "GSSAPI":
		c.Mechanism = mechanism
		return append(faults, c.parseKerberos(valueOr(configs, keyKerberosService, ""), entry.Options)...)
	case entry.Options["tokenauth"] == "true":
		return append(faults, invalid(keyJAAS, "delegation tokens (tokenauth) are not supported"))
	case entry.Options["username"] == "" || entry.Options["password"] == "":
		return append(faults, invalid(keyJAAS, "username and password are required"))
	}
	c.Mechanism, c.User, c.password = mechanism, entry.Options["username"], entry.Options["password"]
	return faults
}

// login is the kgo option for the mechanism; kgo authenticates again by it before a
// session ends (KIP-368).
func (c Config) login() []kgo.Opt {
	switch c.Mechanism {
	case "PLAIN":
		return []kgo.Opt{kgo.SASL(plain.Auth{User: c.User, Pass: c.password}.AsMechanism())}
	case "SCRAM-SHA-256":
		return []kgo.Opt{kgo.SASL(scram.Auth{User: c.User, Pass: c.password}.AsSha256Mechanism())}
	case "SCRAM-SHA-512":
		return []kgo.Opt{kgo.SASL(scram.Auth{User: c.User, Pass: c.password}.AsSha512Mechanism())}
	case "OAUTHBEARER":
		return []kgo.Opt{kgo.SASL(c.tokens)}
	case "GSSAPI":
		return []kgo.Opt{kgo.SASL(kerberos.Kerberos(c.kerberos.auth))}
	}
	return nil
}
