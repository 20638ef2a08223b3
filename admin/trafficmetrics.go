package admin

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

const brokerTopics = "kafka_server_broker_topic_metrics_"

// workerMetrics are those of each worker, by Kafka's client id and the broker's address.
func workerMetrics() []metric {
	labels := []string{"mirror", "client_id", "broker_host", "broker_port"}
	each := func(name, help string, value func(w WorkerSample) float64) metric {
		return metric{name: "kafka_server_fetcher_stats_" + name, help: help, kind: prometheus.CounterValue, labels: labels, values: func(s *Sample, add func(float64, ...string)) {
			for _, w := range s.Workers {
				add(value(w), w.Mirror, w.ClientID, w.Host, w.Port)
			}
		}}
	}
	return []metric{
		each("requests_total", "Fetch requests that the source broker answered.", func(w WorkerSample) float64 { return float64(w.Requests) }),
		each("bytes_total", "Bytes of batches that the source broker sent.", func(w WorkerSample) float64 { return float64(w.Bytes) }),
		{
			name: fetcher + "min_fetch_rate", help: "Lowest rate of fetch requests, per second over ten seconds, of all workers; 0 without one.", kind: prometheus.GaugeValue,
			values: func(s *Sample, add func(float64, ...string)) {
				least := math.Inf(1)
				for _, w := range s.Workers {
					least = min(least, w.Rate)
				}
				if len(s.Workers) == 0 {
					least = 0
				}
				add(least)
			},
		},
		{
			name: fetcher + "dead_thread_count", help: "Workers that ended by an error: their connection's settings can't be used.", kind: prometheus.GaugeValue,
			values: func(s *Sample, add func(float64, ...string)) { add(float64(s.DeadFetchers)) },
		},
	}
}

// trafficMetrics are Kafka's of a broker, and the program's version.
func trafficMetrics() []metric {
	count := func(name, help string, value func(t TrafficSample) int64) metric {
		return metric{name: brokerTopics + name, help: help, kind: prometheus.CounterValue, values: func(s *Sample, add func(float64, ...string)) {
			add(float64(value(s.Traffic)))
		}}
	}
	return []metric{
		count("bytes_in_total", "Bytes of batches that clients wrote; mirrored ones aren't in it.", func(t TrafficSample) int64 { return t.BytesIn }),
		count("messages_in_total", "Records that clients wrote; mirrored ones aren't in it.", func(t TrafficSample) int64 { return t.MessagesIn }),
		count("bytes_out_total", "Bytes of batches that clients read.", func(t TrafficSample) int64 { return t.BytesOut }),
		count("replication_bytes_in_total", "Bytes of batches that came from the sources of mirrors.", func(t TrafficSample) int64 { return t.MirroredBytesIn }),
		count("total_produce_requests_total", "Produce requests.", func(t TrafficSample) int64 { return t.Produce }),
		count("total_fetch_requests_total", "Fetch requests of clients.", func(t TrafficSample) int64 { return t.Fetch }),
		count("failed_produce_requests_total", "Partitions of Produce requests that were refused, also because their topic is read-only.", func(t TrafficSample) int64 { return t.FailedProduce }),
		count("failed_fetch_requests_total", "Partitions of Fetch requests that were answered with an error.", func(t TrafficSample) int64 { return t.FailedFetch }),
		{
			name: "kagami_build_info", help: "1; the version of the program.", kind: prometheus.GaugeValue, labels: []string{"version"},
			values: func(s *Sample, add func(float64, ...string)) { add(1, s.Version) },
		},
	}
}
