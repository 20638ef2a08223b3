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

func openStore(tb testing.TB, dir string, o persistence.Options) logtest.Store {
	tb.Helper()
	m, err := persistence.Open(tb.Context(), dir, o)
	require.NoError(tb, err)
	return m
}

func onOS(o persistence.Options) func(t *testing.T) logtest.Harness {
	return func(t *testing.T) logtest.Harness {
		t.Helper()
		dir := t.TempDir()
		return logtest.Harness{Open: func(tb testing.TB) logtest.Store {
			tb.Helper()
			return openStore(tb, dir, o)
		}}
	}
}

func TestLogOnOS(t *testing.T) { logtest.Run(t, onOS(options(nil))) }

func TestLogOnOSWithFewFiles(t *testing.T) {
	o := options(nil)
	o.OpenFilesMax, o.VerifyReads = 1, true
	logtest.Run(t, onOS(o))
}

func TestLogOnFaultFS(t *testing.T) {
	logtest.Run(t, func(*testing.T) logtest.Harness {
		fsys := faultfs.New()
		return logtest.Harness{
			Open: func(tb testing.TB) logtest.Store {
				tb.Helper()
				return openStore(tb, "/data", options(fsys))
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
