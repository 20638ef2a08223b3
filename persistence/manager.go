package persistence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"kagami/internal/clock"
	"kagami/messages"
)

// Options of a data folder.
type Options struct {
	// ClusterID and NodeID own the folder: a new one is marked with them, a
	// marked one must have the same. An empty ClusterID is neither checked nor written.
	ClusterID string
	NodeID    messages.NodeID
	// Clock paces the background flush; default the wall clock.
	Clock clock.Clock
	// Logger; default none.
	Logger *zap.Logger
	// FS under the folder; default the machine's.
	FS FS
	// OpenFilesMax bounds the files kept open; default 4096. Files in use at the
	// same moment may exceed it.
	OpenFilesMax int
	// FlushInterval of logs with unsynced data; default 1 s, negative = never.
	FlushInterval time.Duration
	// Parallel is how many logs are recovered at once; default 8.
	Parallel int
	// FlushParallel is how many logs are flushed or closed at once; default 256:
	// they hardly compute, and share syncs.
	FlushParallel int
	// VerifyReads checks the CRC of every batch read. Chunks are then always bytes.
	VerifyReads bool
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = clock.Wall{}
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.FS == nil {
		o.FS = OSFS{}
	}
	if o.OpenFilesMax <= 0 {
		o.OpenFilesMax = 4096
	}
	if o.FlushInterval == 0 {
		o.FlushInterval = time.Second
	}
	if o.Parallel <= 0 {
		o.Parallel = 8
	}
	if o.FlushParallel <= 0 {
		o.FlushParallel = 256
	}
	return o
}

// Manager owns a data folder and the logs in it. Its methods may be called
// concurrently; of one partition only one call at a time.
type Manager struct {
	dir   string
	opts  Options
	fs    FS
	cache *fileCache
	log   *zap.Logger
	group *groupSync // nil = every sync for itself
	lock  io.Closer

	mu      sync.Mutex
	entries map[messages.TopicPartition]*entry
	closed  bool
	created uint64 // number of the last creation

	namesMu sync.Mutex
	synced  uint64 // creations up to this number are durable; namesMu

	dirtyMu   sync.Mutex
	dirtyLogs []*segLog // dirtyMu

	stop context.CancelFunc
	wait sync.WaitGroup
	sem  chan struct{} // limits background removals
}

// entry is a log in the folder, opened or not. Guarded by Manager.mu.
type entry struct {
	key    messages.PartitionKey
	folder string // empty = topic-partition
	line   []byte // manifest line; nil = must be recovered
	crash  bool   // found without a manifest line that holds: see Recovered
	log    *segLog
	busy   bool // being opened, created or deleted
}

// Open takes a data folder: it locks it (ErrLocked), checks its owner
// (ErrForeignFolder), finds the logs in it and starts the background flush. No
// log is opened. The caller must Close the manager.
func Open(ctx context.Context, dir string, opts Options) (*Manager, error) {
	opts = opts.withDefaults()
	m := &Manager{
		dir: dir, opts: opts, fs: opts.FS,
		log: opts.Logger.Named("persistence"), entries: make(map[messages.TopicPartition]*entry),
		sem: make(chan struct{}, 4), // removals at once: enough to keep a disk busy
	}
	if err := m.makeDir(); err != nil {
		return nil, err
	}
	if _, machine := opts.FS.(OSFS); machine {
		if group := newGroupFS(dir); group != nil {
			m.fs, m.group = group, group.g
		}
	}
	m.cache = newFileCache(m.fs, opts.OpenFilesMax, m.group)
	lock, err := m.fs.Lock(filepath.Join(dir, lockFile))
	if err != nil {
		m.group.close()
		if errors.Is(err, ErrLocked) {
			return nil, fmt.Errorf("open %s: %w", dir, err)
		}
		return nil, storageError("lock", dir, err)
	}
	m.lock = lock
	if err := m.openFolder(ctx); err != nil {
		m.group.close()
		return nil, errors.Join(err, lock.Close())
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = cancel
	if opts.FlushInterval > 0 {
		m.wait.Go(func() { m.flushLoop(run) })
	}
	return m, nil
}

// makeDir creates the data folder. Its name is synced each time: a crash may
// have come between the two.
func (m *Manager) makeDir() error {
	if err := m.fs.MkdirAll(m.dir); err != nil {
		return storageError("create", m.dir, err)
	}
	if err := m.fs.SyncDir(filepath.Dir(m.dir)); err != nil {
		return storageError("sync", filepath.Dir(m.dir), err)
	}
	return nil
}

func (m *Manager) openFolder(ctx context.Context) error {
	if err := checkMeta(m.fs, m.dir, Meta{m.opts.ClusterID, m.opts.NodeID}); err != nil {
		return err
	}
	list, err := m.fs.ReadDir(m.dir)
	if err != nil {
		return storageError("list", m.dir, err)
	}
	folders := make(map[string]bool, len(list))
	for _, f := range list {
		switch {
		case !f.Dir:
		case leftover(f.Name):
			m.removeLater(filepath.Join(m.dir, f.Name))
		default:
			folders[f.Name] = true
		}
	}
	if err := m.readManifest(folders); err != nil {
		return err
	}
	return m.readFolders(ctx, folders)
}

// readManifest believes the manifest for folders that are there, takes them out
// of folders, and removes the manifest before any log can change.
func (m *Manager) readManifest(folders map[string]bool) error {
	name := filepath.Join(m.dir, manifestFile)
	b, err := m.fs.ReadFile(name)
	if isNotExist(err) {
		return nil
	}
	if err != nil {
		return storageError("read", name, err)
	}
	topic := ""
	for _, line := range decodeManifest(b) {
		e, err := decodeManifestLog(line)
		if err != nil {
			continue // recovered like a log without a line
		}
		if e.topic == topic {
			e.topic = topic // one string for all partitions of a topic
		}
		topic = e.topic
		tp := messages.TopicPartition{Topic: topic, Partition: e.partition}
		folder := e.folder
		if folder == "" {
			folder = tp.String()
		}
		if !folders[folder] {
			continue
		}
		delete(folders, folder)
		m.entries[tp] = &entry{
			key:    messages.PartitionKey{TopicID: e.topicID, CreatedAt: e.createdAt, Partition: e.partition},
			folder: e.folder, line: line,
		}
	}
	if err := m.fs.Remove(name); err != nil {
		return storageError("remove", name, err)
	}
	if err := m.fs.SyncDir(m.dir); err != nil {
		return storageError("sync", m.dir, err)
	}
	return nil
}

// readFolders looks into folders that the manifest doesn't have.
func (m *Manager) readFolders(ctx context.Context, folders map[string]bool) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(m.opts.Parallel)
	for name := range folders {
		tp, shortened, ok := parseFolderName(name)
		if !ok {
			continue
		}
		g.Go(func() error {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			info, err := readInfo(m.fs, m.dir, tp, shortened)
			if err != nil {
				m.log.Error("folder is no log that can be opened", zap.String("folder", name), zap.Error(err))
				return nil // its neighbours go on
			}
			e := &entry{key: info.Key, crash: true}
			if shortened {
				e.folder = name
			}
			m.mu.Lock()
			m.entries[info.TopicPartition] = e
			m.mu.Unlock()
			return nil
		})
	}
	return g.Wait()
}

// Dir is the data folder.
func (m *Manager) Dir() string { return m.dir }

// Infos lists the logs in the folder, opened or not, in no particular order. A
// zero topic id means that the folder doesn't say: its creation never became
// durable, or it came from elsewhere.
func (m *Manager) Infos() []Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Info, 0, len(m.entries))
	for tp, e := range m.entries {
		out = append(out, Info{TopicPartition: tp, Key: e.key})
	}
	return out
}

// Stats of a data folder.
type Stats struct {
	Logs      int // in the folder
	OpenLogs  int
	OpenFiles int
}

// Stats counts logs and open files.
func (m *Manager) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Stats{Logs: len(m.entries), OpenFiles: m.cache.openFiles()}
	for _, e := range m.entries {
		if e.log != nil {
			s.OpenLogs++
		}
	}
	return s
}

// claim marks the entry of tp busy. With make set there must be none yet.
func (m *Manager) claim(tp messages.TopicPartition, create bool) (*entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[tp]
	switch {
	case m.closed:
		return nil, ErrClosed
	case e != nil && (e.busy || create):
		return nil, ErrExists
	case e == nil && !create:
		return nil, ErrNotFound
	case e == nil:
		e = &entry{}
		m.entries[tp] = e
	}
	e.busy = true
	return e, nil
}

// Create makes an empty log that starts at offset 0 and opens it. It wraps
// ErrExists if there is one. The log's existence is durable with its first flush.
func (m *Manager) Create(ctx context.Context, info Info, cfg Config) (Log, error) {
	tp := info.TopicPartition
	info.Key.Partition = tp.Partition
	if err := errors.Join(context.Cause(ctx), messages.CheckTopicName(tp.Topic)); err != nil {
		return nil, fmt.Errorf("create log %s: %w", tp, err)
	}
	e, err := m.claim(tp, true)
	if err != nil {
		return nil, fmt.Errorf("create log %s: %w", tp, err)
	}
	l := m.newLog(info, folderName(tp), cfg)
	err = l.create()
	m.mu.Lock()
	defer m.mu.Unlock()
	e.busy = false
	if err != nil {
		delete(m.entries, tp)
		return nil, fmt.Errorf("create log %s: %w", tp, err)
	}
	e.key, e.log = info.Key, l
	if f := folderName(tp); f != tp.String() {
		e.folder = f
	}
	return l, nil
}

func (m *Manager) newLog(info Info, folder string, cfg Config) *segLog {
	l := &segLog{m: m, dir: filepath.Join(m.dir, folder), info: info, cfg: cfg.withDefaults()}
	l.latest.Store(messages.NoEpoch)
	return l
}

// create makes the folder under another name first: a folder is a whole log.
func (l *segLog) create() error {
	m := l.m
	final := l.dir
	l.dir = filepath.Join(m.dir, scratchName(filepath.Base(final), newSuffix))
	if err := m.fs.MkdirAll(l.dir); err != nil {
		return storageError("create", l.dir, err)
	}
	l.st = newLogState(l.info.Key, 0)
	s := newEmptySegment(l.dir, 0)
	err := l.createLog(s)
	m.cache.drop(s.log)
	if err == nil {
		err = m.createFile(filepath.Join(l.dir, partitionFile), encodePartitionMetadata(l.info.Key.TopicID))
	}
	if err == nil && filepath.Base(final) != l.info.TopicPartition.String() {
		err = m.createFile(filepath.Join(l.dir, topicFile), []byte(l.info.TopicPartition.Topic))
	}
	if err == nil {
		err = writeState(m.fs, l.dir, &l.st, false)
	}
	if err == nil {
		if err = m.fs.Rename(l.dir, final); err != nil {
			err = storageError("rename", l.dir, err)
		}
	}
	if err != nil {
		return errors.Join(err, m.fs.RemoveAll(l.dir))
	}
	l.dir = final
	l.segs = []*segment{newEmptySegment(final, 0)}
	l.namesDirty, l.epochsDirty = true, true
	m.mu.Lock()
	m.created++
	l.createdAs = m.created
	m.mu.Unlock()
	l.loaded.Store(true)
	return nil
}

func (m *Manager) createFile(name string, data []byte) error {
	f, err := m.fs.OpenFile(name, true)
	if err != nil {
		return storageError("create", name, err)
	}
	_, err = f.WriteAt(data, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return storageError("write", name, err)
	}
	return nil
}

// syncNames makes the folders of creations up to number durable; many creations
// share one sync.
func (m *Manager) syncNames(number uint64) error {
	m.namesMu.Lock()
	defer m.namesMu.Unlock()
	if m.synced >= number && number > 0 {
		return nil
	}
	m.mu.Lock()
	upTo := m.created
	m.mu.Unlock()
	if err := m.fs.SyncDir(m.dir); err != nil {
		return storageError("sync", m.dir, err)
	}
	m.synced = upTo
	return nil
}

// Open opens a log that is in the folder: at once if it was closed cleanly,
// else by recovering it. It wraps ErrNotFound if there is none and ErrExists if
// it is open already.
func (m *Manager) Open(ctx context.Context, tp messages.TopicPartition, cfg Config) (Log, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("open log %s: %w", tp, err)
	}
	e, err := m.claim(tp, false)
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", tp, err)
	}
	m.mu.Lock()
	isOpen, line, folder, key := e.log != nil, e.line, e.folder, e.key
	m.mu.Unlock()
	if folder == "" {
		folder = tp.String()
	}
	var l *segLog
	if isOpen {
		err = fmt.Errorf("%w and is open", ErrExists)
	} else {
		l = m.newLog(Info{tp, key}, folder, cfg)
		err = l.open(line)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e.busy = false
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", tp, err)
	}
	e.log, e.line = l, nil
	e.crash = e.crash || line != nil && l.line == nil
	return l, nil
}

// Recovered reports whether the log was in the folder without having been closed
// cleanly before this manager: power loss may have taken batches off its end that
// others have read.
func (m *Manager) Recovered(tp messages.TopicPartition) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[tp]
	return e != nil && e.crash
}

func (l *segLog) open(line []byte) error {
	if line != nil && l.trust(line) {
		return nil
	}
	return l.ensure()
}

// trust takes the offsets out of a manifest line, if the active segment has the
// size that it says.
func (l *segLog) trust(line []byte) bool {
	e, err := decodeManifestLog(line)
	if err != nil {
		return false
	}
	a := e.segs[len(e.segs)-1]
	name := filepath.Join(l.dir, segmentName(a.base, logSuffix))
	if st, err := l.m.fs.Stat(name); err != nil || st.Size != a.size {
		return false
	}
	l.line = line
	l.start.Store(e.start)
	l.end.Store(e.end)
	l.rp.Store(e.end)
	l.size.Store(e.size())
	l.latest.Store(e.latestEpoch())
	return true
}

// Delete removes a log, opened or not: it is gone, durably, when Delete
// returns; its files go in the background. It wraps ErrNotFound if there is none.
func (m *Manager) Delete(ctx context.Context, tp messages.TopicPartition) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("delete log %s: %w", tp, err)
	}
	e, err := m.claim(tp, false)
	if err != nil {
		return fmt.Errorf("delete log %s: %w", tp, err)
	}
	m.mu.Lock()
	l, folder := e.log, e.folder
	m.mu.Unlock()
	if folder == "" {
		folder = tp.String()
	}
	if l != nil {
		l.abandon()
	}
	gone := filepath.Join(m.dir, scratchName(folder, deleteSuffix))
	err = m.fs.Rename(filepath.Join(m.dir, folder), gone)
	if err == nil {
		err = m.fs.SyncDir(m.dir)
	}
	m.mu.Lock()
	e.busy, e.log, e.line = false, nil, nil
	if err == nil {
		delete(m.entries, tp)
	}
	m.mu.Unlock()
	if err != nil {
		return storageError("delete log", tp.String(), err)
	}
	m.removeLater(gone)
	return nil
}

func (m *Manager) removeLater(dir string) {
	m.wait.Go(func() {
		m.sem <- struct{}{}
		defer func() { <-m.sem }()
		if err := m.fs.RemoveAll(dir); err != nil {
			m.log.Warn("folder not removed, the next start tries again", zap.String("folder", dir), zap.Error(err))
		}
	})
}

func (m *Manager) markDirty(l *segLog) {
	if l.dirty.Swap(true) {
		return
	}
	m.dirtyMu.Lock()
	m.dirtyLogs = append(m.dirtyLogs, l)
	m.dirtyMu.Unlock()
}

func (m *Manager) flushLoop(ctx context.Context) {
	for m.opts.Clock.Sleep(ctx, m.opts.FlushInterval) == nil {
		m.flushDirty()
	}
}

// flushDirty flushes every log that was appended to since the last time.
func (m *Manager) flushDirty() {
	m.dirtyMu.Lock()
	logs := m.dirtyLogs
	m.dirtyLogs = nil
	m.dirtyMu.Unlock()
	var g errgroup.Group
	g.SetLimit(m.opts.FlushParallel)
	for _, l := range logs {
		g.Go(func() error { l.background(); return nil })
	}
	_ = g.Wait()
}

// Close closes all logs, leaves the mark of a clean shutdown and unlocks the
// folder. It may be called twice.
func (m *Manager) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	var logs []*segLog
	for _, e := range m.entries {
		if e.log != nil {
			logs = append(logs, e.log)
		}
	}
	m.mu.Unlock()
	m.stop()
	m.wait.Wait()
	var g errgroup.Group
	g.SetLimit(m.opts.FlushParallel)
	var errMu sync.Mutex
	var errs []error
	for _, l := range logs {
		g.Go(func() error {
			if err := l.Close(); err != nil {
				errMu.Lock()
				errs = append(errs, err)
				errMu.Unlock()
			}
			return nil
		})
	}
	_ = g.Wait()
	if err := m.writeManifest(); err != nil {
		errs = append(errs, err)
	}
	m.group.close()
	return errors.Join(append(errs, m.lock.Close())...)
}

func (m *Manager) writeManifest() error {
	type keyed struct {
		tp   messages.TopicPartition
		line []byte
	}
	m.mu.Lock()
	var list []keyed
	for tp, e := range m.entries {
		if e.line != nil && !e.busy {
			list = append(list, keyed{tp, e.line})
		}
	}
	m.mu.Unlock()
	slices.SortFunc(list, func(a, b keyed) int {
		if c := strings.Compare(a.tp.Topic, b.tp.Topic); c != 0 {
			return c
		}
		return int(a.tp.Partition) - int(b.tp.Partition)
	})
	lines := make([][]byte, len(list))
	for i, k := range list {
		lines[i] = k.line
	}
	name := filepath.Join(m.dir, manifestFile)
	if err := writeFileAtomic(m.fs, name, encodeManifest(lines), true); err != nil {
		return storageError("write", name, err)
	}
	return nil
}

// released takes a closed log's manifest line back; nil if it must be recovered.
func (m *Manager) released(l *segLog, line []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[l.info.TopicPartition]; e != nil && e.log == l {
		e.log, e.line = nil, line
	}
}
