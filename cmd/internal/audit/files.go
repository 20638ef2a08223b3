package audit

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"kagami/cmd/internal/tool"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// folder reads the segments of one partition, without a lock and without ever
// writing: a node may be running on them.
type folder struct {
	dir  string
	next int64 // offset from which nothing has been read yet

	path string // segment that was read last, and how far, so that following it is cheap
	pos  int64
	torn string // what can't be read at the end, "" if nothing
}

// segment is one .log file.
type segment struct {
	path string
	base int64
}

func segments(dir string) ([]segment, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	var out []segment
	for _, f := range files {
		if base, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(f), ".log"), 10, 64); err == nil {
			out = append(out, segment{f, base})
		}
	}
	slices.SortFunc(out, func(a, b segment) int { return int(min(1, max(-1, a.base-b.base))) })
	return out, nil
}

// start is the base offset of the oldest segment.
func (f *folder) start() (int64, error) {
	all, err := segments(f.dir)
	if err != nil {
		return 0, err
	}
	if len(all) == 0 {
		return 0, fmt.Errorf("no log in %s: %w", f.dir, os.ErrNotExist)
	}
	return all[0].base, nil
}

// batches yields what is there and hasn't been yielded yet. A last batch that
// isn't whole is still being written, or is what a crash left; anywhere else it
// is damage, which wraps [persistence.ErrCorrupt].
func (f *folder) batches(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		all, err := segments(f.dir)
		if err != nil {
			yield(nil, err)
			return
		}
		for i, s := range all {
			last := i == len(all)-1
			if !last && all[i+1].base <= f.next {
				continue
			}
			if ctx.Err() != nil {
				yield(nil, context.Cause(ctx))
				return
			}
			if more, err := f.segment(s, last, yield); err != nil {
				yield(nil, err)
				return
			} else if !more {
				return
			}
		}
	}
}

func (f *folder) segment(s segment, last bool, yield func([]byte, error) bool) (more bool, err error) {
	file, err := os.Open(s.path)
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", s.path, err)
	}
	if f.path != s.path || f.pos > info.Size() {
		f.path, f.pos = s.path, 0
	}
	f.torn = ""
	for f.pos < info.Size() {
		b, err := tool.ReadBatch(file, f.pos, info.Size())
		if err == nil {
			err = batch.CheckCRC(b)
		}
		if err != nil && last {
			f.torn = fmt.Sprintf("the last %d bytes of %s hold no whole batch: it is being written, or a crash left it so", info.Size()-f.pos, s.path)
			f.path = "" // the next look begins at the front: the file may have been cut meanwhile
			return false, nil
		}
		if err != nil {
			return false, &persistence.CorruptError{File: s.path, Pos: f.pos, Offset: f.next, Reason: err.Error()}
		}
		f.pos += int64(len(b))
		h, err := batch.ParseHeader(b)
		if err != nil {
			return false, err
		}
		if h.LastOffset() < f.next {
			continue
		}
		f.next = h.LastOffset() + 1
		if !yield(b, nil) {
			return false, nil
		}
	}
	return true, nil
}

// openFolder opens a data folder: the metadata log and, if the mirror is known
// there or was, its states.
func openFolder(ctx context.Context, data, mirror string) (*history, error) {
	meta := &folder{dir: filepath.Join(data, messages.ClusterMetadataTopic+"-0")}
	start, err := meta.start()
	if err != nil {
		return nil, fmt.Errorf("%s is not the data folder of a node: %w", data, err)
	}
	base, err := metadata.ImageBefore(persistence.OSFS{}, meta.dir, start)
	if err != nil {
		return nil, err
	}
	shards, err := shardsOf(ctx, &folder{dir: meta.dir}, base)
	if err != nil {
		return nil, err
	}
	meta.next = base.Offset() + 1
	h := newHistory(mirror)
	h.readRequests(base, meta.batches)
	h.torn = append(h.torn, meta)
	if shards > 0 {
		tp := messages.TopicPartition{Topic: messages.MirrorStateTopic, Partition: messages.CoordinatorShard(mirror, shards)}
		states := &folder{dir: filepath.Join(data, tp.String())}
		if _, err := states.start(); err != nil {
			return nil, fmt.Errorf("%s, which holds the states of mirror %s, has no replica in this folder: %w", tp, mirror, err)
		}
		h.states.batches = states.batches
		h.torn = append(h.torn, states)
	}
	return h, nil
}

// shardsOf is the number of partitions of __mirror_state; 0 if it was never made.
func shardsOf(ctx context.Context, log *folder, base *metadata.Image) (int32, error) {
	image := base
	log.next = base.Offset() + 1
	for b, err := range log.batches(ctx) {
		if err != nil {
			return 0, err
		}
		step, err := image.Replay(b)
		if err != nil {
			return 0, err
		}
		image = step.Delta.New
	}
	if t := image.Topic(messages.MirrorStateTopic); t != nil {
		return int32(len(t.Partitions)), nil
	}
	return 0, nil
}
