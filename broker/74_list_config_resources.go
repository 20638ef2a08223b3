package broker

// ListConfigResources: served versions 0-1 (KIP-1142).
//
// v0 client metrics; v1 the types asked for: 2 topics, 4 brokers, 8 broker loggers, 16
// client metrics, 32 groups, 64 cluster mirrors; none = all of Kafka's. Of groups and
// client metrics those are listed that have a config.

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

func (s *Server) handleListConfigResources(_ context.Context, r *request) reply {
	req := r.body.(*kmsg.ListConfigResourcesRequest)
	resp := kmsg.NewPtrListConfigResourcesResponse()
	resp.Version = req.Version
	types := req.ResourceTypes
	switch {
	case req.Version == 0:
		types = []int8{int8(messages.ResourceClientMetrics)}
	case len(types) == 0:
		types = []int8{int8(messages.ResourceTopic), int8(messages.ResourceBroker), int8(messages.ResourceBrokerLogger), int8(messages.ResourceClientMetrics), int8(messages.ResourceGroup)}
	}
	var err error
	if !s.allowedCluster(r, OpDescribeConfigs) {
		err = messages.ErrClusterNotAuthorized
	}
	if err != nil {
		types = nil
	}
	resp.ConfigResources = []kmsg.ListConfigResourcesResponseConfigResource{}
	seen := map[int8]bool{}
	for _, typ := range types {
		if seen[typ] {
			continue
		}
		seen[typ] = true
		names, known := s.configResources(r, messages.ResourceType(typ))
		if !known {
			err = fmt.Errorf("%w: configs of resource type %d", messages.ErrUnsupportedVersion, typ)
		}
		for _, n := range names {
			resp.ConfigResources = append(resp.ConfigResources, kmsg.ListConfigResourcesResponseConfigResource{Name: n, Type: typ})
		}
	}
	if resp.ErrorCode = r.code(err); err != nil {
		resp.ConfigResources = []kmsg.ListConfigResourcesResponseConfigResource{}
	}
	return answer(resp)
}

func (s *Server) configResources(r *request, typ messages.ResourceType) (names []string, known bool) {
	img := s.image()
	switch typ {
	case messages.ResourceTopic:
		for _, t := range img.Topics() {
			if s.allowed(r, OpDescribe, KindTopic, t.Name) {
				names = append(names, t.Name)
			}
		}
	case messages.ResourceBroker, messages.ResourceBrokerLogger:
		for _, n := range img.Nodes() {
			names = append(names, fmt.Sprint(n.ID))
		}
	case messages.ResourceClientMetrics:
		names = slices.Sorted(maps.Keys(img.ClientMetrics()))
	case messages.ResourceGroup:
		names = slices.Sorted(maps.Keys(img.GroupConfigs()))
	case messages.ResourceClusterMirror:
		for _, m := range img.Mirrors() {
			if s.allowed(r, OpDescribe, KindClusterMirror, m.Name) {
				names = append(names, m.Name)
			}
		}
	default:
		return nil, false
	}
	return names, true
}
