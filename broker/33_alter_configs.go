package broker

// AlterConfigs: served versions 0-2. The given set replaces what is set on a resource;
// IncrementalAlterConfigs (44) is the better request.
//
// Resource types: 2 topic, 4 broker (name "" = the default of all nodes), 16 client
// metrics, 32 group, 64 cluster mirror, and by IncrementalAlterConfigs 8 broker
// logger. mirror.name stays as it is: a request that names it is refused
// with INVALID_CONFIG (OP-11).

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"kagami/messages"
	"kagami/messages/configs"
)

func (s *Server) handleAlterConfigs(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.AlterConfigsRequest)
	resp := kmsg.NewPtrAlterConfigsResponse()
	resp.Version = req.Version
	changes := make([]messages.ResourceChange, len(req.Resources))
	for i, res := range req.Resources {
		changes[i] = messages.ResourceChange{Type: messages.ResourceType(res.ResourceType), Name: res.ResourceName}
		for _, c := range res.Configs {
			changes[i].Changes = append(changes[i].Changes, messages.ConfigChange{Name: c.Name, Op: messages.ConfigSet, Value: c.Value})
		}
	}
	items := s.alterConfigs(ctx, r, messages.AlterConfigs{Resources: changes, Replace: true, ValidateOnly: req.ValidateOnly})
	for i, res := range req.Resources {
		rr := kmsg.NewAlterConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = res.ResourceType, res.ResourceName
		rr.ErrorCode, rr.ErrorMessage = r.code(items[i].Err), errorText(items[i].Err)
		resp.Resources = append(resp.Resources, rr)
	}
	return answer(resp)
}

// alterConfigs checks what the protocol forbids, submits the rest and returns
// one item per resource, in order.
func (s *Server) alterConfigs(ctx context.Context, r *request, cmd messages.AlterConfigs) []messages.Item {
	items := make([]messages.Item, len(cmd.Resources))
	var sent []int
	type resource struct {
		kind messages.ResourceType
		name string
	}
	times := map[resource]int{}
	for _, c := range cmd.Resources {
		times[resource{c.Type, c.Name}]++
	}
	all := cmd.Resources
	cmd.Resources = nil
	for i, c := range all {
		if times[resource{c.Type, c.Name}] > 1 {
			items[i].Err = fmt.Errorf("%w: resource %q is named more than once", messages.ErrInvalidRequest, c.Name)
		} else if c.Type == messages.ResourceBrokerLogger && !cmd.Replace {
			items[i].Err = s.alterLogger(r, c, cmd.ValidateOnly)
		} else if items[i].Err = s.mayAlter(r, c); items[i].Err == nil {
			cmd.Resources = append(cmd.Resources, c)
			sent = append(sent, i)
		}
	}
	if len(sent) > 0 {
		spread(items, sent, s.submit(ctx, r, 0, cmd))
	}
	return items
}

// alterLogger sets the level of this node's log, until the node ends.
func (s *Server) alterLogger(r *request, c messages.ResourceChange, validateOnly bool) error {
	switch {
	case !s.allowedCluster(r, OpAlterConfigs):
		return messages.ErrClusterNotAuthorized
	case c.Name != strconv.Itoa(int(s.cfg.NodeID)):
		return fmt.Errorf("%w: this is node %d, loggers of node %q must be set there", messages.ErrInvalidRequest, s.cfg.NodeID, c.Name)
	}
	level := zap.NewAtomicLevel()
	for _, change := range c.Changes {
		switch {
		case configs.Logger().Lookup(change.Name) == nil:
			return fmt.Errorf("%w: there is no logger %q, only %s", messages.ErrInvalidConfig, change.Name, configs.RootLogger)
		case change.Op != messages.ConfigSet || change.Value == nil:
			return fmt.Errorf("%w: the level of logger %s can be set only", messages.ErrInvalidRequest, change.Name)
		}
		if err := configs.Logger().Check(change.Name, *change.Value); err != nil {
			return err
		}
		if err := level.UnmarshalText([]byte(strings.ToLower(*change.Value))); err != nil {
			return fmt.Errorf("%w: level %q", messages.ErrInvalidConfig, *change.Value)
		}
	}
	if len(c.Changes) > 0 && !validateOnly && s.cfg.LogLevel != nil {
		s.cfg.LogLevel.SetLevel(level.Level())
	}
	return nil
}

func (s *Server) mayAlter(r *request, c messages.ResourceChange) error {
	switch c.Type {
	case messages.ResourceTopic:
		if !s.allowed(r, OpAlterConfigs, KindTopic, c.Name) {
			return messages.ErrTopicNotAuthorized
		}
		if c.Name == "" {
			return fmt.Errorf("%w: topics have no common default to be set by this request; node configs have", messages.ErrInvalidRequest)
		}
		if s.image().Topic(c.Name) == nil {
			return fmt.Errorf("%w: topic %q", messages.ErrUnknownTopicOrPartition, c.Name)
		}
	case messages.ResourceBroker:
		if !s.allowedCluster(r, OpAlterConfigs) {
			return messages.ErrClusterNotAuthorized
		}
	case messages.ResourceClusterMirror:
		if !s.allowed(r, OpAlterConfigs, KindClusterMirror, c.Name) {
			return messages.ErrMirrorNotAuthorized
		}
		if err := s.mirroringOn(); err != nil {
			return err
		}
		if s.image().Mirror(c.Name) == nil {
			return fmt.Errorf("%w: %q", messages.ErrUnknownMirror, c.Name)
		}
	case messages.ResourceGroup:
		if !s.allowed(r, OpAlterConfigs, KindGroup, c.Name) {
			return messages.ErrGroupNotAuthorized
		}
	case messages.ResourceClientMetrics:
		if !s.allowedCluster(r, OpAlterConfigs) {
			return messages.ErrClusterNotAuthorized
		}
	case messages.ResourceBrokerLogger:
		return fmt.Errorf("%w: levels of loggers are set by IncrementalAlterConfigs", messages.ErrInvalidRequest)
	default:
		return fmt.Errorf("%w: configs of resource type %d", messages.ErrInvalidRequest, c.Type)
	}
	for _, change := range c.Changes {
		if change.Name == messages.MirrorNameConfig {
			return mirrorNameRefused()
		}
	}
	return nil
}
