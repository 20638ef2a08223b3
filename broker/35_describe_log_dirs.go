package broker

// DescribeLogDirs: served versions 1-5.
//
// v3 top-level error; v4 size of the disk (KIP-827); v5 cordoned folders (KIP-1066),
// which there are none of. The node's one data folder, with the replicas in it: those
// asked for, or all. A replica's lag is 0: what a replica lacks isn't in its folder.

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

// LogDir is the data folder of a node.
type LogDir struct {
	Path          string
	Total, Usable int64 // bytes of the disk, -1 if unknown
	Logs          []LogSize
}

// LogSize is one replica in a folder.
type LogSize struct {
	messages.TopicPartition
	Bytes int64
}

func (s *Server) logDir() LogDir {
	if s.cfg.LogDir == nil {
		return LogDir{Total: -1, Usable: -1}
	}
	return s.cfg.LogDir()
}

func (s *Server) handleDescribeLogDirs(_ context.Context, r *request) reply {
	req := r.body.(*kmsg.DescribeLogDirsRequest)
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	resp.Version = req.Version
	if !s.allowedCluster(r, OpDescribe) {
		resp.ErrorCode = r.code(messages.ErrClusterNotAuthorized)
		return answer(resp)
	}
	var asked map[messages.TopicPartition]bool
	if req.Topics != nil {
		asked = map[messages.TopicPartition]bool{}
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				asked[messages.TopicPartition{Topic: t.Topic, Partition: p}] = true
			}
		}
	}
	have := s.logDir()
	slices.SortFunc(have.Logs, func(a, b LogSize) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir, dir.TotalBytes, dir.UsableBytes = have.Path, have.Total, have.Usable
	for _, l := range have.Logs {
		if asked != nil && !asked[l.TopicPartition] {
			continue
		}
		if n := len(dir.Topics); n == 0 || dir.Topics[n-1].Topic != l.Topic {
			t := kmsg.NewDescribeLogDirsResponseDirTopic()
			t.Topic = l.Topic
			dir.Topics = append(dir.Topics, t)
		}
		t := &dir.Topics[len(dir.Topics)-1]
		t.Partitions = append(t.Partitions, kmsg.DescribeLogDirsResponseDirTopicPartition{Partition: l.Partition, Size: l.Bytes})
	}
	resp.Dirs = append(resp.Dirs, dir)
	return answer(resp)
}
