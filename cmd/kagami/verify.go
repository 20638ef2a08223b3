package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/magiconair/properties"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"kagami/cmd/internal/compare"
	"kagami/cmd/internal/tool"
	"kagami/fetch"
	"kagami/messages"
)

// verifyOptions of one comparison.
type verifyOptions struct {
	mirror       string
	bootstrap    string
	command      string // property file of the destination's client, "" for none
	sourceConfig string
	topics       string
	deep         bool
}

// runVerify compares a mirror's topics with their source. It changes nothing on
// either side.
func runVerify(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := pflag.NewFlagSet("verify", pflag.ContinueOnError)
	const line = "verify --mirror MIRROR [options]"
	var o verifyOptions
	fs.StringVar(&o.bootstrap, "bootstrap-server", "localhost:9094", "destination cluster")
	fs.StringVar(&o.command, "command-config", "", "property file with settings of the client of the destination cluster")
	fs.StringVar(&o.mirror, "mirror", "", "mirror to verify (required)")
	fs.StringVar(&o.sourceConfig, "source-config", "", "property file with source settings that the cluster doesn't show (passwords) or that differ from here")
	fs.StringVar(&o.topics, "topics", ".*", "comma list of names or patterns of the mirror's topics")
	fs.BoolVar(&o.deep, "deep", false, "compare every byte, not only headers and checksums")
	timeout := fs.Duration("timeout", time.Hour, "give up after this long")
	if err := parse(fs, line, 0, args, stdout, stderr); err != nil {
		return err
	}
	if o.mirror == "" {
		return usageFault(fs, line, stderr, "--mirror must be specified")
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	rows, err := verify(ctx, o)
	if len(rows) > 0 {
		if err := printVerdict(stdout, rows); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	for _, r := range rows {
		if !r.Equal() {
			return errDifferent
		}
	}
	return nil
}

// verify connects to both clusters and compares.
func verify(ctx context.Context, o verifyOptions) ([]compare.Row, error) {
	dst, err := tool.Connect(o.bootstrap, o.command)
	if err != nil {
		return nil, err
	}
	defer dst.Close()
	configs, err := mirrorConfigs(ctx, dst, o.mirror)
	if err != nil {
		return nil, fmt.Errorf("destination %s: %w", o.bootstrap, err)
	}
	topics, compacted, err := mirrorTopics(ctx, dst, o.mirror, o.topics)
	if err != nil {
		return nil, err
	}
	if o.sourceConfig != "" {
		p, err := (&properties.Loader{Encoding: properties.ISO_8859_1, DisableExpansion: true}).LoadFile(o.sourceConfig)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", o.sourceConfig, err)
		}
		maps.Copy(configs, p.Map())
	}
	cfg, err := fetch.ParseConfig(configs)
	if err != nil && o.sourceConfig == "" {
		return nil, fmt.Errorf("settings of mirror %s: %w (the cluster gives out no passwords: those are for the file of --source-config)", o.mirror, err)
	}
	if err != nil {
		return nil, fmt.Errorf("settings of mirror %s: %w", o.mirror, err)
	}
	src, err := fetch.NewClient(cfg, "kagami-verify", zap.NewNop())
	if err != nil {
		return nil, fmt.Errorf("connect to the source: %w", err)
	}
	defer src.Close()
	if err := compactedThere(ctx, src, topics, compacted); err != nil {
		return nil, fmt.Errorf("source %s: %w", configs["bootstrap.servers"], err)
	}
	return compare.Run(ctx,
		&compare.Side{Name: "source", Client: src},
		&compare.Side{Name: "destination", Client: dst},
		topics, compare.Options{Deep: o.deep, Compacted: func(t string) bool { return compacted[t] }})
}

// mirrorTopics lists the mirror's topics that match, and which are compacted.
func mirrorTopics(ctx context.Context, cl *kgo.Client, mirror, patterns string) ([]compare.Topic, map[string]bool, error) {
	want, err := messages.CompilePatterns(messages.ParseList(patterns))
	if err != nil {
		return nil, nil, err
	}
	adm := kadm.NewClient(cl)
	details, err := adm.ListTopics(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list topics: %w", err)
	}
	names := details.Names()
	if len(names) == 0 {
		return nil, nil, fmt.Errorf("mirror %s has %w %s", mirror, errNoTopics, patterns)
	}
	all, err := adm.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return nil, nil, fmt.Errorf("read topic configs: %w", err)
	}
	var topics []compare.Topic
	compacted := map[string]bool{}
	for _, rc := range all {
		if rc.Err != nil {
			return nil, nil, fmt.Errorf("read configs of topic %s: %w", rc.Name, rc.Err)
		}
		member := false
		for _, c := range rc.Configs {
			switch c.Key {
			case messages.MirrorNameConfig:
				m, _ := messages.ParseMirrorName(c.MaybeValue())
				member = m == mirror
			case cleanupPolicy:
				compacted[rc.Name] = strings.Contains(c.MaybeValue(), "compact")
			}
		}
		if member && want.Match(rc.Name) {
			topics = append(topics, compare.Topic{Name: rc.Name, Partitions: int32(len(details[rc.Name].Partitions))})
		}
	}
	if len(topics) == 0 {
		return nil, nil, fmt.Errorf("mirror %s has %w %s", mirror, errNoTopics, patterns)
	}
	return topics, compacted, nil
}

// compactedThere adds topics that the source compacts: our copy of its config may
// be older. A source that doesn't show its configs is no fault of the data.
func compactedThere(ctx context.Context, cl *kgo.Client, topics []compare.Topic, compacted map[string]bool) error {
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	all, err := kadm.NewClient(cl).DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return fmt.Errorf("read topic configs: %w", err)
	}
	for _, rc := range all {
		for _, c := range rc.Configs {
			if c.Key == cleanupPolicy && strings.Contains(c.MaybeValue(), "compact") {
				compacted[rc.Name] = true
			}
		}
	}
	return nil
}

const cleanupPolicy = "cleanup.policy"

var errNoTopics = errors.New("no topics that this user may describe and that match")

// mirrorConfigs reads the mirror's settings; passwords come back as null and are
// left out.
func mirrorConfigs(ctx context.Context, cl *kgo.Client, mirror string) (map[string]string, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceType(messages.ResourceClusterMirror), mirror
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("read settings of mirror %s: %w", mirror, err)
	}
	configs := map[string]string{}
	for _, r := range resp.Resources {
		if r.ErrorCode != 0 {
			if r.ErrorMessage != nil && *r.ErrorMessage != "" {
				return nil, fmt.Errorf("read settings of mirror %s: %s", mirror, *r.ErrorMessage)
			}
			return nil, fmt.Errorf("read settings of mirror %s: %w", mirror, kerr.ErrorForCode(r.ErrorCode))
		}
		for _, c := range r.Configs {
			if c.Value != nil && *c.Value != "" {
				configs[c.Name] = *c.Value
			}
		}
	}
	return configs, nil
}

func printVerdict(w io.Writer, rows []compare.Row) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	say(tw, "TOPIC\tPARTITION\tSOURCE\tDESTINATION\tCOMPARED\tCOMPACTED\tRESULT\n")
	for _, r := range rows {
		result := "equal"
		if !r.Equal() {
			result = "DIFFERENT: " + r.Difference
		}
		part := "-"
		if r.Partition >= 0 {
			part = fmt.Sprint(r.Partition)
		}
		sayf(tw, "%s\t%s\t%d-%d\t%d-%d\t%d\t%d\t%s\n", r.Topic, part, r.SourceStart, r.SourceEnd, r.DestStart, r.DestEnd, r.Batches, r.Compacted, result)
	}
	return tw.Flush()
}
