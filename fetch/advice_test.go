package fetch

import (
	"crypto/x509"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"kagami/messages/wire"
)

// TestAdvice: an error of TLS, of a login or of a missing right on the source's mirror names what to change.
func TestAdvice(t *testing.T) {
	for want, err := range map[string]error{
		"ssl.truststore":                        fmt.Errorf("unable to dial: %w", x509.UnknownAuthorityError{}),
		"ssl.endpoint.identification.algorithm": x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"node1"}}, Host: "node2"},
		"sasl.jaas.config":                      fmt.Errorf("%w: no", kerr.SaslAuthenticationFailed),
		"sasl.mechanism":                        kerr.UnsupportedSaslMechanism,
		"ssl.keystore":                          errors.New("remote error: tls: certificate required"),
	} {
		told := &ConnectionError{Address: "a:1", Request: "Metadata", Err: err}
		require.ErrorContains(t, told, want)
		require.ErrorContains(t, told, err.Error())
	}
	require.Empty(t, Advice(errors.New("broken pipe")))
	require.ErrorContains(t, &CodeError{Request: "DescribeClusterMirrors of m", Code: wire.CodeClusterMirrorAuthorizationFailed}, "needs DESCRIBE on the cluster mirror")
}
