package cluster

import (
	"testing"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// TestFlushSettings: which topics are synced in every append.
func TestFlushSettings(t *testing.T) {
	for _, tc := range []struct {
		name        string
		topic       metadata.Topic
		node        map[string]string
		flushAlways bool
		want        bool
	}{
		{name: "data is synced by interval", topic: metadata.Topic{Name: "t"}},
		{name: "internal topics always", topic: metadata.Topic{Name: messages.MirrorStateTopic}, want: true},
		{name: "flush.messages 1", topic: metadata.Topic{Name: "t", Configs: map[string]string{"flush.messages": "1"}}, want: true},
		{name: "flush.messages 2 is by interval", topic: metadata.Topic{Name: "t", Configs: map[string]string{"flush.messages": "2"}}},
		{name: "flush.ms 0", topic: metadata.Topic{Name: "t", Configs: map[string]string{"flush.ms": "0"}}, want: true},
		{name: "the node's default", topic: metadata.Topic{Name: "t"}, node: map[string]string{"log.flush.interval.messages": "1"}, want: true},
		{name: "the topic wins over the node", topic: metadata.Topic{Name: "t", Configs: map[string]string{"flush.messages": "7"}}, node: map[string]string{"log.flush.interval.messages": "1"}},
		{name: "option", topic: metadata.Topic{Name: "t"}, flushAlways: true, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := settingsOf(&tc.topic, tc.node, tc.flushAlways).log.FlushAlways; got != tc.want {
				t.Errorf("synced in every append: %v, want %v", got, tc.want)
			}
		})
	}
}
