package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"kagami/admin"
	"kagami/broker/certs"
	"kagami/messages/configs"
)

func (n *node) serveAdmin(context.Context) error {
	secure, err := adminTLS(n.settings.static, n.log)
	if err != nil {
		return err
	}
	n.admin, err = admin.Start(admin.Config{
		Listen: n.settings.adminAddr, LoopbackOnly: loopback(n.settings.adminAddr), TLS: secure.config, ClientCertificate: secure.clientCertificate,
		User: n.settings.adminUser, Password: configs.BrokerValues(nil, n.settings.static).String(configs.AdminPassword),
		Pprof: n.settings.pprof, Level: &n.level, Metrics: admin.MetricsHandler(n.sample),
	}, n.queries(), n.log.Named("admin"))
	if err != nil {
		return err
	}
	n.defers(n.admin.Close)
	n.adminExpires.Store(&secure.expires)
	return nil
}

// adminURL is where the admin server is.
func (n *node) adminURL() string {
	if n.settings.adminSecure.config != nil {
		return "https://" + n.admin.Addr()
	}
	return "http://" + n.admin.Addr()
}

// adminSecurity is the TLS side of the admin server.
type adminSecurity struct {
	config            *tls.Config // nil: http
	clientCertificate bool        // one is asked for
	expires           func() time.Time
}

// adminTLS reads kagami.admin.ssl.* over ssl.*, as a listener's settings are read.
func adminTLS(static map[string]string, log *zap.Logger) (adminSecurity, error) {
	own := configs.AdminValues(static)
	v := own.Of("")
	if v.String(configs.AdminProtocol) != "SSL" {
		for key := range static {
			if strings.HasPrefix(key, "kagami.admin.ssl.") {
				return adminSecurity{}, fmt.Errorf("%s: is set, but the admin server has no TLS: set %s=SSL", key, configs.AdminProtocol)
			}
		}
		return adminSecurity{}, nil
	}
	s := tlsSettings(v)
	if !own.Has("", configs.SSLClientAuth) {
		s.ClientAuth = "none"
	}
	out := adminSecurity{clientCertificate: s.ClientAuth == "required"}
	if s.ClientAuth != "none" && s.Trust.Empty() {
		return adminSecurity{}, errors.New("kagami.admin." + configs.SSLClientAuth + ": needs kagami.admin." + configs.SSLTruststoreLocation + ", or everybody with a certificate that some public CA has signed would be let in")
	}
	if out.clientCertificate {
		s.ClientAuth = "requested" // probes have none: the server asks the others
	}
	server, err := certs.NewServer(s, log.Named("tls").With(zap.String("listener", "admin")))
	if err != nil {
		return adminSecurity{}, fmt.Errorf("admin server (%s=SSL): %w", configs.AdminProtocol, err)
	}
	out.config, out.expires = server.Config(), server.Expires
	return out, nil
}

// adminAsksWho reports whether the admin server knows who its clients are.
func (s *settings) adminAsksWho() bool { return s.adminUser != "" || s.adminSecure.clientCertificate }

// checkAdminAddress refuses an admin server that others can reach, and read or use without
// saying who they are, unless the settings say that this is meant.
func (s *settings) checkAdminAddress(v configs.Values, fault func(key, why string)) {
	if checkHostPort(s.adminAddr) != nil || loopback(s.adminAddr) {
		return
	}
	if s.adminSecure.config == nil && v.String(configs.AdminProtocol) != "SSL" && !v.Bool(configs.AdminAllowClear) {
		fault(configs.AdminListen, "isn't a loopback address, and the admin server has no TLS: set "+configs.AdminProtocol+"=SSL, or "+configs.AdminAllowClear+"=true if nobody can listen in")
	}
	if !s.adminAsksWho() && !v.Bool(configs.AdminAllowAnonymous) {
		fault(configs.AdminListen, "isn't a loopback address, and the admin server asks nobody who they are: set "+configs.AdminUser+" and "+configs.AdminPassword+" or kagami.admin.ssl.client.auth=required, or "+configs.AdminAllowAnonymous+"=true")
	}
}
