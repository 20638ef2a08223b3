package configs

import (
	"fmt"
	"slices"
	"strings"

	"kagami/messages"
)

// CheckGroup checks what is set on a group against the limits in a node's settings.
func CheckGroup(group map[string]string, node Values) error {
	for _, k := range []struct{ key, least, most string }{
		{GroupSessionTimeout, ConsumerMinSessionTimeout, ConsumerMaxSessionTimeout},
		{GroupHeartbeatInterval, ConsumerMinHeartbeatInterval, ConsumerMaxHeartbeatInterval},
		{GroupAssignmentInterval, ConsumerMinAssignmentInterval, ConsumerMaxAssignmentInterval},
	} {
		if _, set := group[k.key]; !set {
			continue
		}
		v := Values{set: groupSet, values: group}.Int64(k.key)
		if low, high := node.Int64(k.least), node.Int64(k.most); v < low || v > high {
			return groupSet.Lookup(k.key).fault("%d isn't from %d to %d, see %s and %s of the nodes", v, low, high, k.least, k.most)
		}
	}
	return nil
}

var clientMetricsSet = newSet("client metrics", nil, []Def{
	{Name: "interval.ms", Type: TypeInt, Default: new("300000"), check: between(100, 3600000), Doc: "Pause, ms, between two reports of a client."},
	{Name: "match", Type: TypeList, Default: new(""), check: matchList(), Doc: "Which clients are meant, as key=pattern."},
	{Name: "metrics", Type: TypeList, Default: new(""), Doc: "Prefixes of the metrics that are wanted."},
})

// ClientMetrics is the set of configs of a subscription of client metrics (KIP-714). They
// are kept for the tools; nodes don't collect metrics of clients.
func ClientMetrics() *Set { return clientMetricsSet }

func matchList() check {
	keys := []string{"client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address", "client_source_port"}
	return check{text: "key=pattern, ...", fn: func(value string) string {
		for _, item := range messages.ParseList(value) {
			key, pattern, ok := strings.Cut(item, "=")
			if !ok || !slices.Contains(keys, strings.TrimSpace(key)) {
				return fmt.Sprintf("has %q, want key=pattern with one of the keys %s", item, strings.Join(keys, ", "))
			}
			if _, err := messages.CompilePatterns([]string{strings.TrimSpace(pattern)}); err != nil {
				return fmt.Sprintf("has a pattern that doesn't compile: %q", pattern)
			}
		}
		return ""
	}}
}

// RootLogger is the only logger of a node, by Kafka's name.
const RootLogger = "root"

var loggerSet = newSet("broker logger", nil, []Def{
	{Name: RootLogger, Type: TypeString, check: oneOf("ERROR", "WARN", "INFO", "DEBUG"), Doc: "Least level of the node's own log."},
})

// Logger is the set of the loggers of a node, with their levels as values.
func Logger() *Set { return loggerSet }
