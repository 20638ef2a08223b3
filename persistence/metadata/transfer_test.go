package metadata

import (
	"bytes"
	"context"
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

// A store whose log was copied over it goes on from a snapshot that it is given, tells
// its subscribers everything as one change, and doesn't say of an append that it jumped
// over that it was applied.
func TestStoreJumpsOverWhatItMissed(t *testing.T) {
	from := newFakePartition()
	dir, own := t.TempDir(), t.TempDir()
	p := newFakePartition()
	s := openStore(t, p, func(o *Options) {
		o.Dir, o.Failed = own, func(err error) { t.Error(err) }
		o.Missed = func(context.Context) error {
			name, content, err := NewestSnapshot(persistence.OSFS{}, dir)
			if err == nil {
				_, err = PutSnapshot(persistence.OSFS{}, own, name, content)
			}
			return err
		}
	})
	fill(t, s, 100, 102) // topics that are gone later
	at := s.Image().Offset()
	deltas := make(chan Delta, 100)
	defer s.Subscribe(func(d Delta) { deltas <- d })()
	require.Equal(t, int64(-1), (<-deltas).Old.Offset())
	var other *Store
	for i := range 4 {
		other = openStore(t, from, func(o *Options) { o.Dir, o.SnapshotRecords = dir, 5 })
		fill(t, other, 10*i, 10*i+10)
		waitSnapshots(t, other)
	}
	copyPartition(from, p)
	require.Greater(t, p.start, at)
	require.NoError(t, s.WaitFor(t.Context(), p.end-1))
	require.Equal(t, dump(t, other.Image()), dump(t, s.Image()))
	d := <-deltas
	require.Equal(t, at, d.Old.Offset())
	require.GreaterOrEqual(t, d.New.Offset()+1, p.start)
	for _, img := range []*Image{d.Old, d.New} {
		for _, topic := range img.Topics() {
			require.Contains(t, d.Topics, topic.Name)
		}
	}
	require.True(t, s.unseen(at+1))
	require.False(t, s.unseen(at))
	require.False(t, s.unseen(d.New.Offset()+1))
	fill(t, s, 200, 202)
	require.NotNil(t, s.Image())
}

// copyPartition puts a copy of one log over another.
func copyPartition(from, to *fakePartition) {
	from.mu.Lock()
	to.mu.Lock()
	to.bytes, to.start, to.end = bytes.Clone(from.bytes), from.start, from.end
	watchers := to.watchers
	to.mu.Unlock()
	from.mu.Unlock()
	for _, f := range watchers {
		f()
	}
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
