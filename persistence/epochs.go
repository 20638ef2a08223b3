package persistence

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"strconv"

	"kagami/messages"
)

// epochCache is the leader epoch history of a log: epochs and start offsets
// both grow. It follows Kafka's LeaderEpochFileCache, with one difference: it
// is fed by batches only. The caller holds the log's lock.
type epochCache struct {
	entries []EpochEntry
}

// assign notes that the batch at offset carries epoch. A lower epoch than the
// newest one drops the newer ones, as in Kafka: the batch says what is true.
// It reports whether anything changed.
func (c *epochCache) assign(epoch int32, offset int64) bool {
	if epoch < 0 {
		return false
	}
	n := len(c.entries)
	if n > 0 && c.entries[n-1].Epoch == epoch && c.entries[n-1].StartOffset <= offset {
		return false
	}
	for n > 0 && (c.entries[n-1].Epoch >= epoch || c.entries[n-1].StartOffset >= offset) {
		n--
	}
	c.entries = append(c.entries[:n:n], EpochEntry{Epoch: epoch, StartOffset: offset})
	return true
}

func (c *epochCache) latest() int32 {
	if len(c.entries) == 0 {
		return messages.NoEpoch
	}
	return c.entries[len(c.entries)-1].Epoch
}

func (c *epochCache) endOffset(epoch int32, end int64) (int32, int64, bool) {
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].Epoch > epoch })
	if i == 0 {
		return messages.NoEpoch, messages.NoOffset, false
	}
	if i < len(c.entries) {
		end = c.entries[i].StartOffset
	}
	return c.entries[i-1].Epoch, end, true
}

func (c *epochCache) forOffset(offset int64) int32 {
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].StartOffset > offset })
	if i == 0 {
		return messages.NoEpoch
	}
	return c.entries[i-1].Epoch
}

// truncateEnd drops entries that start at or above offset.
func (c *epochCache) truncateEnd(offset int64) bool {
	n := len(c.entries)
	for n > 0 && c.entries[n-1].StartOffset >= offset {
		n--
	}
	changed := n < len(c.entries)
	c.entries = c.entries[:n:n]
	return changed
}

// truncateStart drops entries below start; the newest one at or below start
// stays and then starts there.
func (c *epochCache) truncateStart(start int64) bool {
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].StartOffset > start })
	if i == 0 || (i == 1 && c.entries[0].StartOffset == start) {
		return false
	}
	e := c.entries[i-1]
	e.StartOffset = start
	c.entries = append([]EpochEntry{e}, c.entries[i:]...)
	return true
}

func (c *epochCache) clone() []EpochEntry { return slices.Clone(c.entries) }

// The file leader-epoch-checkpoint, version 0, is text: the version, the number
// of entries, then one line "epoch startOffset" each.

func encodeEpochs(entries []EpochEntry) []byte {
	b := fmt.Appendf(nil, "0\n%d\n", len(entries))
	for _, e := range entries {
		b = fmt.Appendf(b, "%d %d\n", e.Epoch, e.StartOffset)
	}
	return b
}

func decodeEpochs(name string, data []byte) ([]EpochEntry, error) {
	bad := func(why string) ([]EpochEntry, error) {
		return nil, &CorruptError{File: name, Pos: -1, Offset: -1, Reason: why}
	}
	lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	if len(lines) < 2 || string(lines[0]) != "0" {
		return bad("unknown version of the epoch checkpoint")
	}
	n, err := strconv.Atoi(string(lines[1]))
	if err != nil || n != len(lines)-2 {
		return bad("entry count and lines differ")
	}
	out := make([]EpochEntry, 0, n)
	for _, line := range lines[2:] {
		var e EpochEntry
		before, after, ok := bytes.Cut(line, []byte(" "))
		epoch, err1 := strconv.ParseInt(string(before), 10, 32)
		start, err2 := strconv.ParseInt(string(after), 10, 64)
		if !ok || err1 != nil || err2 != nil || epoch < 0 || start < 0 {
			return bad("malformed line")
		}
		e.Epoch, e.StartOffset = int32(epoch), start
		if k := len(out); k > 0 && (out[k-1].Epoch >= e.Epoch || out[k-1].StartOffset >= e.StartOffset) {
			return bad("epochs out of order")
		}
		out = append(out, e)
	}
	return out, nil
}
