package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"kagami/messages"
)

// A copy request and its answer, big-endian:
//
//	request  0 version 1   1 topic id   17 created at int64   25 partition int32
//	         29 offset int64   37 sequence uint64
//	answer   0 version 1   1 status (1 piece, 2 blank, 3 refused, 4 piece of a compacted log)
//	         piece: 2 position int64   10 a checkpoint record with the state   then batches;
//	         of a log from which tombstones or markers are gone: purged to int64 before them
//	         refused: 2 why, text
const (
	copyVersion     = 1
	copyRequestSize = 45

	copyPiece   = 1
	copyBlank   = 2
	copyRefused = 3
	copyPurged  = 4
)

// copyTimeout bounds one piece: reading a MiB, and waiting until that replica is
// as far as the asking one.
const copyTimeout = 10 * time.Second

// errAllBlank: every other replica was reached and knows as little.
var errAllBlank = errors.New("no replica has anything of the partition")

// errSole: there is no other replica.
var errSole = fmt.Errorf("%w: there is no other replica", errAllBlank)

// errBlank: a replica that has never had anything of the partition.
var errBlank = errors.New("the replica is blank")

// BusCopier asks the other nodes of a cluster for what a replica lacks. Its methods
// may be called from any goroutine.
type BusCopier struct {
	bus *Bus
	// where lists the other nodes that have a replica, the best one first; nil if that
	// isn't known.
	where func(key messages.PartitionKey) (nodes []messages.NodeID)
	live  func(messages.NodeID) bool
}

// NewCopier copies over the bus. where lists the other nodes that have a replica of
// a partition, the best one to ask first, and is nil when they aren't known; live says which of them can answer.
func NewCopier(bus *Bus, where func(messages.PartitionKey) []messages.NodeID, live func(messages.NodeID) bool) *BusCopier {
	return &BusCopier{bus: bus, where: where, live: live}
}

// Copy is [copier.Copy].
func (c *BusCopier) Copy(ctx context.Context, key messages.PartitionKey, offset int64, sequence uint64) (piece, error) {
	request := make([]byte, 0, copyRequestSize)
	request = append(request, copyVersion)
	request = append(request, key.TopicID[:]...)
	request = binary.BigEndian.AppendUint64(request, uint64(key.CreatedAt))
	request = binary.BigEndian.AppendUint32(request, uint32(key.Partition))
	request = binary.BigEndian.AppendUint64(request, uint64(offset))
	request = binary.BigEndian.AppendUint64(request, sequence)
	nodes := c.where(key)
	errs := make([]error, 0, len(nodes)+1)
	errs = append(errs, fmt.Errorf("copy %s: %w", key, ErrNoReplica))
	blank := 0
	for _, node := range nodes {
		if !c.live(node) {
			errs = append(errs, fmt.Errorf("node %d isn't live", node))
			continue
		}
		p, err := c.ask(ctx, node, request)
		if err == nil {
			return p, nil
		}
		if errors.Is(err, errBlank) {
			blank++
		}
		errs = append(errs, fmt.Errorf("node %d: %w", node, err))
	}
	if nodes == nil {
		errs = append(errs, errors.New("who has one isn't known now"))
		return piece{}, errors.Join(errs...)
	}
	if len(nodes) == 0 && key.TopicID != MetadataTopicID {
		return piece{}, errSole
	}
	if blank == len(nodes) && key.TopicID != MetadataTopicID { // that one has begun before anything can be missed of it
		return piece{}, errAllBlank
	}
	return piece{}, errors.Join(errs...)
}

func (c *BusCopier) ask(ctx context.Context, node messages.NodeID, request []byte) (piece, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, copyTimeout, messages.ErrTimedOut)
	defer cancel()
	answer, err := c.bus.Request(ctx, c.bus.NodeCopy(node), request)
	if err != nil {
		return piece{}, err
	}
	return parsePiece(node, answer)
}

func parsePiece(node messages.NodeID, b []byte) (piece, error) {
	if len(b) < 2 || b[0] != copyVersion {
		return piece{}, fmt.Errorf("answer of another version to a copy request (%d bytes)", len(b))
	}
	switch {
	case b[1] == copyBlank:
		return piece{}, errBlank
	case b[1] == copyRefused:
		return piece{}, errors.New(string(b[2:]))
	case b[1] != copyPiece && b[1] != copyPurged || len(b) < 10+checkpointRecordSize || b[1] == copyPurged && len(b) < 18+checkpointRecordSize:
		return piece{}, fmt.Errorf("damaged answer to a copy request (%d bytes)", len(b))
	}
	_, cp, ok := parseCheckpointRecord(b[10 : 10+checkpointRecordSize])
	if !ok {
		return piece{}, errors.New("damaged state in the answer to a copy request")
	}
	p := piece{
		from: node, position: int64(binary.BigEndian.Uint64(b[2:])), state: cp.State, cuts: cp.Cuts, batches: b[10+checkpointRecordSize:],
	}
	if b[1] == copyPurged {
		p.purged, p.batches = int64(binary.BigEndian.Uint64(p.batches)), p.batches[8:]
	}
	return p, nil
}

// ServeCopies answers the copy requests of other nodes until stop is called.
func (j *Journal) ServeCopies(bus *Bus) (stop func(), err error) {
	return bus.Serve(bus.NodeCopy(j.opts.Node), func(ctx context.Context, request []byte) []byte {
		p, key, err := j.offer(ctx, request)
		switch {
		case errors.Is(err, errBlank):
			return []byte{copyVersion, copyBlank}
		case err != nil:
			return append([]byte{copyVersion, copyRefused}, err.Error()...)
		}
		return appendPiece(key, p)
	})
}

func appendPiece(key messages.PartitionKey, p piece) []byte {
	b := make([]byte, 0, 18+checkpointRecordSize+len(p.batches))
	b = append(b, copyVersion, copyPiece)
	b = binary.BigEndian.AppendUint64(b, uint64(p.position))
	b = appendCheckpointRecord(b, checkpointPut, Checkpoint{Key: key, State: p.state, Cuts: p.cuts, Replicated: true})
	if p.purged > 0 {
		b[1] = copyPurged
		b = binary.BigEndian.AppendUint64(b, uint64(p.purged))
	}
	return append(b, p.batches...)
}

func (j *Journal) offer(ctx context.Context, b []byte) (p piece, key messages.PartitionKey, err error) {
	if len(b) != copyRequestSize || b[0] != copyVersion {
		return p, key, fmt.Errorf("copy request of another version (%d bytes)", len(b))
	}
	copy(key.TopicID[:], b[1:])
	key.CreatedAt = int64(binary.BigEndian.Uint64(b[17:]))
	key.Partition = int32(binary.BigEndian.Uint32(b[25:]))
	r := j.replica(key)
	if r == nil {
		return p, key, fmt.Errorf("%s is not on node %d", key, j.opts.Node)
	}
	p, err = r.order.(*streamed).offer(ctx, int64(binary.BigEndian.Uint64(b[29:])), binary.BigEndian.Uint64(b[37:]))
	return p, key, err
}

// replica is this node's replica of a partition, nil if there is none.
func (j *Journal) replica(key messages.PartitionKey) *Replica {
	j.mu.Lock()
	meta, data := j.meta, j.data
	j.mu.Unlock()
	if key.TopicID == MetadataTopicID {
		return meta
	}
	if data == nil {
		return nil
	}
	if r, err := data.ByID(key.TopicID, key.Partition); err == nil && r.key == key {
		return r
	}
	return nil
}
