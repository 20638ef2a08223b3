package admin

import (
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"kagami/messages"
)

// Sample is what the metrics of a node are made of, at one moment. Only
// partitions that the node leads count, so that the sum over nodes is right.
type Sample struct {
	States        map[messages.State]int // partitions by state
	RefreshErrors int64                  // refreshes of source metadata that failed, since the start
	ConfigErrors  int64                  // syncs of topic configs that failed, likewise
	GroupErrors   int64                  // and of offsets of consumer groups
	ShareErrors   int64                  // and of share groups
	ACLErrors     int64                  // syncs of ACLs that failed, likewise
	Partitions    []PartitionSample      // those that are being copied
	Fetchers      int                    // workers
	Workers       []WorkerSample
	DeadFetchers  int64 // workers that couldn't be made
	Traffic       TrafficSample
	Logins        []LoginSample       // of each listener
	Certificates  []CertificateSample // that listeners show
	Version       string              // of the program
	Groups        []GroupSample       // that this node coordinates, by type and state
	Txns          TxnSample
	Cleaner       CleanerSample
	Secrets       []SecretSample
	SinceCleaner  time.Duration // since it had looked at all logs; 0: it hasn't yet
}

// GroupSample counts the groups of one type in one state.
type GroupSample struct {
	Type, State              string
	Groups, Members, Offsets int
}

// PartitionSample is a partition that is being copied.
type PartitionSample struct {
	Mirror    string
	Topic     string
	Partition string
	Lag       int64 // records, -1 if not known
	Bytes     int64 // copied since the start
}

// WorkerSample is one live worker.
type WorkerSample struct {
	ClientID, Mirror, Host, Port string

	Requests, Bytes int64   // since it began
	Rate            float64 // requests a second
}

// TrafficSample is what clients and mirrors moved since the start.
type TrafficSample struct {
	BytesIn, MessagesIn, BytesOut, MirroredBytesIn int64
	Produce, Fetch, FailedProduce, FailedFetch     int64
}

// metric is one row of the table of metrics: Kafka's names of the specification
// in Prometheus form, with its help text.
type metric struct {
	name   string
	help   string
	kind   prometheus.ValueType
	labels []string
	// values calls add for each value of a sample.
	values func(s *Sample, add func(value float64, labels ...string))
}

const (
	manager = "kafka_server_mirror_metadata_manager_"
	fetcher = "kafka_server_mirror_fetcher_manager_"

	groupCoordinator = "kafka_server_group_coordinator_metrics_"
	txnCoordinator   = "kafka_server_transaction_coordinator_metrics_"
	cleanerManager   = "kafka_log_log_cleaner_manager_"
	cleaner          = "kafka_log_log_cleaner_"
)

// stateMetric counts the partitions in one state.
func stateMetric(name string, state messages.State) metric {
	return metric{
		name: manager + name, help: "Mirror partitions led by this node in state " + state.String() + ".", kind: prometheus.GaugeValue,
		values: func(s *Sample, add func(float64, ...string)) { add(float64(s.States[state])) },
	}
}

func metrics() []metric {
	return slices.Concat(mirrorMetrics(), workerMetrics(), trafficMetrics(), loginMetrics(), groupMetrics(), txnMetrics(), cleanerMetrics(), secretMetrics())
}

func mirrorMetrics() []metric {
	return []metric{
		stateMetric("log_truncation_partition_state", messages.StateLogTruncation),
		stateMetric("epoch_fencing_partition_state", messages.StateEpochFencing),
		stateMetric("mirroring_partition_state", messages.StateMirroring),
		stateMetric("pausing_partition_state", messages.StatePausing),
		stateMetric("paused_partition_state", messages.StatePaused),
		stateMetric("stopping_partition_state", messages.StateStopping),
		stateMetric("stopped_partition_state", messages.StateStopped),
		stateMetric("failed_partition_state", messages.StateFailed),
		{
			name: manager + "topic_metadata_refresh_error_total", help: "Refreshes of source topic metadata that failed.", kind: prometheus.CounterValue,
			values: func(s *Sample, add func(float64, ...string)) { add(float64(s.RefreshErrors)) },
		},
		{
			name: manager + "topic_config_sync_error_total", help: "Syncs of topic configs that failed.", kind: prometheus.CounterValue,
			values: func(s *Sample, add func(float64, ...string)) { add(float64(s.ConfigErrors)) },
		},
		{
			name: manager + "consumer_group_offset_sync_error_total", help: "Syncs of consumer group offsets that failed, as a whole or for some groups.", kind: prometheus.CounterValue,
			values: func(s *Sample, add func(float64, ...string)) { add(float64(s.GroupErrors)) },
		},
		{
			name: manager + "share_group_offset_sync_error_total", help: "Syncs of share group offsets that failed, as a whole or for some groups.", kind: prometheus.CounterValue,
			values: func(s *Sample, add func(float64, ...string)) { add(float64(s.ShareErrors)) },
		},
		{
			name: manager + "acl_sync_error_total", help: "Syncs of ACLs that failed.", kind: prometheus.CounterValue,
			values: func(s *Sample, add func(float64, ...string)) { add(float64(s.ACLErrors)) },
		},
		{
			name: fetcher + "max_lag", help: "Largest lag, records, of all partitions that are being copied.", kind: prometheus.GaugeValue,
			values: func(s *Sample, add func(float64, ...string)) {
				largest := int64(0)
				for _, p := range s.Partitions {
					largest = max(largest, p.Lag)
				}
				add(float64(largest))
			},
		},
		{
			name: fetcher + "failed_partitions_count", help: "Partitions that a worker gave up on (FAILED).", kind: prometheus.GaugeValue,
			values: func(s *Sample, add func(float64, ...string)) { add(float64(s.States[messages.StateFailed])) },
		},
		{
			name: fetcher + "fetchers", help: "Workers: one per mirror, source broker and fetcher number.", kind: prometheus.GaugeValue,
			values: func(s *Sample, add func(float64, ...string)) { add(float64(s.Fetchers)) },
		},
		{
			name: "kafka_server_fetcher_lag_metrics_consumer_lag", help: "Lag, records, of one partition that is being copied.", kind: prometheus.GaugeValue,
			labels: []string{"mirror", "topic", "partition"},
			values: func(s *Sample, add func(float64, ...string)) {
				for _, p := range s.Partitions {
					if p.Lag >= 0 {
						add(float64(p.Lag), p.Mirror, p.Topic, p.Partition)
					}
				}
			},
		},
	}
}

func groupMetrics() []metric {
	return []metric{
		{
			name: groupCoordinator + "group_count", help: "Groups that this node coordinates, by protocol and state.", kind: prometheus.GaugeValue,
			labels: []string{"protocol", "state"},
			values: func(s *Sample, add func(float64, ...string)) {
				for _, g := range s.Groups {
					add(float64(g.Groups), g.Type, g.State)
				}
			},
		},
		{
			name: groupCoordinator + "members", help: "Members of the groups that this node coordinates.", kind: prometheus.GaugeValue,
			values: func(s *Sample, add func(float64, ...string)) {
				n := 0
				for _, g := range s.Groups {
					n += g.Members
				}
				add(float64(n))
			},
		},
		{
			name: groupCoordinator + "num_offsets", help: "Committed offsets of the groups that this node coordinates.", kind: prometheus.GaugeValue,
			values: func(s *Sample, add func(float64, ...string)) {
				n := 0
				for _, g := range s.Groups {
					n += g.Offsets
				}
				add(float64(n))
			},
		},
	}
}

// MetricsHandler serves the metrics of a node, and those of its process, in
// Prometheus' format. sample is asked for each request.
func MetricsHandler(sample func() Sample) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(newCollector(sample), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
}

// collector makes metrics of a sample.
type collector struct {
	sample func() Sample
	rows   []metric
	descs  []*prometheus.Desc
}

func newCollector(sample func() Sample) *collector {
	c := &collector{sample: sample, rows: metrics()}
	for _, m := range c.rows {
		c.descs = append(c.descs, prometheus.NewDesc(m.name, m.help, m.labels, nil))
	}
	return c
}

// Describe lists the table.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect takes one sample.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := c.sample()
	for i, m := range c.rows {
		m.values(&s, func(value float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(c.descs[i], m.kind, value, labels...)
		})
	}
}
