package cluster

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/persistence"
)

// orderedFS is the machine's. It notes shard records that are written while a checkpoint
// before them isn't synced.
type orderedFS struct {
	persistence.OSFS
	order *checkpointOrder
}

type checkpointOrder struct {
	mu      sync.Mutex
	pending map[string]bool // files with unsynced checkpoints of partitions
	records int
	early   int
}

type orderedFile struct {
	persistence.File
	name  string
	order *checkpointOrder
}

func (f orderedFS) OpenFile(name string, create bool) (persistence.File, error) {
	file, err := f.OSFS.OpenFile(name, create)
	if strings.HasSuffix(name, ".tmp") { // all or nothing
		return file, err
	}
	return orderedFile{file, name, f.order}, err
}

func (f orderedFile) WriteAt(b []byte, pos int64) (int, error) {
	id := shardKey(0).TopicID
	f.order.mu.Lock()
	for rest := b; len(rest) >= checkpointRecordSize; rest = rest[checkpointRecordSize:] {
		if !bytes.Contains(rest[:checkpointRecordSize], id[:]) {
			f.order.pending[f.name] = true
			continue
		}
		if f.order.records++; f.order.pending[f.name] {
			f.order.early++
		}
	}
	f.order.mu.Unlock()
	return f.File.WriteAt(b, pos)
}

func (f orderedFile) Sync() error {
	err := f.File.Sync()
	f.order.mu.Lock()
	delete(f.order.pending, f.name)
	f.order.mu.Unlock()
	return err
}

// TestRecordAfterCheckpoints: a shard's record is written when the checkpoints that it
// relies on are durable, in rounds and at the end. In one sync with them a loss of power
// could leave it alone.
func TestRecordAfterCheckpoints(t *testing.T) {
	order := &checkpointOrder{pending: map[string]bool{}}
	s := &several{t: t, under: orderedFS{order: order}, quiet: true}
	s.begin(1)
	n := s.nodes[1]
	s.topic("t", 7, 1)
	s.topic("u", 8, 1)
	n.leads("t")
	n.leads("u")
	for i := range 5 {
		n.append("t", fmt.Sprint(i))
		n.append("u", fmt.Sprint(i))
		require.NoError(t, n.journal.Checkpoint())
	}
	n.append("t", "last")
	n.append("u", "last")
	n.stop()
	order.mu.Lock()
	defer order.mu.Unlock()
	require.Greater(t, order.records, 5)
	require.Zero(t, order.early)
}
