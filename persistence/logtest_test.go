package persistence_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/persistence"
	"kagami/persistence/faultfs"
	"kagami/persistence/logtest"
)

func options(fsys persistence.FS) persistence.Options {
	return persistence.Options{ClusterID: "c", NodeID: 1, FS: fsys, FlushInterval: -1}
}

func TestLogOnOS(t *testing.T) {
	logtest.Run(t, func(t *testing.T) logtest.Harness {
		dir := t.TempDir()
		return logtest.Harness{Open: func(t testing.TB) logtest.Store {
			m, err := persistence.Open(t.Context(), dir, options(nil))
			require.NoError(t, err)
			return m
		}}
	})
}

func TestLogOnOSWithFewFiles(t *testing.T) {
	logtest.Run(t, func(t *testing.T) logtest.Harness {
		dir := t.TempDir()
		return logtest.Harness{Open: func(t testing.TB) logtest.Store {
			o := options(nil)
			o.OpenFilesMax, o.VerifyReads = 1, true
			m, err := persistence.Open(t.Context(), dir, o)
			require.NoError(t, err)
			return m
		}}
	})
}

func TestLogOnFaultFS(t *testing.T) {
	logtest.Run(t, func(*testing.T) logtest.Harness {
		fsys := faultfs.New()
		return logtest.Harness{
			Open: func(t testing.TB) logtest.Store {
				m, err := persistence.Open(t.Context(), "/data", options(fsys))
				require.NoError(t, err)
				return m
			},
			Crash: func(testing.TB, logtest.Store) { fsys = fsys.Restart(faultfs.LoseNothing, nil) },
		}
	})
}

func TestLogInMemory(t *testing.T) {
	logtest.Run(t, func(*testing.T) logtest.Harness {
		m := persistence.NewMemory()
		return logtest.Harness{Open: func(testing.TB) logtest.Store {
			m.Reopen()
			return m
		}}
	})
}
