package actors

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// world is an image under commands, with ids that count up.
type world struct {
	t   *testing.T
	img *metadata.Image
	env controllerEnv
	ids byte
}

func newWorld(t *testing.T, nodes ...messages.NodeID) *world {
	t.Helper()
	if len(nodes) == 0 {
		nodes = []messages.NodeID{1}
	}
	w := &world{t: t, img: metadata.EmptyImage(), env: controllerEnv{node: nodes[0], live: nodes}}
	w.env.newID = func() messages.TopicID { w.ids++; return messages.TopicID{15: w.ids} }
	w.apply(claimRecords(w.img, nodes[0], "cluster-a", 1))
	for _, n := range nodes {
		w.ok(messages.RegisterNode{Node: messages.Node{ID: n, Endpoints: []messages.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "h", Port: 9094}}}})
	}
	return w
}

func (w *world) apply(records []metadata.Record) {
	w.t.Helper()
	if len(records) == 0 {
		return
	}
	d, err := w.img.Apply(w.img.Offset()+1, records)
	if err != nil {
		w.t.Fatalf("records don't fit the image: %v", err)
	}
	w.img = d.New
}

// do decides a command and applies its records.
func (w *world) do(cmd messages.Command) messages.Outcome {
	w.t.Helper()
	d := decide(w.img, cmd, w.env)
	if d.outcome.Err != nil && len(d.records) > 0 {
		w.t.Fatalf("%T is refused and has records", cmd)
	}
	w.apply(d.records)
	return d.outcome
}

// ok is do for a command that must succeed in every item.
func (w *world) ok(cmd messages.Command) messages.Outcome {
	w.t.Helper()
	out := w.do(cmd)
	if out.Err != nil {
		w.t.Fatalf("%T: %v", cmd, out.Err)
	}
	for _, i := range out.Items {
		if i.Err != nil {
			w.t.Fatalf("%T: %s: %v", cmd, i.Name, i.Err)
		}
	}
	return out
}

func (w *world) topicConfig(topic, key string) string {
	w.t.Helper()
	t := w.img.Topic(topic)
	if t == nil {
		w.t.Fatalf("no topic %s", topic)
	}
	return t.Configs[key]
}

func (w *world) createMirror(name string) {
	w.t.Helper()
	w.ok(messages.CreateMirror{Name: name, Configs: set("bootstrap.servers", "h:9092")})
}

// start starts topics of one partition each, made on the way.
func (w *world) start(mirror string, topics ...string) {
	w.t.Helper()
	w.ok(messages.StartMirrorTopics{Mirror: mirror, Topics: named(1, topics...)})
}

func named(partitions int32, names ...string) []messages.MirrorTopic {
	out := make([]messages.MirrorTopic, len(names))
	for i, n := range names {
		out[i] = messages.MirrorTopic{Name: n, NumPartitions: partitions}
	}
	return out
}

// set makes changes from key, value pairs.
func set(kv ...string) []messages.ConfigChange {
	var out []messages.ConfigChange
	for i := 0; i < len(kv); i += 2 {
		out = append(out, messages.ConfigChange{Name: kv[i], Op: messages.ConfigSet, Value: &kv[i+1]})
	}
	return out
}

func alter(typ messages.ResourceType, name string, changes ...messages.ConfigChange) messages.AlterConfigs {
	return messages.AlterConfigs{Resources: []messages.ResourceChange{{Type: typ, Name: name, Changes: changes}}}
}

// wantItems compares the items' errors with sentinels, nil = success.
func wantItems(t *testing.T, out messages.Outcome, want ...error) {
	t.Helper()
	if out.Err != nil || len(out.Items) != len(want) {
		t.Fatalf("%d items and error %v, want %d items", len(out.Items), out.Err, len(want))
	}
	for i, w := range want {
		if err := out.Items[i].Err; !errors.Is(err, w) || (w == nil) != (err == nil) {
			t.Errorf("item %d (%s): %v, want %v", i, out.Items[i].Name, err, w)
		}
	}
}

func TestD54NewClusterCreatesMirrors(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	if w.img.ClusterID() != "cluster-a" || w.img.MirrorVersion() != 1 || w.img.Controller() != 1 || w.img.ControllerEpoch() != 1 {
		t.Fatalf("cluster %q, mirror.version %d, controller %d", w.img.ClusterID(), w.img.MirrorVersion(), w.img.Controller())
	}
	again := claimRecords(w.img, 1, "other", w.img.ControllerEpoch()+1)
	if len(again) != 1 || again[0].(*wire.ControllerClaimRecord).Epoch != 2 {
		t.Fatalf("second claim: %v", again)
	}
}

func TestCreateMirrorMakesTheStateTopic(t *testing.T) {
	for _, nodes := range [][]messages.NodeID{{1}, {1, 2}, {1, 2, 3, 4}} {
		w := newWorld(t, nodes...)
		w.createMirror("m")
		s := w.img.Topic(messages.MirrorStateTopic)
		if s == nil || len(s.Partitions) != 50 || len(s.Partitions[0].Replicas) != min(3, len(nodes)) {
			t.Fatalf("%d nodes: %+v", len(nodes), s)
		}
		want := map[string]string{"cleanup.policy": "compact", "compression.type": "producer", "retention.ms": "-1", "max.message.bytes": "16777216"}
		if !maps.Equal(s.Configs, want) {
			t.Fatalf("configs %v", s.Configs)
		}
	}
	w := newWorld(t)
	w.env.live = nil // no node can take it: the mirror exists all the same
	w.createMirror("m")
	if w.img.Mirror("m") == nil || w.img.Topic(messages.MirrorStateTopic) != nil {
		t.Fatal("mirror without state topic expected")
	}
	w.env.live = []messages.NodeID{1}
	w.ok(messages.CreateTopics{Topics: []messages.NewTopic{{Name: messages.MirrorStateTopic, Partitions: 3, ReplicationFactor: -1}}})
	if len(w.img.Topic(messages.MirrorStateTopic).Partitions) != 50 {
		t.Fatal("the retry must use the cluster's own settings")
	}
}

func TestD14InvalidMirrorNames(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a.stopped", "a.paused", "", strings.Repeat("a", 250), "a/b", ".", ".."} {
		out := w.do(messages.CreateMirror{Name: name, Configs: set("bootstrap.servers", "h:1")})
		if !errors.Is(out.Err, messages.ErrInvalidMirrorName) {
			t.Errorf("%q: %v", name, out.Err)
		}
	}
	w.createMirror(strings.Repeat("a", 249))
}

func TestD15MirrorExists(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	if out := w.do(messages.CreateMirror{Name: "m", Configs: set("bootstrap.servers", "h:1")}); !errors.Is(out.Err, messages.ErrMirrorExists) {
		t.Fatal(out.Err)
	}
}

func TestCreateMirrorConfigs(t *testing.T) {
	tests := []struct {
		name    string
		configs []messages.ConfigChange
		fault   string // "" = accepted
	}{
		{"bootstrap missing", nil, "bootstrap.servers"},
		{"bootstrap empty", set("bootstrap.servers", ""), "bootstrap.servers"},
		{"unknown key", set("bootstrap.servers", "h:1", "nope", "1"), `"nope"`},
		{"bad value", set("bootstrap.servers", "h:1", "security.protocol", "TLS"), "security.protocol"},
		{"all faults at once", set("bootstrap.servers", "h", "mirror.topics.include", "("), "mirror.topics.include"},
		{"read-only key", set("bootstrap.servers", "h:1", "mirror.source.cluster.id", "x"), "mirror.source.cluster.id"},
		{"BKS", set("bootstrap.servers", "h:1", "ssl.truststore.type", "BKS"), "ssl.truststore.type"},
		{"default store type with texts", set("bootstrap.servers", "h:1", "security.protocol", "SSL", "ssl.truststore.certificates", "x"), "PEM"},
		{"SASL without login", set("bootstrap.servers", "h:1", "security.protocol", "SASL_SSL"), "sasl.jaas.config"},
		{"twice", set("bootstrap.servers", "h:1", "bootstrap.servers", "h:2"), "named twice"},
		{"null is the default", append(set("bootstrap.servers", "h:1"), messages.ConfigChange{Name: "security.protocol"}), ""},
		{"null for an unknown key", append(set("bootstrap.servers", "h:1"), messages.ConfigChange{Name: "nope"}), `"nope"`},
		{"fine", set("bootstrap.servers", "h:1,h:2", "mirror.topics.include", "a.*"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			out := w.do(messages.CreateMirror{Name: "m", Configs: tt.configs})
			switch {
			case tt.fault == "":
				if out.Err != nil || w.img.Mirror("m") == nil {
					t.Fatalf("got %v", out.Err)
				}
				if _, set := w.img.Mirror("m").Configs["security.protocol"]; set {
					t.Fatal("a null value is stored")
				}
			case !errors.Is(out.Err, messages.ErrInvalidConfig) || !strings.Contains(out.Err.Error(), tt.fault):
				t.Fatalf("got %v, want %q", out.Err, tt.fault)
			case w.img.Mirror("m") != nil:
				t.Fatal("refused, yet created")
			}
		})
	}
}

func TestStartCreatesTopics(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	id := messages.TopicID{7}
	out := w.ok(messages.StartMirrorTopics{Mirror: "m", Topics: []messages.MirrorTopic{{Name: "a", ID: id, NumPartitions: 3}, {Name: "b", NumPartitions: 1}}})
	a, b := w.img.Topic("a"), w.img.Topic("b")
	if a.ID != id || len(a.Partitions) != 3 || a.Partitions[2].LeaderEpoch != 0 || a.Partitions[2].Leader != 1 ||
		!maps.Equal(a.Configs, map[string]string{"mirror.name": "m"}) || a.Desired != messages.DesiredActive {
		t.Fatalf("a %+v", a)
	}
	if b.ID.IsZero() || len(b.Partitions) != 1 || out.Items[0].TopicID != id || out.Items[0].Partitions != 3 {
		t.Fatalf("b %+v, items %+v", b, out.Items)
	}
}

func TestStartRefusals(t *testing.T) {
	tests := []struct {
		name string
		prep func(*world)
		ask  messages.MirrorTopic
		want error
		text string
	}{
		{"new", nil, messages.MirrorTopic{Name: "n", NumPartitions: 1}, nil, ""},
		{"no count", nil, messages.MirrorTopic{Name: "n"}, messages.ErrUnknownTopicOrPartition, ""},
		{"negative count", nil, messages.MirrorTopic{Name: "n", NumPartitions: -1}, messages.ErrUnknownTopicOrPartition, ""},
		{"active", func(w *world) { w.start("m", "t") }, messages.MirrorTopic{Name: "t", NumPartitions: 1}, messages.ErrTopicInMirror, ""},
		{"D11 active in another mirror", func(w *world) { w.start("m2", "t") }, messages.MirrorTopic{Name: "t", NumPartitions: 1}, messages.ErrTopicInMirror, "m2"},
		{
			"paused", func(w *world) {
				w.start("m", "t")
				w.ok(messages.PauseMirrorTopics{Mirror: "m", Topics: named(0, "t")})
			}, messages.MirrorTopic{Name: "t", NumPartitions: 1}, messages.ErrTopicInMirror, "",
		},
		{
			"stopped in the same mirror", func(w *world) {
				w.start("m", "t")
				w.ok(messages.StopMirrorTopics{Mirror: "m", Topics: named(0, "t")})
			}, messages.MirrorTopic{Name: "t", NumPartitions: 1}, nil, "",
		},
		{
			"D11 stopped in another mirror", func(w *world) {
				w.start("m2", "t")
				w.ok(messages.StopMirrorTopics{Mirror: "m2", Topics: named(0, "t")})
			}, messages.MirrorTopic{Name: "t", NumPartitions: 1}, nil, "",
		},
		{"ordinary topic", func(w *world) { w.topic("t", 1) }, messages.MirrorTopic{Name: "t", NumPartitions: 2}, nil, ""},
		{"ordinary topic, count not known", func(w *world) { w.topic("t", 1) }, messages.MirrorTopic{Name: "t"}, nil, ""},
		{"other id", func(w *world) { w.topic("t", 1) }, messages.MirrorTopic{Name: "t", ID: messages.TopicID{9}, NumPartitions: 1}, messages.ErrInconsistentTopicID, "delete the topic"},
		{"OP-41 more partitions here", func(w *world) { w.topic("t", 3) }, messages.MirrorTopic{Name: "t", NumPartitions: 2}, messages.ErrInvalidRequest, "3 partitions here and 2"},
		{"id used by another topic", func(w *world) { w.topic("t", 1) }, messages.MirrorTopic{Name: "n", ID: messages.TopicID{200}, NumPartitions: 1}, messages.ErrTopicExists, "topic t"},
		{"internal", nil, messages.MirrorTopic{Name: "__consumer_offsets", NumPartitions: 1}, messages.ErrInvalidRequest, "internal"},
		{"OP-16 default exclude", nil, messages.MirrorTopic{Name: "__x", NumPartitions: 1}, messages.ErrInvalidRequest, `"__.*"`},
		{"no node for it", func(w *world) { w.env.live = nil }, messages.MirrorTopic{Name: "n", NumPartitions: 1}, messages.ErrInvalidReplication, ""},
		{"bad name", nil, messages.MirrorTopic{Name: "a/b", NumPartitions: 1}, messages.ErrInvalidTopic, ""},
		{"C27 names that a client's topics may not have side by side", func(w *world) { w.topic("a.b", 1) }, messages.MirrorTopic{Name: "a_b", NumPartitions: 1}, nil, ""},
		{"too many partitions", nil, messages.MirrorTopic{Name: "n", NumPartitions: math.MaxInt32}, messages.ErrInvalidPartitions, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.createMirror("m")
			w.createMirror("m2")
			if tt.prep != nil {
				tt.prep(w)
			}
			before := w.img.Offset()
			out := w.do(messages.StartMirrorTopics{Mirror: "m", Topics: []messages.MirrorTopic{tt.ask}})
			wantItems(t, out, tt.want)
			if tt.want != nil {
				if w.img.Offset() != before {
					t.Fatal("refused, yet something was written")
				}
				if !strings.Contains(out.Items[0].Err.Error(), tt.text) {
					t.Fatalf("text %q, want %q in it", out.Items[0].Err, tt.text)
				}
				return
			}
			if got := w.topicConfig(tt.ask.Name, "mirror.name"); got != "m" {
				t.Fatalf("mirror.name %q", got)
			}
		})
	}
}

// topic makes an ordinary topic with the id 200.
func (w *world) topic(name string, partitions int32) {
	w.t.Helper()
	w.ok(messages.CreateTopics{Topics: []messages.NewTopic{{Name: name, ID: messages.TopicID{200}, Partitions: partitions, ReplicationFactor: 1}}})
}

func TestStartIsPerTopicAndAtomic(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.start("m", "busy")
	out := w.do(messages.StartMirrorTopics{Mirror: "m", Topics: append(named(1, "a", "busy", "b", "a"), messages.MirrorTopic{Name: "none"})})
	wantItems(t, out, nil, messages.ErrTopicInMirror, nil, messages.ErrInvalidRequest, messages.ErrUnknownTopicOrPartition)
	if w.topicConfig("a", "mirror.name") != "m" || w.topicConfig("b", "mirror.name") != "m" {
		t.Fatal("the others must go on (OP-33)")
	}
}

func TestRequestLevelRefusals(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	half := strings.Repeat("a", 16<<10)
	tests := []struct {
		name string
		cmd  messages.Command
		want error
	}{
		{"start unknown", messages.StartMirrorTopics{Mirror: "x"}, messages.ErrUnknownMirror},
		{"stop unknown", messages.StopMirrorTopics{Mirror: "x"}, messages.ErrUnknownMirror},
		{"pause unknown", messages.PauseMirrorTopics{Mirror: "x"}, messages.ErrUnknownMirror},
		{"resume unknown", messages.ResumeMirrorTopics{Mirror: "x"}, messages.ErrUnknownMirror},
		{"delete unknown", messages.DeleteMirror{Name: "x"}, messages.ErrUnknownMirror},
		{"start bad include", messages.StartMirrorTopics{Mirror: "m", Include: []string{"("}}, messages.ErrInvalidRegex},
		{"start bad exclude", messages.StartMirrorTopics{Mirror: "m", Exclude: []string{"*"}}, messages.ErrInvalidRegex},
		{"start comma", messages.StartMirrorTopics{Mirror: "m", Include: []string{"a,b"}}, messages.ErrInvalidRegex},
		{"stop bad", messages.StopMirrorTopics{Mirror: "m", Patterns: []string{"["}}, messages.ErrInvalidRegex},
		{"patterns too long", messages.StartMirrorTopics{Mirror: "m", Include: []string{half, half + "b"}}, messages.ErrInvalidConfig},
		{"list too long", messages.StartMirrorTopics{Mirror: "m", Include: []string{half, half[1:] + "b"}}, messages.ErrInvalidConfig},
	}
	for _, tt := range tests {
		before := w.img.Offset()
		if out := w.do(tt.cmd); !errors.Is(out.Err, tt.want) || w.img.Offset() != before {
			t.Errorf("%s: %v, want %v", tt.name, out.Err, tt.want)
		}
	}
}

func TestD36MirroringOff(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	off := wire.NewPtrFeatureLevelRecord()
	off.Name = metadata.MirrorVersionFeature
	w.apply([]metadata.Record{off})
	for _, cmd := range []messages.Command{
		messages.CreateMirror{Name: "n"}, messages.DeleteMirror{Name: "m"}, messages.StartMirrorTopics{Mirror: "m"},
		messages.StopMirrorTopics{Mirror: "m"}, messages.PauseMirrorTopics{Mirror: "m"}, messages.ResumeMirrorTopics{Mirror: "m"},
		messages.BumpLeaderEpochs{},
	} {
		if out := w.do(cmd); !errors.Is(out.Err, messages.ErrUnsupportedVersion) {
			t.Errorf("%T: %v", cmd, out.Err)
		}
	}
	wantItems(t, w.do(alter(messages.ResourceClusterMirror, "m", set("bootstrap.servers", "h:2")...)), messages.ErrUnsupportedVersion)
	w.topic("ordinary", 1)
}

// TestGroupConfigs: groups have configs before they exist; keys and values are checked.
func TestGroupConfigs(t *testing.T) {
	w := newWorld(t)
	wantItems(t, w.do(alter(messages.ResourceGroup, "g", set("consumer.session.timeout.ms", "50000")...)), nil)
	if got := w.img.GroupConfigs()["g"]["consumer.session.timeout.ms"]; got != "50000" {
		t.Fatalf("%q", got)
	}
	wantItems(t, w.do(alter(messages.ResourceGroup, "g", set("consumer.session.timeout.ms", "0")...)), messages.ErrInvalidConfig)
	wantItems(t, w.do(alter(messages.ResourceGroup, "g", set("retention.ms", "1")...)), messages.ErrInvalidConfig)
	wantItems(t, w.do(alter(messages.ResourceGroup, "", set("consumer.session.timeout.ms", "50000")...)), messages.ErrInvalidRequest)
}

func TestD38D39Patterns(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	lists := func() string {
		c := w.img.Mirror("m").Configs
		return fmt.Sprintf("%s | %s", c["mirror.topics.include"], c["mirror.topics.exclude"])
	}
	// D38: two lists, the excluded topic isn't mirrored though it is named.
	out := w.do(messages.StartMirrorTopics{
		Mirror: "m", Topics: named(1, "orders-eu", "orders-internal"), Include: []string{"orders-.*"}, Exclude: []string{"orders-internal"},
	})
	wantItems(t, out, nil, messages.ErrInvalidRequest)
	if got := lists(); got != "orders-.* | __.*,orders-internal" {
		t.Fatalf("lists %s", got)
	}
	if w.img.Topic("orders-internal") != nil {
		t.Fatal("excluded topic was created")
	}
	// D39: stop .* moves it to exclude and stops what matches.
	w.start("m", "x")
	w.ok(messages.StopMirrorTopics{Mirror: "m", Patterns: []string{".*"}})
	if got := lists(); got != "orders-.* | __.*,orders-internal,.*" {
		t.Fatalf("lists %s", got)
	}
	for _, topic := range []string{"orders-eu", "x"} {
		if got := w.topicConfig(topic, "mirror.name"); got != "m.stopped" {
			t.Fatalf("%s: %q", topic, got)
		}
	}
	// OP-16: a narrower start is still excluded, with a text that names the entry.
	out = w.do(messages.StartMirrorTopics{Mirror: "m", Topics: named(1, "x"), Include: []string{"x"}})
	wantItems(t, out, messages.ErrInvalidRequest)
	if !strings.Contains(out.Items[0].Err.Error(), `".*"`) {
		t.Fatal(out.Items[0].Err)
	}
	// start .* moves it back.
	w.ok(messages.StartMirrorTopics{Mirror: "m", Topics: named(1, "x", "orders-eu"), Include: []string{".*"}})
	if got := lists(); got != "orders-.*,x,.* | __.*,orders-internal" {
		t.Fatalf("lists %s", got)
	}
	// Active topics that match a new exclude entry are stopped in the same batch.
	w.ok(messages.StartMirrorTopics{Mirror: "m", Exclude: []string{"x"}})
	if got := w.topicConfig("x", "mirror.name"); got != "m.stopped" {
		t.Fatalf("x: %q", got)
	}
	// Patterns that match nothing yet are stored.
	before := w.img.Offset()
	w.ok(messages.StartMirrorTopics{Mirror: "m", Include: []string{"later-.*"}})
	if w.img.Offset() != before+1 {
		t.Fatal("want one record")
	}
	// Requests without patterns, as of discovery, edit nothing.
	before = w.img.Offset()
	w.ok(messages.StopMirrorTopics{Mirror: "m", Topics: named(0, "x")})
	if w.img.Offset() != before {
		t.Fatal("nothing to do, yet something was written")
	}
}

func TestD7D9D10PauseResumeStop(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.createMirror("other")
	w.start("m", "t", "s")
	w.start("other", "o")
	w.topic("plain", 1)
	w.ok(messages.StopMirrorTopics{Mirror: "m", Topics: named(0, "s")})
	pause := func(topics ...string) messages.Outcome {
		return w.do(messages.PauseMirrorTopics{Mirror: "m", Topics: named(0, topics...)})
	}
	resume := func(topics ...string) messages.Outcome {
		return w.do(messages.ResumeMirrorTopics{Mirror: "m", Topics: named(0, topics...)})
	}
	stop := func(topics ...string) messages.Outcome {
		return w.do(messages.StopMirrorTopics{Mirror: "m", Topics: named(0, topics...)})
	}
	absent := []error{messages.ErrUnknownTopicOrPartition, messages.ErrUnknownMirror, messages.ErrTopicNotInMirror}
	for name, f := range map[string]func(...string) messages.Outcome{"pause": pause, "resume": resume, "stop": stop} {
		t.Run(name+" of no member", func(t *testing.T) { wantItems(t, f("none", "plain", "o"), absent...) })
	}
	wantItems(t, resume("t"), messages.ErrNotPaused) // D9
	wantItems(t, pause("t", "t"), nil, messages.ErrAlreadyPaused)
	wantItems(t, pause("t"), messages.ErrAlreadyPaused) // D7
	if got := w.topicConfig("t", "mirror.name"); got != "m.paused" {
		t.Fatalf("paused: %q", got)
	}
	wantItems(t, resume("t"), nil)
	wantItems(t, pause("s"), messages.ErrBeingStopped) // D10
	wantItems(t, resume("s"), messages.ErrNotPaused)
	before := w.img.Offset()
	wantItems(t, stop("s"), nil)
	if w.img.Offset() != before {
		t.Fatal("stop of a stopped topic wrote something")
	}
	wantItems(t, pause("t"), nil)
	wantItems(t, stop("t"), nil) // replaces .paused
	if got := w.topicConfig("t", "mirror.name"); got != "m.stopped" {
		t.Fatalf("stopped: %q", got)
	}
	ask := []messages.MirrorTopic{{Name: "t", ID: messages.TopicID{99}}}
	wantItems(t, w.do(messages.PauseMirrorTopics{Mirror: "m", Topics: ask}), messages.ErrInconsistentTopicID)
	wantItems(t, w.do(messages.StopMirrorTopics{Mirror: "m", Topics: ask}), messages.ErrInconsistentTopicID)
}

func TestD12D13DeleteMirror(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.start("m", "a", "b")
	internal := alter(messages.ResourceTopic, "a", set("retention.ms", "5")...)
	internal.Internal = true
	w.ok(internal)
	if out := w.do(messages.DeleteMirror{Name: "m"}); !errors.Is(out.Err, messages.ErrMirrorNotEmpty) {
		t.Fatalf("D12: %v", out.Err)
	}
	w.ok(messages.StopMirrorTopics{Mirror: "m", Topics: named(0, "a")})
	w.ok(messages.PauseMirrorTopics{Mirror: "m", Topics: named(0, "b")})
	if out := w.do(messages.DeleteMirror{Name: "m"}); !errors.Is(out.Err, messages.ErrMirrorNotEmpty) {
		t.Fatalf("paused topic: %v", out.Err)
	}
	w.ok(messages.StopMirrorTopics{Mirror: "m", Topics: named(0, "b")})
	w.ok(messages.DeleteMirror{Name: "m"})
	if w.img.Mirror("m") != nil || len(w.img.TopicsOfMirror("m")) != 0 {
		t.Fatal("D13: mirror or membership is left")
	}
	if !maps.Equal(w.img.Topic("a").Configs, map[string]string{"retention.ms": "5"}) {
		t.Fatalf("configs of a: %v", w.img.Topic("a").Configs)
	}
	w.createMirror("m") // the name is free again
}

func TestD43TopicsOfMirrorCountsEveryWish(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.start("m", "a", "p", "s")
	w.ok(messages.PauseMirrorTopics{Mirror: "m", Topics: named(0, "p")})
	w.ok(messages.StopMirrorTopics{Mirror: "m", Topics: named(0, "s")})
	if n := len(w.img.TopicsOfMirror("m")); n != 3 {
		t.Fatalf("%d topics, want 3", n)
	}
}

func TestD23MirrorNameIsNotForClients(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.start("m", "t")
	for name, cmd := range map[string]messages.AlterConfigs{
		"set":           alter(messages.ResourceTopic, "t", set("mirror.name", "x")...),
		"delete":        alter(messages.ResourceTopic, "t", messages.ConfigChange{Name: "mirror.name", Op: messages.ConfigDelete}),
		"append":        alter(messages.ResourceTopic, "t", messages.ConfigChange{Name: "mirror.name", Op: messages.ConfigAppend, Value: new("x")}),
		"by the node":   {Internal: true, Resources: alter(messages.ResourceTopic, "t", set("mirror.name", "x")...).Resources},
		"replace":       {Replace: true, Resources: alter(messages.ResourceTopic, "t", set("mirror.name", "x")...).Resources},
		"copied list":   alter(messages.ResourceTopic, "t", set(configs.MirrorCopiedConfigs, "x")...),
		"validate only": {ValidateOnly: true, Resources: alter(messages.ResourceTopic, "t", set("mirror.name", "x")...).Resources},
	} {
		before := w.img.Offset()
		wantItems(t, w.do(cmd), messages.ErrInvalidConfig)
		if w.img.Offset() != before {
			t.Errorf("%s: something was written", name)
		}
	}
	out := w.do(messages.CreateTopics{Topics: []messages.NewTopic{{Name: "n", Partitions: 1, ReplicationFactor: 1, Configs: map[string]*string{"mirror.name": new("m")}}}})
	wantItems(t, out, messages.ErrInvalidConfig)
	// A replacement of the full set leaves it alone.
	w.ok(messages.AlterConfigs{Replace: true, Resources: alter(messages.ResourceTopic, "t", set("retention.ms", "1")...).Resources})
	if got := w.topicConfig("t", "mirror.name"); got != "m" {
		t.Fatalf("mirror.name %q", got)
	}
}

func TestPlacementSpreadsAndMovesLittle(t *testing.T) {
	nodes := []messages.NodeID{1, 2, 3, 4}
	led, moved := map[messages.NodeID]int{}, 0
	for topic := range 100 {
		id := messages.TopicID{byte(topic), 15: byte(topic * 7)}
		for p := range int32(100) {
			r := place(id, p, nodes, 3)
			led[r[0]]++
			if len(r) != 3 || r[0] == r[1] || r[1] == r[2] || r[0] == r[2] {
				t.Fatalf("replicas %v", r)
			}
			without := place(id, p, nodes[:3], 3)
			if r[0] != 4 && without[0] != r[0] {
				moved++
			}
		}
	}
	for n, count := range led {
		if count < 2300 || count > 2700 {
			t.Errorf("node %d leads %d of 10,000", n, count)
		}
	}
	if moved != 0 {
		t.Errorf("%d leaders moved though their node stayed", moved)
	}
	if slices.Equal(place(messages.TopicID{1}, 0, nodes, 4), place(messages.TopicID{1}, 1, nodes, 4)) &&
		slices.Equal(place(messages.TopicID{1}, 1, nodes, 4), place(messages.TopicID{1}, 2, nodes, 4)) {
		t.Error("partitions of a topic have the same order")
	}
}
