package kafka

import (
	"context"
	_ "embed" // the program
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kagami/test/kafka/proc"
)

//go:embed java/Kdc.java
var kdcSource []byte

// kerby is the class path of the KDC.
const kerby Version = "kerby"

// Realm is the realm of every [KDC].
const Realm = "EXAMPLE.COM"

// KDC is a key distribution center of Kerberos, Apache Kerby's.
type KDC struct {
	Config  string            // path of a krb5.conf
	Keytabs map[string]string // paths, by principal without realm
}

// StartKDC starts one that knows the principals, and ends it with the test.
func StartKDC(tb testing.TB, principals ...string) *KDC {
	tb.Helper()
	Require(tb, kerby)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cp, err := ClassPath(ctx, kerby)
	if err != nil {
		tb.Fatal(err)
	}
	ports, err := proc.Ports(1)
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	program, log := filepath.Join(dir, "Kdc.java"), filepath.Join(dir, "kdc.log")
	k := &KDC{Config: filepath.Join(dir, "realms.conf"), Keytabs: map[string]string{}}
	conf := fmt.Sprintf("[libdefaults]\n default_realm = %[1]s\n dns_lookup_kdc = false\n dns_lookup_realm = false\n udp_preference_limit = 1\n[realms]\n %[1]s = {\n  kdc = %[2]s\n }\n", Realm, proc.Addr(ports[0]))
	for path, text := range map[string]string{program: string(kdcSource), k.Config: conf} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	args := append([]string{"-Xmx128m", "-XX:+UseSerialGC", "-cp", cp, program, dir, fmt.Sprint(ports[0])}, principals...)
	p, err := proc.Start(proc.Spec{Name: "kdc", Path: "java", Args: args, Log: log})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("--- kdc:\n%s", p.Tail(40))
		}
		if err := p.Kill(); err != nil {
			tb.Error(err)
		}
	})
	err = Poll(ctx, func() error {
		if !p.Running() || strings.Contains(p.Log(), "ready") {
			return nil
		}
		return fmt.Errorf("the KDC isn't ready")
	})
	if err != nil || !p.Running() {
		tb.Fatalf("start a KDC: %v\n%s", err, p.Tail(20))
	}
	for i, name := range principals {
		k.Keytabs[name] = filepath.Join(dir, fmt.Sprintf("%d.keytab", i))
	}
	return k
}
