package faultfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"kagami/persistence"
)

// ErrCrashed comes from every call after the crash.
var ErrCrashed = errors.New("the process has crashed")

// Op is one effect, a call that changes something.
type Op struct {
	Number int // from 1
	Kind   string
	Name   string
}

// String is for failure messages.
func (o Op) String() string { return fmt.Sprintf("%d %s %s", o.Number, o.Kind, o.Name) }

// FS is the file system. Set the fields before use, or while nothing runs.
type FS struct {
	// CrashAt is the number of the effect that doesn't happen any more; 0 = never.
	CrashAt int
	// Fault is asked before each effect; an error comes back instead of the
	// effect. It must not call the FS.
	Fault func(Op) error
	// OnSync, if set, is told of each Sync of a file before it begins. It may take its
	// time, and use the FS.
	OnSync func(name string)
	// LoseSyncs makes Sync and SyncDir succeed without doing anything.
	LoseSyncs bool
	// SpaceLeft is how many bytes files may still grow by; negative = no limit.
	SpaceLeft int64
	// Trace, if set, gets every effect. It must not call the FS.
	Trace func(Op)

	mu      sync.Mutex
	root    *node
	effects int
	crashed bool
	locks   map[string]bool
}

// node is a file or a folder.
type node struct {
	dir bool
	// file
	data    []byte
	durable []byte
	writes  []change // since the last sync
	// folder
	names       map[string]*node
	durableName map[string]*node
	changes     []nameChange // since the last SyncDir
}

type change struct {
	pos  int64 // of data, or the new size with data nil
	data []byte
}

type nameChange struct {
	name string
	to   *node // nil = removed
}

// New returns an empty file system without a space limit.
func New() *FS {
	return &FS{root: newDir(), SpaceLeft: -1, locks: make(map[string]bool)}
}

func newDir() *node {
	return &node{dir: true, names: make(map[string]*node), durableName: make(map[string]*node)}
}

// Effects is the number of effects so far.
func (f *FS) Effects() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.effects
}

// Crashed reports whether the crash has happened.
func (f *FS) Crashed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crashed
}

// Crash makes every later call fail.
func (f *FS) Crash() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashed = true
}

// effect counts a change and says whether it may happen.
func (f *FS) effect(kind, name string) error {
	if f.crashed {
		return ErrCrashed
	}
	f.effects++
	op := Op{f.effects, kind, name}
	if f.Trace != nil {
		f.Trace(op)
	}
	if f.effects == f.CrashAt {
		f.crashed = true
		return ErrCrashed
	}
	if f.Fault != nil {
		return f.Fault(op)
	}
	return nil
}

func split(name string) []string {
	return strings.FieldsFunc(filepath.Clean(name), func(r rune) bool { return r == filepath.Separator })
}

func (f *FS) find(name string) (*node, error) {
	if f.crashed {
		return nil, ErrCrashed
	}
	n := f.root
	for _, part := range split(name) {
		next := n.names[part]
		if next == nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		n = next
	}
	return n, nil
}

func (f *FS) parent(name string) (*node, string, error) {
	n, err := f.find(filepath.Dir(name))
	return n, filepath.Base(name), err
}

func (n *node) set(name string, to *node) {
	if to == nil {
		delete(n.names, name)
	} else {
		n.names[name] = to
	}
	n.changes = append(n.changes, nameChange{name, to})
}

// OpenFile opens a file, creating it if create is set.
func (f *FS) OpenFile(name string, create bool) (persistence.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(name)
	if errors.Is(err, fs.ErrNotExist) && create {
		dir, base, derr := f.parent(name)
		if derr != nil {
			return nil, derr
		}
		if err := f.effect("create", name); err != nil {
			return nil, err
		}
		n, err = &node{}, nil
		dir.set(base, n)
	}
	if err != nil {
		return nil, err
	}
	return &file{fs: f, n: n, name: name}, nil
}

// ReadFile returns a copy of a file's bytes.
func (f *FS) ReadFile(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(name)
	if err != nil {
		return nil, err
	}
	return append([]byte(nil), n.data...), nil
}

// Stat describes a file or folder; times are unknown.
func (f *FS) Stat(name string) (persistence.FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(name)
	if err != nil {
		return persistence.FileInfo{}, err
	}
	return persistence.FileInfo{Name: filepath.Base(name), Size: int64(len(n.data)), Dir: n.dir}, nil
}

// ReadDir lists a folder.
func (f *FS) ReadDir(dir string) ([]persistence.FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(dir)
	if err != nil {
		return nil, err
	}
	var out []persistence.FileInfo
	for name, c := range n.names {
		out = append(out, persistence.FileInfo{Name: name, Size: int64(len(c.data)), Dir: c.dir})
	}
	return out, nil
}

// MkdirAll makes a folder and those above it.
func (f *FS) MkdirAll(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.root
	for _, part := range split(dir) {
		next := n.names[part]
		if next == nil {
			if err := f.effect("mkdir", dir); err != nil {
				return err
			}
			next = newDir()
			n.set(part, next)
		}
		n = next
	}
	return nil
}

// Rename moves a file or folder, replacing a file.
func (f *FS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(from)
	if err != nil {
		return err
	}
	src, base, err := f.parent(from)
	if err != nil {
		return err
	}
	dst, target, err := f.parent(to)
	if err != nil {
		return err
	}
	if old := dst.names[target]; old != nil && old.dir && len(old.names) > 0 {
		return &fs.PathError{Op: "rename", Path: to, Err: syscall.ENOTEMPTY}
	}
	if err := f.effect("rename", from+" "+filepath.Base(to)); err != nil {
		return err
	}
	dst.set(target, n)
	src.set(base, nil)
	return nil
}

// Remove removes a file.
func (f *FS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.find(name); err != nil {
		return err
	}
	dir, base, err := f.parent(name)
	if err != nil {
		return err
	}
	if err := f.effect("remove", name); err != nil {
		return err
	}
	dir.set(base, nil)
	return nil
}

// RemoveAll removes a folder with everything in it, in one effect.
func (f *FS) RemoveAll(dir string) error {
	err := f.Remove(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// SyncDir makes the names in a folder durable.
func (f *FS) SyncDir(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(dir)
	if err != nil {
		return err
	}
	if err := f.effect("syncdir", dir); err != nil || f.LoseSyncs {
		return err
	}
	n.syncNames(len(n.changes))
	return nil
}

func (n *node) syncNames(count int) {
	for _, c := range n.changes[:count] {
		n.applyName(c)
	}
	n.changes = n.changes[count:]
}

func (n *node) applyName(c nameChange) {
	if c.to == nil {
		delete(n.durableName, c.name)
	} else {
		n.durableName[c.name] = c.to
	}
}

// Lock is exclusive within this file system.
func (f *FS) Lock(name string) (io.Closer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return nil, ErrCrashed
	}
	if f.locks[name] {
		return nil, persistence.ErrLocked
	}
	f.locks[name] = true
	return &lock{f, name}, nil
}

type lock struct {
	fs   *FS
	name string
}

func (l *lock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.locks, l.name)
	return nil
}

// file is an open file.
type file struct {
	fs   *FS
	n    *node
	name string
}

func (f *file) OS() *os.File { return nil }
func (f *file) Close() error { return nil }

func (f *file) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.fs.crashed {
		return 0, ErrCrashed
	}
	return int64(len(f.n.data)), nil
}

func (f *file) ReadAt(b []byte, pos int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.fs.crashed {
		return 0, ErrCrashed
	}
	if pos >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.n.data[pos:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt writes all, or with too little space left a part.
func (f *file) WriteAt(b []byte, pos int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.effect("write", f.name); err != nil {
		return 0, err
	}
	var short error
	if grow := pos + int64(len(b)) - int64(len(f.n.data)); f.fs.SpaceLeft >= 0 && grow > 0 {
		if grow > f.fs.SpaceLeft {
			b = b[:max(int64(len(b))-(grow-f.fs.SpaceLeft), 0)]
			grow, short = f.fs.SpaceLeft, syscall.ENOSPC
		}
		f.fs.SpaceLeft -= grow
	}
	c := change{pos, append([]byte{}, b...)}
	f.n.writes = append(f.n.writes, c)
	f.n.data = c.apply(f.n.data)
	return len(b), short
}

func (c change) apply(data []byte) []byte {
	if c.data == nil {
		if c.pos <= int64(len(data)) {
			return data[:c.pos:c.pos]
		}
		return append(slices.Clip(data), make([]byte, c.pos-int64(len(data)))...)
	}
	end := int(c.pos) + len(c.data)
	if end > len(data) {
		data = append(data, make([]byte, end-len(data))...)
	}
	copy(data[c.pos:], c.data)
	return data
}

func (f *file) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.effect("truncate", f.name); err != nil {
		return err
	}
	c := change{pos: size}
	f.n.writes = append(f.n.writes, c)
	f.n.data = c.apply(f.n.data)
	return nil
}

// Sync makes the file durable. When Fault fails it, by another error than ErrCrashed, the
// writes since the last sync stay visible and are never written: what some systems do.
func (f *file) Sync() error {
	if f.fs.OnSync != nil {
		f.fs.OnSync(f.name)
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.effect("sync", f.name); err != nil {
		if !errors.Is(err, ErrCrashed) {
			f.n.writes = nil
		}
		return err
	}
	if f.fs.LoseSyncs {
		return nil
	}
	// Not all of data: what a failed sync has dropped isn't written by the next one.
	f.n.durable = append([]byte(nil), f.n.durable...)
	for _, w := range f.n.writes {
		f.n.durable = w.apply(f.n.durable)
	}
	f.n.writes = nil
	return nil
}
