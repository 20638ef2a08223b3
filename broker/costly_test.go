package broker

import (
	"strings"
	"testing"

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

	list := kmsg.NewPtrListTransactionsRequest()
	list.Version, list.ProducerIDFilters, list.DurationFilterMillis = 2, make([]int64, many/2), -1
	require.Zero(t, c.call(list).(*kmsg.ListTransactionsResponse).ErrorCode)
	for _, pattern := range []string{strings.Repeat("a?", 3<<20), strings.Repeat("(a?){500}", 400), strings.Repeat("a{999}", 600)} {
		list.ProducerIDFilters, list.TransactionalIDPattern = nil, &pattern
		resp := c.call(list).(*kmsg.ListTransactionsResponse)
		require.Equal(t, kerr.InvalidRegularExpression.Code, resp.ErrorCode)
	}
}
