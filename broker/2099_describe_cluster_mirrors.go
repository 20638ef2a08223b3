package broker

// DescribeClusterMirrors: served version 0 (KIP-1279), with private tagged fields
// (OP-37): error text, retry attempt, cut, gap.
//
// Each node answers for the partitions that it leads, STOPPED ones included: the
// peer of a failback asks for their LME. A client merges the nodes' answers. No
// name = all mirrors that the client may describe.

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"kagami/messages"
	"kagami/messages/wire"
)

func (s *Server) handleDescribeClusterMirrors(ctx context.Context, r *request) reply {
	req := r.body.(*wire.DescribeClusterMirrorsRequest)
	resp := wire.NewPtrDescribeClusterMirrorsResponse()
	resp.Mirrors = []wire.DescribeClusterMirrorsResponseDescribedMirror{}
	if err := s.mirroringOn(); err != nil {
		resp.ErrorCode, resp.ErrorMessage = r.code(err), errorText(err)
		return answer(resp)
	}
	img := s.image()
	names := slices.Compact(slices.Sorted(slices.Values(req.MirrorNames)))
	if len(names) == 0 {
		for _, m := range img.Mirrors() {
			if s.allowed(r, OpDescribe, KindClusterMirror, m.Name) {
				names = append(names, m.Name)
			}
		}
	}
	for _, name := range names {
		m := wire.NewDescribeClusterMirrorsResponseDescribedMirror()
		m.MirrorName = name
		m.Topics = []wire.DescribeClusterMirrorsResponseTopicPartitions{}
		var err error
		switch {
		case !s.allowed(r, OpDescribe, KindClusterMirror, name):
			err = messages.ErrMirrorNotAuthorized
		case img.Mirror(name) == nil:
			err = fmt.Errorf("%w: %q", messages.ErrUnknownMirror, name)
		default:
			if req.IncludeAuthorizedOperations {
				m.AuthorizedOperations = s.operations(r, KindClusterMirror, name)
			}
			m.Topics, err = s.describeMirror(ctx, name)
		}
		m.ErrorCode = r.code(err)
		resp.Mirrors = append(resp.Mirrors, m)
	}
	return answer(resp)
}

func (s *Server) describeMirror(ctx context.Context, mirror string) ([]wire.DescribeClusterMirrorsResponseTopicPartitions, error) {
	parts, err := s.deps.Mirrors.Describe(ctx, mirror)
	out := []wire.DescribeClusterMirrorsResponseTopicPartitions{}
	if err != nil {
		return out, err
	}
	parts = slices.SortedFunc(slices.Values(parts), func(a, b MirrorPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	for _, p := range parts {
		if len(out) == 0 || out[len(out)-1].TopicName != p.Topic {
			t := wire.NewDescribeClusterMirrorsResponseTopicPartitions()
			t.TopicName = p.Topic
			out = append(out, t)
		}
		t := &out[len(out)-1]
		t.Partitions = append(t.Partitions, partitionDetail(p))
	}
	return out, nil
}

func partitionDetail(p MirrorPartition) wire.DescribeClusterMirrorsResponsePartitionDetail {
	d := wire.NewDescribeClusterMirrorsResponsePartitionDetail()
	d.PartitionIndex = p.Partition
	d.SourceOffset, d.DestinationOffset, d.Lag = p.SourceOffset, p.DestinationOffset, p.Lag
	d.State, d.LastMirrorEpoch = p.State.State.String(), p.State.LME
	d.LeaderEpoch, d.OpenTransactions = p.LeaderEpoch, p.OpenTransactions
	d.LogEnd, d.SeenSourceOffset, d.SeenSourceAgeMs = p.LogEnd, p.SeenSourceOffset, -1
	if p.SeenSourceAge >= 0 {
		d.SeenSourceAgeMs = p.SeenSourceAge.Milliseconds()
	}
	d.ErrorText, d.RetryAttempt = p.State.Error, p.State.RetryAttempt
	d.CutRecords, d.CutBytes, d.CutFrom, d.CutTo = p.State.CutRecords, p.State.CutBytes, p.State.CutFrom, p.State.CutTo
	d.GapFrom, d.GapTo, d.GapAtMs = p.State.GapFrom, p.State.GapTo, p.State.GapAtMillis
	return d
}
