package broker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestMetadataByID: topics by their ids, with a null name, or with an empty one as the
// Java client has it.
func TestMetadataByID(t *testing.T) {
	w := newWorld(t)
	w.topic("a", 1, nil)
	w.topic("b", 2, nil)
	c := w.dial()
	for _, name := range []*string{nil, new("")} {
		req := kmsg.NewPtrMetadataRequest()
		req.Version = 13
		for _, topic := range []string{"a", "b"} {
			rt := kmsg.NewMetadataRequestTopic()
			rt.TopicID, rt.Topic = w.Image().Topic(topic).ID, name
			req.Topics = append(req.Topics, rt)
		}
		unknown := kmsg.NewMetadataRequestTopic()
		unknown.TopicID, unknown.Topic = [16]byte{1}, name
		req.Topics = append(req.Topics, unknown)
		resp := c.call(req).(*kmsg.MetadataResponse)
		require.Len(t, resp.Topics, 3)
		require.Equal(t, "a", *resp.Topics[0].Topic)
		require.Len(t, resp.Topics[1].Partitions, 2)
		require.Equal(t, int16(100), resp.Topics[2].ErrorCode)
		require.Nil(t, resp.Topics[2].Topic)
	}
}
