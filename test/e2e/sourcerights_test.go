package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/test/kafka"
	"kagami/test/kafka/proc"
)

// rightsWorld is a mirror of a real Kafka with an authorizer, whose user has the rights of
// docs/security.md, each as an entry of its own.
type rightsWorld struct {
	*world
	value  int64               // of the last thing that was changed on the source
	acls   map[string]struct{} // entries about others that the source has
	shares bool                // the source knows share groups
}

const (
	rightsTopic  = "sr-t"
	rightsGroup  = "sr-g"
	rightsShares = "sr-s"
)

// mirrorRight is an entry of user mirror, for all topics of the test, or for one group.
func mirrorRight(kind kmsg.ACLResourceType, name string, op kmsg.ACLOperation) binding {
	b := binding{kind, kmsg.ACLResourcePatternTypeLiteral, name, "User:mirror", "*", op, kmsg.ACLPermissionTypeAllow}
	if kind == kmsg.ACLResourceTypeTopic {
		b.pattern = kmsg.ACLResourcePatternTypePrefixed
	}
	return b
}

func startRights(t *testing.T, version kafka.Version) *rightsWorld {
	t.Helper()
	kafka.Require(t, version)
	ports, err := proc.Ports(1)
	require.NoError(t, err)
	address := proc.Addr(ports[0])
	authorizer := standardAuthorizer
	if version == kafka.V28 {
		authorizer = "kafka.security.authorizer.AclAuthorizer"
	}
	set := map[string]string{
		"listener.security.protocol.map":              "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,USERS:SASL_PLAINTEXT",
		"listener.name.users.sasl.enabled.mechanisms": "PLAIN",
		"listener.name.users.plain.sasl.jaas.config":  `org.apache.kafka.common.security.plain.PlainLoginModule required user_mirror="mirror-4711";`,
		"authorizer.class.name":                       authorizer, "super.users": "User:ANONYMOUS",
	}
	source := kafka.Start(t, kafka.Options{Version: version, Listeners: []string{"USERS://" + address}, Properties: set})
	w := &rightsWorld{world: newWorldOf(t, source, NodeOptions{Properties: quickGroups(map[string]string{
		"mirror.metadata.refresh.interval.ms": "1000", "authorizer.class.name": standardAuthorizer, "super.users": "User:ANONYMOUS",
	})}), acls: map[string]struct{}{}, shares: version == kafka.V44}
	w.topic(rightsTopic, 1, 1)
	w.topic("sr-gone", 1, 1)
	w.load("sr-gone", Records{Count: 10})
	w.load(rightsTopic, Records{Count: 200}) // more than there will be values
	w.create("m", "bootstrap.servers="+address, "security.protocol=SASL_PLAINTEXT", "mirror.topics.include=sr-.*",
		`sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="mirror" password="mirror-4711";`)
	return w
}

func (w *rightsWorld) give(rights ...binding) {
	w.t.Helper()
	require.NoError(w.t, addACLs(w.ctx, w.a, rights...))
}

func (w *rightsWorld) take(rights ...binding) {
	w.t.Helper()
	for _, r := range rights {
		require.NoError(w.t, dropACL(w.ctx, w.a, r))
	}
	w.waitFor("the broker has heard of it", func() error {
		now, err := listACLs(w.ctx, w.a)
		for _, r := range rights {
			if err == nil && slices.Contains(now, r.String()) {
				err = fmt.Errorf("%s is still there", r)
			}
		}
		return err
	})
}

// parts are what a mirror copies: each changes something on the source, and the result says
// whether that has come.
func (w *rightsWorld) parts() map[string]func() func() error {
	out := map[string]func() func() error{
		"data": w.data, "configs": w.configs, "group": w.group, "ACLs": w.entries, "discovery": w.discovery,
	}
	if w.shares {
		out["share group"] = w.share
	}
	return out
}

func (w *rightsWorld) data() func() error {
	w.t.Helper()
	w.load(rightsTopic, Records{Count: 5})
	return func() error {
		want, err := w.a.TopicEnds(w.ctx, rightsTopic)
		if err != nil {
			return err
		}
		got, err := w.b.TopicEnds(w.ctx, rightsTopic)
		if err == nil && got[0] != want[0] {
			err = fmt.Errorf("%v, want %v", got[0], want[0])
		}
		return err
	}
}

func (w *rightsWorld) configs() func() error {
	w.t.Helper()
	w.value++
	want := strconv.FormatInt(3_600_000_000+w.value, 10)
	w.alterTopic(w.a, rightsTopic, map[string]*string{"retention.ms": &want})
	return func() error {
		got, err := overrides(w.ctx, w.b, rightsTopic)
		if err == nil && got["retention.ms"] != want {
			err = fmt.Errorf("%v, want %s", got, want)
		}
		return err
	}
}

func (w *rightsWorld) group() func() error {
	w.t.Helper()
	w.value++
	want := w.value
	var offsets kadm.Offsets
	offsets.AddOffset(rightsTopic, 0, want, -1)
	require.NoError(w.t, kafka.Poll(w.ctx, func() error { return w.a.Admin.CommitAllOffsets(w.ctx, rightsGroup, offsets) }))
	return func() error {
		got, err := committedOn(w.ctx, w.b, rightsGroup)
		if err == nil && got[rightsTopic+"-0"].At != want {
			err = fmt.Errorf("%v, want %d", got, want)
		}
		return err
	}
}

func (w *rightsWorld) share() func() error {
	w.t.Helper()
	w.value++
	want := w.value
	w.setShare(w.a, rightsShares, rightsTopic, want)
	return func() error {
		got, err := shareStarts(w.ctx, w.b, rightsShares)
		if err == nil && got[rightsTopic+"-0"] != want {
			err = fmt.Errorf("%v, want %d", got, want)
		}
		return err
	}
}

// entries adds an ACL about somebody else, and takes the one before away.
func (w *rightsWorld) entries() func() error {
	w.t.Helper()
	w.value++
	other := binding{kmsg.ACLResourceTypeTopic, kmsg.ACLResourcePatternTypeLiteral, "others", "User:other", fmt.Sprint("10.0.0.", w.value), kmsg.ACLOperationRead, kmsg.ACLPermissionTypeDeny}
	w.give(other)
	if w.value%2 == 0 {
		w.take(other)
	}
	return func() error { return sameACLs(w.ctx, w.a, w.b) }
}

func (w *rightsWorld) discovery() func() error {
	w.t.Helper()
	w.value++
	name := fmt.Sprint("sr-new-", w.value)
	w.topic(name, 1, 1)
	return func() error {
		_, err := w.b.Topic(w.ctx, name)
		return err
	}
}

// change changes every part but some; what comes back waits until all that has come.
func (w *rightsWorld) change(but ...string) (come func()) {
	w.t.Helper()
	waits := map[string]func() error{}
	for name, change := range w.parts() {
		if !slices.Contains(but, name) {
			waits[name] = change()
		}
	}
	return func() {
		w.t.Helper()
		for name, f := range waits {
			w.waitFor(name, f)
		}
	}
}

func (w *rightsWorld) waitFor(what string, f func() error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, convergeTimeout)
	defer cancel()
	require.NoError(w.t, kafka.Poll(ctx, f), what)
}

// told waits until the partition of a topic has the text as its error, "" for none.
func (w *rightsWorld) told(topic, want string) {
	w.t.Helper()
	w.waitFor(topic+" tells "+want, func() error {
		ps, err := Partitions(w.ctx, w.adm, "m")
		if err != nil {
			return err
		}
		for _, p := range ps {
			if p.Topic != topic {
				continue
			}
			if p.State == "STOPPED" || want == "" && p.ErrorText != "" || !strings.Contains(p.ErrorText, want) {
				return fmt.Errorf("%s: %q", p.State, p.ErrorText)
			}
			return nil
		}
		return errors.New("it isn't there")
	})
}

// counter is a counter of failed syncs.
func (w *rightsWorld) counter(of string) (int64, error) {
	text, err := w.node.Get(w.ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(text), "\nkafka_server_mirror_metadata_manager_"+of+"_sync_error_total ")
	if !ok {
		return 0, errors.New("no such counter: " + of)
	}
	first, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseInt(first, 10, 64)
}

// grows waits until a counter has grown from here on.
func (w *rightsWorld) grows(of string) {
	w.t.Helper()
	before, err := w.counter(of)
	require.NoError(w.t, err)
	w.waitFor(of, func() error {
		now, err := w.counter(of)
		if err == nil && now == before {
			err = fmt.Errorf("%d after %d", now, before)
		}
		return err
	})
}

// refreshed waits until two refreshes that ended from here on have had an answer.
func (w *rightsWorld) refreshed() {
	w.t.Helper()
	seen := map[string]struct{}{}
	w.waitFor("refreshes", func() error {
		rows, err := w.node.Query(w.ctx, "mirrors")
		if err != nil {
			return err
		}
		for _, r := range rows {
			seen[fmt.Sprint(r["lastRefresh"])] = struct{}{}
		}
		if len(seen) < 3 {
			return fmt.Errorf("%d times are told: %v", len(seen), rows)
		}
		return nil
	})
}

// TestSourceRightsKafka: what a mirror's user needs on a real Kafka, as docs/security.md has
// it. Each right that is taken away while the mirror runs stops its own part, which is told
// where the page says; nothing is cut, stopped or removed meanwhile; given back, what was
// missed comes. KAGAMI_SOURCE_RIGHTS=old has Kafka 3.9 and 2.8 as well.
func TestSourceRightsKafka(t *testing.T) {
	t.Parallel() // has a world of its own
	versions := []kafka.Version{kafka.V44}
	if os.Getenv("KAGAMI_SOURCE_RIGHTS") != "" {
		versions = append(versions, kafka.V39, kafka.V28)
	}
	for _, v := range versions {
		t.Run(string(v), func(t *testing.T) { sourceRights(t, startRights(t, v)) })
	}
}

func sourceRights(t *testing.T, w *rightsWorld) {
	t.Helper()
	read := mirrorRight(kmsg.ACLResourceTypeTopic, "sr-", kmsg.ACLOperationRead)
	describe := mirrorRight(kmsg.ACLResourceTypeTopic, "sr-", kmsg.ACLOperationDescribe)
	configs := mirrorRight(kmsg.ACLResourceTypeTopic, "sr-", kmsg.ACLOperationDescribeConfigs)
	group := mirrorRight(kmsg.ACLResourceTypeGroup, rightsGroup, kmsg.ACLOperationDescribe)
	shares := mirrorRight(kmsg.ACLResourceTypeGroup, rightsShares, kmsg.ACLOperationDescribe)
	cluster := mirrorRight(kmsg.ACLResourceTypeCluster, "kafka-cluster", kmsg.ACLOperationDescribe)
	w.give(read, configs, group, shares, cluster)
	w.waitFor("discovered", func() error {
		_, err := w.b.Topic(w.ctx, "sr-gone")
		return err
	})
	w.change()()

	// READ: the partitions stand still, the rest goes on.
	w.give(describe)
	w.take(read)
	others := w.change("data")
	w.told(rightsTopic, "TOPIC_AUTHORIZATION_FAILED") // a fetch that was on its way may still bring something
	missed := w.data()
	others()
	require.Error(t, missed(), "no data without READ")
	w.give(read)
	w.waitFor("data again", missed)
	w.told(rightsTopic, "")

	// The other rights, each alone. A group that DESCRIBE on the cluster shows, and that
	// can't be described, is counted.
	for _, row := range []struct {
		part, counter string
		right         binding
	}{{"configs", "topic_config", configs}, {"group", "consumer_group_offset", group}, {"share group", "share_group_offset", shares}} {
		change := w.parts()[row.part]
		if change == nil {
			continue
		}
		w.take(row.right)
		missed, others := change(), w.change(row.part)
		w.grows(row.counter)
		others()
		require.Error(t, missed(), row.part)
		w.give(row.right)
		w.waitFor(row.part+" again", missed)
	}

	// DESCRIBE on the cluster: no ACL comes or goes. A group that can't be seen now looks
	// like none.
	w.take(cluster, group)
	missed, missedGroup, others := w.entries(), w.group(), w.change("ACLs", "group")
	before, err := listACLs(w.ctx, w.b)
	require.NoError(t, err)
	w.grows("acl")
	failed, err := w.counter("consumer_group_offset")
	require.NoError(t, err)
	others()
	w.grows("acl")
	now, err := listACLs(w.ctx, w.b)
	require.NoError(t, err)
	require.Equal(t, before, now, "nothing is removed")
	require.Contains(t, now, cluster.String())
	require.Error(t, missedGroup())
	after, err := w.counter("consumer_group_offset")
	require.NoError(t, err)
	require.Equal(t, failed, after, "nobody is told of groups that can't be seen")
	w.give(cluster, group)
	w.waitFor("ACLs again", missed)
	w.waitFor("offsets again", missedGroup)

	// No right at all: topics that can't be seen aren't taken for deleted, and nothing is
	// cut; one that has been deleted meanwhile stops when that can be seen.
	had, err := w.b.TopicEnds(w.ctx, rightsTopic)
	require.NoError(t, err)
	w.take(read, describe, configs, group, shares, cluster)
	w.told(rightsTopic, "TOPIC_AUTHORIZATION_FAILED")
	_, err = w.a.Admin.DeleteTopic(w.ctx, "sr-gone")
	require.NoError(t, err)
	missed = w.data()
	w.refreshed()
	for _, topic := range []string{rightsTopic, "sr-gone"} {
		w.told(topic, "answered by the source with") // and isn't STOPPED
	}
	got, err := w.b.TopicEnds(w.ctx, rightsTopic)
	require.NoError(t, err)
	require.Equal(t, had, got)
	now, err = listACLs(w.ctx, w.b)
	require.NoError(t, err)
	require.Contains(t, now, read.String(), "copied, and still here")
	w.give(read, configs, group, shares, cluster)
	w.waitFor("data again", missed)
	w.await("m", "STOPPED", "sr-gone")
	ends, err := w.b.TopicEnds(w.ctx, "sr-gone")
	require.NoError(t, err)
	require.Zero(t, ends[0].Start)
	require.GreaterOrEqual(t, ends[0].End, int64(10), "the data is kept")
	w.change()()
	require.NotContains(t, w.node.Process().Log(), "-4711")
}
