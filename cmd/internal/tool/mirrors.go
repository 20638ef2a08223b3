package tool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"kagami/client"
	"kagami/messages"
)

// mirrorsTool is one run of kafka-cluster-mirrors.
type mirrorsTool struct {
	Streams
	*flags
	bootstrap, commandConfig, mirror, mirrorConfig, topics, exclude *string
	asJSON, failed, dryRun, waits                                   *bool
	actions                                                         map[string]*bool

	client *client.Client
	every  time.Duration // between two looks of --wait
	source func(ctx context.Context, mirror string, configs map[string]string) (mirrorSource, error)
}

// action is one of the tool's actions and what it demands.
type action struct {
	name       string
	topicsVerb string // --topics is required; the verb stands in the message
	noMirror   bool   // --mirror isn't required
	run        func(*mirrorsTool, context.Context) error
}

func mirrorActions() []action {
	return []action{
		{name: "create", run: (*mirrorsTool).create},
		{name: "start", topicsVerb: "starting", run: (*mirrorsTool).start},
		{name: "stop", topicsVerb: "stopping", run: (*mirrorsTool).stop},
		{name: "delete", run: (*mirrorsTool).delete},
		{name: "pause", topicsVerb: "pausing", run: (*mirrorsTool).pause},
		{name: "resume", topicsVerb: "resuming", run: (*mirrorsTool).resume},
		{name: "recover", topicsVerb: "recovering", run: (*mirrorsTool).recover},
		{name: "list", noMirror: true, run: (*mirrorsTool).list},
		{name: "describe", noMirror: true, run: (*mirrorsTool).describe},
	}
}

const oneAction = "Command must include exactly one action: --create, --start, --stop, --delete, --pause, --resume, --recover, --list, or --describe"

// ClusterMirrors is kafka-cluster-mirrors (cli.md). It returns the exit code.
func ClusterMirrors(ctx context.Context, args []string, s Streams) int {
	t := newMirrorsTool(s)
	return t.main(ctx, args)
}

func newMirrorsTool(s Streams) *mirrorsTool {
	f := newFlags("kafka-cluster-mirrors", "This tool creates cluster mirrors and manages mirrored topics.")
	t := &mirrorsTool{Streams: s, flags: f, actions: map[string]*bool{}, source: openSource, every: waitPause}
	t.bootstrap = f.text("bootstrap-server", "server to connect to", "REQUIRED: The destination cluster. :9094 means localhost:9094.")
	t.commandConfig = f.text("command-config", "property file", "Settings of the admin client towards the destination cluster.")
	for name, help := range map[string]string{
		"create":   "Create a mirror. Needs --mirror and --mirror-config.",
		"start":    "Start mirroring of topics. Needs --mirror and --topics.",
		"stop":     "Stop mirroring of topics (failover): they become writable. Needs --mirror and --topics.",
		"delete":   "Delete a mirror all of whose topics are stopped. Needs --mirror.",
		"pause":    "Pause mirroring of topics. Needs --mirror and --topics.",
		"resume":   "Resume paused topics. Needs --mirror and --topics.",
		"recover":  "Put failed partitions back to their previous state. Needs --mirror and --topics.",
		"list":     "List all mirrors.",
		"describe": "Describe mirror partitions with lag and state. --mirror filters.",
	} {
		t.actions[name] = f.Bool(name, false, help)
	}
	t.mirror = f.text("mirror", "mirror name", "The mirror. Required for all actions but --list and --describe.")
	t.mirrorConfig = f.text("mirror-config", "property file", "Settings of the source cluster. Required for --create. With --start they are put over the stored settings, which give out no passwords.")
	t.topics = f.text("topics", "names or regex", "Comma separated list of topic names or regular expressions, such as my-topic,orders-.*,payments. Required for --start, --stop, --pause, --resume and --recover.")
	t.exclude = f.text("exclude", "names or regex", "Comma separated list of topic names or regular expressions that are not mirrored. Only with --start.")
	t.asJSON = f.Bool("json", false, "Print JSON. Only with --describe.")
	t.failed = f.Bool("failed", false, "Show failed partitions only, with retry counter and error. Only with --describe.")
	t.dryRun = f.Bool("dry-run", false, "Change nothing; print per partition what would be cut (--start), or what is not mirrored yet (--stop).")
	t.waits = f.Bool("wait", false, "Wait until every partition is STOPPED (--stop) or MIRRORING (--start), and print progress on the error stream.")
	return t
}

func (t *mirrorsTool) main(ctx context.Context, args []string) int {
	if err := t.parse(args); err != nil {
		return t.finish(err, t.Streams)
	}
	if t.infoOnly(t.Streams) {
		return 0
	}
	a, err := t.check()
	if err != nil {
		return t.finish(err, t.Streams)
	}
	cl, err := connect(*t.bootstrap, *t.commandConfig)
	if err != nil {
		return t.finish(err, t.Streams)
	}
	defer cl.Close()
	t.client = client.Wrap(cl)
	return t.finish(a.run(t, ctx), t.Streams)
}

// check finds the action and refuses a command line that isn't one (cli.md,
// Exit codes and messages).
func (t *mirrorsTool) check() (action, error) {
	var a action
	n := 0
	for _, candidate := range mirrorActions() {
		if *t.actions[candidate.name] {
			a = candidate
			n++
		}
	}
	switch {
	case n != 1:
		return a, &usageError{oneAction, true}
	case *t.bootstrap == "":
		return a, usagef("--bootstrap-server must be specified")
	case *t.mirror == "" && !a.noMirror:
		return a, usagef("--mirror must be specified")
	case *t.mirrorConfig == "" && a.name == "create":
		return a, usagef("--mirror-config must be specified when creating a mirror")
	case len(messages.ParseList(*t.topics)) == 0 && a.topicsVerb != "":
		return a, usagef("--topics must be specified when %s mirror topic(s)", a.topicsVerb)
	case *t.exclude != "" && a.name != "start":
		return a, usagef("--exclude is only valid with --start")
	case *t.asJSON && a.name != "describe":
		return a, usagef("--json is only supported for describing mirrors")
	case *t.failed && a.name != "describe":
		return a, usagef("--failed is only supported for describing mirrors")
	case *t.dryRun && a.name != "start" && a.name != "stop":
		return a, usagef("--dry-run is only valid with --start and --stop")
	case *t.waits && (*t.dryRun || a.name != "start" && a.name != "stop"):
		return a, usagef("--wait is only valid with --start and --stop, without --dry-run")
	}
	return a, nil
}

func (t *mirrorsTool) create(ctx context.Context) error {
	props, err := loadProperties(*t.mirrorConfig)
	if err != nil {
		return err
	}
	configs := make(map[string]*string, len(props))
	for k, v := range props {
		configs[k] = &v
	}
	if err := t.client.CreateClusterMirror(ctx, *t.mirror, configs); err != nil {
		return err
	}
	t.outf("Created mirror %s\n", *t.mirror)
	return nil
}

func (t *mirrorsTool) delete(ctx context.Context) error {
	if err := t.client.DeleteClusterMirror(ctx, *t.mirror); err != nil {
		return err
	}
	t.outf("Deleted mirror %s\n", *t.mirror)
	return nil
}

// mirrorTopics lists the topics of the mirror on the destination that match
// --topics, by name: those that describe shows, and those whose config says so.
// In a disaster a partition may have no state to show, and must be stopped all
// the same.
func (t *mirrorsTool) mirrorTopics(ctx context.Context) ([]string, *client.DescribedMirror, error) {
	patterns, err := messages.CompilePatterns(messages.ParseList(*t.topics))
	if err != nil {
		return nil, nil, err
	}
	d, err := t.client.DescribeClusterMirrors(ctx, []string{*t.mirror}, client.DescribeOptions{})
	if err != nil {
		return nil, nil, err
	}
	m := d.Mirrors[*t.mirror]
	if m == nil {
		m = &client.DescribedMirror{Name: *t.mirror}
	}
	if m.Err != nil {
		return nil, nil, t.named(m.Err)
	}
	topics := map[string]struct{}{}
	for _, p := range m.Partitions {
		topics[p.Topic] = struct{}{}
	}
	members, err := t.client.MirrorTopics(ctx)
	if err != nil {
		t.errf("Warning: topics that have no state yet may be missing: %v\n", err)
	}
	for topic, member := range members {
		if member.Mirror == *t.mirror {
			topics[topic] = struct{}{}
		}
	}
	maps.DeleteFunc(topics, func(topic string, _ struct{}) bool { return !patterns.Match(topic) })
	return slices.Sorted(maps.Keys(topics)), m, nil
}

func (t *mirrorsTool) stop(ctx context.Context) error {
	topics, m, err := t.mirrorTopics(ctx)
	if err != nil {
		return err
	}
	if *t.dryRun {
		return t.dryRunStop(ctx, topics, m)
	}
	results, err := t.client.StopMirrorTopics(ctx, *t.mirror, topics, messages.ParseList(*t.topics)...)
	if err != nil {
		return err
	}
	if len(topics) == 0 {
		t.outf("No matching topics found in mirror %s. Patterns moved to its exclude list.\n", *t.mirror)
		return nil
	}
	return t.reported(ctx, results, "Stopped mirroring for %d topic(s) in mirror %s: [%s]\n", messages.StateStopped)
}

func (t *mirrorsTool) pause(ctx context.Context) error {
	return t.steer(ctx, t.client.PauseMirrorTopics, "Paused mirroring for %d topic(s) in mirror %s: [%s]\n")
}

func (t *mirrorsTool) resume(ctx context.Context) error {
	return t.steer(ctx, t.client.ResumeMirrorTopics, "Resumed mirroring for %d topic(s) in mirror %s: [%s]\n")
}

func (t *mirrorsTool) recover(ctx context.Context) error {
	return t.steer(ctx, t.client.RecoverMirrorTopics, "Recovered mirroring for %d topic(s) in mirror %s: [%s]\n")
}

func (t *mirrorsTool) steer(ctx context.Context, send func(context.Context, string, []string) (client.TopicResults, error), format string) error {
	topics, _, err := t.mirrorTopics(ctx)
	if err != nil {
		return err
	}
	if len(topics) == 0 {
		return fmt.Errorf("No matching topics found in mirror %s", *t.mirror) //nolint:staticcheck // the text is fixed by cli.md
	}
	results, err := send(ctx, *t.mirror, topics)
	if err != nil {
		return err
	}
	return t.report(results, format)
}

// report prints the line for the topics that worked, and one line per topic
// that didn't on the error stream.
func (t *mirrorsTool) report(results client.TopicResults, format string) error {
	if ok := results.Accepted(); len(ok) > 0 {
		t.outf(format, len(ok), *t.mirror, strings.Join(ok, ", "))
	}
	failed := results.Failed()
	for _, r := range failed {
		t.errf("%s: %s\n", r.Topic, r.Err)
	}
	if len(failed) > 0 {
		return errPrinted
	}
	return nil
}

// reported is report and, with --wait, the wait for what was accepted.
func (t *mirrorsTool) reported(ctx context.Context, results client.TopicResults, format string, state messages.State) error {
	err := t.report(results, format)
	if accepted := results.Accepted(); *t.waits && len(accepted) > 0 {
		if werr := t.wait(ctx, accepted, state); werr != nil {
			return werr
		}
	}
	return err
}

func (t *mirrorsTool) list(ctx context.Context) error {
	mirrors, err := t.client.ListClusterMirrors(ctx)
	if err != nil {
		return err
	}
	if len(mirrors) == 0 {
		t.outln("No mirrors found")
		return nil
	}
	columns := []column{{title: "MIRROR", width: 30}, {title: "TOPICS", width: 10}, {title: "CLUSTER-ID", width: 26}, {title: "BOOTSTRAP-SERVER", width: 50}}
	printHeader(t.Out, columns)
	for _, m := range mirrors {
		printRow(t.Out, columns, m.Name, fmt.Sprint(m.TopicCount), m.SourceClusterID, m.SourceBootstrap)
	}
	return nil
}

// notFound is what start says of a mirror that doesn't exist.
func (t *mirrorsTool) notFound() error {
	return fmt.Errorf("Mirror '%s' not found or has no configuration", *t.mirror) //nolint:staticcheck // the text is fixed by cli.md
}

// named adds the mirror to an error that doesn't name it.
func (t *mirrorsTool) named(err error) error {
	if err == nil || strings.Contains(err.Error(), *t.mirror) {
		return err
	}
	if unknownMirror(err) {
		return fmt.Errorf("mirror %s: %w --list shows those that do", *t.mirror, err)
	}
	return fmt.Errorf("mirror %s: %w", *t.mirror, err)
}

// unknownMirror reports the refusal for a mirror that doesn't exist.
func unknownMirror(err error) bool { return errors.Is(err, messages.ErrUnknownMirror) }
