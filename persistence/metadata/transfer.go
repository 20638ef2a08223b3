package metadata

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"kagami/messages"
	"kagami/persistence"
)

// NewestSnapshot is the name and content of the newest snapshot in a folder that is
// whole, for a node that comes after the log's beginning is gone. It wraps
// persistence.ErrNotFound if there is none.
func NewestSnapshot(fsys persistence.FS, dir string) (name string, content []byte, err error) {
	names, err := listSnapshots(fsys, dir)
	if err != nil {
		return "", nil, err
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		content, err := fsys.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a newer one took its place just now
		}
		if err != nil {
			return "", nil, fmt.Errorf("read snapshot %s: %w", name, err)
		}
		offset, _, _ := parseSnapshotName(name)
		if _, err := replaySnapshot(path, content, offset); err == nil {
			return name, content, nil
		}
	}
	return "", nil, fmt.Errorf("newest snapshot in %s: %w", dir, persistence.ErrNotFound)
}

// PutSnapshot checks a snapshot of another node and puts it into a folder, durably.
// It returns the offset that the log goes on from. A damaged one wraps
// persistence.ErrCorrupt.
func PutSnapshot(fsys persistence.FS, dir, name string, content []byte) (end int64, err error) {
	end, _, ok := parseSnapshotName(name)
	if !ok || filepath.Base(name) != name {
		return 0, fmt.Errorf("%w: %q is no snapshot name", persistence.ErrCorrupt, name)
	}
	path := filepath.Join(dir, name)
	if _, err := replaySnapshot(path, content, end); err != nil {
		return 0, fmt.Errorf("check snapshot %s: %w", name, err)
	}
	return end, putFile(fsys, path, content)
}

func putFile(fsys persistence.FS, path string, content []byte) error {
	tmp := path + partSuffix
	f, err := fsys.OpenFile(tmp, true)
	if err != nil {
		return fmt.Errorf("create %s: %w", tmp, err)
	}
	_, err = f.WriteAt(content, 0)
	if err = errors.Join(err, f.Truncate(int64(len(content))), f.Sync(), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", tmp, err), fsys.Remove(tmp))
	}
	if err := errors.Join(fsys.Rename(tmp, path), fsys.SyncDir(filepath.Dir(path))); err != nil {
		return fmt.Errorf("put %s: %w", path, err)
	}
	return nil
}

// SnapshotsReach reports whether a log that starts at an offset can be replayed with
// the snapshots of a folder.
func SnapshotsReach(fsys persistence.FS, dir string, logStart int64) (bool, error) {
	if logStart == 0 {
		return true, nil
	}
	name, _, err := NewestSnapshot(fsys, dir)
	switch {
	case errors.Is(err, persistence.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	offset, _, _ := parseSnapshotName(name)
	return offset >= logStart && offset != messages.NoOffset, nil
}
