package admin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// TestMetricsDocumented: docs/metrics.md is the table of the code. -update writes it.
func TestMetricsDocumented(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Metrics\n\nWhat `/metrics` on the admin address (`kagami.admin.listen`) says, in Prometheus' format; Go's and the process' own\n" +
		"metrics (`go_*`, `process_*`) come with it. Counters begin at the start of the node. Partitions count on the node that leads\n" +
		"them, groups and transactions on the one that coordinates them, so that sums over nodes are right.\n\n" +
		"| Name | Kind | Labels | Meaning |\n| --- | --- | --- | --- |\n")
	for _, m := range metrics() {
		kind := "gauge"
		if m.kind == prometheus.CounterValue {
			kind = "counter"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, kind, strings.Join(m.labels, ", "), m.help)
	}
	b.WriteString(metricsAlerts)
	file := filepath.Join("..", "docs", "metrics.md")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o600))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(got), "go test ./admin -update")
}

const metricsAlerts = `
## What to be woken by

| When | Then |
| --- | --- |
| ` + "`kafka_server_mirror_metadata_manager_failed_partition_state`" + ` above 0 for longer than ` + "`mirror.failed.retry.max.backoff.ms`" + ` | it most likely won't mend itself: see FAILED in [runbooks.md](runbooks.md) |
| ` + "`kafka_server_mirror_fetcher_manager_max_lag`" + ` grows | the source is away, the throttle is too low, or the way is too slow |
| ` + "`kafka_server_mirror_metadata_manager_log_truncation_partition_state`" + ` above 0 for long | a replica that must cut is missing, or there are fewer in-sync replicas than ` + "`min.insync.replicas`" + ` |
| ` + "`kafka_server_mirror_metadata_manager_stopping_partition_state`" + ` above 0 for long | a failover doesn't get on: the controller or in-sync replicas are missing |
| ` + "`kafka_server_mirror_fetcher_manager_dead_thread_count`" + ` above 0 | a mirror's connection settings can't be used; the log names them |
| ` + "`kafka_coordinator_transaction_transaction_marker_channel_manager_pending_markers`" + ` above 0 for long | partitions have no leader, and their committed readers wait |
| ` + "`kagami_tls_certificate_not_after_seconds - time()`" + ` below some days | put a new certificate in place: it is used without a restart |
| ` + "`kafka_server_socket_server_metrics_failed_authentication_rate`" + ` above 0 for long | the log names listener, address, mechanism, user and reason |
| ` + "`kafka_log_log_cleaner_manager_uncleanable_partitions_count`" + ` above 0 | a log grows and isn't compacted; the log of the node says why |
| ` + "`kafka_log_log_cleaner_manager_time_since_last_run_ms`" + ` far above ` + "`log.cleaner.backoff.ms`" + ` and growing | the cleaner is behind: a large log, or ` + "`log.cleaner.io.max.bytes.per.second`" + ` is too low |
`
