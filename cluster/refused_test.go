package cluster

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"
)

// TestRefusedWhy: what the journal's server says of a node that isn't let in is told by the settings to look at.
func TestRefusedWhy(t *testing.T) {
	one := &x509.Certificate{DNSNames: []string{"node9"}, NotAfter: time.Unix(1, 0)}
	const text = "127.0.0.1:7094 - rid:1 - TLS route handshake error: tls: failed to verify certificate: "
	for _, tc := range []struct{ text, want string }{
		{text + x509.CertificateInvalidError{Cert: one, Reason: x509.Expired}.Error(), "isn't valid now"},
		{text + x509.HostnameError{Certificate: one, Host: "127.0.0.1"}.Error(), "doesn't name its host"},
		{text + x509.HostnameError{Certificate: one, Host: "node1"}.Error(), "doesn't name its host"},
		{text + x509.HostnameError{Certificate: &x509.Certificate{}, Host: "node1"}.Error(), "cluster.tls"},
		{text + x509.UnknownAuthorityError{Cert: one}.Error(), "the CA (cluster.tls.*)"},
		{"127.0.0.1:1 - rid:1 - TLS route handshake error: remote error: tls: bad certificate", "its log says why"},
		{"127.0.0.1:1 - rid:1 - TLS route handshake error: tls: first record does not look like a TLS handshake", "TLS itself"},
		{"127.0.0.1:1 - rid:1 - Route Error 'Authorization Violation'", "cluster.password"},
		{"JetStream out of resources", ""},
	} {
		if got := refusedWhy(tc.text); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.text, got, tc.want)
		}
	}
}
