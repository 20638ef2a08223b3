package broker

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

// TestSmallRequestsCostLittle: requests of some megabytes, most of which need no right, that name the same
// or a filter a million times, or a pattern that is a program. Without their bounds each takes minutes
// or gigabytes, which the time-out of the connection and of the test show.
func TestSmallRequestsCostLittle(t *testing.T) {
	w := newWorld(t)
	for i := range 200 {
		w.topic("t"+strings.Repeat("x", i), 1, nil)
	}
	const many = 1 << 20
	c := w.dial()
	types := kmsg.NewPtrListConfigResourcesRequest()
	types.Version, types.ResourceTypes = 1, make([]int8, 4*many)
	for i := range types.ResourceTypes {
		types.ResourceTypes[i] = int8(messages.ResourceTopic)
	}
	require.Len(t, c.call(types).(*kmsg.ListConfigResourcesResponse).ConfigResources, 200)

	configs := kmsg.NewPtrDescribeConfigsRequest()
	configs.Version, configs.IncludeDocumentation = 4, true
	configs.Resources = make([]kmsg.DescribeConfigsRequestResource, many)
	for i := range configs.Resources {
		configs.Resources[i] = kmsg.DescribeConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t"}
	}
	require.Len(t, c.call(configs).(*kmsg.DescribeConfigsResponse).Resources, repeatsMax)

	offsets := kmsg.NewPtrOffsetFetchRequest()
	offsets.Version = 8
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group, group.Topics = "g", []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", Partitions: make([]int32, many)}}
	offsets.Groups = append(offsets.Groups, group)
	require.Len(t, c.call(offsets).(*kmsg.OffsetFetchResponse).Groups[0].Topics[0].Partitions, repeatsMax)

	list := kmsg.NewPtrListTransactionsRequest()
	list.Version, list.ProducerIDFilters, list.DurationFilterMillis = 2, make([]int64, many/2), -1
	require.Zero(t, c.call(list).(*kmsg.ListTransactionsResponse).ErrorCode)
	for _, pattern := range []string{strings.Repeat("a?", 3<<20), strings.Repeat("(a?){500}", 400), strings.Repeat("a{999}", 600)} {
		list.ProducerIDFilters, list.TransactionalIDPattern = nil, &pattern
		resp := c.call(list).(*kmsg.ListTransactionsResponse)
		require.Equal(t, kerr.InvalidRegularExpression.Code, resp.ErrorCode)
	}
}

// TestBigRequestsTakeTurns: what a big request was decoded to is there until it is handled, and counts
// until then; one that waits for others doesn't.
func TestBigRequestsTakeTurns(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, nil)
	asked, goOn := make(chan struct{}), make(chan struct{})
	var later atomic.Bool
	w.deny = func(messages.Requester, Operation, Resource) bool {
		if later.CompareAndSwap(false, true) {
			w.mu.Unlock()
			close(asked)
			<-goOn
			w.mu.Lock()
		}
		return false
	}
	big := kmsg.NewPtrMetadataRequest()
	big.Version, big.Topics = 9, make([]kmsg.MetadataRequestTopic, 3<<20)
	for i := range big.Topics {
		big.Topics[i].Topic = new("")
	}
	c := w.dial()
	correlation := c.send(big)
	<-asked
	require.False(t, w.srv.decoding.TryAcquire(decodeBytesMax/2), "the first has most of it")
	w.dial().metadata() // small ones don't count
	close(goOn)
	c.receive(big, correlation)
	require.Eventually(t, func() bool {
		if !w.srv.decoding.TryAcquire(decodeBytesMax) {
			return false
		}
		w.srv.decoding.Release(decodeBytesMax)
		return true
	}, 10*time.Second, time.Millisecond)
}
