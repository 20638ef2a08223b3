package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"kagami/test/kafka"
	"kagami/test/kafka/proc"
)

const standardAuthorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

// binding is one ACL, field by field.
type binding struct {
	kind      kmsg.ACLResourceType
	pattern   kmsg.ACLResourcePatternType
	name      string
	principal string
	host      string
	op        kmsg.ACLOperation
	perm      kmsg.ACLPermissionType
}

func (b binding) String() string {
	return fmt.Sprintf("%s %s %s %s %s %s %s", b.perm, b.principal, b.op, b.kind, b.pattern, b.name, b.host)
}

func addACLs(ctx context.Context, s *Side, bindings ...binding) error {
	req := kmsg.NewPtrCreateACLsRequest()
	for _, b := range bindings {
		req.Creations = append(req.Creations, kmsg.CreateACLsRequestCreation{
			ResourceType: b.kind, ResourcePatternType: b.pattern, ResourceName: b.name, Principal: b.principal, Host: b.host, Operation: b.op, PermissionType: b.perm,
		})
	}
	resp, err := req.RequestWith(ctx, s.cl)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range resp.Results {
		errs = append(errs, kerr.ErrorForCode(r.ErrorCode))
	}
	return errors.Join(errs...)
}

func dropACL(ctx context.Context, s *Side, b binding) error {
	req := kmsg.NewPtrDeleteACLsRequest()
	req.Filters = []kmsg.DeleteACLsRequestFilter{{
		ResourceType: b.kind, ResourcePatternType: b.pattern, ResourceName: &b.name, Principal: &b.principal, Host: &b.host, Operation: b.op, PermissionType: b.perm,
	}}
	resp, err := req.RequestWith(ctx, s.cl)
	if err != nil {
		return err
	}
	if r := resp.Results[0]; r.ErrorCode != 0 || len(r.MatchingACLs) != 1 {
		return fmt.Errorf("%s: code %d, %d entries", b, r.ErrorCode, len(r.MatchingACLs))
	}
	return nil
}

// listACLs are all entries of a cluster, in order.
func listACLs(ctx context.Context, s *Side) ([]string, error) {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourcePatternType, req.Operation, req.PermissionType = 1, 1, 1, 1
	resp, err := req.RequestWith(ctx, s.cl)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, r := range resp.Resources {
		for _, a := range r.ACLs {
			out = append(out, binding{r.ResourceType, r.ResourcePatternType, r.ResourceName, a.Principal, a.Host, a.Operation, a.PermissionType}.String())
		}
	}
	slices.Sort(out)
	return out, kerr.ErrorForCode(resp.ErrorCode)
}

// sameACLs tells how the ACLs of B differ from those of A.
func sameACLs(ctx context.Context, a, b *Side) error {
	want, err := listACLs(ctx, a)
	if err != nil {
		return err
	}
	got, err := listACLs(ctx, b)
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("%q, want %q", got, want)
	}
	return err
}

// TestK6D30D53C35ACLs: ACLs of a real Kafka appear here, field by field, mean the same to
// clients, and go with the source's; those that were made here stay.
func TestK6D30D53C35ACLs(t *testing.T) {
	kafka.Require(t)
	source := kafka.Start(t, kafka.Options{Properties: map[string]string{"authorizer.class.name": standardAuthorizer, "super.users": "User:ANONYMOUS"}})
	ports, err := proc.Ports(1)
	require.NoError(t, err)
	clients := net.JoinHostPort("127.0.0.1", fmt.Sprint(ports[0]))
	var users strings.Builder
	for _, u := range []string{"alice", "bob", "carol", "dave", "erin"} {
		fmt.Fprintf(&users, ` user_%s="%s-4711"`, u, u)
	}
	w := newWorldOf(t, source, NodeOptions{Listeners: []string{"CLIENTS://" + clients}, Properties: map[string]string{
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT", "sasl.enabled.mechanisms": "PLAIN",
		"listener.name.clients.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required" + users.String() + ";",
		"authorizer.class.name":                        standardAuthorizer, "super.users": "User:ANONYMOUS", // the plain listener is the test's own
	}})
	const topic, literal, prefixed = kmsg.ACLResourceTypeTopic, kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLResourcePatternTypePrefixed
	const read, allow = kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
	payroll := binding{topic, literal, "payroll", "User:alice", "*", read, kmsg.ACLPermissionTypeDeny}
	later := binding{kmsg.ACLResourceTypeGroup, prefixed, "team-", "User:erin", "*", read, allow}
	theirs := []binding{
		{topic, prefixed, "pay", "User:alice", "*", read, allow},
		payroll,
		{topic, literal, "*", "User:*", "*", kmsg.ACLOperationDescribe, allow},
		{topic, prefixed, "*", "User:bob", "*", read, allow},
		{topic, literal, "pay1", "User:carol", "10.0.0.5", kmsg.ACLOperationWrite, allow},
		{kmsg.ACLResourceTypeCluster, literal, "kafka-cluster", "User:dave", "*", kmsg.ACLOperationIdempotentWrite, allow},
	}
	own := []binding{
		{topic, literal, "own", "User:erin", "*", read, allow},
		{8, literal, "m", "User:erin", "*", kmsg.ACLOperationAlter, allow}, // CLUSTER_MIRROR
	}
	require.NoError(t, addACLs(w.ctx, w.a, theirs...))
	require.NoError(t, addACLs(w.ctx, w.b, own...))
	await := func(want ...binding) {
		t.Helper()
		all := make([]string, 0, len(want))
		for _, b := range want {
			all = append(all, b.String())
		}
		slices.Sort(all)
		ctx, cancel := context.WithTimeout(w.ctx, convergeTimeout)
		defer cancel()
		require.NoError(t, kafka.Poll(ctx, func() error {
			got, err := listACLs(ctx, w.b)
			if err == nil && !slices.Equal(got, all) {
				err = fmt.Errorf("%q, want %q", got, all)
			}
			return err
		}))
	}
	for _, name := range []string{"pay1", "payroll", "foo"} {
		w.topic(name, 1, 1)
		w.load(name, Records{Count: 10})
	}
	w.create("m")
	w.start("m", "pay1", "payroll", "foo")
	w.equal("pay1", "payroll", "foo")
	await(append(slices.Clone(theirs), own...)...)

	// What they mean here.
	user := func(name string) *Side {
		t.Helper()
		cl, err := kgo.NewClient(kgo.SeedBrokers(clients), kgo.SASL(plain.Auth{User: name, Pass: name + "-4711"}.AsMechanism()), kgo.RequestRetries(0), kgo.DisableIdempotentWrite())
		require.NoError(t, err)
		t.Cleanup(cl.Close)
		return &Side{Name: name, Admin: kadm.NewClient(cl), cl: cl}
	}
	reads := func(name, topic string) error {
		u := user(name)
		detail, err := u.Topic(w.ctx, topic) // all may describe it
		if err == nil {
			_, err = u.fetch(w.ctx, detail, 0, detail.Partitions[0].Leader, 0)
		}
		return err
	}
	writes := func(name, topic string) error {
		return user(name).cl.ProduceSync(w.ctx, &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr()
	}
	require.NoError(t, reads("alice", "pay1"))
	require.ErrorIs(t, reads("alice", "payroll"), kerr.TopicAuthorizationFailed)
	require.ErrorIs(t, reads("bob", "foo"), kerr.TopicAuthorizationFailed)
	require.ErrorIs(t, writes("carol", "pay1"), kerr.TopicAuthorizationFailed, "carol isn't at 10.0.0.5")
	for _, name := range []string{"alice", "bob", "carol", "dave", "erin"} {
		_, err := user(name).Topic(w.ctx, "foo")
		require.NoError(t, err, "who may not even read it may describe it")
	}

	// The source changes: one goes, one comes; a copied one that is removed here comes back.
	require.NoError(t, dropACL(w.ctx, w.a, payroll))
	require.NoError(t, addACLs(w.ctx, w.a, later))
	require.NoError(t, dropACL(w.ctx, w.b, theirs[0]))
	now := slices.Concat(theirs[:1], theirs[2:], own, []binding{later})
	await(now...)
	require.NoError(t, reads("alice", "payroll"))

	// A source that is gone takes nothing away, and after the failover all stays.
	require.NoError(t, source.Kill(source.IDs()[0]))
	w.run("--stop", "--mirror", "m", "--topics", "pay1,payroll,foo")
	w.await("m", "STOPPED", "pay1", "payroll", "foo")
	await(now...)
	require.NoError(t, reads("alice", "pay1"))
	require.ErrorIs(t, writes("carol", "pay1"), kerr.TopicAuthorizationFailed)
	require.NotContains(t, w.node.Process().Log(), "-4711")
}
