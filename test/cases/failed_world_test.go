package cases

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
	"kagami/test/e2e"
	"kagami/test/kafka/stub"
)

const (
	// fileBytesMax is how far a node with a file limit writes a file: an append
	// beyond it fails, as on a full disk, but for that file alone.
	fileBytesMax = 8 << 20
	bulk         = 1_000_000 // bytes of a value in a log that comes close to it
)

// limited is a world on a node of its own whose files have a limit, over restarts
// too, until it is lifted.
func limited(t *testing.T, properties ...string) *world {
	t.Helper()
	t.Parallel()
	all := nodeProperties()
	maps.Copy(all, map[string]string{
		"mirror.state.topic.num.partitions": "1",
		"mirror.num.replica.fetchers":       "1",
		"kagami.log.level":                  "info",
	})
	for _, p := range properties {
		k, v, _ := strings.Cut(p, "=")
		all[k] = v
	}
	path, err := e2e.Program("kagami")
	require.NoError(t, err)
	script := filepath.Join(t.TempDir(), "limited")
	text := fmt.Sprintf("#!/bin/sh\nulimit -S -f %d && exec '%s' \"$@\"\n", fileBytesMax/512, path)
	require.NoError(t, os.WriteFile(script, []byte(text), 0o755))
	n := e2e.StartNode(t, e2e.NodeOptions{Properties: all, Program: script})
	t.Cleanup(func() { require.NoError(t, sane(n)) })
	w := newWorld(t, n)
	w.own = true
	require.Equal(t, uint64(fileBytesMax), w.limit(nil))
	return w
}

// limit sets the node's file limit, and returns the old one.
func (w *world) limit(bytes *uint64) uint64 {
	w.t.Helper()
	var old unix.Rlimit
	require.NoError(w.t, unix.Prlimit(w.node.Process().Pid(), unix.RLIMIT_FSIZE, nil, &old))
	if bytes != nil {
		now := unix.Rlimit{Cur: *bytes, Max: old.Max}
		require.NoError(w.t, unix.Prlimit(w.node.Process().Pid(), unix.RLIMIT_FSIZE, &now, nil))
	}
	return old.Cur
}

// lift ends the limit of the running process.
func (w *world) lift() {
	w.t.Helper()
	w.limit(new(uint64(unix.RLIM_INFINITY)))
}

// bulky is a batch of one big record of today: a log begins a new file for one
// that is much younger than the first.
func bulky(p *stub.Partition, size int) []byte {
	return stub.Build(stub.Spec{
		Base: p.End(), Epoch: p.Epoch, Timestamp: time.Now().UnixMilli(), Records: []stub.Record{{Value: make([]byte, size)}},
	})
}

// nearlyFull fills a partition of the source so that its copy has room for room
// bytes more.
func nearlyFull(p *stub.Partition, room int) {
	for len(p.Bytes())+2*bulk < fileBytesMax {
		p.Put(bulky(p, bulk))
	}
	left := fileBytesMax - len(p.Bytes()) - room
	last := bulky(p, left)
	p.Put(bulky(p, left-(len(last)-left)))
}

// storedState is one record of __mirror_state about a partition.
type storedState struct {
	State, Previous messages.State
	Attempt         int16
	At              time.Time
}

func (s storedState) String() string {
	return fmt.Sprintf("%s/%s/%d", s.State, s.Previous, s.Attempt)
}

// storedStates are all records about a partition, in order.
func (w *world) storedStates(topic string, partition int32) []storedState {
	w.t.Helper()
	var out []storedState
	for b := w.bytes(messages.MirrorStateTopic, 0); len(b) > 0; {
		h, whole, rest, err := batch.Next(b)
		require.NoError(w.t, err)
		for r, err := range batch.Records(whole) {
			require.NoError(w.t, err)
			kind, err := wire.MirrorStateType(r.Key)
			require.NoError(w.t, err)
			if kind == wire.RecordTypeLastMirrorEpochs || r.Value == nil {
				continue
			}
			v := wire.NewPtrMirrorPartitionStateValue()
			require.NoError(w.t, v.ReadFrom(r.Value))
			if v.TopicName == topic && v.Partition == partition {
				out = append(out, storedState{messages.State(v.State), messages.State(v.PreviousState), v.RetryAttempt, time.UnixMilli(h.MaxTimestamp)})
			}
		}
		b = rest
	}
	return out
}

// awaitStored waits until the newest record about p0 of the topic is as wanted.
func (w *world) awaitStored(topic, want string) {
	w.t.Helper()
	w.await(func() error {
		all := w.storedStates(topic, 0)
		if len(all) == 0 || all[len(all)-1].String() != want {
			return fmt.Errorf("stored of %s: %v, want %s at last", topic, all, want)
		}
		return nil
	})
}

// served counts the bytes of records that the source sent, by topic.
type served struct {
	mu    sync.Mutex
	bytes map[messages.TopicID]int
}

func (w *world) count() *served {
	s := &served{bytes: map[messages.TopicID]int{}}
	w.src.Edit(keyFetch, func(_ *stub.Request, resp kmsg.Response) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, t := range resp.(*kmsg.FetchResponse).Topics {
			for _, p := range t.Partitions {
				s.bytes[messages.TopicID(t.TopicID)] += len(p.RecordBatches)
			}
		}
	})
	return s
}

func (s *served) of(id messages.TopicID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes[id]
}

// attempts are the stored failures of a partition since the last one that was
// cleared, each once, and how long each waited for its retry.
func attempts(all []storedState) (counts []int16, waits []time.Duration) {
	for i, s := range all {
		if s.State != messages.StateFailed {
			continue
		}
		counts = append(counts, s.Attempt)
		if i+1 < len(all) {
			waits = append(waits, all[i+1].At.Sub(s.At))
		}
	}
	return counts, waits
}

func states(all []storedState) []messages.State {
	var out []messages.State
	for _, s := range all {
		out = append(out, s.State)
	}
	return slices.Compact(out)
}
