package fetch

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/stretchr/testify/require"

	"kagami/messages/stores"
)

// TestDamagedKeytab: a keytab that is cut off or damaged is refused, and no byte of it shows.
func TestDamagedKeytab(t *testing.T) {
	kt := keytab.New()
	require.NoError(t, kt.AddEntry("mirror-principal", "EXAMPLE.COM", "password", time.Unix(1, 0), 1, 18))
	good, err := kt.Marshal()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "keytab")
	load := func(b []byte) error {
		require.NoError(t, os.WriteFile(file, b, 0o600))
		_, err := loadKeytab(file)
		return err
	}
	require.NoError(t, load(good))
	for n := range good {
		if err := load(good[:n]); err != nil {
			require.ErrorIs(t, err, errKeytab)
			require.NotContains(t, err.Error(), "mirror-principal")
		}
	}
	for at := range good {
		for _, b := range []byte{0, 0x7f, 0xff} {
			bad := append([]byte(nil), good...)
			bad[at] = b
			if err := load(bad); err != nil {
				require.ErrorIs(t, err, errKeytab)
				require.NotContains(t, err.Error(), "mirror-principal")
			}
		}
	}
	_, err = loadKeytab("/dev/zero")
	require.ErrorIs(t, err, stores.ErrNoFile)
}
