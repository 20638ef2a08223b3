package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"kagami/messages"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// A snapshot of the metadata goes over the bus in pieces, big-endian:
//
//	request  0 version 1   1 offset int64   then the name, empty for the newest
//	answer   0 version 1   1 status (1 piece, 3 refused: then the text)
//	         2 total size int64   10 length of the name uint8   11 name   then bytes
//
// The newest may change between two requests: later ones name it.
const snapshotPieceMax = 4 << 20

// ServeSnapshots gives the newest snapshot of the metadata in dir to nodes that come
// too late for the log, until stop is called.
func (j *Journal) ServeSnapshots(bus *Bus, dir string) (stop func(), err error) {
	var cache struct {
		name    string
		content []byte
	}
	lock := make(chan struct{}, 1)
	return bus.Serve(bus.NodeSnapshot(j.opts.Node), func(_ context.Context, request []byte) []byte {
		if len(request) < 9 || request[0] != copyVersion {
			return append([]byte{copyVersion, copyRefused}, "snapshot request of another version"...)
		}
		offset, name := int64(binary.BigEndian.Uint64(request[1:])), string(request[9:])
		lock <- struct{}{}
		defer func() { <-lock }()
		if name == "" || name != cache.name {
			var err error
			if cache.name, cache.content, err = metadata.NewestSnapshot(persistence.OSFS{}, dir); err == nil && name != "" && name != cache.name {
				err = fmt.Errorf("snapshot %s is gone", name)
			}
			if err != nil {
				return append([]byte{copyVersion, copyRefused}, err.Error()...)
			}
		}
		size := int64(len(cache.content))
		offset = min(max(offset, 0), size)
		out := []byte{copyVersion, copyPiece}
		out = binary.BigEndian.AppendUint64(out, uint64(size))
		out = append(append(out, byte(len(cache.name))), cache.name...)
		return append(out, cache.content[offset:min(offset+snapshotPieceMax, size)]...)
	})
}

// FetchSnapshot puts the newest snapshot of another node into dir, if the metadata
// log here can't be replayed without one, and waits until that log is as far. nodes
// are those to ask, in their order; it asks until one has what is needed or ctx ends.
func (j *Journal) FetchSnapshot(ctx context.Context, bus *Bus, nodes func() []messages.NodeID, dir string) error {
	j.mu.Lock()
	log := j.meta.log
	j.mu.Unlock()
	for {
		start := log.LogStart()
		ok, err := metadata.SnapshotsReach(persistence.OSFS{}, dir, start)
		if ok || err != nil {
			return err
		}
		err = j.askSnapshot(ctx, bus, nodes(), log, dir)
		if err == nil {
			continue
		}
		err = fmt.Errorf("metadata log starts at %d and no snapshot that reaches it is here: %w", start, err)
		j.log.Warn("metadata snapshot of another node is needed, asked again", zap.Error(err))
		if j.clock.Sleep(ctx, j.opts.FollowRetry) != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

func (j *Journal) askSnapshot(ctx context.Context, bus *Bus, nodes []messages.NodeID, log persistence.Log, dir string) error {
	errs := []error{ErrNoReplica}
	for _, node := range nodes {
		name, content, err := fetchSnapshot(ctx, bus, node)
		var end int64
		if err == nil {
			end, err = metadata.PutSnapshot(persistence.OSFS{}, dir, name, content)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("node %d: %w", node, err))
			continue
		}
		j.log.Info("metadata snapshot copied", zap.Int32("node", int32(node)), zap.String("file", name), zap.Int("bytes", len(content)))
		for log.End() < end {
			if err := j.clock.Sleep(ctx, caughtUpPoll); err != nil {
				return fmt.Errorf("wait for the metadata log at %d: %w", end, err)
			}
		}
		if end >= log.LogStart() {
			return nil
		}
		errs = append(errs, fmt.Errorf("node %d: snapshot %s ends too early", node, name))
	}
	return errors.Join(errs...)
}

func fetchSnapshot(ctx context.Context, bus *Bus, node messages.NodeID) (name string, content []byte, err error) {
	for {
		request := binary.BigEndian.AppendUint64([]byte{copyVersion}, uint64(len(content)))
		answer, err := bus.Request(ctx, bus.NodeSnapshot(node), append(request, name...))
		switch {
		case err != nil:
			return "", nil, err
		case len(answer) >= 2 && answer[1] == copyRefused:
			return "", nil, errors.New(string(answer[2:]))
		case len(answer) < 11 || answer[0] != copyVersion || len(answer) < 11+int(answer[10]):
			return "", nil, fmt.Errorf("damaged answer to a snapshot request (%d bytes)", len(answer))
		}
		size, rest := int64(binary.BigEndian.Uint64(answer[2:])), answer[11+int(answer[10]):]
		given := string(answer[11 : 11+int(answer[10])])
		if name != "" && name != given {
			return "", nil, fmt.Errorf("snapshot %s came instead of %s", given, name)
		}
		name = given
		content = append(content, rest...)
		if int64(len(content)) >= size {
			return name, content, nil
		}
		if len(rest) == 0 {
			return "", nil, fmt.Errorf("snapshot %s ends at %d of %d bytes", name, len(content), size)
		}
	}
}
