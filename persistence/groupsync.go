package persistence

import (
	"os"
	"sync"

	"kagami/internal/invariant"
)

// groupFS is the file system of the machine with syncs that many files share.
//
// A sync costs a commit of the file system's journal, whatever there is to
// write, and a log needs three to six of them to make a point of recovery. When
// thousands of logs do that at once (a stop, a start, the end of the node) most
// of the time goes into waiting for commits. So a few syncs at a time are what
// they always were; what comes on top of them waits together for one syncfs,
// which makes everything durable that was written before it.
//
//	sync ──┬─ fewer than groupAlone on their way ──► fsync
//	       └─ else ──► wait ──► one syncfs for all who came before it
//
// An error of syncfs can be the error of any file: those who waited do their own
// fsync then, which says whose it was, and nobody waits for a syncfs any more,
// because the next one would know nothing of the page that was lost.
type groupFS struct {
	OSFS
	g *groupSync
}

// groupAlone is how many syncs may be on their way before the next ones wait
// together. A busy node with few partitions stays below it.
const groupAlone = 16

type groupSync struct {
	root *os.File // open since before the first write, so that no error is missed
	all  func(*os.File) error
	same func(name string) bool // the file is on root's file system

	mu      sync.Mutex
	alone   int           // single syncs on their way
	asked   uint64        // who waits, counted
	synced  uint64        // of them through
	running bool          // a syncfs
	begun   uint64        // number of the last syncfs
	good    uint64        // number of the last one that went well
	ended   chan struct{} // closed when it ends
	broken  bool          // a syncfs failed
	cause   error         // of that
	rounds  int
}

// newGroupFS is nil where there is no syncfs that tells errors, or nothing to open.
func newGroupFS(dir string) *groupFS {
	if invariant.FaultPoints || !canSyncAll() { // a fault point stands at each single sync
		return nil
	}
	root, err := os.Open(dir)
	if err != nil {
		return nil
	}
	same, err := sameFileSystem(root)
	if err != nil {
		_ = root.Close() // read only
		return nil
	}
	return &groupFS{g: &groupSync{root: root, all: syncAll, same: same, ended: make(chan struct{})}}
}

// close lets go of the folder; g may be nil.
func (g *groupSync) close() {
	if g != nil {
		_ = g.root.Close() // read only
	}
}

// OpenFile is OSFS.OpenFile.
func (fs *groupFS) OpenFile(name string, create bool) (File, error) {
	f, err := fs.OSFS.OpenFile(name, create)
	if err != nil {
		return nil, err
	}
	return groupFile{f, name, fs.g}, nil
}

// SyncDir makes the names in dir durable.
func (fs *groupFS) SyncDir(dir string) error {
	return fs.g.sync(dir, func() error { return fs.OSFS.SyncDir(dir) })
}

type groupFile struct {
	File
	name string
	g    *groupSync
}

// Sync makes content and size durable.
func (f groupFile) Sync() error { return f.g.sync(f.name, f.File.Sync) }

// sync makes one file durable: by one, or together with others.
func (g *groupSync) sync(name string, one func() error) error {
	g.mu.Lock()
	if g.broken || g.alone < groupAlone && !g.running { // nobody overtakes those who wait
		g.alone++
		g.mu.Unlock()
		err := one()
		g.mu.Lock()
		g.alone--
		g.mu.Unlock()
		return err
	}
	g.mu.Unlock()
	if !g.same(name) {
		return one()
	}
	g.mu.Lock()
	through := g.waitLocked()
	g.mu.Unlock()
	if !through {
		return one()
	}
	return nil
}

// covers reports whether a file may be closed before it is synced: the syncfs of that
// number, or a later one, makes it durable ([groupSync.together]). g may be nil.
func (g *groupSync) covers(name string) (number uint64, ok bool) {
	if g == nil {
		return 0, false
	}
	g.mu.Lock()
	next, broken := g.begun+1, g.broken
	g.mu.Unlock()
	return next, !broken && g.same(name)
}

// together waits until a syncfs of that number or a later one has made everything
// durable that was written before it began. now: that was one which began after the call.
// An error may be that of any file: one that was closed unsynced has nothing else to tell
// it by.
func (g *groupSync) together(number uint64) (now bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.good >= number:
		return false, nil
	case g.waitLocked():
		return true, nil
	default:
		return false, g.cause
	}
}

// waitLocked reports whether a syncfs that began after the call made everything
// durable. The first to come does it for all who came until then.
func (g *groupSync) waitLocked() bool {
	g.asked++
	mine := g.asked
	for g.synced < mine {
		switch {
		case g.broken:
			return false
		case g.running:
			ended := g.ended
			g.mu.Unlock()
			<-ended
			g.mu.Lock()
		default:
			g.running = true
			g.begun++
			upTo, number := g.asked, g.begun
			g.mu.Unlock()
			err := g.all(g.root)
			g.mu.Lock()
			g.running = false
			g.rounds++
			if err != nil {
				g.broken, g.cause = true, err
			} else {
				g.synced, g.good = upTo, number
			}
			close(g.ended)
			g.ended = make(chan struct{})
		}
	}
	return true
}
