package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"kagami/broker"
	"kagami/broker/acl"
	"kagami/broker/sasl"
	"kagami/messages"
	"kagami/messages/configs"
)

// authorizer is who decides what clients may do, nil for nobody.
func (n *node) authorizer() broker.Authorizer {
	v := configs.BrokerValues(nil, n.settings.static)
	if v.String(configs.AuthorizerClass) == "" {
		return nil
	}
	return acl.New(acl.Options{
		Image: n.store.Image, SuperUsers: configs.ParseSuperUsers(v.String(configs.SuperUsers)), AllowIfNone: v.Bool(configs.AllowEveryoneIfNoACL),
	})
}

// secureListeners adds TLS and SASL to the listeners of the settings.
func (n *node) secureListeners() ([]broker.Listener, error) {
	n.warnClear()
	out, err := secured{static: n.settings.static, image: n.store.Image, now: n.clock.Now, secrets: n.settings.secrets, log: n.log}.secure(n.settings.listeners)
	if err == nil {
		n.warnUnfit(out)
	}
	return out, err
}

// warnClear tells what others can read or use, as the settings allow it.
func (n *node) warnClear() {
	for _, l := range n.settings.listeners {
		if l.Protocol != broker.ProtocolSSL && l.Protocol != broker.ProtocolSASLSSL && !loopback(l.Address) {
			n.log.Warn("clients of this listener are served without encryption", zap.String("listener", l.Name), zap.String("address", l.Address))
		}
	}
	if loopback(n.settings.adminAddr) {
		return
	}
	if n.settings.adminSecure.config == nil {
		n.log.Warn("the admin server is in the clear", zap.String("address", n.settings.adminAddr))
	}
	if !n.settings.adminAsksWho() {
		n.log.Warn("the admin server asks nobody who they are", zap.String("address", n.settings.adminAddr))
	}
}

// loopback reports whether an address can be reached from this machine only, by what is
// written: of names only localhost counts.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// scramUser is a user that kagami.bootstrap.scram names.
type scramUser struct {
	mechanism  messages.ScramMechanism
	name       string
	password   string
	iterations int
}

var errScramUser = errors.New("must be SCRAM-SHA-256=[name=<user>,password=<password>] or SCRAM-SHA-512=[...]; iterations=<number> may be added")

// parseScramUser reads it as kafka-storage does. Its errors don't show the password.
func parseScramUser(text string) (scramUser, error) {
	out := scramUser{iterations: messages.ScramIterationsMin}
	name, rest, ok := strings.Cut(strings.TrimSpace(text), "=")
	switch name {
	case messages.ScramSHA256.String():
		out.mechanism = messages.ScramSHA256
	case messages.ScramSHA512.String():
		out.mechanism = messages.ScramSHA512
	default:
		ok = false
	}
	if !ok || !strings.HasPrefix(rest, "[") || !strings.HasSuffix(rest, "]") {
		return scramUser{}, errScramUser
	}
	for pair := range strings.SplitSeq(rest[1:len(rest)-1], ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		value = strings.Trim(value, `"`)
		switch {
		case !ok:
			return scramUser{}, errScramUser
		case key == "name":
			out.name = value
		case key == "password":
			out.password = value
		case key == "iterations":
			n, err := strconv.Atoi(value)
			if err != nil || n < messages.ScramIterationsMin || n > messages.ScramIterationsMax {
				return scramUser{}, fmt.Errorf("iterations must be from %d to %d", messages.ScramIterationsMin, messages.ScramIterationsMax)
			}
			out.iterations = n
		default:
			return scramUser{}, errScramUser
		}
	}
	if out.name == "" || out.password == "" {
		return scramUser{}, errScramUser
	}
	return out, nil
}

const bootstrapTimeout = time.Minute

// bootstrapUser makes the first SCRAM user, while there is none.
func (n *node) bootstrapUser(ctx context.Context) error {
	text := configs.BrokerValues(nil, n.settings.static).String(configs.BootstrapScram)
	if text == "" || len(n.store.Image().ScramUsers()) > 0 {
		return nil
	}
	u, err := parseScramUser(text)
	if err != nil {
		return err
	}
	c, err := sasl.NewCredential(u.mechanism, u.name, u.password, u.iterations)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bootstrapTimeout, messages.ErrTimedOut)
	defer cancel()
	out := n.controller.Submit(ctx, n.self("bootstrap"), messages.AlterScram{OnlyFirst: true, Changes: []messages.ScramChange{{User: u.name, Mechanism: u.mechanism, Set: c}}})
	if err := errors.Join(out.Err, itemErrors(out.Items)); err != nil {
		return fmt.Errorf("make the first SCRAM user: %w", err)
	}
	return nil
}
