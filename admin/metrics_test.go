package admin

import (
	"flag"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kagami/messages"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The names, help texts and values are what dashboards and alerts build on.
func TestMetricsGolden(t *testing.T) {
	h := MetricsHandler(func() Sample {
		return Sample{
			States:        map[messages.State]int{messages.StateMirroring: 2, messages.StateFailed: 1},
			RefreshErrors: 4, ConfigErrors: 5, GroupErrors: 6, ShareErrors: 7, ACLErrors: 8, Fetchers: 1, DeadFetchers: 1, Version: "v1.2.3",
			Workers: []WorkerSample{
				{ClientID: "broker-1-fetcher-0-mirror-m", Mirror: "m", Host: "a.example", Port: "9092", Requests: 50, Bytes: 111, Rate: 2.5},
				{ClientID: "broker-1-fetcher-0-mirror-m", Mirror: "m", Host: "b.example", Port: "9092", Requests: 3, Rate: 0.5},
			},
			Traffic: TrafficSample{BytesIn: 1, MessagesIn: 2, BytesOut: 3, MirroredBytesIn: 4, Produce: 5, Fetch: 6, FailedProduce: 7, FailedFetch: 8},
			Logins: []LoginSample{{
				Listener: "CLIENTS", Successful: LoginCount{10, 0.5}, Failed: LoginCount{9, 0.25}, Reauthenticated: LoginCount{8, 0.125}, FailedReauths: LoginCount{7, 1},
				ExpiredKilled: 6, HandshakeFailures: 5,
			}},
			Certificates: []CertificateSample{{"CLIENTS", time.Unix(1800000000, 0)}},
			Groups: []GroupSample{
				{Type: "classic", State: "Stable", Groups: 2, Members: 5, Offsets: 7}, {Type: "consumer", State: "Empty", Groups: 1, Offsets: 1},
			},
			Txns:    TxnSample{States: map[string]int{"Ongoing": 3}, Counts: TxnCounts{TimedOut: 1, Pending: 2, Loads: 3, LoadMillis: 40, LoadMillisMax: 25}},
			Secrets: []SecretSample{{Key: "clear", Readable: true, Count: 2}, {Key: "0123456789ab", Count: 1}},
			Cleaner: CleanerSample{Cleaned: 1, BytesIn: 200, BytesOut: 50, Failures: 2, DirtyRatioMax: 0.25, Uncleanable: 1}, SinceCleaner: 1500 * time.Millisecond,
			Partitions: []PartitionSample{
				{Mirror: "m", Topic: "t", Partition: "0", Lag: 7, Bytes: 100},
				{Mirror: "m", Topic: "t", Partition: "1", Lag: -1, Bytes: 11},
			},
		}
	})
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, rec.Code)
	lines := slices.DeleteFunc(strings.SplitAfter(rec.Body.String(), "\n"), func(l string) bool { return !strings.Contains(l, "kafka_") && !strings.Contains(l, "kagami_") })
	got := strings.Join(lines, "")
	file := filepath.Join("testdata", "metrics.txt")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("metrics (-want +got):\n%s", d)
	}
	require.Contains(t, rec.Body.String(), "go_goroutines")
	require.Contains(t, rec.Body.String(), "process_open_fds")
}
