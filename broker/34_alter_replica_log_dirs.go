package broker

// AlterReplicaLogDirs: served versions 1-2. A node has one data folder, so a partition
// can only stay where it is: the node's own folder is accepted, any other is
// LOG_DIR_NOT_FOUND.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

func (s *Server) handleAlterReplicaLogDirs(_ context.Context, r *request) reply {
	req := r.body.(*kmsg.AlterReplicaLogDirsRequest)
	resp := kmsg.NewPtrAlterReplicaLogDirsResponse()
	resp.Version = req.Version
	img, own := s.image(), s.logDir().Path
	at := map[string]int{}
	for _, d := range req.Dirs {
		for _, t := range d.Topics {
			n, seen := at[t.Topic]
			if !seen {
				n = len(resp.Topics)
				at[t.Topic] = n
				rt := kmsg.NewAlterReplicaLogDirsResponseTopic()
				rt.Topic = t.Topic
				resp.Topics = append(resp.Topics, rt)
			}
			for _, p := range t.Partitions {
				rp := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
				rp.Partition = p
				topic := img.Topic(t.Topic)
				switch {
				case !s.allowedCluster(r, OpAlter):
					rp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
				case d.Dir != own:
					rp.ErrorCode = kerr.LogDirNotFound.Code
				case topic == nil || p < 0 || int(p) >= len(topic.Partitions):
					rp.ErrorCode = r.code(messages.ErrUnknownTopicOrPartition)
				}
				resp.Topics[n].Partitions = append(resp.Topics[n].Partitions, rp)
			}
		}
	}
	return answer(resp)
}
