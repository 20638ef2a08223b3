package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/client"
	"kagami/messages"
)

// revoke removes rights that give gave.
func revoke(t *testing.T, admin *kgo.Client, rights ...kmsg.CreateACLsRequestCreation) {
	t.Helper()
	req := kmsg.NewPtrDeleteACLsRequest()
	for _, r := range rights {
		f := kmsg.NewDeleteACLsRequestFilter()
		f.ResourceType, f.ResourceName, f.ResourcePatternType = r.ResourceType, &r.ResourceName, r.ResourcePatternType
		f.Principal, f.Host, f.Operation, f.PermissionType = &r.Principal, &r.Host, r.Operation, r.PermissionType
		req.Filters = append(req.Filters, f)
	}
	resp, err := req.RequestWith(t.Context(), admin)
	require.NoError(t, err)
	for _, r := range resp.Results {
		require.NoError(t, kerr.ErrorForCode(r.ErrorCode))
		require.Len(t, r.MatchingACLs, 1)
	}
}

// limited is a mirror of a source whose user has certain rights only.
type limited struct {
	*pair
	source *kadm.Client // as admin
	value  int64        // of the last thing that was changed on the source
}

func asUser(t *testing.T, src *node, user, password string) map[string]*string {
	t.Helper()
	return map[string]*string{
		"bootstrap.servers": new(src.at("SASL_PLAINTEXT")), "security.protocol": new("SASL_PLAINTEXT"),
		"sasl.jaas.config": new(`org.apache.kafka.common.security.plain.PlainLoginModule required username="` + user + `" password="` + password + `";`),
	}
}

func (l *limited) start(mirror, topic string) {
	l.t.Helper()
	details, err := l.source.ListTopics(l.t.Context(), topic)
	require.NoError(l.t, err)
	meta := client.TopicMetadata{ID: messages.TopicID(details[topic].ID), Partitions: 1}
	res, err := l.adm.StartMirrorTopics(l.t.Context(), mirror, []string{topic}, client.StartOptions{TopicMetadata: map[string]client.TopicMetadata{topic: meta}})
	require.NoError(l.t, errors.Join(err, res.Err()))
}

// config changes a config of the topic there; the result says whether it has come.
func (l *limited) config() func() error {
	l.t.Helper()
	l.value++
	want := strconv.FormatInt(3_600_000+l.value, 10)
	res, err := l.source.AlterTopicConfigs(l.t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &want}}, "t")
	require.NoError(l.t, err)
	require.NoError(l.t, res[0].Err)
	return func() error {
		if got := l.dst.store.Image().Topic("t").Configs["retention.ms"]; got != want {
			return fmt.Errorf("retention.ms is %q, want %s", got, want)
		}
		return nil
	}
}

// group commits an offset there.
func (l *limited) group() func() error {
	l.t.Helper()
	l.value++
	want := l.value
	var offsets kadm.Offsets
	offsets.AddOffset("t", 0, want, -1)
	await(l.t, "the source's coordinator", func() error { return l.source.CommitAllOffsets(l.t.Context(), "g", offsets) })
	here := kadm.NewClient(l.dstCl)
	return func() error {
		got, err := here.FetchOffsets(l.t.Context(), "g")
		if err != nil {
			return err
		}
		if o, _ := got.Lookup("t", 0); o.At != want {
			return fmt.Errorf("g is at %d, want %d", o.At, want)
		}
		return nil
	}
}

// data writes a record there.
func (l *limited) data() func() error {
	l.t.Helper()
	produce(l.t, l.srcCl, "t", 1)
	want := end(l.t, l.source, "t")
	return func() error {
		if got := end(l.t, kadm.NewClient(l.dstCl), "t"); got != want {
			return fmt.Errorf("t ends at %d, want %d", got, want)
		}
		return nil
	}
}

func (l *limited) errorOf(mirror, topic string) string {
	l.t.Helper()
	told, err := l.adm.DescribeClusterMirrors(l.t.Context(), []string{mirror}, client.DescribeOptions{})
	require.NoError(l.t, err)
	for _, p := range told.Mirrors[mirror].Partitions {
		if p.Topic == topic {
			return p.ErrorText
		}
	}
	return ""
}

// failures is a counter of failed syncs.
func (l *limited) failures(of string) (n int64, err error) {
	resp, err := http.Get("http://" + l.dst.admin.Addr() + "/metrics")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
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

// TestSourceRights: what a mirror's user needs on the source, as docs/security.md has it.
// Each right that is taken away while the mirror runs stops its own part, which is told;
// given back, what was missed comes.
func TestSourceRights(t *testing.T) {
	src := rightsNode(t, t.TempDir())
	dst := startTestNode(t, t.TempDir(), "mirror.failed.retry.initial.backoff.ms=100", "mirror.fetch.backoff.ms=100")
	admin := src.as(t, "admin")
	l := &limited{pair: &pair{t: t, src: src, dst: dst, srcCl: admin}, source: kadm.NewClient(admin), value: 1}
	l.adm, l.dstCl, _ = connectTo(t, dst.kafka())
	topic(t, admin, "t", 1, 30, nil)
	topic(t, admin, "later", 1, 30, nil)
	read, configs := right("alice", messages.ACLTopic, "t", messages.ACLRead), right("alice", messages.ACLTopic, "t", messages.ACLDescribeConfigs)
	describe := right("alice", messages.ACLTopic, "t", messages.ACLDescribe)
	groups := right("alice", messages.ACLGroup, "g", messages.ACLDescribe)
	mirror := right("alice", messages.ACLClusterMirror, "m", messages.ACLDescribe)
	give(t, admin, read, configs, groups, mirror, right("alice", messages.ACLTopic, "later", messages.ACLRead))
	require.NoError(t, l.adm.CreateClusterMirror(t.Context(), "m", asUser(t, src, "alice", "alice-4711")))
	l.start("m", "t")
	parts := map[string]func() func() error{"data": l.data, "configs": l.config, "groups": l.group}
	all := func(but string) {
		t.Helper()
		come := map[string]func() error{}
		for name, change := range parts {
			if name != but {
				come[name] = change()
			}
		}
		for name, f := range come {
			await(t, name, f)
		}
	}
	all("")
	told := func(mirror, topic, want string) {
		t.Helper()
		await(t, want, func() error {
			if got := l.errorOf(mirror, topic); !strings.Contains(got, want) {
				return fmt.Errorf("told: %q", got)
			}
			return nil
		})
	}

	give(t, admin, describe)
	revoke(t, admin, read)
	come := l.data()
	told("m", "t", "TOPIC_AUTHORIZATION_FAILED")
	all("data")
	require.Error(t, come(), "no data without READ")
	give(t, admin, read)
	await(t, "data again", come)

	before, err := l.failures("topic_config")
	require.NoError(t, err)
	revoke(t, admin, configs)
	come = l.config()
	await(t, "failed syncs of configs are counted", func() error {
		now, err := l.failures("topic_config")
		if err == nil && now < before+2 {
			err = fmt.Errorf("%d after %d", now, before)
		}
		return err
	})
	all("configs")
	require.Error(t, come(), "no configs without DESCRIBE_CONFIGS")
	give(t, admin, configs)
	await(t, "configs again", come)

	revoke(t, admin, groups)
	come = l.group()
	all("groups")
	require.Error(t, come(), "no offsets without DESCRIBE on the group")
	give(t, admin, groups)
	await(t, "offsets again", come)

	revoke(t, admin, mirror)
	all("")
	l.start("m", "later")
	told("m", "later", "2144")
	give(t, admin, mirror)
	l.awaitEnd("later")

	// The topic can't be seen any more: it isn't taken for deleted, and nothing is cut.
	had := end(t, kadm.NewClient(l.dstCl), "t")
	revoke(t, admin, read, describe, configs)
	come = l.data()
	told("m", "t", "TOPIC_AUTHORIZATION_FAILED")
	require.Equal(t, had, end(t, kadm.NewClient(l.dstCl), "t"))
	give(t, admin, read, configs)
	await(t, "data again", come)
	all("")
}

// TestD32MirrorsOfSeveralUsers: two mirrors of one source log in as two users; what happens
// to the one's credentials, here or there, is nothing to the other.
func TestD32MirrorsOfSeveralUsers(t *testing.T) {
	src := rightsNode(t, t.TempDir())
	dst := startTestNode(t, t.TempDir(), "mirror.failed.retry.initial.backoff.ms=100", "mirror.fetch.backoff.ms=100")
	admin := src.as(t, "admin")
	p := &pair{t: t, src: src, dst: dst, srcCl: admin}
	l := &limited{pair: p, source: kadm.NewClient(admin)}
	p.adm, p.dstCl, _ = connectTo(t, dst.kafka())
	for _, user := range []string{"alice", "bob"} {
		topic(t, admin, "of-"+user, 1, 30, nil)
		give(t, admin, right(user, messages.ACLTopic, "of-"+user, messages.ACLRead), right(user, messages.ACLTopic, "of-"+user, messages.ACLDescribeConfigs),
			right(user, messages.ACLClusterMirror, "by-"+user, messages.ACLDescribe))
		require.NoError(t, p.adm.CreateClusterMirror(t.Context(), "by-"+user, asUser(t, src, user, user+"-4711")))
		l.start("by-"+user, "of-"+user)
		p.awaitEnd("of-" + user)
	}
	alter := func(mirror string, configs map[string]*string) {
		t.Helper()
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceType(messages.ResourceClusterMirror), mirror
		for k, v := range configs {
			res.Configs = append(res.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: k, Value: v})
		}
		req.Resources = append(req.Resources, res)
		resp, err := req.RequestWith(t.Context(), p.dstCl)
		require.NoError(t, err)
		require.NoError(t, kerr.ErrorForCode(resp.Resources[0].ErrorCode))
	}
	// alice's mirror as bob: he may log in, and sees neither its topic nor the mirror.
	for _, row := range []struct{ user, password, want string }{{"alice", "wrong-0815", "SASL_AUTHENTICATION_FAILED"}, {"bob", "bob-4711", "AUTHORIZATION_FAILED"}} {
		alter("by-alice", asUser(t, src, row.user, row.password))
		await(t, row.want, func() error {
			if got := l.errorOf("by-alice", "of-alice"); !strings.Contains(got, row.want) || strings.Contains(got, "0815") || strings.Contains(got, "4711") {
				return fmt.Errorf("told: %q", got)
			}
			return nil
		})
		had := end(t, kadm.NewClient(p.dstCl), "of-alice")
		produce(t, admin, "of-alice", 5)
		produce(t, admin, "of-bob", 5)
		p.awaitEnd("of-bob")
		require.Empty(t, l.errorOf("by-bob", "of-bob"))
		require.Equal(t, had, end(t, kadm.NewClient(p.dstCl), "of-alice"))
		alter("by-alice", asUser(t, src, "alice", "alice-4711"))
		p.awaitEnd("of-alice")
	}
}
