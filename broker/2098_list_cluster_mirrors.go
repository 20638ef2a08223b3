package broker

// ListClusterMirrors: served version 0 (KIP-1279).
//
// From the metadata image alone. Mirrors that the client may not describe are
// left out. TopicCount counts active, paused and stopped topics (OP-18).

import (
	"context"

	"kagami/messages/configs"
	"kagami/messages/wire"
)

func (s *Server) handleListClusterMirrors(_ context.Context, r *request) reply {
	resp := wire.NewPtrListClusterMirrorsResponse()
	resp.Mirrors = []wire.ListClusterMirrorsResponseListedMirror{}
	if err := s.mirroringOn(); err != nil {
		resp.ErrorCode, resp.ErrorMessage = r.code(err), errorText(err)
		return answer(resp)
	}
	img := s.image()
	counts := map[string]int32{}
	for _, t := range img.Topics() {
		counts[t.Mirror]++
	}
	for _, m := range img.Mirrors() {
		if !s.allowed(r, OpDescribe, KindClusterMirror, m.Name) {
			continue
		}
		resp.Mirrors = append(resp.Mirrors, wire.ListClusterMirrorsResponseListedMirror{
			MirrorName:      m.Name,
			SourceBootstrap: m.Configs[configs.BootstrapServers],
			SourceClusterID: m.Configs[configs.MirrorSourceClusterID],
			TopicCount:      counts[m.Name],
		})
	}
	return answer(resp)
}
