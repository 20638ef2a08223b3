package persistence_test

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/persistence"
	"kagami/persistence/faultfs"
	"kagami/persistence/logtest"
)

// runRenew runs one history in which the disk fails: effect number at and those that come
// right after it, so many in all. The log is renewed in place, goes on, and then the power
// goes: everything that it said to be durable is there.
func runRenew(t *testing.T, seed uint64, at, many int) (effects int, failed bool) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 11))
	fsys := faultfs.New()
	h := &history{t: t, rng: rng, script: logtest.NewScript(rng), stop: syscall.EIO}
	_, l, err := openCrash(t, fsys)
	require.NoError(t, err)
	h.log = l
	opened := fsys.Effects()
	fsys.Fault = func(op faultfs.Op) error {
		if op.Number >= opened+at && op.Number < opened+at+many {
			return syscall.EIO
		}
		return nil
	}
	for range 20 {
		if h.step(nextKind(rng)) {
			continue
		}
		failed = true
		for try := 0; ; try++ {
			if err := l.Renew(); err == nil {
				break
			}
			require.Less(t, try, many, "the disk is well again")
		}
		fsys.Fault = nil
		if h.redo != nil {
			require.NoError(t, h.redo(), h.what)
			h.before = h.now
		}
		if h.check(l, faultfs.LoseNothing); h.lost {
			return fsys.Effects() - opened, failed
		}
		h.before = h.now
		require.True(t, h.step(5), "it takes writes")
	}
	fsys.Fault = nil
	require.NoError(t, l.Renew(), "what failed without being told")
	require.NoError(t, l.Flush())
	h.durable, h.died, h.before = h.now.end(), h.now.end(), h.now
	h.what = "a flush"
	effects = fsys.Effects() - opened
	_, l, err = openCrash(t, fsys.Restart(faultfs.LoseUnsynced, nil))
	require.NoError(t, err)
	h.check(l, faultfs.LoseUnsynced)
	return effects, failed
}

// TestRenewAfterEveryFailure: whatever call to the disk fails, the log can be renewed in
// place, with everything that it had acknowledged, and what it says to be durable
// afterwards is, though the system has dropped what the failed syncs were to write.
func TestRenewAfterEveryFailure(t *testing.T) {
	failures := 0
	for seed := range *crashSeeds {
		total, _ := runRenew(t, seed, 1<<30, 0)
		for at := 1; at <= total; at++ {
			for _, many := range []int{1, 4} {
				ok := t.Run(fmt.Sprintf("seed=%d/at=%d/many=%d", seed, at, many), func(t *testing.T) {
					if _, failed := runRenew(t, seed, at, many); failed {
						failures++
					}
				})
				if !ok {
					return
				}
			}
		}
	}
	require.Greater(t, failures, 50)
}

// TestRenewOfDamage: what a failed sync has left in the cache and the cache has lost
// since ends the log.
func TestRenewOfDamage(t *testing.T) {
	fsys := faultfs.New()
	h := &history{t: t, rng: rand.New(rand.NewPCG(1, 1)), stop: syscall.EIO}
	h.script = logtest.NewScript(h.rng)
	_, l, err := openCrash(t, fsys)
	require.NoError(t, err)
	h.log = l
	require.True(t, h.step(5))
	require.NoError(t, l.Flush())
	durable := l.End()
	require.True(t, h.step(5))
	fsys.Fault = func(op faultfs.Op) error {
		if op.Kind == "sync" {
			return syscall.EIO
		}
		return nil
	}
	require.ErrorIs(t, l.Flush(), persistence.ErrStorage)
	require.ErrorIs(t, l.Renew(), persistence.ErrStorage)
	fsys.Fault = nil
	size := l.SizeBytes()
	require.NoError(t, fsys.Flip("/data/t-0/00000000000000000000.log", size-1, 1))
	require.NoError(t, l.Renew())
	require.GreaterOrEqual(t, l.End(), durable)
	require.Less(t, l.SizeBytes(), size)
	require.Equal(t, l.End(), l.RecoveryPoint())
}
