package configs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"kagami/messages"
)

// Keys of listeners' security, some of which a mirror's connection has too, and of who
// may do what.
const (
	SSLKeystoreType         = "ssl.keystore.type"
	SSLKeystoreLocation     = "ssl.keystore.location"
	SSLKeystorePassword     = "ssl.keystore.password" //nolint:gosec // the name of a setting
	SSLKeyPassword          = "ssl.key.password"
	SSLKeystoreKey          = "ssl.keystore.key"
	SSLKeystoreChain        = "ssl.keystore.certificate.chain"
	SSLTruststoreType       = "ssl.truststore.type"
	SSLTruststoreLocation   = "ssl.truststore.location"
	SSLTruststorePassword   = "ssl.truststore.password" //nolint:gosec // the name of a setting
	SSLTruststoreCerts      = "ssl.truststore.certificates"
	SSLClientAuth           = "ssl.client.auth"
	SSLProtocol             = "ssl.protocol"
	SSLProtocols            = "ssl.enabled.protocols"
	SSLCiphers              = "ssl.cipher.suites"
	SSLPrincipalRules       = "ssl.principal.mapping.rules"
	SASLMechanisms          = "sasl.enabled.mechanisms"
	SASLJAAS                = "sasl.jaas.config"
	SASLMaxReauth           = "connections.max.reauth.ms"
	SASLMaxReceive          = "sasl.server.max.receive.size"
	SASLFailureDelay        = "connection.failed.authentication.delay.ms"
	OAuthJWKS               = "sasl.oauthbearer.jwks.endpoint.url"
	OAuthJWKSRefresh        = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
	OAuthAudience           = "sasl.oauthbearer.expected.audience"
	OAuthIssuer             = "sasl.oauthbearer.expected.issuer"
	OAuthClockSkew          = "sasl.oauthbearer.clock.skew.seconds"
	OAuthUserClaim          = "sasl.oauthbearer.sub.claim.name"
	AuthorizerClass         = "authorizer.class.name"
	SuperUsers              = "super.users"
	AllowEveryoneIfNoACL    = "allow.everyone.if.no.acl.found"
	AdminListen             = "kagami.admin.listen"
	AdminProtocol           = "kagami.admin.security.protocol"
	AdminAllowClear         = "kagami.admin.allow.clear"
	AdminAllowAnonymous     = "kagami.admin.allow.anonymous"
	AdminUser               = "kagami.admin.user"
	AdminPassword           = "kagami.admin.password" //nolint:gosec // the name of a setting
	BootstrapScram          = "kagami.bootstrap.scram"
	SecretsKeyFile          = "kagami.secrets.key.file"         //nolint:gosec // the name of a setting
	SecretsUnreadable       = "kagami.secrets.unreadable.allow" //nolint:gosec // the name of a setting
	InterBrokerListenerName = "inter.broker.listener.name"
)

// StandardAuthorizer is the only authorizer, by Kafka's name of it.
const StandardAuthorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

// listenerPrefix begins the keys of one listener: listener.name.<listener>.[<mechanism>.]key,
// all of it but the key in lower case.
const listenerPrefix = "listener.name."

// adminPrefix begins the ssl.* keys of the admin server.
const adminPrefix = "kagami.admin."

// Mechanisms that a listener may take, in the order they are offered in.
func Mechanisms() []string {
	return []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"}
}

const forListener = " Of all listeners, or of one: `listener.name.<listener>.` in front."

func brokerListenerDefs() []Def {
	return []Def{
		{Name: SSLKeystoreType, Type: TypeString, Default: new("JKS"), Change: ChangeRestart, check: oneOf("JKS", "PKCS12", "PEM"), Doc: "Form of the key store." + forListener},
		{Name: SSLKeystoreLocation, Type: TypeString, Change: ChangeRestart, Doc: "File with the key and the certificates that a listener with TLS shows. It is read again when it has changed." + forListener},
		{Name: SSLKeystorePassword, Type: TypePassword, Change: ChangeRestart, Doc: "Password of that file; none for PEM." + forListener},
		{Name: SSLKeyPassword, Type: TypePassword, Change: ChangeRestart, Doc: "Password of the key in it, if it has another one; of an encrypted PEM key." + forListener},
		{Name: SSLKeystoreKey, Type: TypePassword, Change: ChangeRestart, Doc: "The key itself as PEM text, in place of a file, with type PEM." + forListener},
		{Name: SSLKeystoreChain, Type: TypeString, Change: ChangeRestart, Doc: "Its certificates as PEM text." + forListener},
		{Name: SSLTruststoreType, Type: TypeString, Default: new("JKS"), Change: ChangeRestart, check: oneOf("JKS", "PKCS12", "PEM"), Doc: "Form of the trust store." + forListener},
		{Name: SSLTruststoreLocation, Type: TypeString, Change: ChangeRestart, Doc: "File with the certificates that clients' certificates must be signed by. It is read again when it has changed. Not set: the system's." + forListener},
		{Name: SSLTruststorePassword, Type: TypePassword, Change: ChangeRestart, Doc: "Password of that file; none for PEM." + forListener},
		{Name: SSLTruststoreCerts, Type: TypeString, Change: ChangeRestart, Doc: "Those certificates as PEM text, in place of a file." + forListener},
		{Name: SSLClientAuth, Type: TypeString, Default: new("none"), Change: ChangeRestart, check: oneOf("none", "requested", "required"), Doc: "Whether clients have to show a certificate." + forListener},
		{Name: SSLProtocol, Type: TypeString, Default: new("TLSv1.3"), Change: ChangeRestart, check: oneOf("TLSv1.2", "TLSv1.3", "TLS"), Doc: "Newest version of TLS." + forListener},
		{Name: SSLProtocols, Type: TypeList, Default: new("TLSv1.2,TLSv1.3"), Change: ChangeRestart, check: someOf("TLSv1.2", "TLSv1.3").notEmpty(), Doc: "Versions of TLS." + forListener},
		{Name: SSLCiphers, Type: TypeList, Change: ChangeRestart, Doc: "Cipher suites by their IANA names; a version of TLS that none of them belongs to isn't spoken. Of TLS 1.3 all three have to be named, or none. Not set: the safe ones." + forListener},
		{Name: SSLPrincipalRules, Type: TypeString, Default: new("DEFAULT"), Change: ChangeRestart, Doc: "How a user's name is made of the subject of a certificate: DEFAULT, or RULE:pattern/replacement/[LU], comma separated. Patterns are RE2." + forListener},
		{Name: SASLMechanisms, Type: TypeList, Change: ChangeRestart, check: someOf(Mechanisms()...), Doc: "SASL mechanisms of listeners with SASL." + forListener},
		{Name: SASLJAAS, Type: TypePassword, Change: ChangeRestart, Doc: "Users of PLAIN: `listener.name.<listener>.plain.sasl.jaas.config` = `org.apache.kafka.common.security.plain.PlainLoginModule required user_<name>=\"<password>\" ...;`."},
		{Name: SASLMaxReauth, Type: TypeLong, Default: new("0"), Change: ChangeRestart, check: atLeast(0), Doc: "Time, ms, after which a client has to authenticate again on its connection, else it is closed. 0: never." + forListener},
		{Name: SASLMaxReceive, Type: TypeInt, Default: new("524288"), Change: ChangeRestart, check: atLeast(1024), Doc: "Largest request, bytes, of a client that hasn't authenticated yet." + forListener},
		{Name: SASLFailureDelay, Type: TypeInt, Default: new("100"), Change: ChangeRestart, check: between(0, 10000), Doc: "Wait, ms, before a client is told that it couldn't be authenticated."},
		{Name: OAuthJWKS, Type: TypeString, Change: ChangeRestart, Doc: "Public keys that OAUTHBEARER tokens are signed with (JWKS): file:///path or https://host/path." + forListener},
		{Name: OAuthJWKSRefresh, Type: TypeLong, Default: new("3600000"), Change: ChangeRestart, check: atLeast(1000), Doc: "Time, ms, after which they are read again." + forListener},
		{Name: OAuthAudience, Type: TypeList, Change: ChangeRestart, Doc: "Audiences, one of which a token must name. Not set: any." + forListener},
		{Name: OAuthIssuer, Type: TypeString, Change: ChangeRestart, Doc: "Issuer that a token must name. Not set: any." + forListener},
		{Name: OAuthClockSkew, Type: TypeInt, Default: new("30"), Change: ChangeRestart, check: between(0, 3600), Doc: "Seconds that the clocks of issuer and node may differ." + forListener},
		{Name: OAuthUserClaim, Type: TypeString, Default: new("sub"), Change: ChangeRestart, Doc: "Claim of a token that is the user's name." + forListener},
		{Name: "security.inter.broker.protocol", Type: TypeString, Change: ChangeRestart, Doc: "Accepted and ignored: nodes don't use Kafka listeners among themselves."},
		{Name: "sasl.mechanism.inter.broker.protocol", Type: TypeString, Change: ChangeRestart, Doc: "Accepted and ignored, for the same reason."},
	}
}

func brokerRightsDefs() []Def {
	return []Def{
		{Name: AuthorizerClass, Type: TypeString, Default: new(""), High: true, Change: ChangeRestart, check: oneOf("", StandardAuthorizer), Doc: "Who decides what clients may do: empty, everybody may do everything; or Kafka's name of the authorizer by ACLs."},
		{Name: SuperUsers, Type: TypeString, Default: new(""), Change: ChangeRestart, check: principalList(), Doc: "Users that may do everything: User:name, separated by semicolons."},
		{Name: AllowEveryoneIfNoACL, Type: TypeBoolean, Default: new("false"), Change: ChangeRestart, Doc: "Whether everybody may use a resource that no ACL is about."},
		{Name: BootstrapScram, Type: TypePassword, Change: ChangeRestart, Doc: "A user that is made while the cluster has no SCRAM credentials at all, as kafka-storage --add-scram has it: `SCRAM-SHA-256=[name=admin,password=...]`. Take it away afterwards."},
		{Name: AdminProtocol, Type: TypeString, Default: new("PLAINTEXT"), Change: ChangeRestart, check: oneOf("PLAINTEXT", "SSL"), Doc: "PLAINTEXT: the admin server speaks http. SSL: https, with the ssl.* settings of listeners, each of which may be set for it alone with `kagami.admin.` in front (`kagami.admin.ssl.keystore.location`). `kagami.admin.ssl.client.auth` counts with that prefix only; required asks for a certificate but for /healthz and /readyz."},
		{Name: AdminAllowClear, Type: TypeBoolean, Default: new("false"), Change: ChangeRestart, Doc: "Whether the admin server may listen without TLS on an address that isn't loopback. Otherwise the node doesn't start."},
		{Name: AdminAllowAnonymous, Type: TypeBoolean, Default: new("false"), Change: ChangeRestart, Doc: "Whether it may do so without asking for a password or a certificate. Otherwise the node doesn't start."},
		{Name: SecretsKeyFile, Type: TypeString, Change: ChangeRestart, Doc: "File with the keys that passwords of mirrors and keys of SCRAM users are encrypted with in the metadata log: base64 of 32 bytes a line, as `kagami secrets new-key` makes them; the first one encrypts, all decrypt. `clear` as the first line: nothing is encrypted, what is gets decrypted. Only its owner may be able to read it. Not set: the environment variable KAGAMI_SECRETS_KEY has the same text; without either nothing is encrypted."},
		{Name: SecretsUnreadable, Type: TypeBoolean, Default: new("false"), Change: ChangeRestart, Doc: "Whether the node starts though there are secrets that none of its keys opens. Their mirrors and users don't work then until they are set again."},
		{Name: AdminUser, Type: TypeString, Change: ChangeRestart, Doc: "User that the admin HTTP server asks for (basic authentication), but for /healthz and /readyz. Not set: it asks for nobody."},
		{Name: AdminPassword, Type: TypePassword, Change: ChangeRestart, Doc: "Password of that user."},
	}
}

// principalList is Type:name, separated by semicolons.
func principalList() check {
	return check{"User:name items, separated by semicolons", func(v string) string {
		for _, p := range ParseSuperUsers(v) {
			if kind, name, ok := strings.Cut(p, ":"); !ok || kind == "" || name == "" {
				return fmt.Sprintf("has %q, want User:name", p)
			}
			if strings.Contains(p, ",User:") { // a comma alone may be part of a certificate's name
				return fmt.Sprintf("has %q: separate users by semicolons", p)
			}
		}
		return ""
	}}
}

// ParseSuperUsers splits super.users.
func ParseSuperUsers(v string) []string {
	var out []string
	for item := range strings.SplitSeq(v, ";") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// Listener reads the settings of one listener.
type Listener struct {
	prefix string // of keys that are its own
	values map[string]string
}

// ListenerValues reads the settings of the listener of that name from a node's file.
func ListenerValues(name string, static map[string]string) Listener {
	return Listener{prefix: listenerPrefix + strings.ToLower(name) + ".", values: static}
}

// AdminValues reads the ssl.* settings of the admin server.
func AdminValues(static map[string]string) Listener {
	return Listener{prefix: adminPrefix, values: static}
}

// Of is the values that count for a mechanism on this listener, "" for none. Of several
// places the nearest wins: listener and mechanism, listener, mechanism, the plain key.
func (l Listener) Of(mechanism string) Values {
	mechanism = strings.ToLower(mechanism)
	out := make(map[string]string)
	prefixes := []string{"", l.prefix}
	if mechanism != "" {
		prefixes = []string{"", mechanism + ".", l.prefix, l.prefix + mechanism + "."}
	}
	for _, prefix := range prefixes {
		for key, v := range l.values {
			if rest, ok := strings.CutPrefix(key, prefix); ok && brokerSet.Lookup(rest) != nil {
				out[rest] = v
			}
		}
	}
	return Values{set: brokerSet, values: out}
}

// Has reports whether the listener itself, or the mechanism on it, has the key.
func (l Listener) Has(mechanism, key string) bool {
	prefix := l.prefix
	if mechanism != "" {
		prefix += strings.ToLower(mechanism) + "."
	}
	_, ok := l.values[prefix+key]
	return ok
}

// listenerKey finds the definition behind a key of one listener, or of one mechanism. Its
// text is what may be said of it: known keys only.
func listenerKey(key string) *Def {
	if rest, ok := strings.CutPrefix(key, adminPrefix); ok && strings.HasPrefix(rest, "ssl.") && rest != SSLPrincipalRules {
		return listenerSet[rest]
	}
	rest, ofListener := strings.CutPrefix(key, listenerPrefix)
	if ofListener {
		var ok bool
		if _, rest, ok = strings.Cut(rest, "."); !ok {
			return nil
		}
	}
	for _, m := range Mechanisms() {
		if r, ok := strings.CutPrefix(rest, strings.ToLower(m)+"."); ok {
			return listenerSet[r]
		}
	}
	if !ofListener {
		return nil
	}
	return listenerSet[rest]
}

// listenerSet is the keys that a listener may have of its own.
var listenerSet = func() map[string]*Def {
	out := make(map[string]*Def)
	for _, d := range brokerListenerDefs() {
		if d.Name != SASLFailureDelay && !strings.Contains(d.Name, "inter.broker") {
			out[d.Name] = &d
		}
	}
	return out
}()

// javaClass reports whether a key names a class that decides who clients are. To go on
// without it would let in whom it keeps out.
func javaClass(key string) bool {
	for _, name := range []string{"principal.builder.class", "sasl.server.callback.handler.class", "ssl.engine.factory.class"} {
		if key == name || strings.HasSuffix(key, "."+name) {
			return true
		}
	}
	return false
}

// checkListenerKeys checks the keys of listeners and of the admin server; handled are those
// it knows.
func checkListenerKeys(static map[string]string) (handled map[string]bool, errs []error) {
	handled = make(map[string]bool)
	names := make(map[string]bool)
	listeners, ok := static["listeners"]
	if !ok {
		listeners = *brokerSet.Lookup("listeners").Default
	}
	for _, item := range messages.ParseList(listeners) {
		name, _, _ := strings.Cut(item, "://")
		names[strings.ToLower(name)] = true
	}
	for _, key := range slices.Sorted(maps.Keys(static)) {
		if javaClass(key) && static[key] != "" {
			handled[key] = true
			errs = append(errs, fmt.Errorf("%w: %s: Java classes can't be used here: remove it", messages.ErrInvalidConfig, key))
			continue
		}
		d := listenerKey(key)
		if d == nil {
			continue
		}
		handled[key] = true
		as := *d
		as.Name = key
		if err := as.Check(static[key]); err != nil {
			errs = append(errs, err)
		}
		if rest, ok := strings.CutPrefix(key, listenerPrefix); ok {
			if name, _, _ := strings.Cut(rest, "."); !names[name] {
				errs = append(errs, as.fault("there is no listener %s: names stand here in lower case", name))
			}
		}
	}
	return handled, errs
}
