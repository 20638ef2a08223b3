package certs

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// attributesOf reads a name as RFC 2253 has it: last part first, parts of one RDN by '+'.
func attributesOf(name string) (out []string) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c == '\\' && i+1 < len(name):
			i++
			b.WriteByte(name[i])
		case c == ',' || c == '+':
			out = append(out, b.String()+string(c))
			b.Reset()
		default:
			b.WriteByte(c)
		}
	}
	return append(out, b.String())
}

// FuzzSubject: what stands in a certificate can be read out of the user's name that is made of it: no two
// subjects have one name, whatever their values hold.
func FuzzSubject(f *testing.F) {
	f.Add("user", "services", "Org", false)
	f.Add("a,OU=admins", `b\`, " c ", true)
	f.Add("#04024869", "x+CN=y", "tab\tnull\x00new\nline", true)
	f.Add(`"quoted"`, "<>;=", "Łučić", false)
	f.Add("", "*", ":", true)
	f.Fuzz(func(t *testing.T, cn, ou, o string, together bool) {
		values := []string{cn, ou, o}
		types := []asn1.ObjectIdentifier{{2, 5, 4, 3}, {2, 5, 4, 11}, {2, 5, 4, 10}}
		var rdns pkix.RDNSequence
		for i, v := range values {
			if !utf8.ValidString(v) {
				return
			}
			a := pkix.AttributeTypeAndValue{Type: types[i], Value: v}
			if together && i == 1 {
				rdns[0] = append(rdns[0], a)
				continue
			}
			rdns = append(rdns, pkix.RelativeDistinguishedNameSET{a})
		}
		raw, err := asn1.Marshal(rdns)
		if err != nil {
			return
		}
		name, err := Subject(&x509.Certificate{RawSubject: raw})
		if err != nil {
			t.Fatalf("%q: %v", values, err)
		}
		got := attributesOf(name)
		want := []string{"O=" + o + ",", "OU=" + ou + ",", "CN=" + cn}
		if together {
			want = []string{"O=" + o + ",", "CN=" + cn + "+", "OU=" + ou}
		}
		if together { // the encoding of a set orders its parts
			other := []string{"O=" + o + ",", "OU=" + ou + "+", "CN=" + cn}
			if slices.Equal(got, other) {
				return
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q became %q, read as %q, want %q", values, name, got, want)
		}
	})
}

// FuzzRawSubject: no bytes do more than be refused.
func FuzzRawSubject(f *testing.F) {
	raw, err := asn1.Marshal(pkix.Name{CommonName: "user", OrganizationalUnit: []string{"a", "b"}}.ToRDNSequence())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	odd, err := hex.DecodeString("3011310f300d06035504030c06757365720a0a")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(odd)
	f.Fuzz(func(_ *testing.T, raw []byte) {
		_, _ = Rules{}.User(&x509.Certificate{RawSubject: raw})
	})
}

// FuzzRules: rules are refused or can be used, and no subject makes one run for long.
func FuzzRules(f *testing.F) {
	f.Add("RULE:^CN=([^,]+),OU=services.*$/$1/L,DEFAULT", "CN=a,OU=services")
	f.Add("RULE:^((a+)+)+$/$9/U", strings.Repeat("a", 1000)+"b")
	f.Add("RULE:(x{1000}){1000}/$1/", "x")
	f.Add(`RULE:a\/b/$0$$1${2}\//,RULE:/`, "CN=*")
	f.Fuzz(func(t *testing.T, text, subject string) {
		rules, err := ParseRules(text)
		if err != nil {
			return
		}
		if name, err := rules.Name(subject); err == nil && len(rules) == 0 && name != subject {
			t.Fatalf("%q became %q without a rule", subject, name)
		}
	})
}
