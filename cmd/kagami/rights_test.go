package main

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"kagami/client"
	"kagami/messages"
	"kagami/messages/wire"
)

// rightsNode is a node with users alice and bob, and admin, who may do everything.
func rightsNode(t *testing.T, dir string) *node {
	t.Helper()
	return startTestNode(t, dir, "listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=PLAIN",
		"listener.name.sasl_plaintext.plain.sasl.jaas.config="+plainUsersConfig, adminACLs, "super.users=User:admin")
}

func (n *node) as(t *testing.T, user string) *kgo.Client {
	t.Helper()
	return dialAs(t, n.at("SASL_PLAINTEXT"), asPlain(user, user+"-4711"), client.MaxVersions())
}

func right(who string, kind messages.ACLResourceType, name string, op messages.ACLOperation) kmsg.CreateACLsRequestCreation {
	return kmsg.CreateACLsRequestCreation{
		ResourceType: kmsg.ACLResourceType(kind), ResourceName: name, ResourcePatternType: kmsg.ACLResourcePatternTypeLiteral,
		Principal: "User:" + who, Host: "*", Operation: kmsg.ACLOperation(op), PermissionType: kmsg.ACLPermissionTypeAllow,
	}
}

func give(t *testing.T, admin *kgo.Client, rights ...kmsg.CreateACLsRequestCreation) {
	t.Helper()
	req := kmsg.NewPtrCreateACLsRequest()
	req.Creations = rights
	resp, err := req.RequestWith(t.Context(), admin)
	require.NoError(t, err)
	for _, r := range resp.Results {
		require.NoError(t, kerr.ErrorForCode(r.ErrorCode), "%v", r.ErrorMessage)
	}
}

// mirrorCodes is the top and first inner error code of an answer about mirrors.
func mirrorCodes(t *testing.T, resp kmsg.Response) (top, inner int16) {
	t.Helper()
	switch r := resp.(type) {
	case *wire.CreateClusterMirrorResponse:
		return r.ErrorCode, 0
	case *wire.StartMirrorTopicsResponse:
		return r.ErrorCode, 0
	case *wire.StopMirrorTopicsResponse:
		return r.ErrorCode, 0
	case *wire.PauseMirrorTopicsResponse:
		return r.ErrorCode, 0
	case *wire.ResumeMirrorTopicsResponse:
		return r.ErrorCode, 0
	case *wire.RecoverMirrorTopicsResponse:
		return r.ErrorCode, 0
	case *wire.DeleteClusterMirrorResponse:
		return r.ErrorCode, 0
	case *wire.DescribeClusterMirrorsResponse:
		require.Len(t, r.Mirrors, 1)
		return r.ErrorCode, r.Mirrors[0].ErrorCode
	case *wire.PlanMirrorStartResponse:
		return r.ErrorCode, 0
	case *wire.ReadMetadataLogResponse:
		return r.ErrorCode, 0
	case *wire.ReadMirrorStatesResponse:
		return r.ErrorCode, 0
	case *wire.WriteMirrorStatesResponse:
		return r.ErrorCode, 0
	case *wire.BumpLeaderEpochsResponse:
		return r.ErrorCode, 0
	case *kmsg.DescribeConfigsResponse:
		return 0, r.Resources[0].ErrorCode
	case *kmsg.IncrementalAlterConfigsResponse:
		return 0, r.Resources[0].ErrorCode
	case *kmsg.AlterConfigsResponse:
		return 0, r.Resources[0].ErrorCode
	default:
		t.Fatalf("no code of %T", resp)
		return 0, 0
	}
}

// TestD35MirrorRights: every request about mirrors needs what the table says, and no less.
func TestD35MirrorRights(t *testing.T) {
	n := rightsNode(t, t.TempDir())
	admin := n.as(t, "admin")
	const mirror = messages.ACLClusterMirror
	topics := func(r messages.ACLOperation) []kmsg.CreateACLsRequestCreation {
		return []kmsg.CreateACLsRequestCreation{right("", mirror, "m", r), right("", messages.ACLTopic, "t", messages.ACLAlterConfigs)}
	}
	cluster := []kmsg.CreateACLsRequestCreation{right("", messages.ACLCluster, messages.ACLClusterName, messages.ACLClusterAction)}
	on := func(op messages.ACLOperation) []kmsg.CreateACLsRequestCreation {
		return []kmsg.CreateACLsRequestCreation{right("", mirror, "m", op)}
	}
	const forbidden, clusterForbidden = wire.CodeClusterMirrorAuthorizationFailed, int16(31)
	bootstrap := "127.0.0.1:1"
	config := func(f func(*kmsg.IncrementalAlterConfigsRequestResource)) kmsg.Request {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceType(messages.ResourceClusterMirror), "m"
		f(&res)
		req.Resources = append(req.Resources, res)
		return req
	}
	for i, tc := range []struct {
		name    string
		req     kmsg.Request
		needs   []kmsg.CreateACLsRequestCreation
		refused int16
	}{
		{"create", &wire.CreateClusterMirrorRequest{MirrorName: "m", Config: []wire.CreateClusterMirrorRequestClusterMirrorConfig{{Name: "bootstrap.servers", Value: &bootstrap}}}, on(messages.ACLCreate), forbidden},
		{"describe", &wire.DescribeClusterMirrorsRequest{MirrorNames: []string{"m"}}, on(messages.ACLDescribe), forbidden},
		{"start", &wire.StartMirrorTopicsRequest{MirrorName: "m", Topics: []wire.StartMirrorTopicsRequestTopicData{{TopicName: "t"}}}, topics(messages.ACLAlter), forbidden},
		{"stop", &wire.StopMirrorTopicsRequest{MirrorName: "m", Topics: []wire.StopMirrorTopicsRequestTopicData{{TopicName: "t"}}}, topics(messages.ACLAlter), forbidden},
		{"pause", &wire.PauseMirrorTopicsRequest{MirrorName: "m", Topics: []wire.PauseMirrorTopicsRequestTopicData{{TopicName: "t"}}}, topics(messages.ACLAlter), forbidden},
		{"resume", &wire.ResumeMirrorTopicsRequest{MirrorName: "m", Topics: []wire.ResumeMirrorTopicsRequestTopicData{{TopicName: "t"}}}, topics(messages.ACLAlter), forbidden},
		{"recover", &wire.RecoverMirrorTopicsRequest{MirrorName: "m", Topics: []wire.RecoverMirrorTopicsRequestTopicData{{TopicName: "t"}}}, topics(messages.ACLAlter), forbidden},
		{"describe configs", func() kmsg.Request {
			req := kmsg.NewPtrDescribeConfigsRequest()
			req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceType(messages.ResourceClusterMirror), ResourceName: "m"}}
			return req
		}(), on(messages.ACLDescribeConfigs), forbidden},
		{"alter configs", config(func(r *kmsg.IncrementalAlterConfigsRequestResource) {
			r.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "bootstrap.servers", Value: &bootstrap}}
		}), on(messages.ACLAlterConfigs), forbidden},
		{"replace configs", func() kmsg.Request {
			req := kmsg.NewPtrAlterConfigsRequest()
			res := kmsg.NewAlterConfigsRequestResource()
			res.ResourceType, res.ResourceName = kmsg.ConfigResourceType(messages.ResourceClusterMirror), "m"
			res.Configs = []kmsg.AlterConfigsRequestResourceConfig{{Name: "bootstrap.servers", Value: &bootstrap}}
			req.Resources = append(req.Resources, res)
			return req
		}(), on(messages.ACLAlterConfigs), forbidden},
		{"plan", &wire.PlanMirrorStartRequest{MirrorName: "m"}, on(messages.ACLDescribe), forbidden},
		{"read the metadata log", &wire.ReadMetadataLogRequest{MaxBytes: 1}, []kmsg.CreateACLsRequestCreation{
			right("", messages.ACLCluster, messages.ACLClusterName, messages.ACLDescribe), right("", messages.ACLCluster, messages.ACLClusterName, messages.ACLDescribeConfigs),
		}, clusterForbidden},
		{"read states", &wire.ReadMirrorStatesRequest{MirrorName: "m"}, cluster, clusterForbidden},
		{"write states", &wire.WriteMirrorStatesRequest{MirrorName: "m"}, cluster, clusterForbidden},
		{"bump", &wire.BumpLeaderEpochsRequest{}, cluster, clusterForbidden},
		{"delete", &wire.DeleteClusterMirrorRequest{MirrorName: "m"}, on(messages.ACLAlter), forbidden},
	} {
		t.Run(tc.name, func(t *testing.T) {
			who := []string{"alice", "bob"}[i%2]
			clearRights(t, admin)
			cl := n.as(t, who)
			ask := func() (int16, int16) {
				resp, err := cl.SeedBrokers()[0].Request(t.Context(), tc.req)
				require.NoError(t, err)
				return mirrorCodes(t, resp)
			}
			for j := range tc.needs {
				top, inner := ask()
				require.Contains(t, []int16{tc.refused, int16(29)}, top+inner, "without all rights")
				tc.needs[j].Principal = "User:" + who
				give(t, admin, tc.needs[j])
			}
			top, inner := ask()
			require.NotContains(t, []int16{tc.refused, int16(29)}, top)
			require.NotContains(t, []int16{tc.refused, int16(29)}, inner)
		})
	}
}

// clearRights takes all entries away.
func clearRights(t *testing.T, admin *kgo.Client) {
	t.Helper()
	req := kmsg.NewPtrDeleteACLsRequest()
	req.Filters = []kmsg.DeleteACLsRequestFilter{{ResourceType: 1, ResourcePatternType: 1, Operation: 1, PermissionType: 1}}
	resp, err := req.RequestWith(t.Context(), admin)
	require.NoError(t, err)
	for _, r := range resp.Results {
		require.NoError(t, kerr.ErrorForCode(r.ErrorCode))
	}
}

// TestRightsLast: entries are durable, and lists show what one may see.
func TestRightsLast(t *testing.T) {
	dir := t.TempDir()
	n := rightsNode(t, dir)
	admin := n.as(t, "admin")
	for _, name := range []string{"seen", "hidden"} {
		_, err := kadm.NewClient(admin).CreateTopic(t.Context(), 1, 1, nil, name)
		require.NoError(t, err)
		m := "mirror-" + name
		resp, err := admin.SeedBrokers()[0].Request(t.Context(), &wire.CreateClusterMirrorRequest{MirrorName: m, Config: []wire.CreateClusterMirrorRequestClusterMirrorConfig{{Name: "bootstrap.servers", Value: new("127.0.0.1:1")}}})
		require.NoError(t, err)
		require.Zero(t, resp.(*wire.CreateClusterMirrorResponse).ErrorCode)
	}
	give(t, admin, right("alice", messages.ACLTopic, "seen", messages.ACLWrite), right("alice", messages.ACLClusterMirror, "mirror-seen", messages.ACLDescribe))
	stopTestNode(t, n)
	n = rightsNode(t, dir)
	alice := n.as(t, "alice")
	topics, err := kadm.NewClient(alice).ListTopics(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"seen"}, topics.Names())
	resp, err := alice.SeedBrokers()[0].Request(t.Context(), &wire.ListClusterMirrorsRequest{})
	require.NoError(t, err)
	require.Len(t, resp.(*wire.ListClusterMirrorsResponse).Mirrors, 1)
	require.NoError(t, alice.ProduceSync(t.Context(), &kgo.Record{Topic: "seen", Value: []byte("v")}).FirstErr(), "who may write to a topic gets a producer id")
	require.ErrorIs(t, alice.ProduceSync(t.Context(), &kgo.Record{Topic: "hidden", Value: []byte("v")}).FirstErr(), kerr.TopicAuthorizationFailed)
	require.ErrorIs(t, alice.ProduceSync(t.Context(), &kgo.Record{Topic: "nothing", Value: []byte("v")}).FirstErr(), kerr.TopicAuthorizationFailed)
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations, req.Topics = true, []kmsg.MetadataRequestTopic{{Topic: new("seen")}}
	meta, err := req.RequestWith(t.Context(), alice)
	require.NoError(t, err)
	require.EqualValues(t, 1<<messages.ACLWrite|1<<messages.ACLDescribe, meta.Topics[0].AuthorizedOperations)
}

// TestAdminLogin: the admin server asks for user and password, but for whether it lives.
func TestAdminLogin(t *testing.T) {
	n := startTestNode(t, t.TempDir(), "kagami.admin.user=ops", "kagami.admin.password=ops-4711")
	base := "http://" + n.admin.Addr()
	get := func(path, user, password string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		require.NoError(t, err)
		if user != "" {
			req.SetBasicAuth(user, password)
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	require.Equal(t, http.StatusOK, get("/healthz", "", ""))
	for _, path := range []string{"/metrics", "/api/nodes", "/", "/loglevel"} {
		require.Equal(t, http.StatusUnauthorized, get(path, "", ""), path)
		require.Equal(t, http.StatusUnauthorized, get(path, "ops", "wrong"), path)
		require.Equal(t, http.StatusUnauthorized, get(path, "op", "ops-4711"), path)
		require.Equal(t, http.StatusOK, get(path, "ops", "ops-4711"), path)
	}
}

// TestRightsOnSeveralNodes: what is made through one node counts on all.
func TestRightsOnSeveralNodes(t *testing.T) {
	c := newTestNodes(t, []messages.NodeID{1, 2, 3}, "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
		"listeners=PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0", "listener.name.clients.plain.sasl.jaas.config="+plainUsersConfig, adminACLs, "super.users=User:admin")
	c.start(1, 2, 3)
	at := func(id messages.NodeID, opts ...kgo.Opt) *kgo.Client {
		return dialAs(t, c.nodes[id].at("CLIENTS"), opts...)
	}
	admin := at(2, asPlain("admin", "admin-4711"))
	_, err := kadm.NewClient(admin).CreateTopic(t.Context(), 3, 1, nil, "t")
	require.NoError(t, err)
	_, err = kadm.NewClient(admin).AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: "carol", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "carol-4711"}})
	require.NoError(t, err)
	give(t, admin, right("carol", messages.ACLTopic, "t", messages.ACLDescribe))
	for _, id := range []messages.NodeID{1, 2, 3} {
		require.Eventually(t, func() bool {
			carol := at(id, kgo.SASL(scram.Auth{User: "carol", Pass: "carol-4711"}.AsSha256Mechanism()))
			topics, err := kadm.NewClient(carol).ListTopics(t.Context())
			return err == nil && len(topics.Names()) == 1
		}, patience, 50*time.Millisecond, "node %d", id)
		var brokers kadm.BrokerDetails
		await(t, fmt.Sprintf("node %d knows all", id), func() (err error) { // a beat may be late
			if brokers, err = kadm.NewClient(at(id, asPlain("admin", "admin-4711"))).ListBrokers(t.Context()); err == nil && len(brokers) != 3 {
				err = fmt.Errorf("brokers %v", brokers)
			}
			return err
		})
		for _, b := range brokers {
			_, port, err := net.SplitHostPort(c.nodes[messages.NodeID(b.NodeID)].at("CLIENTS"))
			require.NoError(t, err)
			require.Equal(t, port, fmt.Sprint(b.Port), "clients stay on their listener")
		}
	}
}
