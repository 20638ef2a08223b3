package metadata

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

// A snapshot is a file beside the log, named like KRaft's:
//
//	<offset, 20 digits>-<epoch, 10 digits>.checkpoint
//
// offset is the first offset of the log that it does not cover. It holds Kafka
// batches: a control batch with a SnapshotHeader (control type 3), batches of
// metadata records, a control batch with a SnapshotFooter (type 4). A file
// without its footer, or with one wrong CRC, is damaged and never used.
//
// Two snapshots are kept, and the log from the older one on: when the newer one
// turns out to be damaged, the older one and the log give the same image.
const (
	snapshotSuffix = ".checkpoint"
	partSuffix     = ".part" // of a file that is being written
	snapshotKeep   = 2

	controlSnapshotHeader = 3
	controlSnapshotFooter = 4

	snapshotBatchRecords = 1000
	snapshotTimeout      = time.Minute
)

// snapshotter is the applying goroutine's view of snapshots.
type snapshotter struct {
	last    int64 // offset of the image in the newest snapshot, -1 if none
	records int64 // applied since
	bytes   int64
	epoch   int32         // leader epoch of the last batch
	running chan struct{} // closed when the writer has ended; nil if none runs
	// forget: the log and older snapshots may have secrets under other keys than the image.
	forget bool
	// rekeyed is the end of the newest change that has to be forgotten; forgot that of the image
	// whose writer saw all gone that was older, 0 for none.
	rekeyed int64
	forgot  atomic.Int64
}

// forgetUpTo notes that what is below the end of an image may have such secrets.
func (s *snapshotter) forgetUpTo(end int64) { s.forget, s.rekeyed = true, end }

// wait waits for a writer.
func (s *snapshotter) wait() {
	if s.running != nil {
		<-s.running
	}
}

// snapshotIfDue starts a writer when enough was applied and none runs.
func (s *Store) snapshotIfDue(ctx context.Context) {
	n, b := s.opts.SnapshotRecords, s.opts.SnapshotBytes
	due := n > 0 && s.snap.records >= n || b > 0 && s.snap.bytes >= b
	if !due && !s.snap.forget {
		return
	}
	if s.snap.running != nil {
		select {
		case <-s.snap.running:
		default:
			return // the writer has it asked again
		}
	}
	if end := s.snap.forgot.Swap(0); end > 0 && end >= s.snap.rekeyed && s.snap.forget {
		s.snap.forget = false
		if !due {
			return
		}
	}
	img, epoch, forget := s.Image(), s.snap.epoch, s.snap.forget
	s.snap.last, s.snap.records, s.snap.bytes = img.Offset(), 0, 0
	running := make(chan struct{})
	s.snap.running = running
	go func() {
		again := false
		defer func() {
			close(running)
			if again {
				s.poke()
			}
		}()
		ctx, cancel := context.WithTimeoutCause(ctx, snapshotTimeout, errors.New("snapshot took too long"))
		defer cancel()
		err := s.writeSnapshot(ctx, img, epoch, forget)
		if forget && err == nil {
			err = s.checkForgotten(img.Offset() + 1)
		}
		if again = err == nil || errors.Is(err, errNotForgotten) && s.Image().Offset() > img.Offset(); again {
			return // keys may have changed meanwhile, or stand in the segment that was left
		}
		if err != nil {
			s.log.Warn("metadata snapshot not finished, the log stays as it is", zap.Int64(messages.FieldOffset, img.Offset()), zap.Error(err))
		}
	}()
}

// writeSnapshot writes and syncs the file under a temporary name, renames it,
// and only then lets go of what the older snapshot and the log below it cover.
//
// To forget, the older snapshots go at once, and the segment that is written to is left, so
// that it can go, too.
func (s *Store) writeSnapshot(ctx context.Context, img *Image, epoch int32, forget bool) error {
	name := snapshotName(img.Offset()+1, epoch)
	path := filepath.Join(s.opts.Dir, name)
	if err := writeSnapshotFile(s.opts.FS, path, img, epoch, s.opts.Now()); err != nil {
		return err
	}
	s.log.Info("metadata snapshot written", zap.String("file", name))
	names, err := listSnapshots(s.opts.FS, s.opts.Dir)
	if err != nil {
		return err
	}
	keep := snapshotKeep
	if forget {
		keep = 1
		if err := s.opts.Journal.Roll(ctx); err != nil {
			return fmt.Errorf("begin a new segment of the metadata log: %w", err)
		}
	}
	if len(names) < keep {
		return nil
	}
	oldest, _, _ := parseSnapshotName(names[keep-1])
	if err := s.opts.Journal.RaiseLogStart(ctx, oldest); err != nil {
		return fmt.Errorf("raise start of the metadata log to %d: %w", oldest, err)
	}
	var errs []error
	for _, n := range names[keep:] {
		errs = append(errs, s.opts.FS.Remove(filepath.Join(s.opts.Dir, n)))
	}
	if forget { // what is told to be gone must not be back after a power cut
		errs = append(errs, s.opts.FS.SyncDir(s.opts.Dir))
	}
	return errors.Join(errs...)
}

func writeSnapshotFile(fsys persistence.FS, path string, img *Image, epoch int32, nowMillis int64) (err error) {
	tmp := path + partSuffix
	f, err := fsys.OpenFile(tmp, true)
	if err != nil {
		return fmt.Errorf("create snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, fsys.Remove(tmp))
		}
	}()
	w := bufio.NewWriterSize(io.NewOffsetWriter(f, 0), 1<<16)
	if err := errors.Join(f.Truncate(0), encodeSnapshot(w, img, epoch, nowMillis), w.Flush(), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write snapshot %s: %w", tmp, err)
	}
	if err := fsys.Rename(tmp, path); err != nil {
		return fmt.Errorf("rename snapshot: %w", err)
	}
	if err := fsys.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("sync snapshot folder: %w", err)
	}
	return nil
}

// encodeSnapshot writes the batches of a snapshot of img.
func encodeSnapshot(w io.Writer, img *Image, epoch int32, nowMillis int64) error {
	enc := snapshotEncoder{w: w, epoch: epoch, millis: nowMillis}
	// SnapshotHeaderRecord v0: version int16, last contained timestamp int64, tags.
	head := binary.BigEndian.AppendUint64([]byte{0, 0}, uint64(nowMillis))
	enc.control(controlSnapshotHeader, append(head, 0))
	img.records(enc.add)
	enc.flush()
	enc.control(controlSnapshotFooter, []byte{0, 0, 0}) // version int16, tags
	return enc.err
}

// snapshotEncoder gathers records into batches; err sticks.
type snapshotEncoder struct {
	w      io.Writer
	epoch  int32
	millis int64
	base   int64
	values [][]byte
	err    error
}

func (e *snapshotEncoder) add(r Record) {
	if e.values = append(e.values, appendFrame(nil, r)); len(e.values) == snapshotBatchRecords {
		e.flush()
	}
}

func (e *snapshotEncoder) flush() {
	if len(e.values) > 0 {
		e.write(rawBatch{base: e.base, epoch: e.epoch, millis: e.millis, values: e.values})
	}
	e.values = e.values[:0]
}

func (e *snapshotEncoder) control(kind byte, value []byte) {
	e.write(rawBatch{
		base: e.base, epoch: e.epoch, millis: e.millis, attrs: batch.AttrControl,
		keys: [][]byte{{0, 0, 0, kind}}, values: [][]byte{value},
	})
}

func (e *snapshotEncoder) write(b rawBatch) {
	if e.err != nil {
		return
	}
	_, e.err = e.w.Write(appendRawBatch(nil, b))
	e.base += int64(len(b.values))
}

// removeParts removes what a crash left of snapshots that were being written: nobody reads
// them, and they may have secrets in clear. Nobody may be writing one.
func (s *Store) removeParts() error {
	entries, err := s.opts.FS.ReadDir(s.opts.Dir)
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name, partSuffix); ok && !e.Dir {
			if _, _, ok := parseSnapshotName(name); ok {
				errs = append(errs, s.opts.FS.Remove(filepath.Join(s.opts.Dir, e.Name)))
			}
		}
	}
	return errors.Join(errs...)
}

// loadSnapshot returns the image of the newest good snapshot, the empty image
// if there is none. Damaged ones are logged and passed over.
func (s *Store) loadSnapshot() (*Image, error) {
	names, err := listSnapshots(s.opts.FS, s.opts.Dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		img, err := readSnapshotFile(s.opts.FS, filepath.Join(s.opts.Dir, name))
		switch {
		case err == nil:
			return img, nil
		case errors.Is(err, persistence.ErrCorrupt), errors.Is(err, ErrBadRecord):
			s.log.Error("metadata snapshot is damaged, trying an older one", zap.String("file", name), zap.Error(err))
		default:
			return nil, fmt.Errorf("load snapshot %s: %w", name, err)
		}
	}
	return EmptyImage(), nil
}

// readSnapshotFile checks and replays one snapshot.
func readSnapshotFile(fsys persistence.FS, path string) (*Image, error) {
	offset, _, ok := parseSnapshotName(filepath.Base(path))
	if !ok {
		return nil, fmt.Errorf("%w: %s is no snapshot name", persistence.ErrCorrupt, path)
	}
	b, err := fsys.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return replaySnapshot(path, b, offset)
}

// replaySnapshot is the image of a snapshot's bytes; name stands in errors.
func replaySnapshot(path string, b []byte, offset int64) (*Image, error) {
	bld := newBuilder(EmptyImage())
	var last byte // control type of the last control batch
	for pos := 0; pos < len(b); {
		h, err := batch.ParseHeader(b[pos:])
		if err == nil {
			err = batch.CheckCRC(b[pos:])
		}
		if err != nil {
			return nil, &persistence.CorruptError{File: path, Pos: int64(pos), Offset: -1, Reason: err.Error()}
		}
		raw, err := readRecords(h, b[pos:pos+h.Size()])
		if err != nil {
			return nil, &persistence.CorruptError{File: path, Pos: int64(pos), Offset: -1, Reason: err.Error()}
		}
		switch {
		case h.IsControl() && len(raw) == 1 && len(raw[0].key) == 4 && last != controlSnapshotFooter:
			last = raw[0].key[3]
		case h.IsControl() || last != controlSnapshotHeader:
			return nil, &persistence.CorruptError{File: path, Pos: int64(pos), Offset: -1, Reason: "batches out of order"}
		default:
			if err := applyRaw(bld, raw); err != nil {
				return nil, fmt.Errorf("replay snapshot %s: %w", path, err)
			}
		}
		pos += h.Size()
	}
	if last != controlSnapshotFooter {
		return nil, &persistence.CorruptError{File: path, Pos: int64(len(b)), Offset: -1, Reason: "snapshot without its footer"}
	}
	return bld.finish(offset - 1).New, nil
}

func applyRaw(bld *builder, raw []rawRecord) error {
	records, err := decodeRecords(raw)
	if err != nil {
		return err
	}
	for _, r := range records {
		if err := bld.apply(messages.NoOffset, r); err != nil {
			return err
		}
	}
	return nil
}

func snapshotName(offset int64, epoch int32) string {
	return fmt.Sprintf("%020d-%010d%s", offset, max(epoch, 0), snapshotSuffix)
}

func parseSnapshotName(name string) (offset int64, epoch int32, ok bool) {
	base, found := strings.CutSuffix(name, snapshotSuffix)
	o, e, dash := strings.Cut(base, "-")
	if !found || !dash || len(o) != 20 || len(e) != 10 {
		return 0, 0, false
	}
	offset, err1 := strconv.ParseInt(o, 10, 64)
	e32, err2 := strconv.ParseInt(e, 10, 32)
	return offset, int32(e32), err1 == nil && err2 == nil
}

// listSnapshots lists the snapshots of a folder, newest first.
func listSnapshots(fsys persistence.FS, dir string) ([]string, error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var names []string
	for _, e := range entries {
		if _, _, ok := parseSnapshotName(e.Name); ok && !e.Dir {
			names = append(names, e.Name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(b, a) })
	return names, nil
}
