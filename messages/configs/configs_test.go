package configs

import (
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"kagami/messages"
)

var update = flag.Bool("update", false, "rewrite docs/configuration.md")

func TestReferenceIsUpToDate(t *testing.T) {
	const file = "../../docs/configuration.md"
	want := Reference()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Fatalf("%s differs from the definitions: run go test ./messages/configs -update", file)
	}
}

func TestDefinitionsAreSound(t *testing.T) {
	for _, s := range []*Set{Topic(), Broker(), Mirror()} {
		for _, name := range s.Names() {
			d := s.Lookup(name)
			if d.Doc == "" || d.Type < TypeBoolean || d.Type > TypePassword || d.Change < ChangeAlways || d.Change > ChangeNever {
				t.Errorf("%s config %s: %+v", s.kind, name, d)
			}
			// A store type must be said: the default is Java's, which isn't supported.
			if d.Default != nil && !strings.HasSuffix(name, "store.type") {
				if err := d.Check(*d.Default); err != nil {
					t.Errorf("default of %s config %s: %v", s.kind, name, err)
				}
			}
			for _, syn := range d.Synonyms {
				if b := Broker().Lookup(syn.Name); b == nil {
					t.Errorf("%s: no broker config %s", name, syn.Name)
				}
			}
		}
	}
}

func TestCheckValues(t *testing.T) {
	tests := []struct {
		name  string
		set   *Set
		key   string
		value string
		fault string // part of the text; "" = accepted
	}{
		{"long", Topic(), RetentionMs, "-1", ""},
		{"long below", Topic(), RetentionMs, "-2", "is below -1"},
		{"not a number", Topic(), RetentionMs, "7d", "not a whole number"},
		{"int range", Topic(), SegmentBytes, "2147483648", "out of range of int"},
		{"blank around", Topic(), SegmentBytes, " 100 ", ""},
		{"bool", Topic(), "preallocate", "TRUE", ""},
		{"bool bad", Topic(), "preallocate", "yes", "neither true nor false"},
		{"both policies", Topic(), CleanupPolicy, "compact, delete", ""},
		{"bad policy", Topic(), CleanupPolicy, "compact,shrink", `"shrink"`},
		{"ratio", Topic(), MinCleanableDirtyRatio, "1.5", "not from 0 to 1"},
		{"gzip default level", Topic(), "compression.gzip.level", "-1", ""},
		{"gzip level", Topic(), "compression.gzip.level", "10", "not from 1 to 9"},
		{"tiered off", Topic(), RemoteStorageEnable, "false", ""},
		{"tiered on", Topic(), RemoteStorageEnable, "true", "tiered storage is not supported"},
		{"throttled, tool form", Topic(), MirrorThrottledReplicas, "[0:4,1:5]", ""},
		{"throttled all", Topic(), MirrorThrottledReplicas, "*", ""},
		{"throttled bad", Topic(), MirrorThrottledReplicas, "0-4", "want partition:broker"},
		{"unknown", Topic(), "retention.msec", "1", `unknown topic config "retention.msec"`},
		{"too long", Mirror(), MirrorTopicsInclude, strings.Repeat("a", 32768), "at most 32767"},
		{"longest", Mirror(), "ssl.truststore.certificates", strings.Repeat("a", 32767), ""},
		{"regex", Mirror(), MirrorTopicsInclude, "orders-.*, (", `pattern "("`},
		{"bootstrap", Mirror(), BootstrapServers, "a:9092, [::1]:9092", ""},
		{"bootstrap empty", Mirror(), BootstrapServers, " , ", "is empty"},
		{"bootstrap port", Mirror(), BootstrapServers, "a:0", "want host:port"},
		{"JKS", Mirror(), "ssl.truststore.type", "JKS", ""},
		{"PKCS12", Mirror(), "ssl.keystore.type", "PKCS12", ""},
		{"BKS", Mirror(), "ssl.keystore.type", "BKS", `"BKS"`},
		{"PEM", Mirror(), "ssl.keystore.type", "PEM", ""},
		{"GSSAPI", Mirror(), "sasl.mechanism", "GSSAPI", ""},
		{"OAUTHBEARER", Mirror(), "sasl.mechanism", "OAUTHBEARER", ""},
		{"DIGEST", Mirror(), "sasl.mechanism", "DIGEST-MD5", `"DIGEST-MD5"`},
		{"SCRAM", Mirror(), "sasl.mechanism", "SCRAM-SHA-512", ""},
		{"no host check", Mirror(), "ssl.endpoint.identification.algorithm", "", ""},
		{"class", Mirror(), "sasl.login.class", "com.example.Login", ""},
		{"acl any", Mirror(), MirrorACLInclude, "*", ""},
		{"acl short", Mirror(), MirrorACLInclude, "topic;orders-.*, GROUP;*;read;Allow;User:.*", ""},
		{"acl type", Mirror(), MirrorACLInclude, "TOPICS", `"TOPICS" is none of`},
		{"acl operation", Mirror(), MirrorACLInclude, "TOPIC;a;PEEK", `"PEEK"`},
		{"acl parts", Mirror(), MirrorACLInclude, "TOPIC;a;*;*;*;*", "more than five"},
		{"auto creation", Broker(), "auto.create.topics.enable", "true", ""},
		{"super users", Broker(), SuperUsers, "User:admin; User:CN=a,OU=b", ""},
		{"super users by comma", Broker(), SuperUsers, "User:admin,User:CN=a,OU=b", "separate users by semicolons"},
		{"no user", Broker(), SuperUsers, "admin", "want User:name"},
		{"authorizer", Broker(), AuthorizerClass, "kafka.security.authorizer.AclAuthorizer", "is none of nothing, " + StandardAuthorizer},
		{"no auto creation", Broker(), "auto.create.topics.enable", "maybe", "maybe"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.set.Check(tt.key, tt.value)
			switch {
			case tt.fault == "" && err != nil:
				t.Fatal(err)
			case tt.fault == "":
			case !errors.Is(err, messages.ErrInvalidConfig) || !strings.Contains(err.Error(), tt.fault):
				t.Fatalf("got %v, want %q", err, tt.fault)
			}
		})
	}
}

func TestPasswordsNeverShow(t *testing.T) {
	err := Mirror().Check("sasl.jaas.config", strings.Repeat("hunter2 ", 10000))
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Fatalf("got %v", err)
	}
}

func TestValidateReportsEveryFault(t *testing.T) {
	err := Topic().Validate(map[string]string{RetentionMs: "x", SegmentBytes: "1", "nope": ""})
	for _, want := range []string{RetentionMs, SegmentBytes, "nope"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: no word of %s", err, want)
		}
	}
	err = Topic().Validate(map[string]string{MinCompactionLagMs: "10", MaxCompactionLagMs: "5"})
	if !errors.Is(err, messages.ErrInvalidConfig) {
		t.Errorf("lags against each other: %v", err)
	}
	if err := Topic().Validate(map[string]string{RetentionMs: "5"}); err != nil {
		t.Error(err)
	}
}

func TestSettable(t *testing.T) {
	tests := []struct {
		set  *Set
		key  string
		want bool
	}{
		{Topic(), RetentionMs, true},
		{Topic(), MirrorName, false}, // D23
		{Topic(), MirrorCopiedConfigs, false},
		{Mirror(), MirrorSourceClusterID, false},
		{Mirror(), MirrorTopicsInclude, true},
		{Broker(), MirrorThrottledRate, true},
		{Broker(), NodeIDConfig, false},
		{Broker(), "log.retention.ms", true},
	}
	for _, tt := range tests {
		if err := tt.set.Settable(tt.key); (err == nil) != tt.want || err != nil && !errors.Is(err, messages.ErrInvalidConfig) {
			t.Errorf("%s: %v", tt.key, err)
		}
	}
}

func TestCandidates(t *testing.T) {
	node := []Layer{
		{SourceBroker, nil},
		{SourceBrokerDefault, map[string]string{"log.retention.ms": "5"}},
		{SourceStatic, map[string]string{"log.retention.hours": "2", "log.retention.ms": "-1"}},
	}
	got := Topic().Candidates(RetentionMs, []Layer{{SourceTopic, map[string]string{RetentionMs: "9"}}}, node)
	var s []string
	for _, c := range got {
		written := "none"
		if c.Written != nil {
			written = *c.Written
		}
		s = append(s, c.Name+"="+*c.Value+" ("+written+") "+c.Source.String())
	}
	want := []string{
		"retention.ms=9 (9) DYNAMIC_TOPIC_CONFIG", "log.retention.ms=5 (5) DYNAMIC_DEFAULT_BROKER_CONFIG", "log.retention.ms=-1 (-1) STATIC_BROKER_CONFIG",
		"log.retention.hours=7200000 (2) STATIC_BROKER_CONFIG", "log.retention.hours=604800000 (168) DEFAULT_CONFIG",
	}
	if !slices.Equal(s, want) {
		t.Fatalf("got %q", s)
	}
	if Topic().Candidates("nope", nil, nil) != nil {
		t.Fatal("candidates of an unknown key")
	}
}

func TestTopicValues(t *testing.T) {
	v := TopicValues(map[string]string{SegmentBytes: "100", CleanupPolicy: "compact,delete"},
		BrokerMap(map[string]string{"log.retention.minutes": "2"}, map[string]string{"log.retention.minutes": "1", "log.roll.hours": "1"}))
	if v.Int(SegmentBytes) != 100 || v.Int64(RetentionMs) != 120_000 || v.Int64(SegmentMs) != 3_600_000 ||
		v.Float(MinCleanableDirtyRatio) != 0.5 || v.Bool("preallocate") || len(v.List(CleanupPolicy)) != 2 || v.String(MirrorName) != "" {
		t.Fatalf("%+v", v)
	}
	b := BrokerValues(map[string]string{MirrorNumReplicaFetchers: "broken"}, nil)
	if b.Int(MirrorNumReplicaFetchers) != 1 || b.Int64(MirrorThrottledRate) != 1<<63-1 {
		t.Fatal("broker defaults")
	}
}

func TestCopyExcluded(t *testing.T) {
	override := map[string]string{MirrorTopicPropertiesExclude: "retention.ms"}
	tests := []struct {
		key    string
		mirror map[string]string
		want   bool
	}{
		{MinInsyncReplicas, nil, true},
		{MessageTimestampBefore, nil, true},
		{MessageTimestampAfter, nil, true},
		{MessageTimestampBefore, override, false},
		{RetentionMs, nil, false},
		{RetentionMs, override, true},
		{MirrorName, override, true},
		{MirrorSupportUncleanElection, override, true},
		{MirrorThrottledReplicas, override, true},
	}
	for _, tt := range tests {
		if got := CopyExcluded(tt.mirror, tt.key); got != tt.want {
			t.Errorf("%s with %v: %v", tt.key, tt.mirror, got)
		}
	}
}

func TestValidateFile(t *testing.T) {
	unknown, err := ValidateFile(map[string]string{"node.id": "1", "process.roles": "broker", MirrorThrottledRate: "1", "listeners": "x"})
	if !slices.Equal(unknown, []string{"process.roles"}) {
		t.Errorf("unknown %q", unknown)
	}
	if err == nil || !strings.Contains(err.Error(), MirrorThrottledRate) || !strings.Contains(err.Error(), "listeners") {
		t.Errorf("got %v", err)
	}
	if _, err := ValidateFile(map[string]string{"node.id": "1", "log.retention.hours": "1"}); err != nil {
		t.Error(err)
	}
}

func TestReconnect(t *testing.T) {
	for key, want := range map[string][2]bool{
		MirrorTopicsInclude: {false, false}, MirrorTopicPropertiesExclude: {true, false}, BootstrapServers: {true, true}, "ssl.key.password": {true, true},
	} {
		if ReconnectNeeded(key) != want[0] || ConnectionSetting(key) != want[1] {
			t.Errorf("%s: %v %v", key, ReconnectNeeded(key), ConnectionSetting(key))
		}
	}
}

// TestGroupValues: a group's own setting counts in the bounds that the node gives.
func TestGroupValues(t *testing.T) {
	node := BrokerValues(nil, map[string]string{ConsumerSessionTimeout: "46000", ConsumerMaxHeartbeatInterval: "9000"})
	for _, row := range []struct {
		name string
		own  map[string]string
		want GroupTimes
	}{
		{"the node's", nil, GroupTimes{46_000, 5_000, 1_000}},
		{"its own", map[string]string{GroupSessionTimeout: "50000", GroupHeartbeatInterval: "6000", GroupAssignmentInterval: "0"}, GroupTimes{50_000, 6_000, 0}},
		{"too small", map[string]string{GroupSessionTimeout: "1", GroupHeartbeatInterval: "1"}, GroupTimes{45_000, 5_000, 1_000}},
		{"too large", map[string]string{GroupSessionTimeout: "99000", GroupHeartbeatInterval: "99000", GroupAssignmentInterval: "99000"}, GroupTimes{60_000, 9_000, 15_000}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := GroupValues(row.own, node); got != row.want {
				t.Fatalf("%+v", got)
			}
		})
	}
}
