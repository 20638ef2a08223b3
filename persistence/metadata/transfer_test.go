package metadata

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/persistence"
)

// A store whose log was copied over it says so, once, and keeps its image; a new one
// begins with a snapshot of elsewhere.
func TestStoreMissedChanges(t *testing.T) {
	from := newFakePartition()
	dir := t.TempDir()
	p := newFakePartition()
	failed := make(chan error, 2)
	own := t.TempDir()
	s := openStore(t, p, func(o *Options) { o.Dir, o.Failed = own, func(err error) { failed <- err } })
	fill(t, s, 0, 2)
	at := s.Image().Offset()
	var other *Store
	for i := range 4 {
		other = openStore(t, from, func(o *Options) { o.Dir, o.SnapshotRecords = dir, 5 })
		fill(t, other, 10*i, 10*i+10)
		waitSnapshots(t, other)
	}

	from.mu.Lock()
	p.mu.Lock()
	p.bytes, p.start, p.end = bytes.Clone(from.bytes), from.start, from.end
	watchers := p.watchers
	p.mu.Unlock()
	from.mu.Unlock()
	require.Greater(t, p.start, at)
	for _, f := range watchers {
		f()
	}
	require.ErrorIs(t, <-failed, ErrMissed)
	require.Equal(t, at, s.Image().Offset())
	require.NoError(t, s.Close())

	fsys := persistence.OSFS{}
	ok, err := SnapshotsReach(fsys, own, p.start)
	require.NoError(t, err)
	require.False(t, ok)
	name, content, err := NewestSnapshot(fsys, dir)
	require.NoError(t, err)
	end, err := PutSnapshot(fsys, own, name, content)
	require.NoError(t, err)
	require.GreaterOrEqual(t, end, p.start)
	ok, err = SnapshotsReach(fsys, own, p.start)
	require.NoError(t, err)
	require.True(t, ok)
	again := openStore(t, p, func(o *Options) { o.Dir = own })
	require.Equal(t, dump(t, other.Image()), dump(t, again.Image()))
	require.Empty(t, failed)
}

// A snapshot that is cut short, has a flipped bit, or a name that isn't its own is
// refused, and what was there stays.
func TestPutSnapshotRefusesDamage(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, newFakePartition(), func(o *Options) { o.Dir, o.SnapshotRecords = dir, 5 })
	fill(t, s, 0, 10)
	waitSnapshots(t, s)
	fsys := persistence.OSFS{}
	name, content, err := NewestSnapshot(fsys, dir)
	require.NoError(t, err)
	flipped := bytes.Clone(content)
	flipped[len(flipped)/2] ^= 1
	for what, bad := range map[string]struct {
		name    string
		content []byte
	}{
		"short": {name, content[:len(content)-1]}, "empty": {name, nil}, "flipped": {name, flipped},
		"no name": {"x", content}, "path": {"../" + name, content},
	} {
		into := t.TempDir()
		_, err := PutSnapshot(fsys, into, bad.name, bad.content)
		require.ErrorIs(t, err, persistence.ErrCorrupt, what)
		left, err := os.ReadDir(into)
		require.NoError(t, err)
		require.Empty(t, left, what)
	}
	// A damaged one isn't given to others.
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), flipped, 0o600))
	if older, _, err := NewestSnapshot(fsys, dir); err == nil && older == name || err != nil && !errors.Is(err, persistence.ErrNotFound) {
		t.Errorf("%s, %v", older, err)
	}
}
