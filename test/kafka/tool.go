package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Kafka's command line tools, by the class that the script of that name runs.
const (
	ConsoleConsumer     = "org.apache.kafka.tools.consumer.ConsoleConsumer"            // kafka-console-consumer
	ConsoleProducer     = "org.apache.kafka.tools.ConsoleProducer"                     // kafka-console-producer
	Topics              = "org.apache.kafka.tools.TopicCommand"                        // kafka-topics
	Configs             = "org.apache.kafka.tools.ConfigCommand"                       // kafka-configs
	GetOffsets          = "org.apache.kafka.tools.GetOffsetShell"                      // kafka-get-offsets
	DumpLog             = "org.apache.kafka.tools.DumpLogSegments"                     // kafka-dump-log
	DeleteRecords       = "org.apache.kafka.tools.DeleteRecordsCommand"                // kafka-delete-records
	ProducerPerf        = "org.apache.kafka.tools.ProducerPerformance"                 // kafka-producer-perf-test
	ConsumerPerf        = "org.apache.kafka.tools.ConsumerPerformance"                 // kafka-consumer-perf-test
	VerifiableProducer  = "org.apache.kafka.tools.VerifiableProducer"                  // kafka-verifiable-producer
	VerifiableConsumer  = "org.apache.kafka.tools.VerifiableConsumer"                  // kafka-verifiable-consumer
	BrokerAPIVersions   = "org.apache.kafka.tools.BrokerApiVersionsCommand"            // kafka-broker-api-versions
	ConsumerGroups      = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand" // kafka-consumer-groups
	ShareGroups         = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"    // kafka-share-groups
	LeaderElection      = "org.apache.kafka.tools.LeaderElectionCommand"               // kafka-leader-election
	TransactionsCommand = "org.apache.kafka.tools.TransactionsCommand"                 // kafka-transactions
	FeatureCommand      = "org.apache.kafka.tools.FeatureCommand"                      // kafka-features
	LogDirs             = "org.apache.kafka.tools.LogDirsCommand"                      // kafka-log-dirs
	ReassignPartitions  = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"  // kafka-reassign-partitions
	ClientMetrics       = "org.apache.kafka.tools.ClientMetricsCommand"                // kafka-client-metrics
	ACLs                = "org.apache.kafka.tools.AclCommand"                          // kafka-acls
	ClusterTool         = "org.apache.kafka.tools.ClusterTool"                         // kafka-cluster
	GroupsCommand       = "org.apache.kafka.tools.GroupsCommand"                       // kafka-groups
)

// toolFlags keep a tool's start short: no optimizing compiler, no parallel collector.
var toolFlags = []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"}

// Result is what a tool printed.
type Result struct {
	Stdout, Stderr string
	Code           int // exit code
}

// Lines is Stdout cut into lines, empty ones left out.
func (r Result) Lines() []string {
	var lines []string
	for line := range strings.Lines(r.Stdout) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// Tool runs one of Kafka's Java tools (of release [Latest]), against any server
// named in args. An exit code other than 0 is an error that shows what was said.
func Tool(ctx context.Context, class string, args ...string) (Result, error) {
	return ToolInput(ctx, nil, class, args...)
}

// ToolInput is Tool with a standard input, for kafka-console-producer.
func ToolInput(ctx context.Context, in io.Reader, class string, args ...string) (Result, error) {
	cp, err := ClassPath(ctx, Latest)
	if err != nil {
		return Result{}, err
	}
	all := append(append(append([]string{}, toolFlags...), "-cp", cp, class), args...)
	return run(exec.CommandContext(ctx, "java", all...), in, class, args)
}

// Kcat runs kcat.
func Kcat(ctx context.Context, in io.Reader, args ...string) (Result, error) {
	return run(exec.CommandContext(ctx, "kcat", args...), in, "kcat", args)
}

func run(cmd *exec.Cmd, in io.Reader, name string, args []string) (Result, error) {
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &errs
	err := cmd.Run()
	res := Result{Stdout: out.String(), Stderr: errs.String(), Code: cmd.ProcessState.ExitCode()}
	if err != nil {
		if ctxErr := new(exec.ExitError); !errors.As(err, &ctxErr) {
			return res, fmt.Errorf("run %s: %w", name, err)
		}
		return res, fmt.Errorf("run %s %s: %w\n%s\n%s", name, strings.Join(args, " "), err, tail(res.Stdout), tail(res.Stderr))
	}
	return res, nil
}

// tail keeps an error readable.
func tail(s string) string {
	const most = 4000
	return s[max(0, len(s)-most):]
}

// Tool runs a tool with --bootstrap-server set to this cluster.
func (c *Cluster) Tool(ctx context.Context, class string, args ...string) (Result, error) {
	return Tool(ctx, class, append([]string{"--bootstrap-server", c.Bootstrap()}, args...)...)
}
