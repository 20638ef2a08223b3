package compare

import (
	"bytes"
	"context"
	"fmt"
)

// Options of a comparison.
type Options struct {
	// Deep compares every byte of every batch; else CRC, offsets and epoch.
	Deep bool
	// Compacted tells whether a topic is cleaned by key on either side.
	Compacted func(topic string) bool
}

// Row is the verdict on one partition.
type Row struct {
	Topic       string
	Partition   int32
	SourceStart int64
	SourceEnd   int64
	DestStart   int64
	DestEnd     int64
	Batches     int64  // compared and equal
	Compacted   int64  // records that only one side still has, explained by compaction
	Difference  string // the first one, empty if equal
}

// Equal reports whether the partition is the same on both sides: same batches
// in the common range and the same log end.
func (r Row) Equal() bool { return r.Difference == "" }

// Topic is a topic to compare and its partition count on the destination.
type Topic struct {
	Name       string
	Partitions int32
}

// Run compares the topics and returns one row per partition, in order. An error
// means that the comparison could not be made; rows so far are returned with it.
func Run(ctx context.Context, source, dest *Side, topics []Topic, opts Options) ([]Row, error) {
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	for _, s := range []*Side{source, dest} {
		if err := s.load(ctx, names); err != nil {
			return nil, err
		}
	}
	var rows []Row
	for _, t := range topics {
		src, ok := source.topics[t.Name]
		if !ok {
			rows = append(rows, Row{Topic: t.Name, Partition: -1, Difference: "topic doesn't exist on the source"})
			continue
		}
		dst, ok := dest.topics[t.Name]
		if !ok {
			rows = append(rows, Row{Topic: t.Name, Partition: -1, Difference: "topic doesn't exist on the destination"})
			continue
		}
		if !src.id.IsZero() && src.id != dst.id {
			rows = append(rows, Row{Topic: t.Name, Partition: -1, Difference: fmt.Sprintf("topic id is %s on the source, %s on the destination", src.id, dst.id)})
		}
		if len(src.leaders) != len(dst.leaders) {
			rows = append(rows, Row{Topic: t.Name, Partition: -1, Difference: fmt.Sprintf("%d partitions on the source, %d on the destination", len(src.leaders), len(dst.leaders))})
		}
		for p := range int32(min(len(src.leaders), len(dst.leaders))) {
			row, err := partition(ctx, source, dest, t.Name, p, opts)
			rows = append(rows, row)
			if err != nil {
				return rows, err
			}
		}
	}
	return rows, nil
}

func partition(ctx context.Context, source, dest *Side, topic string, p int32, opts Options) (Row, error) {
	row := Row{Topic: topic, Partition: p}
	sb, err := source.bounds(ctx, topic, p)
	if err != nil {
		return row, err
	}
	db, err := dest.bounds(ctx, topic, p)
	if err != nil {
		return row, err
	}
	row.SourceStart, row.SourceEnd, row.DestStart, row.DestEnd = sb.start, sb.end, db.start, db.end
	from, to := max(sb.start, db.start), min(sb.end, db.end)
	a := &reader{side: source, topic: topic, partition: p, offset: from, end: to}
	b := &reader{side: dest, topic: topic, partition: p, offset: from, end: to}
	if opts.Compacted != nil && opts.Compacted(topic) {
		err = compareRecords(ctx, a, b, &row)
	} else {
		err = compareBatches(ctx, a, b, &row, opts.Deep)
	}
	if err == nil && row.Difference == "" && sb.end != db.end {
		row.Difference = fmt.Sprintf("log end offset is %d on the source, %d on the destination", sb.end, db.end)
	}
	return row, err
}

func compareBatches(ctx context.Context, a, b *reader, row *Row, deep bool) error {
	for {
		ha, rawA, okA, err := a.next(ctx)
		if err != nil {
			return err
		}
		hb, rawB, okB, err := b.next(ctx)
		if err != nil {
			return err
		}
		switch {
		case !okA && !okB:
			return nil
		case okA != okB:
			row.Difference = fmt.Sprintf("batch at offset %d is on one side only", max(ha.BaseOffset, hb.BaseOffset))
			return nil
		case ha != hb:
			row.Difference = fmt.Sprintf("batch headers differ: source %+v, destination %+v", ha, hb)
			return nil
		case deep && !bytes.Equal(rawA, rawB):
			row.Difference = fmt.Sprintf("batch at offset %d: bytes differ, first at byte %d", ha.BaseOffset, firstDiff(rawA, rawB))
			return nil
		}
		row.Batches++
	}
}

func firstDiff(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
