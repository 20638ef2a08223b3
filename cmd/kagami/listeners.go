package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"kagami/broker"
	"kagami/broker/certs"
	"kagami/broker/sasl"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/jaas"
	"kagami/messages/secrets"
	"kagami/messages/stores"
	"kagami/persistence/metadata"
)

func (s *settings) parseListeners(v configs.Values, fault func(key, why string)) {
	advertised := map[string]messages.Endpoint{}
	for _, item := range messages.ParseList(v.String("advertised.listeners")) {
		name, host, port, err := parseListener(item)
		if err != nil {
			fault("advertised.listeners", err.Error())
			continue
		}
		if everyAddress(host) {
			fault("advertised.listeners", fmt.Sprintf("%s has no host that clients can connect to: say how clients reach this node", item))
		}
		if _, twice := advertised[name]; twice {
			fault("advertised.listeners", fmt.Sprintf("%s stands there twice", name))
		}
		advertised[name] = messages.Endpoint{Listener: name, Host: host, Port: port}
	}
	seen := map[string]bool{}
	for _, item := range messages.ParseList(v.String("listeners")) {
		name, host, port, err := parseListener(item)
		if err != nil {
			fault("listeners", err.Error())
			continue
		}
		if seen[name] {
			fault("listeners", fmt.Sprintf("%s stands there twice", name))
		}
		seen[name] = true
		protocol := name
		for _, m := range messages.ParseList(v.String("listener.security.protocol.map")) {
			if from, to, ok := strings.Cut(m, ":"); ok && strings.EqualFold(from, name) {
				protocol = strings.ToUpper(to)
			}
		}
		s.listeners = append(s.listeners, broker.Listener{Name: name, Protocol: protocol, Address: net.JoinHostPort(host, strconv.Itoa(int(port)))})
		ep, ok := advertised[name]
		if !ok {
			ep = messages.Endpoint{Listener: name, Host: host, Port: port}
			if everyAddress(host) {
				fault("advertised.listeners", fmt.Sprintf("listener %s takes every address: say in advertised.listeners how clients reach this node", name))
			}
		}
		ep.Protocol = protocol
		s.advertised = append(s.advertised, ep)
	}
	for _, name := range slices.Sorted(maps.Keys(advertised)) {
		if !seen[name] {
			fault("advertised.listeners", fmt.Sprintf("there is no listener %s", name))
		}
	}
	if len(s.listeners) == 0 {
		fault("listeners", "want at least one, e.g. PLAINTEXT://localhost:9094")
	}
	for _, key := range []string{configs.InterBrokerListenerName, "mirror.admin.listener.name"} {
		if name := v.String(key); name != "" && !seen[strings.ToUpper(name)] {
			fault(key, "there is no listener of that name")
		}
	}
}

// everyAddress reports whether a host stands for all of the machine's, however it is written.
func everyAddress(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// parseListener reads NAME://host:port; an IPv6 host stands in brackets.
func parseListener(item string) (name, host string, port int32, err error) {
	name, addr, ok := strings.Cut(item, "://")
	if !ok || name == "" {
		return "", "", 0, fmt.Errorf("%q is not NAME://host:port", item)
	}
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return "", "", 0, fmt.Errorf("%q is not NAME://host:port: %w", item, err)
	}
	n, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return "", "", 0, fmt.Errorf("%q: port %s is not from 0 to 65535", item, portText)
	}
	return strings.ToUpper(name), host, int32(n), nil
}

// secured is what listeners' security needs of the node.
type secured struct {
	static map[string]string
	image  func() *metadata.Image
	now    func() time.Time
	// secrets opens the credentials of SCRAM users; nil opens what isn't encrypted.
	secrets *secrets.Ring
	log     *zap.Logger
}

// secure adds TLS and SASL to the listeners, by their settings. Every fault is told, with
// the listener's name.
func (x secured) secure(listeners []broker.Listener) ([]broker.Listener, error) {
	var errs []error
	out := slices.Clone(listeners)
	for i := range out {
		if err := x.one(&out[i]); err != nil {
			errs = append(errs, fmt.Errorf("%w: listener %s (%s): %w", errConfigValue, out[i].Name, out[i].Protocol, err))
		}
	}
	return out, errors.Join(errs...)
}

func (x secured) one(l *broker.Listener) error {
	own := configs.ListenerValues(l.Name, x.static)
	switch l.Protocol {
	case broker.ProtocolPlaintext:
		return nil
	case broker.ProtocolSSL:
		return x.tls(l, own.Of(""))
	case broker.ProtocolSASLPlaintext:
		return x.sasl(l, own)
	case broker.ProtocolSASLSSL:
		return errors.Join(x.tls(l, own.Of("")), x.sasl(l, own))
	default:
		return fmt.Errorf("the security protocol is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL: set it in listener.security.protocol.map")
	}
}

func (x secured) tls(l *broker.Listener, v configs.Values) error {
	rules, err := certs.ParseRules(v.String(configs.SSLPrincipalRules))
	if err != nil {
		return err
	}
	s := tlsSettings(v)
	if l.Protocol == broker.ProtocolSASLSSL && !configs.ListenerValues(l.Name, x.static).Has("", configs.SSLClientAuth) {
		s.ClientAuth = "none" // as in Kafka: who a client is, SASL says
	}
	server, err := certs.NewServer(s, x.log.Named("tls").With(zap.String("listener", l.Name)))
	if err != nil {
		return err
	}
	l.TLS, l.User, l.Expires = server.Config(), rules.User, server.Expires
	return nil
}

// tlsSettings are the ssl.* settings of a listener or of the admin server.
func tlsSettings(v configs.Values) certs.Settings {
	return certs.Settings{
		Protocol: v.String(configs.SSLProtocol), Protocols: v.List(configs.SSLProtocols), Ciphers: v.List(configs.SSLCiphers), ClientAuth: v.String(configs.SSLClientAuth),
		Key: stores.Store{
			Type: v.String(configs.SSLKeystoreType), File: v.String(configs.SSLKeystoreLocation), Password: v.String(configs.SSLKeystorePassword),
			KeyPassword: v.String(configs.SSLKeyPassword), Key: v.String(configs.SSLKeystoreKey), Chain: v.String(configs.SSLKeystoreChain),
		},
		Trust: stores.Store{
			Type: v.String(configs.SSLTruststoreType), File: v.String(configs.SSLTruststoreLocation), Password: v.String(configs.SSLTruststorePassword),
			Chain: v.String(configs.SSLTruststoreCerts),
		},
	}
}

func (x secured) sasl(l *broker.Listener, own configs.Listener) error {
	v := own.Of("")
	names := v.List(configs.SASLMechanisms)
	if len(names) == 0 {
		return fmt.Errorf("%s isn't set: name one of %s at least", configs.SASLMechanisms, strings.Join(configs.Mechanisms(), ", "))
	}
	l.SASL = &broker.SASL{ReceiveBytesMax: v.Int(configs.SASLMaxReceive), FailureDelay: time.Duration(v.Int64(configs.SASLFailureDelay)) * time.Millisecond}
	var errs []error
	for _, name := range names {
		of := own.Of(name)
		m, err := x.mechanism(name, of)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		l.SASL.Mechanisms = append(l.SASL.Mechanisms, broker.Mechanism{Mechanism: m, MaxReauth: time.Duration(of.Int64(configs.SASLMaxReauth)) * time.Millisecond})
	}
	return errors.Join(errs...)
}

func (x secured) mechanism(name string, v configs.Values) (sasl.Mechanism, error) {
	switch name {
	case sasl.Plain:
		users, err := plainUsers(v.String(configs.SASLJAAS))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", configs.SASLJAAS, err)
		}
		return sasl.NewPlain(users), nil
	case sasl.ScramSHA256:
		return sasl.NewScram(messages.ScramSHA256, &scramUsers{image: x.image, mechanism: messages.ScramSHA256, secrets: x.secrets, log: x.log})
	case sasl.ScramSHA512:
		return sasl.NewScram(messages.ScramSHA512, &scramUsers{image: x.image, mechanism: messages.ScramSHA512, secrets: x.secrets, log: x.log})
	case sasl.OAuthBearer:
		return x.oauth(v)
	default:
		return nil, fmt.Errorf("not supported: %s are", strings.Join(configs.Mechanisms(), ", "))
	}
}

// scramUsers are the users of the metadata image.
type scramUsers struct {
	image     func() *metadata.Image
	mechanism messages.ScramMechanism
	secrets   *secrets.Ring
	log       *zap.Logger

	mu  sync.Mutex
	of  *metadata.Image // that all is of
	all []messages.ScramCredential
}

// Credential is a user's.
func (u *scramUsers) Credential(user string) (messages.ScramCredential, bool) {
	who := metadata.ScramUser{Name: user, Mechanism: u.mechanism}
	c, ok := u.image().ScramCredential(who)
	if !ok {
		return c, false
	}
	c, err := metadata.OpenScram(u.secrets, who, c)
	if err != nil {
		u.log.Error("a user can't log in: its keys can't be read", zap.Error(err))
	}
	return c, err == nil
}

// Credentials are all, by the users' names.
func (u *scramUsers) Credentials() []messages.ScramCredential {
	img := u.image()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of != img {
		u.of, u.all = img, nil
		for _, user := range img.ScramUsers() {
			c, ok := img.ScramCredential(user)
			if !ok || user.Mechanism != u.mechanism {
				continue
			}
			if c, err := metadata.OpenScram(u.secrets, user, c); err == nil { // else its login tells
				u.all = append(u.all, c)
			}
		}
	}
	return u.all
}

func (x secured) oauth(v configs.Values) (sasl.Mechanism, error) {
	if v.String(configs.OAuthJWKS) == "" {
		return nil, fmt.Errorf("%s isn't set: say where the keys are that tokens are signed with", configs.OAuthJWKS)
	}
	keys, err := sasl.NewKeySet(v.String(configs.OAuthJWKS), time.Duration(v.Int64(configs.OAuthJWKSRefresh))*time.Millisecond, x.now, x.log.Named("oauth"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", configs.OAuthJWKS, err)
	}
	if err := keys.CheckFile(); err != nil {
		return nil, fmt.Errorf("%s: %w", configs.OAuthJWKS, err)
	}
	return sasl.NewOAuthBearer(sasl.OAuth{
		Keys: keys, Issuer: v.String(configs.OAuthIssuer), Audience: v.List(configs.OAuthAudience), UserClaim: v.String(configs.OAuthUserClaim),
		ClockSkew: time.Duration(v.Int64(configs.OAuthClockSkew)) * time.Second, Now: x.now,
	}), nil
}

var errNoUsers = errors.New(`must be: org.apache.kafka.common.security.plain.PlainLoginModule required user_<name>="<password>" ... ;`)

// plainUsers reads users and passwords as Kafka has them: options user_<name>.
func plainUsers(text string) (map[string]string, error) {
	if text == "" {
		return nil, fmt.Errorf("isn't set, %w", errNoUsers)
	}
	entry, err := jaas.Parse(text)
	if err != nil {
		return nil, err
	}
	if entry.Module[strings.LastIndexByte(entry.Module, '.')+1:] != "PlainLoginModule" {
		return nil, errNoUsers
	}
	users := make(map[string]string)
	for key, password := range entry.Options {
		if name, ok := strings.CutPrefix(key, "user_"); ok && name != "" {
			if password == "" {
				return nil, fmt.Errorf("user %s has no password", name)
			}
			users[name] = password
		}
	}
	if len(users) == 0 {
		return nil, errNoUsers
	}
	return users, nil
}
