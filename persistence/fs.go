package persistence

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"kagami/internal/invariant"
)

// FS is all that this package asks of a file system, so that a faulty one can
// be put under it (package faultfs). Names are paths. A missing file is
// reported by an error that wraps [fs.ErrNotExist]. All methods may be called
// concurrently.
//
// Durability is POSIX's: written bytes are safe after Sync of the file, and
// names (created, renamed, removed) after SyncDir of their folder.
type FS interface {
	// OpenFile opens a file for reading and writing, and creates it if create is set.
	OpenFile(name string, create bool) (File, error)
	ReadFile(name string) ([]byte, error)
	Stat(name string) (FileInfo, error)
	// ReadDir lists a folder in no particular order.
	ReadDir(dir string) ([]FileInfo, error)
	MkdirAll(dir string) error
	Rename(from, to string) error
	Remove(name string) error
	RemoveAll(dir string) error
	SyncDir(dir string) error
	// Lock takes an exclusive lock that ends with the process; ErrLocked if another holds it.
	Lock(name string) (io.Closer, error)
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	Size() (int64, error)
	Truncate(size int64) error
	// Sync makes content and size durable.
	Sync() error
	Close() error
	// OS is the operating system's file, for sendfile; nil if there is none.
	OS() *os.File
}

// FileInfo is one entry of a folder. ReadDir may leave Size and ModMillis zero.
type FileInfo struct {
	Name      string // last element of the path
	Size      int64
	ModMillis int64 // 0 = unknown
	Dir       bool
}

// OSFS is the file system of the machine.
type OSFS struct{}

type osFile struct{ *os.File }

func (f osFile) OS() *os.File { return f.File }
func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// WriteAt is os.File's. With fault points it comes in two halves.
func (f osFile) WriteAt(b []byte, at int64) (int, error) {
	if invariant.FaultPoints {
		return writeInHalves(f.File, b, at)
	}
	return f.File.WriteAt(b, at)
}

// Truncate is os.File's.
func (f osFile) Truncate(size int64) error {
	reachedFile("truncate", f.Name(), "before")
	err := f.File.Truncate(size)
	reachedFile("truncate", f.Name(), "after")
	return err
}

// Sync is os.File's.
func (f osFile) Sync() error {
	reachedFile("sync", f.Name(), "before")
	return f.File.Sync()
}

// OpenFile is os.OpenFile for reading and writing.
func (OSFS) OpenFile(name string, create bool) (File, error) {
	flag := os.O_RDWR
	if create {
		flag |= os.O_CREATE
	}
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	if create {
		reachedFile("open", name, "after")
	}
	return osFile{f}, nil
}

// ReadFile is os.ReadFile.
func (OSFS) ReadFile(name string) ([]byte, error) { return os.ReadFile(name) }

// Stat is os.Stat.
func (OSFS) Stat(name string) (FileInfo, error) {
	st, err := os.Stat(name)
	if err != nil {
		return FileInfo{}, err
	}
	return FileInfo{Name: st.Name(), Size: st.Size(), ModMillis: st.ModTime().UnixMilli(), Dir: st.IsDir()}, nil
}

// ReadDir lists names and kinds only, without a stat per entry.
func (OSFS) ReadDir(dir string) ([]FileInfo, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	list, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	out := make([]FileInfo, len(list))
	for i, e := range list {
		out[i] = FileInfo{Name: e.Name(), Dir: e.IsDir()}
	}
	return out, nil
}

// MkdirAll is os.MkdirAll.
func (OSFS) MkdirAll(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	reachedFile("mkdir", dir, "after")
	return err
}

// Rename is os.Rename.
func (OSFS) Rename(from, to string) error {
	reachedFile("rename", to, "before")
	err := os.Rename(from, to)
	reachedFile("rename", to, "after")
	return err
}

// Remove is os.Remove.
func (OSFS) Remove(name string) error {
	reachedFile("remove", name, "before")
	err := os.Remove(name)
	reachedFile("remove", name, "after")
	return err
}

// RemoveAll is os.RemoveAll.
func (OSFS) RemoveAll(dir string) error { return os.RemoveAll(dir) }

// SyncDir makes the names in dir durable.
func (OSFS) SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	return errors.Join(err, f.Close())
}

// Lock takes flock on name, which it creates.
func (OSFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrLocked
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// writeFileAtomic replaces name by data: readers see the old or the new
// content, after a crash too if sync is set (else possibly neither, or half).
func writeFileAtomic(fsys FS, name string, data []byte, sync bool) error {
	tmp := name + ".tmp"
	f, err := fsys.OpenFile(tmp, true)
	if err != nil {
		return &unwrittenError{err}
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(data, 0)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return &unwrittenError{err} // the file of that name is what it was
	}
	if err := fsys.Rename(tmp, name); err != nil {
		return err
	}
	if sync {
		return fsys.SyncDir(filepath.Dir(name))
	}
	return nil
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
