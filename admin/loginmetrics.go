package admin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// LoginCount is a number since the start, and per second of the last half minute.
type LoginCount struct {
	Total int64
	Rate  float64
}

// LoginSample is how clients of one listener said who they are.
type LoginSample struct {
	Listener string

	Successful, Failed             LoginCount
	Reauthenticated, FailedReauths LoginCount
	ExpiredKilled                  int64
	HandshakeFailures              int64
}

// CertificateSample is the certificate that a listener shows.
type CertificateSample struct {
	Listener string
	Expires  time.Time
}

const socketServer = "kafka_server_socket_server_metrics_"

// loginMetrics are Kafka's of its socket server, by listener.
func loginMetrics() []metric {
	labels := []string{"listener"}
	total := func(name, help string, value func(l LoginSample) int64) metric {
		return metric{name: name, help: help, kind: prometheus.CounterValue, labels: labels, values: func(s *Sample, add func(float64, ...string)) {
			for _, l := range s.Logins {
				add(float64(value(l)), l.Listener)
			}
		}}
	}
	both := func(name, what string, value func(l LoginSample) LoginCount) []metric {
		return []metric{
			total(socketServer+name+"_total", what+".", func(l LoginSample) int64 { return value(l).Total }),
			{
				name: socketServer + name + "_rate", help: what + ", per second over half a minute.", kind: prometheus.GaugeValue, labels: labels,
				values: func(s *Sample, add func(float64, ...string)) {
					for _, l := range s.Logins {
						add(value(l).Rate, l.Listener)
					}
				},
			},
		}
	}
	var out []metric
	out = append(out, both("successful_authentication", "Connections that authenticated, by SASL or, without it, by a TLS handshake", func(l LoginSample) LoginCount { return l.Successful })...)
	out = append(out, both("failed_authentication", "Connections that were refused, by SASL or by TLS", func(l LoginSample) LoginCount { return l.Failed })...)
	out = append(out, both("successful_reauthentication", "Connections that authenticated again", func(l LoginSample) LoginCount { return l.Reauthenticated })...)
	out = append(out, both("failed_reauthentication", "Connections that were refused when they authenticated again", func(l LoginSample) LoginCount { return l.FailedReauths })...)
	return append(out,
		total(socketServer+"expired_connections_killed_count", "Connections that were closed as they didn't authenticate again in time.", func(l LoginSample) int64 { return l.ExpiredKilled }),
		total("kagami_tls_handshake_failures_total", "TLS handshakes that came to nothing: refused by either side, broken off, or too slow.", func(l LoginSample) int64 { return l.HandshakeFailures }),
		metric{
			name: "kagami_tls_certificate_not_after_seconds", help: "When the certificate ends that a listener, or the admin server (admin), shows; seconds since 1970.", kind: prometheus.GaugeValue, labels: labels,
			values: func(s *Sample, add func(float64, ...string)) {
				for _, c := range s.Certificates {
					add(float64(c.Expires.Unix()), c.Listener)
				}
			},
		},
	)
}
