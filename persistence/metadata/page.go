package metadata

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
	"kagami/persistence"
)

// HiddenValue stands for the value of a secret in a [Page], and of a setting that
// this build doesn't know: it might be one.
const HiddenValue = "(hidden)"

// SnapshotPlace is a place in a snapshot: that of everything below Offset, from
// byte Position on.
type SnapshotPlace struct {
	Offset   int64 // NoOffset: no snapshot
	Epoch    int32
	Position int64
}

// PageRequest asks for a page of the log's history.
type PageRequest struct {
	Offset   int64         // first offset wanted
	Snapshot SnapshotPlace // go on with this one; its Offset is NoOffset for the log
	BytesMax int           // of the page; one batch may be more
}

// Page is a part of the log, or of the snapshot that stands for what is gone of
// it, with secrets replaced by [HiddenValue]: whoever replays it learns who did
// what, and no password. Begin with offset 0 and go on with Snapshot while its
// Position isn't NoOffset, then with the offset after what came.
type Page struct {
	LogStart int64         // first offset that can be read
	End      int64         // high watermark
	Snapshot SnapshotPlace // Offset NoOffset: of the log. Position NoOffset: it ends here
	Batches  []byte        // whole batches
}

// ErrSnapshotGone means that a newer one took the place of the snapshot that was being
// read. Begin again.
var ErrSnapshotGone = errors.New("metadata snapshot is gone")

// ReadPage reads a page. Any number of goroutines may read. An offset above the
// end wraps persistence.ErrOffsetOutOfRange.
func (s *Store) ReadPage(req PageRequest) (Page, error) {
	log := s.opts.Source.Log()
	files, err := s.logFiles()
	if err != nil {
		return Page{}, err
	}
	// Files may reach below the log start, as an audit of the folder has it.
	page := Page{LogStart: log.LogStart(), End: s.opts.Source.State().HighWatermark, Snapshot: SnapshotPlace{Offset: messages.NoOffset}}
	kept := page.LogStart
	if len(files) > 0 {
		page.LogStart = min(page.LogStart, files[0].base)
	}
	switch {
	case req.Snapshot.Offset >= 0:
		err = s.snapshotPage(req.Snapshot, req.BytesMax, &page)
	case req.Offset > page.End:
		err = fmt.Errorf("read metadata log at %d: %w: it ends at %d", req.Offset, persistence.ErrOffsetOutOfRange, page.End)
	case req.Offset < page.LogStart:
		var place SnapshotPlace
		if place, err = s.oldestSnapshot(page.LogStart); err == nil {
			err = s.snapshotPage(place, req.BytesMax, &page)
		}
	case req.Offset < kept:
		err = s.filePage(files, req, kept, &page)
	default:
		err = logPage(log, req, &page)
	}
	if err != nil {
		return Page{}, err
	}
	page.Batches, err = hideSecrets(page.Batches)
	return page, err
}

func logPage(log persistence.Log, req PageRequest, page *Page) error {
	chunk, err := log.Read(req.Offset, req.BytesMax, page.End, true)
	if err != nil {
		return fmt.Errorf("read metadata log: %w", err)
	}
	defer chunk.Release()
	b, err := chunk.ReadAll()
	page.Batches = slices.Clone(b)
	return err
}

// logFile is a segment of the log in the store's folder.
type logFile struct {
	name string
	base int64
}

func (s *Store) logFiles() ([]logFile, error) {
	entries, err := s.opts.FS.ReadDir(s.opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("list metadata segments: %w", err)
	}
	var out []logFile
	for _, e := range entries {
		text, isLog := strings.CutSuffix(e.Name, ".log")
		if base, err := strconv.ParseInt(text, 10, 64); isLog && err == nil {
			out = append(out, logFile{filepath.Join(s.opts.Dir, e.Name), base})
		}
	}
	slices.SortFunc(out, func(a, b logFile) int { return cmp.Compare(a.base, b.base) })
	return out, nil
}

// filePage reads what is still in a file below the log start: its segment holds
// records above, too.
func (s *Store) filePage(files []logFile, req PageRequest, upTo int64, page *Page) error {
	i := len(files) - 1
	for i > 0 && files[i].base > req.Offset {
		i--
	}
	return s.eachBatch(files[i].name, 0, func(h batch.Header, whole func() ([]byte, error)) (bool, error) {
		if h.LastOffset() < req.Offset {
			return true, nil
		}
		if h.BaseOffset >= upTo || len(page.Batches) > 0 && len(page.Batches)+h.Size() > req.BytesMax {
			return false, nil
		}
		b, err := whole()
		page.Batches = append(page.Batches, b...)
		return true, err
	})
}

// oldestSnapshot is the one that [ImageBefore] takes.
func (s *Store) oldestSnapshot(logStart int64) (SnapshotPlace, error) {
	names, err := listSnapshots(s.opts.FS, s.opts.Dir)
	if err != nil {
		return SnapshotPlace{}, err
	}
	for _, name := range slices.Backward(names) {
		offset, epoch, _ := parseSnapshotName(name)
		if offset < logStart {
			continue
		}
		if _, err := readSnapshotFile(s.opts.FS, filepath.Join(s.opts.Dir, name)); err == nil {
			return SnapshotPlace{Offset: offset, Epoch: epoch}, nil
		}
	}
	return SnapshotPlace{}, fmt.Errorf("%w: the metadata log starts at offset %d and no good snapshot reaches it", persistence.ErrCorrupt, logStart)
}

func (s *Store) snapshotPage(at SnapshotPlace, bytesMax int, page *Page) error {
	name := filepath.Join(s.opts.Dir, snapshotName(at.Offset, at.Epoch))
	page.Snapshot = at
	page.Snapshot.Position = messages.NoOffset
	if _, err := s.opts.FS.Stat(name); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrSnapshotGone, name, err)
	}
	pos := at.Position
	return s.eachBatch(name, pos, func(h batch.Header, whole func() ([]byte, error)) (bool, error) {
		if len(page.Batches) > 0 && len(page.Batches)+h.Size() > bytesMax {
			page.Snapshot.Position = pos
			return false, nil
		}
		b, err := whole()
		page.Batches = append(page.Batches, b...)
		pos += int64(h.Size())
		return true, err
	})
}

// eachBatch visits the batches of a file from pos on until visit wants no more
// or the last whole one was visited.
func (s *Store) eachBatch(name string, pos int64, visit func(h batch.Header, whole func() ([]byte, error)) (more bool, err error)) error {
	f, err := s.opts.FS.OpenFile(name, false)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer func() { _ = f.Close() }() // read only
	size, err := f.Size()
	if err != nil {
		return fmt.Errorf("look at %s: %w", name, err)
	}
	head := make([]byte, batch.HeaderSize)
	for pos+batch.HeaderSize <= size {
		if _, err := f.ReadAt(head, pos); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		h, err := batch.ParseHeader(head)
		if err != nil || h.Size() < batch.HeaderSize || pos+int64(h.Size()) > size {
			return nil // a batch that is still being written, or what a crash left
		}
		more, err := visit(h, func() ([]byte, error) {
			b := make([]byte, h.Size())
			if _, err := f.ReadAt(b, pos); err != nil {
				return nil, fmt.Errorf("read %s: %w", name, err)
			}
			return b, batch.CheckCRC(b)
		})
		if err != nil || !more {
			return err
		}
		pos += int64(h.Size())
	}
	return nil
}

// hideSecrets replaces the values of settings that may be secret. A batch that
// has none keeps its bytes.
func hideSecrets(b []byte) ([]byte, error) {
	var out []byte
	for len(b) > 0 {
		h, whole, rest, err := batch.Next(b)
		if err != nil {
			return nil, fmt.Errorf("hide secrets: %w", err)
		}
		if whole, err = hideInBatch(h, whole); err != nil {
			return nil, fmt.Errorf("hide secrets of the batch at offset %d: %w", h.BaseOffset, err)
		}
		out, b = append(out, whole...), rest
	}
	return out, nil
}

func hideInBatch(h batch.Header, whole []byte) ([]byte, error) {
	if h.IsControl() {
		return whole, nil
	}
	raw, err := readRecords(h, whole)
	if err != nil {
		return nil, err
	}
	changed := false
	fresh := rawBatch{base: h.BaseOffset, epoch: h.LeaderEpoch, millis: h.MaxTimestamp, attrs: h.Attributes}
	for i, r := range raw {
		if i == 0 {
			fresh.headers = r.headers
		}
		rec, err := readFrame(r.value)
		if err != nil {
			return nil, err
		}
		value := r.value
		if c, ok := rec.(*wire.ConfigRecord); ok && c.Value != nil && !shown(messages.ResourceType(c.ResourceType), c.Name) {
			text := HiddenValue
			c.Value, changed = &text, true
			value = appendFrame(nil, c)
		}
		if c, ok := rec.(*wire.UserScramCredentialRecord); ok {
			c.Salt, c.StoredKey, c.ServerKey, changed = nil, nil, nil, true
			value = appendFrame(nil, c)
		}
		fresh.values = append(fresh.values, value)
	}
	if !changed {
		return whole, nil
	}
	return appendRawBatch(nil, fresh), nil
}

// shown: a setting that this build knows, and not as a secret.
func shown(kind messages.ResourceType, name string) bool {
	set := configSet(kind)
	if set == nil {
		return false
	}
	def := set.Lookup(name)
	return def != nil && !def.Sensitive()
}

// ReplaySnapshot is the image of a snapshot that was read in pages, of everything
// below offset.
func ReplaySnapshot(batches []byte, offset int64) (*Image, error) {
	return replaySnapshot("pages of a snapshot", batches, offset)
}
