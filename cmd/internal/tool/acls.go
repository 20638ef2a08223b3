package tool

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

// aclsTool is one run of kafka-acls.
type aclsTool struct {
	Streams
	*flags
	bootstrap, commandConfig, pattern                          *string
	add, remove, list, cluster                                 *bool
	named                                                      map[messages.ACLResourceType]*[]string
	allow, deny, allowHosts, denyHosts, operations, principals *[]string

	resources  []messages.ACL // type, name and pattern only
	ops        []messages.ACLOperation
	patternIs  messages.ACLPattern
	everything bool // a list of no resource in particular
	client     *kgo.Client
}

// ACLs is kafka-acls for resources of every type, cluster mirrors (KIP-1279) among them,
// without the shorthands --producer and --consumer. It returns the exit code.
func ACLs(ctx context.Context, args []string, s Streams) int {
	f := newFlags("kafka-acls", "This tool helps to manage acls on kafka.")
	t := &aclsTool{Streams: s, flags: f, named: map[messages.ACLResourceType]*[]string{}}
	many := func(name, arg, help string) *[]string {
		f.args[name] = arg
		return f.StringArray(name, nil, help)
	}
	t.bootstrap = f.text("bootstrap-server", "server to connect to", "The Kafka servers to connect to.")
	t.commandConfig = f.text("command-config", "property file", "Settings of the admin client.")
	t.add = f.Bool("add", false, "Indicates you are trying to add ACLs.")
	t.remove = f.Bool("remove", false, "Indicates you are trying to remove ACLs.")
	t.list = f.Bool("list", false, "List ACLs for the specified resource, use --topic <topic> or --group <group> or --cluster to specify a resource.")
	f.Bool("force", false, "Accepted; nothing is asked.")
	t.named[messages.ACLTopic] = many("topic", "topic", "Topic to which ACLs should be added or removed. '*' indicates all topics.")
	t.named[messages.ACLGroup] = many("group", "group", "Consumer group. '*' indicates all groups.")
	t.named[messages.ACLTransactionalID] = many("transactional-id", "transactional-id", "The transactionalId. '*' indicates all of them.")
	t.named[messages.ACLClusterMirror] = many("cluster-mirror", "mirror", "Cluster mirror. '*' indicates all mirrors.")
	t.cluster = f.Bool("cluster", false, "Add/Remove cluster ACLs.")
	t.pattern = f.String("resource-pattern-type", "literal", "The type of the resource pattern or pattern filter: literal or prefixed; with --list and --remove also any and match.")
	f.args["resource-pattern-type"] = "ANY|MATCH|LITERAL|PREFIXED"
	t.allow = many("allow-principal", "allow-principal", "principal is in principalType:name format. User:'*' is the wild card indicating all users.")
	t.deny = many("deny-principal", "deny-principal", "The same of who is denied.")
	t.allowHosts = many("allow-host", "allow-host", "Host from which principals listed in --allow-principal will have access. Default: *.")
	t.denyHosts = many("deny-host", "deny-host", "Host from which principals listed in --deny-principal will be denied access. Default: *.")
	t.operations = many("operation", "String", "Operation that is being allowed or denied. Default: All.")
	t.principals = many("principal", "principal", "List ACLs for the specified principal only.")
	return t.main(ctx, args)
}

func (t *aclsTool) main(ctx context.Context, args []string) int {
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
	switch {
	case *t.add:
		err = t.addAll(ctx)
	case *t.remove:
		err = t.removeAll(ctx)
	default:
		err = t.listAll(ctx)
	}
	return t.finish(err, t.Streams)
}

func (t *aclsTool) check() error {
	actions := 0
	for _, a := range []*bool{t.add, t.remove, t.list} {
		if *a {
			actions++
		}
	}
	switch {
	case actions != 1:
		return &usageError{"Command must include exactly one action: --list, --add, --remove.", true}
	case *t.bootstrap == "":
		return &usageError{"--bootstrap-server must be specified", true}
	}
	if err := t.checkPattern(); err != nil {
		return err
	}
	for _, kind := range []messages.ACLResourceType{messages.ACLTopic, messages.ACLGroup, messages.ACLTransactionalID, messages.ACLClusterMirror} {
		for _, name := range *t.named[kind] {
			t.resources = append(t.resources, messages.ACL{Type: kind, Name: strings.TrimSpace(name), Pattern: t.patternIs})
		}
	}
	if *t.cluster {
		t.resources = append(t.resources, messages.ACL{Type: messages.ACLCluster, Name: messages.ACLClusterName, Pattern: messages.ACLLiteral})
	}
	for _, text := range *t.operations {
		op, err := parseOperation(text)
		if err != nil {
			return err
		}
		t.ops = append(t.ops, op)
	}
	if t.everything = *t.list && len(t.resources) == 0; t.everything {
		return nil
	}
	switch {
	case len(t.resources) == 0:
		return &usageError{"You must specify at least one resource: --topic <topic> or --cluster or --group <group> or --transactional-id <id> or --cluster-mirror <mirror>", true}
	case *t.add && len(*t.allow)+len(*t.deny) == 0:
		return &usageError{"You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.", true}
	}
	return t.checkOperations()
}

func (t *aclsTool) checkPattern() error {
	for p := messages.ACLPatternAny; p <= messages.ACLPrefixed; p++ {
		if strings.EqualFold(*t.pattern, p.String()) {
			t.patternIs = p
		}
	}
	switch {
	case t.patternIs == 0:
		return usagef("--resource-pattern-type %s: want literal, prefixed, any or match", *t.pattern)
	case *t.add && t.patternIs < messages.ACLLiteral:
		return usagef("A '--resource-pattern-type' value of '%s' is not valid when adding acls.", *t.pattern)
	}
	return nil
}

func (t *aclsTool) checkOperations() error {
	for _, r := range t.resources {
		for _, op := range t.ops {
			if op != messages.ACLAll && !slices.Contains(messages.ACLOperations(r.Type), op) {
				return usagef("ResourceType %s only supports operations %v", r.Type, append([]messages.ACLOperation{messages.ACLAll}, messages.ACLOperations(r.Type)...))
			}
		}
	}
	return nil
}

// parseOperation takes AlterConfigs, ALTER_CONFIGS and alter_configs.
func parseOperation(text string) (messages.ACLOperation, error) {
	plain := func(s string) string { return strings.ToUpper(strings.ReplaceAll(strings.TrimSpace(s), "_", "")) }
	for op := messages.ACLAll; op <= messages.ACLTwoPhaseCommit; op++ {
		if plain(op.String()) == plain(text) {
			return op, nil
		}
	}
	return 0, usagef("--operation %s is unknown", text)
}

// entries are what the options say about one resource.
func (t *aclsTool) entries(r messages.ACL) []messages.ACL {
	ops := t.ops
	if len(ops) == 0 {
		ops = []messages.ACLOperation{messages.ACLAll}
	}
	var out []messages.ACL
	side := func(principals, hosts []string, p messages.ACLPermission) {
		if len(hosts) == 0 {
			hosts = []string{messages.ACLWildcard}
		}
		for _, who := range principals {
			for _, host := range hosts {
				for _, op := range ops {
					e := r
					e.Principal, e.Host, e.Operation, e.Permission = who, host, op, p
					out = append(out, e)
				}
			}
		}
	}
	side(*t.allow, *t.allowHosts, messages.ACLAllow)
	side(*t.deny, *t.denyHosts, messages.ACLDeny)
	return out
}

func (t *aclsTool) print(title string, r messages.ACL, entries []messages.ACL) {
	t.outf("%s ACLs for resource `ResourcePattern(resourceType=%s, name=%s, patternType=%s)`:\n", title, r.Type, r.Name, r.Pattern)
	for _, e := range entries {
		t.outf("      (principal=%s, host=%s, operation=%s, permissionType=%s)\n", e.Principal, e.Host, e.Operation, e.Permission)
	}
}

func refusedACL(code int16, text *string) error {
	if code == 0 {
		return nil
	}
	err := kerr.ErrorForCode(code)
	if text != nil && *text != "" {
		return fmt.Errorf("%s: %w", *text, err)
	}
	return err
}

func (t *aclsTool) addAll(ctx context.Context) error {
	for _, r := range t.resources {
		entries := t.entries(r)
		req := kmsg.NewPtrCreateACLsRequest()
		for _, e := range entries {
			req.Creations = append(req.Creations, kmsg.CreateACLsRequestCreation{
				ResourceType: kmsg.ACLResourceType(e.Type), ResourceName: e.Name, ResourcePatternType: kmsg.ACLResourcePatternType(e.Pattern),
				Principal: e.Principal, Host: e.Host, Operation: kmsg.ACLOperation(e.Operation), PermissionType: kmsg.ACLPermissionType(e.Permission),
			})
		}
		resp, err := req.RequestWith(ctx, t.client)
		if err != nil {
			return fmt.Errorf("create ACLs: %w", err)
		}
		for _, res := range resp.Results {
			if err := refusedACL(res.ErrorCode, res.ErrorMessage); err != nil {
				return err
			}
		}
		t.print("Adding", r, entries)
	}
	return nil
}

func (t *aclsTool) removeAll(ctx context.Context) error {
	req := kmsg.NewPtrDeleteACLsRequest()
	filter := func(r messages.ACL) kmsg.DeleteACLsRequestFilter {
		return kmsg.DeleteACLsRequestFilter{
			ResourceType: kmsg.ACLResourceType(r.Type), ResourceName: &r.Name, ResourcePatternType: kmsg.ACLResourcePatternType(r.Pattern), Operation: 1, PermissionType: 1,
		}
	}
	for _, r := range t.resources {
		entries := t.entries(r)
		if len(entries) == 0 { // all of the resource
			req.Filters = append(req.Filters, filter(r))
		}
		for _, e := range entries {
			f := filter(r)
			f.Principal, f.Host, f.Operation, f.PermissionType = &e.Principal, &e.Host, kmsg.ACLOperation(e.Operation), kmsg.ACLPermissionType(e.Permission)
			req.Filters = append(req.Filters, f)
		}
	}
	resp, err := req.RequestWith(ctx, t.client)
	if err != nil {
		return fmt.Errorf("delete ACLs: %w", err)
	}
	for _, res := range resp.Results {
		if err := refusedACL(res.ErrorCode, res.ErrorMessage); err != nil {
			return err
		}
		for _, m := range res.MatchingACLs {
			e := messages.ACL{
				Type: messages.ACLResourceType(m.ResourceType), Name: m.ResourceName, Pattern: messages.ACLPattern(m.ResourcePatternType),
				Principal: m.Principal, Host: m.Host, Operation: messages.ACLOperation(m.Operation), Permission: messages.ACLPermission(m.PermissionType),
			}
			t.print("Removed", e, []messages.ACL{e})
		}
	}
	return nil
}

// listAll asks for each resource, or once for all.
func (t *aclsTool) listAll(ctx context.Context) error {
	if !t.everything {
		for _, r := range t.resources {
			if err := t.listOne(ctx, r.Type, &r.Name, r.Pattern); err != nil {
				return err
			}
		}
		return nil
	}
	return t.listOne(ctx, messages.ACLAnyResource, nil, messages.ACLPatternAny)
}

func (t *aclsTool) listOne(ctx context.Context, kind messages.ACLResourceType, name *string, pattern messages.ACLPattern) error {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourceName, req.ResourcePatternType = kmsg.ACLResourceType(kind), name, kmsg.ACLResourcePatternType(pattern)
	req.Operation, req.PermissionType = 1, 1
	resp, err := req.RequestWith(ctx, t.client)
	if err == nil {
		err = refusedACL(resp.ErrorCode, resp.ErrorMessage)
	}
	if err != nil {
		return fmt.Errorf("describe ACLs: %w", err)
	}
	for _, res := range resp.Resources {
		r := messages.ACL{Type: messages.ACLResourceType(res.ResourceType), Name: res.ResourceName, Pattern: messages.ACLPattern(res.ResourcePatternType)}
		var entries []messages.ACL
		for _, a := range res.ACLs {
			if len(*t.principals) > 0 && !slices.Contains(*t.principals, a.Principal) {
				continue
			}
			e := r
			e.Principal, e.Host, e.Operation, e.Permission = a.Principal, a.Host, messages.ACLOperation(a.Operation), messages.ACLPermission(a.PermissionType)
			entries = append(entries, e)
		}
		if len(entries) > 0 {
			t.print("Current", r, entries)
		}
	}
	return nil
}
