package broker

// DescribeConfigs: served versions 1-4.
//
// v1 sources and synonyms (KIP-226); v3 types and documentation.
//
// Resource types: 2 topic, 4 broker (this node, or "" for the dynamic defaults
// of all nodes), 64 cluster mirror (KIP-1279). No config named = all of
// them.
// Values of type password are null with the sensitive flag. mirror.name is shown
// on topics, read-only (OP-11). The source of a mirror's settings is 0
// (unknown): Kafka has no number for it. 8 broker loggers: this node's only one is
// root. 16 client metrics, 32 groups: any name has the defaults.

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

func (s *Server) handleDescribeConfigs(_ context.Context, r *request) reply {
	req := r.body.(*kmsg.DescribeConfigsRequest)
	resp := kmsg.NewPtrDescribeConfigsResponse()
	resp.Version = req.Version
	type resource struct {
		kind kmsg.ConfigResourceType
		name string
	}
	seen := repeats[resource]{}
	for i := range req.Resources {
		res := &req.Resources[i]
		if seen.often(resource{res.ResourceType, res.ResourceName}) {
			continue
		}
		rr := kmsg.NewDescribeConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = res.ResourceType, res.ResourceName
		d, err := s.describable(r, res)
		if err != nil {
			rr.ErrorCode, rr.ErrorMessage = r.code(err), errorText(err)
		} else {
			rr.Configs, rr.ErrorMessage = d.list(req, res.ConfigNames), new(string) // Kafka's success has an empty text
		}
		resp.Resources = append(resp.Resources, rr)
	}
	return answer(resp)
}

// described is a resource whose configs are asked for.
type described struct {
	set       *configs.Set
	own, node []configs.Layer
	setOnly   bool // only what is set on it
	unlinked  bool // defaults aren't synonyms: no node setting stands behind them
}

func (s *Server) describable(r *request, res *kmsg.DescribeConfigsRequestResource) (described, error) {
	img := s.image()
	switch messages.ResourceType(res.ResourceType) {
	case messages.ResourceTopic:
		if !s.allowed(r, OpDescribeConfigs, KindTopic, res.ResourceName) {
			return described{}, messages.ErrTopicNotAuthorized
		}
		if err := messages.CheckTopicName(res.ResourceName); err != nil {
			return described{}, err
		}
		t := img.Topic(res.ResourceName)
		if t == nil {
			return described{}, fmt.Errorf("%w: topic %q", messages.ErrUnknownTopicOrPartition, res.ResourceName)
		}
		return described{set: configs.Topic(), own: []configs.Layer{{Source: configs.SourceTopic, Values: t.Configs}}, node: s.nodeLayers(img)}, nil
	case messages.ResourceBroker:
		if !s.allowedCluster(r, OpDescribeConfigs) {
			return described{}, messages.ErrClusterNotAuthorized
		}
		switch res.ResourceName {
		case "":
			return described{set: configs.Broker(), own: []configs.Layer{{Source: configs.SourceBrokerDefault, Values: img.BrokerDefaultConfig()}}, setOnly: true}, nil
		case strconv.Itoa(int(s.cfg.NodeID)):
			return described{set: configs.Broker(), own: s.nodeLayers(img)}, nil
		default:
			return described{}, fmt.Errorf("%w: this is node %d, configs of node %q must be asked for there", messages.ErrInvalidRequest, s.cfg.NodeID, res.ResourceName)
		}
	case messages.ResourceClusterMirror:
		if !s.allowed(r, OpDescribeConfigs, KindClusterMirror, res.ResourceName) {
			return described{}, messages.ErrMirrorNotAuthorized
		}
		if err := s.mirroringOn(); err != nil {
			return described{}, err
		}
		m := img.Mirror(res.ResourceName)
		if m == nil {
			return described{}, fmt.Errorf("%w: %q", messages.ErrUnknownMirror, res.ResourceName)
		}
		return described{set: configs.Mirror(), own: []configs.Layer{{Source: configs.SourceMirror, Values: m.Configs}}}, nil
	case messages.ResourceBrokerLogger:
		return s.describedLogger(r, res.ResourceName)
	case messages.ResourceGroup:
		if !s.allowed(r, OpDescribeConfigs, KindGroup, res.ResourceName) {
			return described{}, messages.ErrGroupNotAuthorized
		}
		if res.ResourceName == "" {
			return described{}, fmt.Errorf("%w: a group needs a name", messages.ErrInvalidRequest)
		}
		return described{set: configs.Group(), own: []configs.Layer{{Source: configs.SourceGroup, Values: img.GroupConfigs()[res.ResourceName]}}, node: s.nodeLayers(img)}, nil
	case messages.ResourceClientMetrics:
		if !s.allowedCluster(r, OpDescribeConfigs) {
			return described{}, messages.ErrClusterNotAuthorized
		}
		if res.ResourceName == "" {
			return described{}, fmt.Errorf("%w: a subscription needs a name", messages.ErrInvalidRequest)
		}
		return described{set: configs.ClientMetrics(), own: []configs.Layer{{Source: configs.SourceClientMetrics, Values: img.ClientMetrics()[res.ResourceName]}}, unlinked: true}, nil
	default:
		return described{}, fmt.Errorf("%w: configs of resource type %d", messages.ErrInvalidRequest, res.ResourceType)
	}
}

// describedLogger is the level of this node's log, its only logger.
func (s *Server) describedLogger(r *request, name string) (described, error) {
	switch {
	case !s.allowedCluster(r, OpDescribeConfigs):
		return described{}, messages.ErrClusterNotAuthorized
	case name != strconv.Itoa(int(s.cfg.NodeID)):
		return described{}, fmt.Errorf("%w: this is node %d, loggers of node %q must be asked for there", messages.ErrInvalidRequest, s.cfg.NodeID, name)
	case s.cfg.LogLevel == nil:
		return described{set: configs.Logger(), own: []configs.Layer{{Source: configs.SourceLogger}}, setOnly: true}, nil
	}
	level := strings.ToUpper(s.cfg.LogLevel.String())
	return described{set: configs.Logger(), own: []configs.Layer{{Source: configs.SourceLogger, Values: map[string]string{configs.RootLogger: level}}}, setOnly: true}, nil
}

// list describes the configs named, all if there are no names.
func (d described) list(req *kmsg.DescribeConfigsRequest, names []string) []kmsg.DescribeConfigsResponseResourceConfig {
	out := []kmsg.DescribeConfigsResponseResourceConfig{}
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	for _, name := range d.set.Names() {
		def := d.set.Lookup(name)
		if def.Internal || len(names) > 0 && !wanted[name] {
			continue
		}
		all := d.set.Candidates(name, d.own, d.node)
		unset := all[0].Source == configs.SourceDefault
		if unset && (d.setOnly || def.Change == configs.ChangeNever) {
			continue // mirror.name of a topic in no mirror isn't a setting
		}
		c := kmsg.NewDescribeConfigsResponseResourceConfig()
		c.Name, c.Value, c.Source = name, shown(def, all[0].Value), kmsg.ConfigSource(all[0].Source)
		c.ReadOnly, c.IsDefault, c.IsSensitive = def.ReadOnly(), unset, def.Sensitive()
		c.ConfigType = kmsg.ConfigType(def.Type)
		if req.IncludeSynonyms {
			for _, syn := range all {
				// A config that no node has a setting for has no synonyms.
				if syn.Written != nil && (!d.unlinked && len(d.node) == 0 || len(def.Synonyms) > 0 || syn.Source != configs.SourceDefault) {
					c.ConfigSynonyms = append(c.ConfigSynonyms, kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{Name: syn.Name, Value: shown(def, syn.Written), Source: kmsg.ConfigSource(syn.Source)})
				}
			}
		}
		if req.IncludeDocumentation {
			c.Documentation = &def.Doc
		}
		out = append(out, c)
	}
	return out
}

// shown hides passwords.
func shown(d *configs.Def, value *string) *string {
	if d.Sensitive() {
		return nil
	}
	return value
}

func zapTopic(name string) zap.Field { return zap.String(messages.FieldTopic, name) }

func zapConfig(name string) zap.Field { return zap.String("config", name) }
