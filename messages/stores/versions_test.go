package stores

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseVersions(t *testing.T) {
	const v12, v13 = tls.VersionTLS12, tls.VersionTLS13
	const ecdsa, rsa = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
	const of13 = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"
	for _, tc := range []struct {
		newest, protocols, suites string
		min, max                  uint16
		want                      int // suites of TLS 1.2
		fault                     string
	}{
		{min: v12, max: v13},
		{newest: "TLS", protocols: "TLSv1.3,TLSv1.2", min: v12, max: v13},
		{protocols: "TLSv1.2", min: v12, max: v12},
		{protocols: "TLSv1.3", min: v13, max: v13},
		{newest: "TLSv1.2", min: v12, max: v12},
		{newest: "TLSv1.2", protocols: "TLSv1.2,TLSv1.3", min: v12, max: v12},
		{suites: ecdsa, min: v12, max: v12, want: 1},
		{suites: ecdsa + "," + rsa + "," + of13, min: v12, max: v13, want: 2},
		{suites: of13, min: v13, max: v13},
		{protocols: "TLSv1.2", suites: rsa + ",TLS_AES_128_GCM_SHA256", min: v12, max: v12, want: 1},
		{newest: "TLSv1.2", protocols: "TLSv1.3", fault: "ssl.protocol"},
		{newest: "SSL", fault: "ssl.protocol"},
		{protocols: "TLSv1.1,TLSv1.2", fault: "ssl.enabled.protocols"},
		{suites: "TLS_RSA_WITH_RC4_128_SHA", fault: "unknown or insecure"},
		{suites: "TLS_AES_128_GCM_SHA256", fault: "one by one"},
		{suites: ecdsa + ",TLS_AES_128_GCM_SHA256", fault: "one by one"},
		{protocols: "TLSv1.3", suites: ecdsa, fault: "none of them belongs"},
		{protocols: "TLSv1.2", suites: of13, fault: "none of them belongs"},
	} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			list := func(s string) []string {
				if s == "" {
					return nil
				}
				return strings.Split(s, ",")
			}
			got, faults := ParseVersions(tc.newest, list(tc.protocols), list(tc.suites))
			if tc.fault != "" {
				require.Len(t, faults, 1)
				require.ErrorContains(t, faults[0], tc.fault)
				return
			}
			require.Empty(t, faults)
			require.Equal(t, tc.min, got.Min)
			require.Equal(t, tc.max, got.Max)
			require.Len(t, got.Suites, tc.want)
		})
	}
}
