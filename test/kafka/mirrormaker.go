package kafka

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kagami/test/kafka/proc"
)

// MirrorMakerOptions say what MirrorMaker 2 copies.
type MirrorMakerOptions struct {
	Source, Destination string            // bootstrap servers
	Topics              string            // regular expression of topic names
	Tasks               int               // tasks.max; default 1
	Properties          map[string]string // added to mm2.properties, and stronger
	HeapMB              int               // default 512
}

// MirrorMaker starts MirrorMaker 2 in dedicated mode, a Connect worker that runs
// nothing else, with topic names kept as they are, and ends it with the test. It
// returns at once: wait for data on the destination.
func MirrorMaker(tb testing.TB, opts MirrorMakerOptions) *proc.Process {
	tb.Helper()
	Require(tb, mirrorMaker)
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	cp, err := ClassPath(ctx, mirrorMaker)
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	file := filepath.Join(dir, "mm2.properties")
	if err := os.WriteFile(file, []byte(opts.properties()), 0o644); err != nil {
		tb.Fatalf("write settings of MirrorMaker: %v", err)
	}
	heap := opts.HeapMB
	if heap == 0 {
		heap = 512
	}
	p, err := proc.Start(proc.Spec{
		Name: "mirrormaker", Path: "java", Log: filepath.Join(dir, "mirrormaker.log"),
		Args: []string{fmt.Sprintf("-Xmx%dm", heap), "-XX:+UseSerialGC", "-Xshare:auto", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
			"-cp", cp, "org.apache.kafka.connect.mirror.MirrorMaker", file},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("--- mirrormaker:\n%s", p.Tail(40))
		}
		if err := p.Kill(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

func (o MirrorMakerOptions) properties() string {
	all := map[string]string{
		"clusters":            "A,B",
		"A.bootstrap.servers": o.Source,
		"B.bootstrap.servers": o.Destination,
		"A->B.enabled":        "true",
		"A->B.topics":         o.Topics,
		"B->A.enabled":        "false",
		"tasks.max":           fmt.Sprint(max(o.Tasks, 1)),

		"replication.policy.class":              "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
		"replication.factor":                    "1",
		"offset-syncs.topic.replication.factor": "1",
		"checkpoints.topic.replication.factor":  "1",
		"heartbeats.topic.replication.factor":   "1",
		"offset.storage.replication.factor":     "1",
		"status.storage.replication.factor":     "1",
		"config.storage.replication.factor":     "1",
		"emit.heartbeats.enabled":               "false",
		"emit.checkpoints.enabled":              "false",
		"sync.topic.acls.enabled":               "false",
		"refresh.topics.interval.seconds":       "5",
		"consumer.auto.offset.reset":            "earliest",
		"dedicated.mode.enable.internal.rest":   "false",
		"scheduled.rebalance.max.delay.ms":      "0",
	}
	maps.Copy(all, o.Properties)
	var out strings.Builder
	for _, k := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&out, "%s=%s\n", k, all[k])
	}
	return out.String()
}
