package main

import (
	"crypto/tls"

	"go.uber.org/zap"

	"kagami/broker"
	"kagami/messages/configs"
)

// warnUnfit tells what a node may start with and clients then stumble over, or which lets in more
// than its operator may think.
func (n *node) warnUnfit(listeners []broker.Listener) {
	v := configs.BrokerValues(nil, n.settings.static)
	if v.String(configs.SuperUsers) != "" && v.String(configs.AuthorizerClass) == "" {
		n.log.Warn("super.users has no effect without authorizer.class.name: everybody may do everything")
	}
	offered := map[string]bool{}
	for i, l := range listeners {
		if l.SASL != nil {
			for _, m := range l.SASL.Mechanisms {
				offered[m.Name()] = true
			}
		}
		if l.TLS != nil {
			n.warnCertificate(l, n.settings.advertised[i].Host)
		}
	}
	if u, err := parseScramUser(v.String(configs.BootstrapScram)); err == nil && !offered[u.mechanism.String()] {
		n.log.Warn("no listener offers the mechanism of the user in kagami.bootstrap.scram", zap.String("mechanism", u.mechanism.String()))
	}
}

// warnCertificate tells of a listener's certificate that clients will refuse, and of clients'
// certificates that are taken from any public CA.
func (n *node) warnCertificate(l broker.Listener, host string) {
	c, err := l.TLS.GetConfigForClient(nil)
	if err != nil || len(c.Certificates) == 0 || c.Certificates[0].Leaf == nil {
		return
	}
	leaf, now := c.Certificates[0].Leaf, n.clock.Now()
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		n.log.Warn("the certificate of this listener isn't valid now: clients refuse it",
			zap.String("listener", l.Name), zap.Time("validFrom", leaf.NotBefore), zap.Time("validUntil", leaf.NotAfter))
	}
	if err := leaf.VerifyHostname(host); err != nil {
		n.log.Warn("the certificate of this listener doesn't name the host of advertised.listeners: clients that check it refuse this node",
			zap.String("listener", l.Name), zap.String("host", host), zap.Error(err))
	}
	if c.ClientAuth != tls.NoClientCert && c.ClientCAs == nil {
		n.log.Warn("certificates of clients are taken from every CA that the system trusts: set ssl.truststore.*", zap.String("listener", l.Name))
	}
}
