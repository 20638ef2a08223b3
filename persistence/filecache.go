package persistence

import (
	"path/filepath"
	"strconv"
	"sync"
)

// fileCache bounds the open files of a data folder: least recently used ones
// are closed when nobody holds them. An error that the system finds after a file with
// unsynced writes was closed has no file left to be reported on: such a file is made
// durable later by a syncfs, which tells of it, or where there is none synced before it
// is closed. (An append that opens one file too many must not wait for a sync of
// another: with thousands of partitions it was one at each append, and the journal's
// follower waited.)
type fileCache struct {
	fs    FS
	max   int
	group *groupSync // nil: there is none

	mu   sync.Mutex
	open int
	// ring of open files without references; idle.next is the newest.
	idle cachedFile
}

// cachedFile is a file that is opened when needed. Its fields belong to
// fileCache.mu, apart from dir, base and suffix, which never change.
type cachedFile struct {
	dir    string
	base   int64
	suffix string

	f        File
	refs     int
	dirty    bool   // written since the last sync through this handle
	late     uint64 // closed with unsynced writes, which the syncfs of that number makes durable; 0: not
	dropped  bool   // close it with the last reference
	syncErr  error  // a sync before closing went wrong: the log must fail
	readers  int    // chunks that are out
	readEnd  int64  // highest end of those chunks, in bytes
	prev     *cachedFile
	nextIdle *cachedFile
}

func newFileCache(fsys FS, limit int, group *groupSync) *fileCache {
	c := &fileCache{fs: fsys, max: limit, group: group}
	c.idle.prev, c.idle.nextIdle = &c.idle, &c.idle
	return c
}

func segmentName(base int64, suffix string) string {
	s := strconv.FormatInt(base, 10)
	const zeros = "00000000000000000000"
	return zeros[:len(zeros)-len(s)] + s + suffix
}

func (cf *cachedFile) path() string { return filepath.Join(cf.dir, segmentName(cf.base, cf.suffix)) }

// acquire opens cf unless it is open; release must follow.
func (c *fileCache) acquire(cf *cachedFile, create bool) (File, error) {
	c.mu.Lock()
	if err := cf.syncErr; err != nil {
		c.mu.Unlock()
		return nil, err
	}
	if cf.f != nil {
		c.refLocked(cf)
		c.mu.Unlock()
		return cf.f, nil
	}
	c.mu.Unlock()
	f, err := c.fs.OpenFile(cf.path(), create)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if cf.f != nil { // someone else was faster
		c.refLocked(cf)
		c.mu.Unlock()
		return cf.f, f.Close()
	}
	cf.f, cf.refs = f, 1
	c.open++
	victims := c.victimsLocked()
	c.mu.Unlock()
	c.closeAll(victims)
	return f, nil
}

func (c *fileCache) refLocked(cf *cachedFile) {
	if cf.refs == 0 && cf.prev != nil {
		unlinkIdle(cf)
	}
	cf.refs++
}

// adopt takes an open file for cf, with a reference that release gives back: until
// then nobody opens it by its name, under which it may not be yet.
func (c *fileCache) adopt(cf *cachedFile, f File) {
	c.mu.Lock()
	cf.f, cf.refs = f, 1
	c.open++
	c.mu.Unlock()
}

// release gives a reference back; wrote says that the file was changed.
func (c *fileCache) release(cf *cachedFile, wrote bool) {
	c.mu.Lock()
	cf.refs--
	cf.dirty = cf.dirty || wrote
	var victims []victim
	if cf.refs == 0 {
		if cf.dropped {
			victims = append(victims, victim{cf: cf, f: cf.f})
			cf.f = nil
			c.open--
		} else {
			cf.prev, cf.nextIdle = &c.idle, c.idle.nextIdle
			cf.prev.nextIdle, cf.nextIdle.prev = cf, cf
			victims = c.victimsLocked()
		}
	}
	c.mu.Unlock()
	c.closeAll(victims)
}

// acquireChunk takes a reference for a chunk that ends at byte end.
func (c *fileCache) acquireChunk(cf *cachedFile, end int64) (File, error) {
	f, err := c.acquire(cf, false)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	cf.readers++
	cf.readEnd = max(cf.readEnd, end)
	c.mu.Unlock()
	return f, nil
}

func (c *fileCache) releaseChunk(cf *cachedFile) {
	c.mu.Lock()
	cf.readers--
	if cf.readers == 0 {
		cf.readEnd = 0
	}
	c.mu.Unlock()
	c.release(cf, false)
}

// readAbove reports whether a chunk is out that ends above byte pos.
func (c *fileCache) readAbove(cf *cachedFile, pos int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cf.readers > 0 && cf.readEnd > pos
}

// drop closes cf as soon as nobody holds it; its file is gone or replaced.
func (c *fileCache) drop(cf *cachedFile) {
	if cf == nil {
		return
	}
	c.mu.Lock()
	cf.dropped = true
	var victims []victim
	if cf.f != nil && cf.refs == 0 {
		unlinkIdle(cf)
		victims = append(victims, victim{cf: cf, f: cf.f})
		cf.f = nil
		c.open--
	}
	c.mu.Unlock()
	c.closeAll(victims)
}

// sync makes the file durable and returns a sync error that was met before.
func (c *fileCache) sync(cf *cachedFile) error {
	f, err := c.acquire(cf, true)
	if err != nil {
		return err
	}
	defer c.release(cf, false)
	return c.syncHeld(cf, f)
}

// syncHeld is sync of a file that the caller holds as f.
func (c *fileCache) syncHeld(cf *cachedFile, f File) error {
	c.mu.Lock()
	late := cf.late
	cf.dirty, cf.late = false, 0
	c.mu.Unlock()
	if late > 0 {
		if now, err := c.group.together(late); now || err != nil {
			return err
		}
	}
	return f.Sync()
}

func (c *fileCache) openFiles() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

type victim struct {
	cf    *cachedFile
	f     File
	sync  bool // before it is closed
	wrote bool // it has unsynced writes
}

func (c *fileCache) takeLocked(cf *cachedFile) victim {
	unlinkIdle(cf)
	v := victim{cf: cf, f: cf.f, wrote: cf.dirty, sync: cf.dirty}
	if cf.dirty {
		if number, ok := c.group.covers(cf.path()); ok {
			v.sync, cf.late = false, number
		}
	}
	cf.f, cf.dirty = nil, false
	c.open--
	return v
}

func (c *fileCache) victimsLocked() []victim {
	var out []victim
	for c.open > c.max && c.idle.prev != &c.idle {
		out = append(out, c.takeLocked(c.idle.prev))
	}
	return out
}

func (c *fileCache) closeAll(victims []victim) {
	for _, v := range victims {
		var err error
		if v.sync {
			err = v.f.Sync()
		}
		if cerr := v.f.Close(); err == nil && v.wrote {
			err = cerr
		}
		if err != nil {
			c.mu.Lock()
			v.cf.syncErr = err
			c.mu.Unlock()
		}
	}
}

func unlinkIdle(cf *cachedFile) {
	if cf.prev == nil {
		return
	}
	cf.prev.nextIdle, cf.nextIdle.prev = cf.nextIdle, cf.prev
	cf.prev, cf.nextIdle = nil, nil
}
