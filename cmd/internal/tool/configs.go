package tool

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/wire"
)

// entity is a kind of thing that has configs.
type entity struct {
	typ      string // value of --entity-type
	short    string // option that names one, such as --topic
	singular string // as the output says it
	resource messages.ResourceType
	defaults bool // --entity-default is possible
}

// The entities that this tool knows. "mirror" is not the singular of its type:
// KIP-1279 prints it so (OP-20).
func entities() []entity {
	return []entity{
		{"topics", "topic", "topic", messages.ResourceTopic, false},
		{"brokers", "broker", "broker", messages.ResourceBroker, true},
		{"cluster-mirrors", "cluster-mirror", "mirror", messages.ResourceClusterMirror, false},
		{"groups", "group", "group", messages.ResourceGroup, false},
		{"clients", "client", "client", 0, true},
	}
}

func entityTypes() string {
	var out []string
	for _, e := range entities() {
		out = append(out, e.typ)
	}
	return strings.Join(out, ", ")
}

// configsTool is one run of kafka-configs.
type configsTool struct {
	Streams
	*flags
	bootstrap, commandConfig, entityType, entityName *string
	addConfig, addConfigFile, deleteConfig           *string
	alter, describe, all, entityDefault              *bool
	named                                            map[string]*string // by short option
	brokerDefaults, clientDefaults                   *bool

	entity entity
	name   string // "" with isDefault: the default entity; "" without: all of them
	isDef  bool
	client *kgo.Client
}

// Configs is kafka-configs for topics, brokers, cluster-mirrors and clients.
// It returns the exit code.
func Configs(ctx context.Context, args []string, s Streams) int {
	f := newFlags("kafka-configs", "This tool helps to manipulate and describe entity config for a topic, broker, cluster mirror or client.")
	t := &configsTool{Streams: s, flags: f, named: map[string]*string{}}
	t.bootstrap = f.text("bootstrap-server", "server to connect to", "The Kafka servers to connect to.")
	t.commandConfig = f.text("command-config", "property file", "Settings of the admin client.")
	t.entityType = f.text("entity-type", "String", "Type of entity ("+entityTypes()+").")
	t.entityName = f.text("entity-name", "String", "Name of entity (topic name, broker id, mirror name, client id).")
	t.entityDefault = f.Bool("entity-default", false, "Default entity for brokers and clients.")
	t.addConfig = f.text("add-config", "String", "Key Value pairs of configs to add. Square brackets can be used to group values which contain commas: 'k1=v1,k2=[v1,v2,v2],k3=v3'.")
	t.addConfigFile = f.text("add-config-file", "String", "Path to a properties file with configs to add.")
	t.deleteConfig = f.text("delete-config", "String", "config keys to remove 'k1,k2'.")
	t.alter = f.Bool("alter", false, "Alter the configuration for the entity.")
	t.describe = f.Bool("describe", false, "List configs for the given entity.")
	t.all = f.Bool("all", false, "List all configs for the given entity, including static configs and defaults.")
	for _, e := range entities() {
		t.named[e.short] = f.text(e.short, "String", "The "+e.singular+"'s name or id.")
	}
	t.brokerDefaults = f.Bool("broker-defaults", false, "The config defaults for all brokers.")
	t.clientDefaults = f.Bool("client-defaults", false, "The config defaults for all clients.")
	return t.main(ctx, args)
}

func (t *configsTool) main(ctx context.Context, args []string) int {
	if err := t.parse(args); err != nil {
		return t.finish(err, t.Streams)
	}
	if t.infoOnly(t.Streams) {
		return 0
	}
	if err := t.check(); err != nil {
		return t.finish(err, t.Streams)
	}
	cl, err := connect(*t.bootstrap, *t.commandConfig)
	if err != nil {
		return t.finish(err, t.Streams)
	}
	defer cl.Close()
	t.client = cl
	isClient := t.entity.typ == "clients"
	switch {
	case *t.describe && isClient:
		err = t.describeClients(ctx)
	case *t.describe:
		err = t.describeAll(ctx)
	case isClient:
		err = t.alterClient(ctx)
	default:
		err = t.alterResource(ctx)
	}
	return t.finish(err, t.Streams)
}

func (t *configsTool) check() error {
	if *t.alter == *t.describe {
		return &usageError{"Command must include exactly one action: --describe, --alter", true}
	}
	if *t.bootstrap == "" {
		return &usageError{"--bootstrap-server must be specified", true}
	}
	if err := t.checkEntity(); err != nil {
		return err
	}
	if !*t.alter {
		if t.entity.resource == messages.ResourceClusterMirror && t.name == "" {
			return usagef("an entity name must be specified with --describe of cluster-mirrors")
		}
		return nil
	}
	switch {
	case t.name == "" && !t.isDef && t.entity.defaults:
		return usagef("an entity-name or default entity must be specified with --alter of %s", t.entity.typ)
	case t.name == "" && !t.isDef:
		return usagef("an entity name must be specified with --alter of %s", t.entity.typ)
	case *t.addConfig != "" && *t.addConfigFile != "":
		return usagef("Only one of --add-config or --add-config-file must be specified.")
	case *t.addConfig == "" && *t.addConfigFile == "" && *t.deleteConfig == "":
		return usagef("At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter")
	}
	return nil
}

func (t *configsTool) checkEntity() error {
	var found []entity
	for _, e := range entities() {
		if *t.entityType == e.typ {
			found = append(found, e)
			t.name, t.isDef = *t.entityName, *t.entityDefault
		}
		if t.Changed(e.short) {
			found = append(found, e)
			t.name = *t.named[e.short]
		}
		if e.short == "broker" && *t.brokerDefaults || e.short == "client" && *t.clientDefaults {
			found = append(found, e)
			t.isDef = true
		}
	}
	switch {
	case *t.entityType != "" && len(found) == 0:
		return usagef("Invalid entity type %s, the entity type must be one of %s with the --bootstrap-server argument", *t.entityType, entityTypes())
	case len(found) == 0:
		return usagef("At least one entity type must be specified")
	case len(found) > 1:
		return usagef("Only one entity may be specified")
	}
	t.entity = found[0]
	if t.isDef && !t.entity.defaults {
		return usagef("--entity-default is only valid with brokers and clients")
	}
	if t.isDef && t.name != "" {
		return usagef("An entity can't have a name and be the default")
	}
	if t.entity.typ == "brokers" && t.name != "" {
		if _, err := strconv.ParseInt(t.name, 10, 32); err != nil {
			return usagef("The entity name for brokers must be a valid integer broker id, found: %s", t.name)
		}
	}
	return nil
}

var listSeparator = regexp.MustCompile(`\s*=\s*`)

// additions reads --add-config or its file, in the order of keys.
func (t *configsTool) additions() (map[string]string, error) {
	if *t.addConfigFile != "" {
		return loadProperties(*t.addConfigFile)
	}
	out := map[string]string{}
	for _, item := range splitOutsideBrackets(*t.addConfig) {
		parts := listSeparator.Split(item, 2)
		if len(parts) != 2 || parts[0] == "" {
			return nil, usagef(`Invalid entity config: all configs to be added must be in the format "key=val".`)
		}
		out[strings.TrimSpace(parts[0])] = strings.TrimSpace(strings.NewReplacer("[", "", "]", "").Replace(parts[1]))
	}
	return out, nil
}

func splitOutsideBrackets(s string) []string {
	var out []string
	depth, start := 0, 0
	for i, r := range s {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case r == ',' && depth <= 0:
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	if out = append(out, s[start:]); len(out) == 1 && strings.TrimSpace(out[0]) == "" {
		return nil
	}
	return out
}

func (t *configsTool) alterResource(ctx context.Context) error {
	add, err := t.additions()
	if err != nil {
		return err
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceType(t.entity.resource), t.name
	for _, key := range sortedKeys(add) {
		res.Configs = append(res.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{
			Name: key, Op: kmsg.IncrementalAlterConfigOpSet, Value: new(add[key]),
		})
	}
	for _, key := range messages.ParseList(*t.deleteConfig) {
		res.Configs = append(res.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: key, Op: kmsg.IncrementalAlterConfigOpDelete})
	}
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(ctx, t.client)
	if err != nil {
		return fmt.Errorf("alter configs of %s: %w", t.name, err)
	}
	for _, r := range resp.Resources {
		text := ""
		if r.ErrorMessage != nil {
			text = *r.ErrorMessage
		}
		if err := wire.ErrorForCode(r.ErrorCode, text); err != nil {
			return t.called(t.name, err)
		}
	}
	t.completed()
	return nil
}

// called adds the name of a topic that isn't there: Kafka's text has none. Other
// refusals stay as the server words them.
func (t *configsTool) called(name string, err error) error {
	if !errors.Is(err, kerr.UnknownTopicOrPartition) || strings.Contains(err.Error(), name) {
		return err
	}
	return fmt.Errorf("%s %s: %w", t.entity.singular, name, err)
}

func (t *configsTool) completed() {
	if t.isDef {
		t.outf("Completed updating default config for %s in the cluster.\n", t.entity.typ)
	} else {
		t.outf("Completed updating config for %s %s.\n", t.entity.singular, t.name)
	}
}

// dynamic reports an entry that was set on the entity itself.
func (t *configsTool) dynamic(e kmsg.DescribeConfigsResponseResourceConfig) bool {
	switch {
	case e.Source == kmsg.ConfigSourceDefaultConfig || e.Source == kmsg.ConfigSourceStaticBrokerConfig:
		return false
	case t.entity.resource == messages.ResourceTopic:
		return e.Source == kmsg.ConfigSourceDynamicTopicConfig
	case t.entity.resource == messages.ResourceBroker && t.isDef:
		return e.Source == kmsg.ConfigSourceDynamicDefaultBrokerConfig
	case t.entity.resource == messages.ResourceBroker:
		return e.Source == kmsg.ConfigSourceDynamicBrokerConfig
	default: // a mirror's own settings have no source of their own in Kafka's table
		return true
	}
}

func (t *configsTool) describeAll(ctx context.Context) error {
	names := []string{t.name}
	if t.name == "" && !t.isDef {
		var err error
		if names, err = t.list(ctx); err != nil {
			return err
		}
	}
	for _, name := range names {
		entries, err := describeResource(ctx, t.client, t.entity.resource, name, true)
		if err != nil {
			return t.called(name, err)
		}
		t.printConfigs(name, entries)
	}
	if t.name == "" && !t.isDef && t.entity.resource == messages.ResourceBroker {
		t.isDef = true
		entries, err := describeResource(ctx, t.client, t.entity.resource, "", true)
		if err != nil {
			return err
		}
		t.printConfigs("", entries)
	}
	return nil
}

// list names all topics or brokers.
func (t *configsTool) list(ctx context.Context) ([]string, error) {
	meta, err := kadm.NewClient(t.client).Metadata(ctx)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", t.entity.typ, err)
	}
	if t.entity.resource == messages.ResourceTopic {
		return meta.Topics.Names(), nil
	}
	var out []string
	for _, id := range meta.Brokers.NodeIDs() {
		out = append(out, strconv.Itoa(int(id)))
	}
	return out, nil
}

func (t *configsTool) printConfigs(name string, entries []kmsg.DescribeConfigsResponseResourceConfig) {
	kind := "Dynamic"
	if *t.all {
		kind = "All"
	}
	switch {
	case t.isDef:
		t.outf("Default configs for %s in the cluster are:\n", t.entity.typ)
	default:
		t.outf("%s configs for %s %s are:\n", kind, t.entity.singular, name)
	}
	slices.SortFunc(entries, func(a, b kmsg.DescribeConfigsResponseResourceConfig) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range entries {
		if !*t.all && !t.dynamic(e) {
			continue
		}
		var synonyms []string
		for _, s := range e.ConfigSynonyms {
			synonyms = append(synonyms, fmt.Sprintf("%s:%s=%s", s.Source, s.Name, orNull(s.Value)))
		}
		t.outf("  %s=%s sensitive=%t synonyms={%s}\n", e.Name, orNull(e.Value), e.IsSensitive, strings.Join(synonyms, ", "))
	}
}

func orNull(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

func sortedKeys(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
