package admin

import "github.com/prometheus/client_golang/prometheus"

// TxnSample is the transactional ids that this node coordinates, by state.
type TxnSample struct {
	States map[string]int // nil while a coordinator loads
	Counts TxnCounts
}

// TxnCounts are since the start of the node, but for Pending.
type TxnCounts struct {
	TimedOut                         int64 // transactions that were aborted because they lasted too long
	Pending                          int64 // markers to be written, by partition
	Loads, LoadMillis, LoadMillisMax int64 // of coordinators
}

// CleanerSample is what the cleaner of logs has done since the start, and found when it
// looked last.
type CleanerSample struct {
	Cleaned           int64 // logs
	BytesIn, BytesOut int64
	Failures          int64
	LastMillis        int64
	DirtyRatioMax     float64
	Uncleanable       int
}

// count is a metric of one value.
func count(name, help string, kind prometheus.ValueType, of func(s *Sample) float64) metric {
	return metric{name: name, help: help, kind: kind, values: func(s *Sample, add func(float64, ...string)) { add(of(s)) }}
}

func txnMetrics() []metric {
	return []metric{
		{
			name: txnCoordinator + "transactional_id_count", help: "Transactional ids that this node coordinates, by the state of their last transaction.",
			kind: prometheus.GaugeValue, labels: []string{"state"},
			values: func(s *Sample, add func(float64, ...string)) {
				for state, n := range s.Txns.States {
					add(float64(n), state)
				}
			},
		},
		count(txnCoordinator+"timed_out_total", "Transactions that were aborted because they lasted longer than their producer's time-out.", prometheus.CounterValue,
			func(s *Sample) float64 { return float64(s.Txns.Counts.TimedOut) }),
		count("kafka_coordinator_transaction_transaction_marker_channel_manager_pending_markers", "Markers of transactions whose outcome is decided that aren't written yet, one for each partition.", prometheus.GaugeValue,
			func(s *Sample) float64 { return float64(s.Txns.Counts.Pending) }),
		count(txnCoordinator+"partition_loads_total", "Partitions of __transaction_state that were loaded.", prometheus.CounterValue,
			func(s *Sample) float64 { return float64(s.Txns.Counts.Loads) }),
		count(txnCoordinator+"partition_load_time_ms_total", "How long that took in all, ms.", prometheus.CounterValue,
			func(s *Sample) float64 { return float64(s.Txns.Counts.LoadMillis) }),
		count(txnCoordinator+"partition_load_time_max", "The longest load of a partition of __transaction_state since the start, ms.", prometheus.GaugeValue,
			func(s *Sample) float64 { return float64(s.Txns.Counts.LoadMillisMax) }),
	}
}

func cleanerMetrics() []metric {
	return []metric{
		count(cleaner+"cleaned_total", "Logs that were compacted, each time.", prometheus.CounterValue, func(s *Sample) float64 { return float64(s.Cleaner.Cleaned) }),
		count(cleaner+"bytes_in_total", "Bytes of segments that the cleaner went through.", prometheus.CounterValue, func(s *Sample) float64 { return float64(s.Cleaner.BytesIn) }),
		count(cleaner+"bytes_out_total", "Bytes of these that stayed.", prometheus.CounterValue, func(s *Sample) float64 { return float64(s.Cleaner.BytesOut) }),
		count(cleaner+"failures_total", "Cleanings that failed; they are tried again.", prometheus.CounterValue, func(s *Sample) float64 { return float64(s.Cleaner.Failures) }),
		count(cleanerManager+"max_dirty_percent", "Largest part of a log that could be cleaned and isn't yet, percent, when the cleaner looked last.", prometheus.GaugeValue,
			func(s *Sample) float64 { return 100 * s.Cleaner.DirtyRatioMax }),
		count(cleanerManager+"time_since_last_run_ms", "Since the cleaner had gone through all logs, ms; 0 before the first time.", prometheus.GaugeValue,
			func(s *Sample) float64 { return float64(s.SinceCleaner.Milliseconds()) }),
		count(cleanerManager+"uncleanable_partitions_count", "Partitions whose cleaning failed when it was tried last.", prometheus.GaugeValue,
			func(s *Sample) float64 { return float64(s.Cleaner.Uncleanable) }),
	}
}
