package broker

// ReadMetadataLog: served version 0, private to this project.
//
// What an audit needs and Kafka serves to controllers only: pages of the metadata
// log, which says who asked for what, without the values of secrets. Any node
// answers from its own copy. Needs DESCRIBE and DESCRIBE_CONFIGS on the cluster,
// because the log tells of every topic and setting.

import (
	"context"

	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// metadataPageMax bounds the pages of ReadMetadataLog, whatever is asked for.
const metadataPageMax = 4 << 20

func (s *Server) handleReadMetadataLog(_ context.Context, r *request) reply {
	req := r.body.(*wire.ReadMetadataLogRequest)
	resp := wire.NewPtrReadMetadataLogResponse()
	resp.Batches = []byte{}
	page, err := s.readMetadataLog(r, req)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = r.code(err), errorText(err)
		return answer(resp)
	}
	resp.LogStart, resp.End, resp.Batches = page.LogStart, page.End, page.Batches
	if page.Snapshot.Offset >= 0 {
		resp.SnapshotOffset, resp.SnapshotEpoch, resp.SnapshotPosition = page.Snapshot.Offset, page.Snapshot.Epoch, page.Snapshot.Position
	}
	return answer(resp)
}

func (s *Server) readMetadataLog(r *request, req *wire.ReadMetadataLogRequest) (metadata.Page, error) {
	if err := s.mirroringOn(); err != nil {
		return metadata.Page{}, err
	}
	if !s.allowedCluster(r, OpDescribe) || !s.allowedCluster(r, OpDescribeConfigs) {
		return metadata.Page{}, messages.ErrClusterNotAuthorized
	}
	return s.deps.History.ReadPage(metadata.PageRequest{
		Offset:   max(0, req.Offset),
		Snapshot: metadata.SnapshotPlace{Offset: req.SnapshotOffset, Epoch: req.SnapshotEpoch, Position: max(0, req.SnapshotPosition)},
		BytesMax: int(min(max(req.MaxBytes, 1), metadataPageMax)),
	})
}
