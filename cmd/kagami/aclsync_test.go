package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kagami/client"
	"kagami/messages"
)

// TestACLsOfSecuredKagami: a mirror whose user may not see the source's ACLs copies the data,
// counts the error and takes nothing away; with the right it copies them, but for those of
// the source's own mirrors. After the mirror is deleted they are the operator's.
func TestACLsOfSecuredKagami(t *testing.T) {
	src := rightsNode(t, t.TempDir())
	dst := startTestNode(t, t.TempDir(), adminACLs, "super.users=User:ANONYMOUS")
	admin := src.as(t, "admin")
	topic(t, admin, "t", 1, 20, nil)
	give(t, admin, right("alice", messages.ACLTopic, "t", messages.ACLRead), right("alice", messages.ACLTopic, "t", messages.ACLDescribeConfigs),
		right("alice", messages.ACLGroup, "*", messages.ACLDescribe), right("alice", messages.ACLClusterMirror, "*", messages.ACLDescribe))
	adm, dstCl, _ := connectTo(t, dst.kafka())
	give(t, dstCl, right("bob", messages.ACLTopic, "mine", messages.ACLRead))
	require.NoError(t, adm.CreateClusterMirror(t.Context(), "m", map[string]*string{
		"bootstrap.servers": new(src.at("SASL_PLAINTEXT")), "security.protocol": new("SASL_PLAINTEXT"),
		"sasl.jaas.config": new(`org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="alice-4711";`),
	}))
	details, err := kadm.NewClient(admin).ListTopics(t.Context(), "t")
	require.NoError(t, err)
	res, err := adm.StartMirrorTopics(t.Context(), "m", []string{"t"}, client.StartOptions{TopicMetadata: map[string]client.TopicMetadata{"t": {ID: messages.TopicID(details["t"].ID), Partitions: 1}}})
	require.NoError(t, errors.Join(err, res.Err()))
	(&pair{t: t, src: src, dst: dst, srcCl: admin, dstCl: dstCl, adm: adm}).awaitEnd("t")

	here := func() (out []string) {
		for _, s := range dst.store.Image().ACLs() {
			out = append(out, fmt.Sprint(s.ACL, s.Mirrors))
		}
		return out
	}
	own := here()
	await(t, "the error is told", func() error {
		resp, err := http.Get("http://" + dst.admin.Addr() + "/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && strings.Contains(string(text), "\nkafka_server_mirror_metadata_manager_acl_sync_error_total 0\n") {
			err = errors.New("it is 0")
		}
		return err
	})
	require.Equal(t, own, here())
	give(t, admin, right("alice", messages.ACLCluster, messages.ACLClusterName, messages.ACLDescribe))
	await(t, "copied", func() error {
		var want []string
		for _, s := range src.store.Image().ACLs() {
			if s.Type != messages.ACLClusterMirror {
				want = append(want, fmt.Sprint(s.ACL, []string{"m"}))
			}
		}
		want = append(want, own...)
		got := here()
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) || len(got) != 5 {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return nil
	})
	res2, err := adm.StopMirrorTopics(t.Context(), "m", []string{"t"})
	require.NoError(t, errors.Join(err, res2.Err()))
	await(t, "deleted", func() error { return adm.DeleteClusterMirror(t.Context(), "m") })
	await(t, "the operator's", func() error {
		for _, s := range dst.store.Image().ACLs() {
			if len(s.Mirrors) > 0 {
				return fmt.Errorf("%s is of %v", s.ACL, s.Mirrors)
			}
		}
		return nil
	})
	require.Len(t, here(), 5)
	var out strings.Builder
	require.Zero(t, run(t.Context(), []string{"audit", "--mirror", "m", "--bootstrap-server", dst.kafka()}, &out, io.Discard))
	require.Contains(t, out.String(), "acls copied")
	require.Contains(t, out.String(), "acls left")
}
