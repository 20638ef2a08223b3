package tool

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/messages"
)

// Connect makes a client of a Kagami cluster, with the settings of a property
// file if commandConfig isn't empty. The caller closes it.
func Connect(bootstrap, commandConfig string) (*kgo.Client, error) {
	return connect(bootstrap, commandConfig)
}

// ReadBatch reads the whole batch that begins at pos of a segment of size bytes.
// An error says that none does: the end, a batch that is still being written, or
// damage. The checksum is the caller's business.
func ReadBatch(f io.ReaderAt, pos, size int64) ([]byte, error) { return readBatch(f, pos, size) }

// StateLog is the partition of __mirror_state of a running cluster that holds the
// records of one mirror.
type StateLog struct {
	Start, End int64 // first offset kept, and of the next record, when it was opened

	broker    *kgo.Broker
	id        kadm.TopicID
	partition int32
}

// readable says which right is missing to read the states of mirrors.
func readable(err error) error {
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		return fmt.Errorf("%w (READ on the topic %s is needed)", err, messages.MirrorStateTopic)
	}
	return err
}

// OpenStateLog looks the partition up. Open it again when its leader moves.
func OpenStateLog(ctx context.Context, cl *kgo.Client, mirror string) (*StateLog, error) {
	const name = messages.MirrorStateTopic
	adm := kadm.NewClient(cl)
	meta, err := adm.Metadata(ctx, name)
	if err != nil {
		return nil, readable(fmt.Errorf("look up %s: %w", name, err))
	}
	topic := meta.Topics[name]
	if topic.Err != nil {
		if errors.Is(topic.Err, kerr.TopicAuthorizationFailed) {
			return nil, readable(fmt.Errorf("%s: %w", name, topic.Err))
		}
		return nil, fmt.Errorf("%s: %w (it is created with the first mirror)", name, topic.Err)
	}
	shard := messages.CoordinatorShard(mirror, int32(len(topic.Partitions)))
	starts, err := adm.ListStartOffsets(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("list offsets of %s: %w", name, err)
	}
	ends, err := adm.ListEndOffsets(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("list offsets of %s: %w", name, err)
	}
	start, _ := starts.Lookup(name, shard)
	end, ok := ends.Lookup(name, shard)
	switch {
	case !ok:
		return nil, fmt.Errorf("%s-%d: %w", name, shard, messages.ErrUnknownTopicOrPartition)
	case start.Err != nil:
		return nil, fmt.Errorf("list offsets of %s-%d: %w", name, shard, start.Err)
	case end.Err != nil:
		return nil, fmt.Errorf("list offsets of %s-%d: %w", name, shard, end.Err)
	}
	leader := topic.Partitions[shard].Leader
	return &StateLog{Start: start.Offset, End: end.Offset, broker: cl.Broker(int(leader)), id: topic.ID, partition: shard}, nil
}

// Fetch returns batches from the one with offset on; the last one may be cut
// off. At the end it waits up to half a second for more.
func (l *StateLog) Fetch(ctx context.Context, offset int64) ([]byte, error) {
	b, err := fetchAt(ctx, l.broker, l.id, l.partition, offset)
	if err != nil {
		return nil, readable(fmt.Errorf("fetch %s-%d at %d: %w", messages.MirrorStateTopic, l.partition, offset, err))
	}
	return b, nil
}

// StateRow is one partition as its records tell it. Offsets aren't among them.
type StateRow struct {
	Mirror, Topic string
	Partition     int32
	State         string
	LME           int32 // -1 if none
	Since         string
	Retry         int16
	Error         string
}

// PrintStates prints rows in the layout of describe, with - for what only a
// running node knows.
func PrintStates(w io.Writer, rows []StateRow) {
	if len(rows) == 0 {
		printf(w, "No mirror partitions found\n")
		return
	}
	columns := append(describeColumns(),
		column{title: "LME", width: 6}, column{title: "SINCE", width: 24}, column{title: "RETRY", width: 8}, column{title: "ERROR", whole: true})
	printHeader(w, columns)
	for _, r := range rows {
		printRow(w, columns, r.Mirror, r.Topic, number(r.Partition), "-", "-", "-", r.State,
			number(r.LME), r.Since, number(r.Retry), oneLine(r.Error))
	}
}
