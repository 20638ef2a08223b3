package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"kagami/messages"
)

// TestOddNames: users whose names have what names of users have, and what they shouldn't have: each has
// its own rights and quota, and nobody else's.
func TestOddNames(t *testing.T) {
	n := startTestNode(t, t.TempDir(), "listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=SCRAM-SHA-256", adminACLs, "super.users=User:ANONYMOUS")
	admin := dialAs(t, n.kafka())
	adm := kadm.NewClient(admin)
	names := []string{"CN=Duke\\, Jr.,OU=a+b", "Łučić 用户", "a:b", "User:a", "user*", " both ", "a\tb\"c'd", "kafka-cluster", "0"}
	as := map[string]*kgo.Client{}
	for i, name := range names {
		topic := "t" + string(rune('0'+i))
		_, err := adm.CreateTopic(t.Context(), 1, 1, nil, topic)
		require.NoError(t, err)
		setScram(t, admin, name, "pass-4711")
		give(t, admin, right(name, messages.ACLTopic, topic, messages.ACLDescribe))
		res, err := adm.AlterClientQuotas(t.Context(), []kadm.AlterClientQuotaEntry{{Entity: kadm.ClientQuotaEntity{{Type: "user", Name: &name}}, Ops: []kadm.AlterClientQuotaOp{{Key: "consumer_byte_rate", Value: float64(1000 + i)}}}})
		require.NoError(t, err)
		require.NoError(t, res[0].Err, "%q", name)
		as[name] = dialAs(t, n.at("SASL_PLAINTEXT"), kgo.SASL(scram.Auth{User: name, Pass: "pass-4711"}.AsSha256Mechanism()))
	}
	for i, name := range names {
		topics, err := kadm.NewClient(as[name]).ListTopics(t.Context())
		require.NoError(t, err, "%q", name)
		require.Equal(t, []string{"t" + string(rune('0'+i))}, topics.Names(), "%q", name)
		told, err := adm.DescribeClientQuotas(t.Context(), true, []kadm.DescribeClientQuotaComponent{{Type: "user", MatchName: &name, MatchType: kmsg.QuotasMatchTypeExact}})
		require.NoError(t, err)
		require.Len(t, told, 1, "%q", name)
		require.EqualValues(t, 1000+i, told[0].Values[0].Value)
	}
	described, err := adm.DescribeUserSCRAMs(t.Context(), names...)
	require.NoError(t, err)
	require.NoError(t, described.Error())
	_, err = kadm.NewClient(as["user*"]).DescribeUserSCRAMs(t.Context())
	require.ErrorIs(t, err, kerr.ClusterAuthorizationFailed)
}
