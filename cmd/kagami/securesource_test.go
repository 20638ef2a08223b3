package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/client"
	"kagami/messages"
)

// TestMirrorOfSecuredKagami: a mirror whose user has the rights that protocol.md names, and
// no more, over TLS with SCRAM; its authentication ends every second (C44).
func TestMirrorOfSecuredKagami(t *testing.T) {
	a := newAuthority(t)
	src := startTestNode(t, t.TempDir(), append(allListeners(t, a), "connections.max.reauth.ms=1000")...)
	dst := startTestNode(t, t.TempDir())
	admin := dialAs(t, src.at("BOTH"), asPlain("admin", "admin-4711"), kgo.DialTLSConfig(a.client("")), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	topic(t, admin, "t", 1, 30, nil)
	_, err := kadm.NewClient(admin).AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: "mirror", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "mirror-4711"}})
	require.NoError(t, err)
	give(t, admin,
		right("mirror", messages.ACLTopic, "t", messages.ACLRead), right("mirror", messages.ACLTopic, "t", messages.ACLDescribeConfigs),
		right("mirror", messages.ACLGroup, "*", messages.ACLDescribe), right("mirror", messages.ACLCluster, messages.ACLClusterName, messages.ACLDescribe),
		right("mirror", messages.ACLClusterMirror, "*", messages.ACLDescribe))
	adm, dstCl, _ := connectTo(t, dst.kafka())
	set := func(password string) map[string]*string {
		return map[string]*string{
			"bootstrap.servers": new(src.at("BOTH")), "security.protocol": new("SASL_SSL"), "sasl.mechanism": new("SCRAM-SHA-256"),
			"sasl.jaas.config":    new(`org.apache.kafka.common.security.scram.ScramLoginModule required username="mirror" password="` + password + `";`),
			"ssl.truststore.type": new("PEM"), "ssl.truststore.location": new(writeFile(t, filepath.Join(t.TempDir(), "ca.pem"), a.pem())),
		}
	}
	require.NoError(t, adm.CreateClusterMirror(t.Context(), "m", set("mirror-4711")))
	details, err := kadm.NewClient(admin).ListTopics(t.Context(), "t")
	require.NoError(t, err)
	opts := client.StartOptions{TopicMetadata: map[string]client.TopicMetadata{"t": {ID: messages.TopicID(details["t"].ID), Partitions: 1}}}
	res, err := adm.StartMirrorTopics(t.Context(), "m", []string{"t"}, opts)
	require.NoError(t, errors.Join(err, res.Err()))
	p := &pair{t: t, src: src, dst: dst, srcCl: admin, dstCl: dstCl, adm: adm}
	p.awaitEnd("t")
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); { // over three sessions
		produce(t, admin, "t", 1)
		p.awaitEnd("t")
	}
	told, err := adm.DescribeClusterMirrors(t.Context(), []string{"m"}, client.DescribeOptions{})
	require.NoError(t, err)
	require.Len(t, told.Mirrors, 1)
	require.Equal(t, messages.StateMirroring.String(), told.Mirrors["m"].Partitions[0].State)
	require.Zero(t, told.Mirrors["m"].Partitions[0].RetryAttempt)

	// verify logs in on both sides: --source-config is for the source, --command-config for the destination.
	ca := writeFile(t, filepath.Join(t.TempDir(), "ca.pem"), a.pem())
	secret := func(module, mechanism, user string) string {
		return writeFile(t, filepath.Join(t.TempDir(), user), fmt.Sprintf("security.protocol=SASL_SSL\nsasl.mechanism=%s\nssl.truststore.type=PEM\nssl.truststore.location=%s\n"+
			"sasl.jaas.config=%s required username=\"%s\" password=\"%s-4711\";\n", mechanism, ca, module, user, user))
	}
	scram, plain := secret("org.apache.kafka.common.security.scram.ScramLoginModule", "SCRAM-SHA-256", "mirror"), secret("org.apache.kafka.common.security.plain.PlainLoginModule", "PLAIN", "admin")
	code, out, errs := runs(t, "verify", "--bootstrap-server", dst.kafka(), "--mirror", "m", "--source-config", scram)
	require.Equal(t, exitOK, code, out+errs)
	require.Contains(t, out, "equal")
	code, _, errs = runs(t, "verify", "--bootstrap-server", dst.kafka(), "--mirror", "m")
	require.Equal(t, exitNoVerdict, code)
	require.Contains(t, errs, "--source-config")
	code, out, errs = runs(t, "verify", "--bootstrap-server", src.at("BOTH"), "--command-config", plain, "--mirror", "none")
	require.Equal(t, exitNoVerdict, code, out)
	require.Contains(t, errs, `unknown cluster mirror: "none"`)
	code, _, errs = runs(t, "verify", "--bootstrap-server", src.at("BOTH"), "--mirror", "none", "--timeout", "10s")
	require.Equal(t, exitNoVerdict, code)
	require.NotContains(t, errs, "unknown cluster mirror")
}
