package persistence

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// countedFS counts syncs of single files.
type countedFS struct {
	OSFS
	syncs int
}

type countedFile struct {
	File
	fs *countedFS
}

func (c *countedFS) OpenFile(name string, create bool) (File, error) {
	f, err := c.OSFS.OpenFile(name, create)
	return countedFile{f, c}, err
}

func (f countedFile) Sync() error {
	f.fs.syncs++
	return f.File.Sync()
}

// TestClosedUnsynced: who opens one file too many waits for no sync of another, and
// what was closed unsynced becomes durable later, or its log is told why not.
func TestClosedUnsynced(t *testing.T) {
	bad := errors.New("input/output error")
	for _, c := range []struct {
		name    string
		none    bool  // no syncfs
		foreign bool  // the files are on another file system
		all     error // of the syncfs
		evicted int   // syncs of files as others are opened
	}{
		{name: "by one syncfs"},
		{name: "its error is theirs", all: bad},
		{name: "another file system", foreign: true, evicted: 2},
		{name: "no syncfs", none: true, evicted: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := &countedFS{}
			group := &groupSync{all: func(*os.File) error { return c.all }, same: func(string) bool { return !c.foreign }, ended: make(chan struct{})}
			if c.none {
				group = nil
			}
			cache, dir := newFileCache(fsys, 1, group), t.TempDir()
			var files []*cachedFile
			for base := range int64(3) {
				cf := &cachedFile{dir: dir, base: base, suffix: logSuffix}
				f, err := cache.acquire(cf, true)
				require.NoError(t, err)
				_, err = f.WriteAt([]byte("x"), 0)
				require.NoError(t, err)
				cache.release(cf, true)
				files = append(files, cf)
			}
			require.Equal(t, 1, cache.openFiles())
			require.Equal(t, c.evicted, fsys.syncs)
			for _, cf := range files[:2] { // the closed ones
				require.ErrorIs(t, cache.sync(cf), c.all)
			}
			require.Equal(t, c.evicted == 0, group != nil && group.rounds > 0)
			if c.all != nil { // nothing is put off any more
				before := fsys.syncs
				f, err := cache.acquire(files[0], false)
				require.NoError(t, err)
				_, err = f.WriteAt([]byte("y"), 0)
				require.NoError(t, err)
				cache.release(files[0], true)
				_, err = cache.acquire(files[1], false)
				require.NoError(t, err)
				require.Greater(t, fsys.syncs, before)
				require.NoError(t, cache.sync(files[0]))
			}
		})
	}
}
