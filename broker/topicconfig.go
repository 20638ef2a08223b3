package broker

import (
	"strconv"
	"strings"
	"time"

	"kagami/messages/configs"
	"kagami/persistence/metadata"
)

// Topic configs that the server itself acts on.
const (
	configCompression     = configs.CompressionType
	configMaxMessageBytes = configs.MaxMessageBytes
	configTimestampType   = configs.MessageTimestampType
	configTimestampBefore = configs.MessageTimestampBefore
	configTimestampAfter  = configs.MessageTimestampAfter
	configCleanupPolicy   = configs.CleanupPolicy
	configMinISR          = configs.MinInsyncReplicas
)

// nodeLayers is what is set on this node: its own, the default of all, its file.
func (s *Server) nodeLayers(img *metadata.Image) []configs.Layer {
	return []configs.Layer{
		{Source: configs.SourceBroker, Values: img.BrokerOwnConfig(s.cfg.NodeID)},
		{Source: configs.SourceBrokerDefault, Values: img.BrokerDefaultConfig()},
		{Source: configs.SourceStatic, Values: s.cfg.StaticConfigs},
	}
}

// effective is the first value of a key, "" for none.
func effective(all []configs.Candidate) string {
	if len(all) == 0 || all[0].Value == nil {
		return ""
	}
	return *all[0].Value
}

// topicConfig is the effective value of a topic config.
func (s *Server) topicConfig(t *metadata.Topic, name string) string {
	if v, ok := t.Configs[name]; ok {
		return v
	}
	return effective(configs.Topic().Candidates(name, nil, s.nodeLayers(s.image())))
}

// topicConfigInt is topicConfig for whole numbers, which were checked when set.
func (s *Server) topicConfigInt(t *metadata.Topic, name string) int {
	n, err := strconv.Atoi(strings.TrimSpace(s.topicConfig(t, name)))
	if err != nil {
		s.log.Error("config is not a number", zapTopic(t.Name), zapConfig(name))
	}
	return n
}

// brokerConfig is the effective value of a config of this node.
func (s *Server) brokerConfig(name string) string {
	return effective(configs.Broker().Candidates(name, s.nodeLayers(s.image()), nil))
}

// brokerMillis is a config of this node in ms.
func (s *Server) brokerMillis(name string) time.Duration {
	n, err := strconv.ParseInt(strings.TrimSpace(s.brokerConfig(name)), 10, 64)
	if err != nil {
		s.log.Error("config is not a number", zapConfig(name))
	}
	return time.Duration(n) * time.Millisecond
}
