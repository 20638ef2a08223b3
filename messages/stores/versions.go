package stores

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
)

// Versions are the versions and cipher suites of TLS that one side offers, as Kafka's
// settings name them.
type Versions struct {
	Min, Max uint16
	Suites   []uint16 // of TLS 1.2; none: the safe ones
}

// Fault is what is wrong with a setting.
type Fault struct{ Setting, Why string }

// Error names the setting.
func (f Fault) Error() string { return f.Setting + ": " + f.Why }

var versionNames = map[string]uint16{"TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}

// ParseVersions reads ssl.protocol ("" = TLSv1.3), ssl.enabled.protocols (none = both) and
// ssl.cipher.suites (none = the safe ones), and returns every fault.
//
// A suite belongs to one version of TLS: a list without any of a version means that this
// version isn't spoken. Those of TLS 1.3 can't be chosen one by one (crypto/tls), so a list
// that has some of them only can't be honoured.
func ParseVersions(newest string, protocols, suites []string) (Versions, []Fault) {
	var faults []Fault
	bad := func(setting, format string, args ...any) {
		faults = append(faults, Fault{setting, fmt.Sprintf(format, args...)})
	}
	out := Versions{Min: tls.VersionTLS12, Max: tls.VersionTLS13}
	if len(protocols) > 0 {
		out.Min, out.Max = tls.VersionTLS13, tls.VersionTLS12
	}
	for _, p := range protocols {
		v, ok := versionNames[p]
		if !ok {
			bad("ssl.enabled.protocols", "%q is neither TLSv1.2 nor TLSv1.3", p)
			continue
		}
		out.Min, out.Max = min(out.Min, v), max(out.Max, v)
	}
	switch newest {
	case "", "TLS", "TLSv1.3":
	case "TLSv1.2": // as in Kafka TLS 1.3 isn't spoken then, even if it is enabled
		out.Max = tls.VersionTLS12
	default:
		bad("ssl.protocol", "%q is none of TLSv1.3, TLSv1.2, TLS", newest)
	}
	if len(faults) == 0 && out.Min > out.Max {
		bad("ssl.protocol", "is TLSv1.2, but ssl.enabled.protocols has TLSv1.3 only")
	}
	return out, append(faults, out.chooseSuites(suites)...)
}

func (v *Versions) chooseSuites(names []string) (faults []Fault) {
	if len(names) == 0 {
		return nil
	}
	var all13, some13 []string
	for _, c := range tls.CipherSuites() {
		if slices.Contains(c.SupportedVersions, tls.VersionTLS13) {
			all13 = append(all13, c.Name)
		}
	}
	bad := func(format string, args ...any) {
		faults = append(faults, Fault{"ssl.cipher.suites", fmt.Sprintf(format, args...)})
	}
	for _, name := range names {
		i := slices.IndexFunc(tls.CipherSuites(), func(c *tls.CipherSuite) bool { return c.Name == name })
		switch {
		case i < 0:
			bad("%q is unknown or insecure", name)
		case slices.Contains(all13, name):
			some13 = append(some13, name)
		default:
			v.Suites = append(v.Suites, tls.CipherSuites()[i].ID)
		}
	}
	if len(faults) > 0 {
		return faults
	}
	switch {
	case len(some13) == 0:
		v.Max = min(v.Max, tls.VersionTLS12)
	case v.Max >= tls.VersionTLS13 && !slices.Equal(slices.Sorted(slices.Values(some13)), slices.Sorted(slices.Values(all13))):
		bad("has %s: suites of TLS 1.3 can't be chosen one by one, so name all of %s, or none of them and TLS 1.2 is spoken", strings.Join(some13, ", "), strings.Join(all13, ", "))
	}
	if len(v.Suites) == 0 {
		v.Min = max(v.Min, tls.VersionTLS13)
	}
	if len(faults) == 0 && v.Min > v.Max {
		bad("none of them belongs to an enabled version of TLS")
	}
	return faults
}
