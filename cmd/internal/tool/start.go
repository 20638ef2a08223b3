package tool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"kagami/client"
	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/wire"
)

// sourceTimeout bounds one request to the source.
const sourceTimeout = 15 * time.Second

// mirrorSource is what start asks the source cluster for; *fetch.Source is one.
type mirrorSource interface {
	Topics(ctx context.Context, names []string) (fetch.Cluster, error)
	Close() error
}

func openSource(_ context.Context, mirror string, configs map[string]string) (mirrorSource, error) {
	cfg, err := fetch.ParseConfig(configs)
	if err != nil {
		return nil, err
	}
	return fetch.NewSource(fetch.SourceConfig{Source: cfg, Mirror: mirror, Node: messages.NoNode, RequestTimeout: sourceTimeout, Log: zap.NewNop()})
}

// storedConfigs are the settings of the mirror as the destination tells them:
// values of passwords are missing, and their keys are in hidden.
func (t *mirrorsTool) storedConfigs(ctx context.Context) (configs map[string]string, hidden []string, err error) {
	entries, err := describeResource(ctx, t.client.Kgo(), messages.ResourceClusterMirror, *t.mirror, false)
	if unknownMirror(err) {
		return nil, nil, t.notFound()
	}
	if err != nil {
		return nil, nil, err
	}
	configs = map[string]string{}
	for _, e := range entries {
		isSet := e.Source != kmsg.ConfigSourceDefaultConfig
		switch {
		case e.Value != nil && isSet:
			configs[e.Name] = *e.Value
		case e.IsSensitive && isSet:
			hidden = append(hidden, e.Name)
		}
	}
	if configs["bootstrap.servers"] == "" {
		return nil, nil, t.notFound()
	}
	return configs, hidden, nil
}

func (t *mirrorsTool) start(ctx context.Context) error {
	configs, hidden, err := t.storedConfigs(ctx)
	if err != nil {
		return err
	}
	include, exclude := messages.ParseList(*t.topics), messages.ParseList(*t.exclude)
	if *t.dryRun {
		return t.dryRunStart(ctx, include, exclude)
	}
	lists := messages.EffectiveTopicPatterns(configs).Start(include, exclude)
	selector, err := messages.TopicPatterns{Include: include, Exclude: lists.Exclude}.Compile()
	if err != nil {
		return err
	}
	connection, err := t.sourceConfigs(configs, hidden)
	if err != nil {
		return err
	}
	src, err := t.source(ctx, *t.mirror, connection)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	cluster, err := src.Topics(ctx, nil)
	if err != nil {
		return fmt.Errorf("list topics of the source: %w", err)
	}
	var topics, excluded []string
	meta := map[string]client.TopicMetadata{}
	for name, st := range cluster.Topics {
		if st.Err == nil && selector.Discovers(name) {
			topics = append(topics, name)
			meta[name] = client.TopicMetadata{ID: st.ID, Partitions: int32(len(st.Partitions))}
		} else if selector.Excludes(name) {
			excluded = append(excluded, name)
		}
	}
	slices.Sort(topics)
	results, err := t.client.StartMirrorTopics(ctx, *t.mirror, topics, client.StartOptions{
		IncludePatterns: include, ExcludePatterns: exclude, TopicMetadata: meta,
	})
	if err != nil {
		return err
	}
	if len(topics) == 0 {
		t.outf("No matching topics found yet. Patterns saved to mirror %s for auto-discovery.\n", *t.mirror)
		if len(excluded) > 0 {
			slices.Sort(excluded)
			t.errf("Warning: %d topic(s) match, such as %s, but %s of the mirror leaves them out: %s. A stop puts its patterns there; a start of the very same pattern, or kafka-configs, takes one out.\n",
				len(excluded), excluded[0], messages.MirrorTopicsExcludeConfig, strings.Join(lists.Exclude, ","))
		}
		return nil
	}
	return t.reported(ctx, results, "Started %d mirror topic(s) in mirror %s: [%s]\n", messages.StateMirroring)
}

// sourceConfigs puts the settings of --mirror-config over the stored ones. The
// cluster gives out no passwords, so a source that needs one needs the file.
func (t *mirrorsTool) sourceConfigs(stored map[string]string, hidden []string) (map[string]string, error) {
	out := maps.Clone(stored)
	if *t.mirrorConfig != "" {
		props, err := loadProperties(*t.mirrorConfig)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, props)
	}
	var missing []string
	for _, key := range hidden {
		if _, given := out[key]; !given {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return nil, fmt.Errorf("mirror %s needs %s to reach its source, which the cluster doesn't give out: add --mirror-config with the source settings", *t.mirror, strings.Join(missing, ", "))
	}
	return out, nil
}

// describeResource asks for the configs of one resource. An error code of the
// answer is a *wire.Error.
func describeResource(ctx context.Context, cl kmsg.Requestor, typ messages.ResourceType, name string, synonyms bool) ([]kmsg.DescribeConfigsResponseResourceConfig, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceType(typ), name
	req.Resources = append(req.Resources, res)
	req.IncludeSynonyms = synonyms
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("describe configs of %s: %w", name, err)
	}
	if len(resp.Resources) != 1 {
		return nil, fmt.Errorf("describe configs of %s: %d answers", name, len(resp.Resources))
	}
	r := resp.Resources[0]
	text := ""
	if r.ErrorMessage != nil {
		text = *r.ErrorMessage
	}
	return r.Configs, wire.ErrorForCode(r.ErrorCode, text)
}
