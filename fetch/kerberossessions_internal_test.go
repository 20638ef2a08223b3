package fetch

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/twmb/franz-go/pkg/sasl/kerberos"

	"kagami/test/kafka"
)

// TestKerberosSessions: each session gets a ticket of its own by the keytab as it is then,
// and leaves nothing behind that would renew the ticket for ever. Wrong keytabs are told, and
// the right one works again.
func TestKerberosSessions(t *testing.T) {
	kdc := kafka.StartKDC(t, "mirror", "stranger", "kafka/127.0.0.1")
	t.Setenv("KRB5_CONFIG", kdc.Config)
	c, err := ParseConfig(map[string]string{
		"bootstrap.servers": "a:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka",
		"sasl.jaas.config": `com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="` + kdc.Keytabs["mirror"] + `" principal="mirror@` + kafka.Realm + `";`,
	})
	require.NoError(t, err)
	mechanism := kerberos.Kerberos(c.kerberos.auth)
	session := func() error {
		_, first, err := mechanism.Authenticate(t.Context(), "127.0.0.1:9092")
		if err == nil && len(first) == 0 {
			err = fmt.Errorf("nothing to send")
		}
		return err
	}
	for range 20 {
		require.NoError(t, session())
	}
	right, err := os.ReadFile(kdc.Keytabs["mirror"])
	require.NoError(t, err)
	wrong, err := os.ReadFile(kdc.Keytabs["stranger"])
	require.NoError(t, err)
	for text, keys := range map[string][]byte{"keytab": wrong, kdc.Keytabs["mirror"]: []byte("no keytab")} {
		require.NoError(t, os.WriteFile(kdc.Keytabs["mirror"], keys, 0o600))
		require.ErrorContains(t, session(), text)
		require.NoError(t, os.WriteFile(kdc.Keytabs["mirror"], right, 0o600))
		require.NoError(t, session())
	}
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		runtime.GC()
		stacks := make([]byte, 4<<20)
		left := strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "enableAutoSessionRenewal")
		if left == 0 {
			break
		}
		require.True(t, time.Now().Before(until), "%d tickets are renewed still", left)
	}
}
