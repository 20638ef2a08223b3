package broker

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/batch"
)

// Traffic is what clients moved since the start of the server: Kafka's
// BrokerTopicMetrics. What mirrors copy isn't in it.
type Traffic struct {
	BytesIn, MessagesIn int64 // of batches that were stored
	BytesOut            int64 // of batches that were sent, to mirrors elsewhere too
	Produce, Fetch      int64 // requests
	FailedProduce       int64 // partitions of Produce requests that were refused, read-only topics included
	FailedFetch         int64 // partitions of Fetch requests that were answered with an error
}

type traffic struct {
	bytesIn, messagesIn, bytesOut              atomic.Int64
	produce, fetch, failedProduce, failedFetch atomic.Int64
}

// Traffic counts; any goroutine may ask.
func (s *Server) Traffic() Traffic {
	t := &s.traffic
	return Traffic{
		BytesIn: t.bytesIn.Load(), MessagesIn: t.messagesIn.Load(), BytesOut: t.bytesOut.Load(),
		Produce: t.produce.Load(), Fetch: t.fetch.Load(),
		FailedProduce: t.failedProduce.Load(), FailedFetch: t.failedFetch.Load(),
	}
}

// produced counts an answered Produce request.
func (t *traffic) produced(req *kmsg.ProduceRequest, resp *kmsg.ProduceResponse) {
	t.produce.Add(1)
	var bytes, records, failed int64
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			if resp.Topics[i].Partitions[j].ErrorCode != 0 {
				failed++
				continue
			}
			b := req.Topics[i].Partitions[j].Records
			bytes += int64(len(b))
			if h, err := batch.ParseHeader(b); err == nil {
				records += int64(h.Records)
			}
		}
	}
	t.bytesIn.Add(bytes)
	t.messagesIn.Add(records)
	t.failedProduce.Add(failed)
}

// fetched counts a Fetch request that is about to be answered.
func (t *traffic) fetched(f *fetchReply) {
	t.fetch.Add(1)
	t.bytesOut.Add(int64(f.bytes()))
	var failed int64
	for _, target := range f.targets {
		if target.code != 0 {
			failed++
		}
	}
	t.failedFetch.Add(failed)
}
