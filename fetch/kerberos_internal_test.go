package fetch

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
)

// TestKerberosFiles: what is missing is named; with all of it the KDC of the realm is asked.
func TestKerberosFiles(t *testing.T) {
	dir := t.TempDir()
	realms, keys := filepath.Join(dir, "krb5.conf"), filepath.Join(dir, "mirror.keytab")
	t.Setenv("KRB5_CONFIG", realms)
	c, err := ParseConfig(map[string]string{
		"bootstrap.servers": "a:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka",
		"sasl.jaas.config": `com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="` + keys + `" principal="mirror@EXAMPLE.COM";`,
	})
	require.NoError(t, err)
	mechanism := kerberos.Kerberos(c.kerberos.auth)
	fails := func() error {
		t.Helper()
		_, _, err := mechanism.Authenticate(t.Context(), "127.0.0.1:9092")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hidden")
		return err
	}
	err = fails()
	require.ErrorContains(t, err, realms)
	require.True(t, (&ConnectionError{Err: err}).Auth())

	kdc, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		if conn, err := kdc.Accept(); err == nil {
			_ = conn.Close()
		}
	}()
	require.NoError(t, os.WriteFile(realms, []byte("[libdefaults]\n default_realm = EXAMPLE.COM\n dns_lookup_kdc = false\n udp_preference_limit = 1\n[realms]\n EXAMPLE.COM = {\n  kdc = "+kdc.Addr().String()+"\n }\n"), 0o600))
	err = fails()
	require.ErrorContains(t, err, keys)
	require.True(t, (&ConnectionError{Err: err}).Auth())

	tab := keytab.New()
	require.NoError(t, tab.AddEntry("mirror", "EXAMPLE.COM", "mirror-hidden", time.Now(), 1, 18))
	b, err := tab.Marshal()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(keys, b, 0o600))
	require.ErrorContains(t, fails(), "KDC")
	<-asked
	require.NoError(t, kdc.Close())
}
