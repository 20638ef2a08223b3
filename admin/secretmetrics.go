package admin

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// SecretSample counts the secrets of the metadata under one key.
type SecretSample struct {
	Key      string // its id; "clear" for none
	Readable bool   // by this node
	Count    int
}

func secretMetrics() []metric {
	return []metric{{
		name: "kagami_metadata_secrets", help: "Secrets in the metadata (passwords of mirrors, keys of SCRAM users) by the id of the key that encrypts them, and whether this node has it; `clear` is none. All nodes count all of them.",
		kind: prometheus.GaugeValue, labels: []string{"key", "readable"},
		values: func(s *Sample, add func(float64, ...string)) {
			for _, k := range s.Secrets {
				add(float64(k.Count), k.Key, strconv.FormatBool(k.Readable))
			}
		},
	}}
}
