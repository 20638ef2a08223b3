package fetch

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

// divergenceVersion is the first Fetch version whose request carries the last
// fetched epoch, so that the source finds out where a copy diverges (2.7).
const divergenceVersion = 12

// EpochEnd is where an epoch ends in the source's log: that of the largest epoch
// that isn't newer than the one asked for. Epoch is NoEpoch if there is none.
type EpochEnd struct {
	Epoch int32
	End   int64
	Err   error
}

// Range is the extent of a partition's log on the source, up to its high
// watermark.
type Range struct {
	Start, End int64
	Err        error
}

// EpochEnds asks the leaders for ends of epochs. Every partition of asks is in
// the answer, with an error where nobody answered for it.
func (s *Source) EpochEnds(ctx context.Context, asks map[messages.TopicPartition]int32) map[messages.TopicPartition]EpochEnd {
	var req kadm.OffsetForLeaderEpochRequest
	for tp, epoch := range asks {
		req.Add(tp.Topic, tp.Partition, epoch)
	}
	answers, err := kadm.NewClient(s.client).OffsetForLeaderEpoch(ctx, req)
	out := make(map[messages.TopicPartition]EpochEnd, len(asks))
	for tp := range asks {
		a, ok := answers[tp.Topic][tp.Partition]
		switch {
		case !ok:
			out[tp] = EpochEnd{Epoch: messages.NoEpoch, End: messages.NoOffset, Err: s.missing("OffsetForLeaderEpoch", err)}
		case a.Err != nil:
			out[tp] = EpochEnd{Epoch: messages.NoEpoch, End: messages.NoOffset, Err: fmt.Errorf("OffsetForLeaderEpoch of %s: %w", tp, a.Err)}
		default:
			out[tp] = EpochEnd{Epoch: a.LeaderEpoch, End: a.EndOffset}
		}
	}
	return out
}

// Ranges asks for the extent of every partition of topics.
func (s *Source) Ranges(ctx context.Context, topics []string) map[messages.TopicPartition]Range {
	adm := kadm.NewClient(s.client)
	starts, err1 := adm.ListStartOffsets(ctx, topics...)
	ends, err2 := adm.ListEndOffsets(ctx, topics...)
	out := map[messages.TopicPartition]Range{}
	ends.Each(func(end kadm.ListedOffset) {
		start, ok := starts.Lookup(end.Topic, end.Partition)
		r := Range{Start: start.Offset, End: end.Offset, Err: errors.Join(start.Err, end.Err)}
		if !ok {
			r.Err = s.missing("ListOffsets", errors.Join(err1, err2))
		}
		out[messages.TopicPartition{Topic: end.Topic, Partition: end.Partition}] = r
	})
	if err := errors.Join(err1, err2); err != nil && len(out) == 0 {
		for _, t := range topics { // so that the reason isn't lost
			out[messages.TopicPartition{Topic: t}] = Range{Err: s.missing("ListOffsets", err)}
		}
	}
	return out
}

var errNotInAnswer = errors.New("the partition is missing in the source's answer")

func (s *Source) missing(request string, err error) error {
	if err == nil {
		return fmt.Errorf("%s: %w", request, errNotInAnswer)
	}
	return s.kadmError(request, err)
}

// FindsDivergence reports whether the source tells a copy where its log diverges.
func (s *Source) FindsDivergence(ctx context.Context) (bool, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = softwareName, softwareVersion
	kresp, err := s.client.Request(ctx, req)
	if err != nil {
		return false, s.unanswered("ApiVersions", err)
	}
	resp, ok := kresp.(*kmsg.ApiVersionsResponse)
	if !ok {
		return false, errors.New("api versions: answer of another kind")
	}
	const keyFetch = 1
	for _, k := range resp.ApiKeys {
		if k.ApiKey == keyFetch {
			return k.MaxVersion >= divergenceVersion, codeError("ApiVersions", resp.ErrorCode, nil)
		}
	}
	return false, codeError("ApiVersions", resp.ErrorCode, nil)
}
