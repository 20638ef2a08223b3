package metadata

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"kagami/messages/batch"
	"kagami/persistence"
)

// Step is what one batch of the metadata log did to an image, and who asked for
// it. For tools and audits, which replay a log without a [Store].
type Step struct {
	Change
	Delta Delta
	// Stale: the batch stands under an older claim, so nobody applied it; New is
	// Old but for the offset.
	Stale bool
}

// Replay applies one whole batch of the log, as the store does. A batch that i
// has applied already, or a control batch, is a step without records.
func (i *Image) Replay(b []byte) (Step, error) {
	h, err := batch.ParseHeader(b)
	if err == nil {
		err = batch.CheckCRC(b)
	}
	if err != nil {
		return Step{}, fmt.Errorf("replay metadata batch: %w", err)
	}
	bld := newBuilder(i)
	if h.LastOffset() <= i.Offset() {
		return Step{Delta: bld.finish(i.Offset())}, nil
	}
	if h.IsControl() {
		return Step{Delta: bld.finish(h.LastOffset())}, nil
	}
	raw, err := readRecords(h, b)
	if err != nil {
		return Step{}, err
	}
	var s Step
	if s.Change, err = changeOf(raw); err != nil {
		return Step{}, fmt.Errorf("replay metadata batch at offset %d: %w", h.BaseOffset, err)
	}
	s.Stale = claimOf(raw, s.Records) < i.ControllerEpoch()
	if !s.Stale {
		for n, r := range s.Records {
			if err := bld.apply(h.BaseOffset+int64(n), r); err != nil {
				return Step{}, fmt.Errorf("replay metadata batch at offset %d: %w", h.BaseOffset, err)
			}
		}
	}
	s.Delta = bld.finish(h.LastOffset())
	return s, nil
}

// ImageBefore is the image to replay a log on that begins at logStart: empty for
// a whole log, else the oldest good snapshot in dir that reaches the log. It
// writes nothing. Without such a snapshot the error wraps persistence.ErrCorrupt.
func ImageBefore(fsys persistence.FS, dir string, logStart int64) (*Image, error) {
	if logStart <= 0 {
		return EmptyImage(), nil
	}
	names, err := listSnapshots(fsys, dir)
	if err != nil {
		return nil, err
	}
	var faults []error
	for _, name := range slices.Backward(names) {
		img, err := readSnapshotFile(fsys, filepath.Join(dir, name))
		if err == nil && img.Offset()+1 >= logStart {
			return img, nil
		}
		faults = append(faults, err)
	}
	return nil, fmt.Errorf("%w: the metadata log in %s starts at offset %d and no good snapshot reaches it: %w",
		persistence.ErrCorrupt, dir, logStart, errors.Join(faults...))
}
