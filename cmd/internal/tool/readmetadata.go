package tool

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/wire"
)

// metadataPageBytes is what a page of the metadata log may have.
const metadataPageBytes = 4 << 20

// ErrMetadataRefused means that this cluster doesn't show its metadata log to the caller,
// who lacks the rights.
var ErrMetadataRefused = errors.New("the cluster doesn't show its metadata log")

// MetadataLog is the metadata log of a running cluster, without the values of
// secrets. Any node answers from its own copy, so a page may come from another
// node than the one before.
type MetadataLog struct{ cl kmsg.Requestor }

// NewMetadataLog reads with an existing client.
func NewMetadataLog(cl kmsg.Requestor) MetadataLog { return MetadataLog{cl} }

// Snapshot returns what stands for the beginning of the log: the batches of a
// snapshot of everything below offset. Both are empty while the log is whole.
func (l MetadataLog) Snapshot(ctx context.Context) (batches []byte, offset int64, err error) {
	const snapshotGone = 98
	req := wire.NewPtrReadMetadataLogRequest()
	for tries := 0; ; {
		resp, err := l.page(ctx, req)
		if e, ok := errors.AsType[*wire.Error](err); ok && e.Code == snapshotGone && tries < 3 {
			tries++ // a newer one took its place meanwhile
			req, batches = wire.NewPtrReadMetadataLogRequest(), nil
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		if resp.SnapshotOffset < 0 {
			return nil, 0, nil
		}
		batches = append(batches, resp.Batches...)
		if resp.SnapshotPosition < 0 {
			return batches, resp.SnapshotOffset, nil
		}
		req.SnapshotOffset, req.SnapshotEpoch, req.SnapshotPosition = resp.SnapshotOffset, resp.SnapshotEpoch, resp.SnapshotPosition
	}
}

// Read returns whole batches from the one with offset on, none at the end. What
// is below the first offset kept is an error.
func (l MetadataLog) Read(ctx context.Context, offset int64) ([]byte, error) {
	req := wire.NewPtrReadMetadataLogRequest()
	req.Offset = offset
	resp, err := l.page(ctx, req)
	if err != nil {
		return nil, err
	}
	if resp.SnapshotOffset >= 0 {
		return nil, fmt.Errorf("read metadata log at %d: a snapshot replaced everything below %d meanwhile, begin again", offset, resp.SnapshotOffset)
	}
	return resp.Batches, nil
}

func (l MetadataLog) page(ctx context.Context, req *wire.ReadMetadataLogRequest) (*wire.ReadMetadataLogResponse, error) {
	req.MaxBytes = metadataPageBytes
	resp, err := req.RequestWith(ctx, l.cl)
	if err != nil {
		return nil, fmt.Errorf("read metadata log: %w", err)
	}
	text := ""
	if resp.ErrorMessage != nil {
		text = *resp.ErrorMessage
	}
	err = wire.ErrorForCode(resp.ErrorCode, text)
	if errors.Is(err, kerr.ClusterAuthorizationFailed) {
		return nil, fmt.Errorf("%w: it takes DESCRIBE and DESCRIBE_CONFIGS on the cluster: %w", ErrMetadataRefused, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read metadata log: %w", err)
	}
	return resp, nil
}
