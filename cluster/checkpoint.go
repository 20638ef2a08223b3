package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"go.uber.org/zap"

	"kagami/messages"
	"kagami/persistence"
)

// CheckpointFileName is the checkpoint file's name in a data folder.
const CheckpointFileName = "kagami-journal-checkpoint"

// checkpointCompactBytes: below this size rewriting the file isn't worth it.
// 16 MiB are about 120,000 records.
const checkpointCompactBytes = 16 << 20

// Checkpoints is the durable part of the journal state of all partitions in
// one data folder: an append-only file of small records, last one wins,
// rewritten when it is mostly old. Durable puts that arrive together share one
// fsync, and a partition that nothing happens to costs none.
//
// All methods may be called from any goroutine. After a failed write or fsync
// every later put fails (the kernel may have dropped the pages) until Renew, or a
// restart.
type Checkpoints struct {
	fs   persistence.FS
	path string
	log  *zap.Logger

	mu        sync.Mutex
	file      persistence.File
	size      int64
	compactAt int64
	untaken   map[messages.PartitionKey]Checkpoint // read at open, not yet asked for
	written   uint64                               // records written
	synced    uint64                               // of them synced
	syncing   bool
	syncDone  chan struct{} // closed when the running sync ends
	failed    error
	void      []stretch // of the file, with puts that failed
	replaced  bool      // path may be another file than file, see failLocked
	closed    bool
}

// stretch is a range of bytes.
type stretch struct{ from, to int64 }

// OpenCheckpoints opens or creates the checkpoint file of a data folder. A torn
// tail is cut off; a damaged record is skipped and logged (its partition falls
// back to an older record, or to what its log says). A file of another version
// wraps ErrDamaged.
func OpenCheckpoints(fsys persistence.FS, folder string, log *zap.Logger) (*Checkpoints, error) {
	c := &Checkpoints{
		fs:       fsys,
		path:     filepath.Join(folder, CheckpointFileName),
		log:      log.Named("checkpoints"),
		untaken:  map[messages.PartitionKey]Checkpoint{},
		syncDone: make(chan struct{}),
	}
	b, err := fsys.ReadFile(c.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(b) < checkpointHeaderSize:
		if err := c.rewriteLocked(nil); err != nil {
			return nil, err
		}
		return c, nil
	case err != nil:
		return nil, fmt.Errorf("read checkpoint file %s: %w", c.path, err)
	}
	live, records, damaged, err := replayCheckpoints(b)
	if err != nil {
		return nil, fmt.Errorf("read checkpoint file %s: %w", c.path, err)
	}
	if damaged > 0 {
		c.log.Warn("skipped damaged checkpoint records", zap.String("file", c.path), zap.Int("damaged", damaged), zap.Int("records", records))
	}
	c.untaken = live
	if size, _ := checkCheckpointHeader(b); size != checkpointRecordSize || damaged > 0 || records > 2*len(live)+64 {
		err = c.rewriteLocked(live)
	} else {
		err = c.reopenLocked()
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Take returns what was durable of a partition when the file was opened, once.
func (c *Checkpoints) Take(key messages.PartitionKey) (Checkpoint, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cp, ok := c.untaken[key]
	delete(c.untaken, key)
	return cp, ok
}

// peek is Take without taking.
func (c *Checkpoints) peek(key messages.PartitionKey) (Checkpoint, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cp, ok := c.untaken[key]
	return cp, ok
}

// Known reports whether the file had that life of a partition when it was
// opened and nobody has taken it yet.
func (c *Checkpoints) Known(key messages.PartitionKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.untaken[key]
	return ok
}

// Forget drops what was read at open, nobody took and keep doesn't want:
// partitions that were deleted while this node was down.
func (c *Checkpoints) Forget(keep func(messages.PartitionKey) bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b []byte
	for key := range c.untaken {
		if !keep(key) {
			b = appendCheckpointRecord(b, checkpointDelete, Checkpoint{Key: key})
			delete(c.untaken, key)
		}
	}
	if len(b) == 0 {
		return nil
	}
	return c.writeLocked(b)
}

// Rewrite calls f with what was read at open and nobody took, and writes those that it
// changes (it returns true), durably.
func (c *Checkpoints) Rewrite(f func(*Checkpoint) bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b []byte
	changed := make(map[messages.PartitionKey]Checkpoint)
	for key, cp := range c.untaken {
		if f(&cp) {
			b = appendCheckpointRecord(b, checkpointPut, cp)
			changed[key] = cp
		}
	}
	if len(b) == 0 {
		return nil
	}
	if err := c.durableLocked(b); err != nil {
		return err
	}
	for key, cp := range changed {
		if _, ok := c.untaken[key]; ok { // not taken or forgotten meanwhile
			c.untaken[key] = cp
		}
	}
	return nil
}

// Put writes the checkpoints in order. With durable they are on disk when Put
// returns; without, a crash of the process loses nothing but power loss may.
func (c *Checkpoints) Put(durable bool, cps ...Checkpoint) error {
	b := make([]byte, 0, len(cps)*checkpointRecordSize)
	for _, cp := range cps {
		b = appendCheckpointRecord(b, checkpointPut, cp)
	}
	return c.commit(b, durable)
}

// Sync makes everything put so far durable.
func (c *Checkpoints) Sync() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usableLocked(); err != nil {
		return err
	}
	return c.syncLocked(c.written)
}

// Delete forgets a partition. Not durable on its own: a key is never used
// again, so a record that comes back does no harm.
func (c *Checkpoints) Delete(key messages.PartitionKey) error {
	return c.commit(appendCheckpointRecord(nil, checkpointDelete, Checkpoint{Key: key}), false)
}

func (c *Checkpoints) commit(b []byte, durable bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if durable {
		return c.durableLocked(b)
	}
	return c.writeLocked(b)
}

// durableLocked writes and waits until that is on disk.
func (c *Checkpoints) durableLocked(b []byte) error {
	if err := c.writeLocked(b); err != nil {
		return err
	}
	at := stretch{c.size - int64(len(b)), c.size}
	err := c.syncLocked(c.written)
	if err != nil && c.failed != nil {
		c.void = append(c.void, at) // whoever put it goes on as if it weren't there
	}
	return err
}

func (c *Checkpoints) writeLocked(b []byte) error {
	if err := c.usableLocked(); err != nil {
		return err
	}
	if c.size >= c.compactAt && !c.syncing {
		err := c.compactLocked()
		switch {
		case errors.Is(err, errNotReplaced): // the old file is as good as before
			c.compactAt = c.size + checkpointCompactBytes
			c.log.Warn("checkpoint file not compacted, tried again later", zap.String("file", c.path), zap.Error(err))
		case err != nil:
			c.replaced = true
			return c.failLocked("compact", err)
		}
	}
	if _, err := c.file.WriteAt(b, c.size); err != nil {
		// A full disk, mostly. What was written of it must not come back behind a
		// later record; with that done the file goes on when there is room.
		if cut := c.file.Truncate(c.size); cut != nil {
			return c.failLocked("write", errors.Join(err, cut))
		}
		return fmt.Errorf("write checkpoint file %s: %w: %w", c.path, messages.ErrStorage, err)
	}
	c.size += int64(len(b))
	c.written++
	return nil
}

// syncLocked waits until write number upTo is on disk. The first to come does
// the fsync for all that were written before it; the lock is free meanwhile.
func (c *Checkpoints) syncLocked(upTo uint64) error {
	for c.synced < upTo {
		if c.failed != nil {
			return c.failed
		}
		if c.syncing {
			done := c.syncDone
			c.mu.Unlock()
			<-done
			c.mu.Lock()
			continue
		}
		if c.closed {
			return fmt.Errorf("sync checkpoint file %s: %w", c.path, ErrClosed)
		}
		c.syncing = true
		target, file := c.written, c.file
		c.mu.Unlock()
		err := file.Sync()
		c.mu.Lock()
		c.syncing = false
		close(c.syncDone)
		c.syncDone = make(chan struct{})
		if err != nil {
			return c.failLocked("sync", err)
		}
		c.synced = max(c.synced, target)
	}
	return nil
}

func (c *Checkpoints) usableLocked() error {
	if c.failed != nil {
		return c.failed
	}
	if c.closed {
		return fmt.Errorf("write checkpoint file %s: %w", c.path, ErrClosed)
	}
	return nil
}

func (c *Checkpoints) failLocked(verb string, err error) error {
	if c.failed == nil {
		c.failed = fmt.Errorf("%s checkpoint file %s: %w: %w", verb, c.path, messages.ErrStorage, err)
	}
	return c.failed
}

// compactLocked rewrites the file from its own content, so that no copy of all
// records has to be kept in memory.
func (c *Checkpoints) compactLocked() error {
	b, err := c.fs.ReadFile(c.path)
	if err != nil {
		return err
	}
	live, _, _, err := replayCheckpoints(b)
	if err != nil {
		return err
	}
	old := c.file
	if err := c.rewriteLocked(live); err != nil {
		return err
	}
	c.synced = c.written
	return old.Close()
}

// errNotReplaced: the file's successor couldn't be written; the file is untouched.
var errNotReplaced = errors.New("the old one stays")

// rewriteLocked puts a file with just the live records in place of the old one.
func (c *Checkpoints) rewriteLocked(live map[messages.PartitionKey]Checkpoint) error {
	b := checkpointHeader()
	for _, cp := range live {
		b = appendCheckpointRecord(b, checkpointPut, cp)
	}
	tmp := c.path + ".tmp"
	if err := c.writeFile(tmp, b); err != nil {
		return fmt.Errorf("write checkpoint file %s: %w: %w", tmp, errNotReplaced, err)
	}
	if err := c.fs.Rename(tmp, c.path); err != nil {
		return fmt.Errorf("rename checkpoint file %s: %w", tmp, err)
	}
	if err := c.fs.SyncDir(filepath.Dir(c.path)); err != nil {
		return fmt.Errorf("sync folder of %s: %w", c.path, err)
	}
	return c.reopenLocked()
}

// writeFile writes a whole file and syncs it.
func (c *Checkpoints) writeFile(name string, b []byte) error {
	f, err := c.fs.OpenFile(name, true)
	if err != nil {
		return err
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (c *Checkpoints) reopenLocked() error {
	f, err := c.fs.OpenFile(c.path, false)
	if err != nil {
		return fmt.Errorf("open checkpoint file %s: %w", c.path, err)
	}
	size, err := f.Size()
	if err != nil {
		return errors.Join(fmt.Errorf("open checkpoint file %s: %w", c.path, err), f.Close())
	}
	c.file, c.size = f, size
	c.compactAt = max(checkpointCompactBytes, 4*c.size)
	return nil
}

// Close syncs and closes the file. It may be called twice.
func (c *Checkpoints) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	err := c.syncLocked(c.written)
	c.closed = true
	return errors.Join(err, c.file.Close())
}
