package diff

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/wire"
	"kagami/test/e2e"
	"kagami/test/kafka"
	"kagami/test/kafka/proc"
)

// startGuarded starts both with an authorizer. The plain listener is the super user's; who
// comes over the other one, as nobody, has no rights.
func startGuarded(t *testing.T) (root, nobody [2]*side) {
	t.Helper()
	ports, err := proc.Ports(2)
	require.NoError(t, err)
	settings := sharedSettings()
	maps.Copy(settings, map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:ANONYMOUS",
		"sasl.enabled.mechanisms":                             "PLAIN",
		"listener.name.sasl_plaintext.plain.sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required user_nobody="none";`,
	})
	addr := [2]string{net.JoinHostPort("127.0.0.1", fmt.Sprint(ports[0])), net.JoinHostPort("127.0.0.1", fmt.Sprint(ports[1]))}
	k := kafka.Start(t, kafka.Options{Version: kafka.V44, Properties: settings, Listeners: []string{"SASL_PLAINTEXT://" + addr[0]}})
	n := e2e.StartNode(t, e2e.NodeOptions{Properties: settings, Listeners: []string{"SASL_PLAINTEXT://" + addr[1]}})
	const prefix = "rights-"
	root = [2]*side{newSide("Kafka", k.Addr(1), prefix), newSide("Kagami", n.Bootstrap(), prefix)}
	nobody = [2]*side{newSide("Kafka", addr[0], prefix), newSide("Kagami", addr[1], prefix)}
	for i := range nobody {
		// What the super user has seen, nobody has been told.
		nobody[i].ids, nobody[i].names, nobody[i].kept, nobody[i].producers = root[i].ids, root[i].names, root[i].kept, root[i].producers
		nobody[i].login = "\x00nobody\x00none"
		t.Cleanup(root[i].close)
		t.Cleanup(nobody[i].close)
	}
	return root, nobody
}

// seen is what there is: of the metadata and of groups, transactions and logs.
func seen(t *testing.T, s *side) string {
	t.Helper()
	var out strings.Builder
	log := wire.NewPtrReadMetadataLogRequest()
	offsets := kmsg.NewPtrListOffsetsRequest()
	offsets.Version = 7
	for name := range s.ids {
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = name
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp = -1
		topic.Partitions = append(topic.Partitions, p)
		offsets.Topics = append(offsets.Topics, topic)
	}
	groups, txns := kmsg.NewPtrListGroupsRequest(), kmsg.NewPtrListTransactionsRequest()
	groups.Version = 4
	for _, req := range []kmsg.Request{log, offsets, groups, txns} {
		o, err := s.call(req, nil)
		require.NoError(t, err)
		require.NotNil(t, o.resp, "%s: %s", apiName(req.Key()), o.end)
		flat := flatten(s, o)
		for _, path := range slices.Sorted(maps.Keys(flat)) {
			fmt.Fprintf(&out, "%s %s=%v\n", apiName(req.Key()), path, flat[path])
		}
	}
	return out.String()
}

// TestRights sends everything that the script has as somebody without any rights: it is
// refused as Kafka refuses it, and changes nothing.
func TestRights(t *testing.T) {
	root, nobody := startGuarded(t)
	serves := [2]map[int16][2]int16{served(t, nobody[0]), served(t, nobody[1])}
	for _, st := range rightsSetup() {
		for _, version := range versionsOf(st, serves) {
			_, err := run(root, st, version)
			require.NoError(t, err)
		}
	}
	before := seen(t, root[1])
	var found []difference
	requests, refused := 0, refusals{}
	for _, st := range slices.Concat(script(), shareRights()) {
		st.until, st.keep = nil, nil
		for _, version := range versionsOf(st, serves) {
			answers, err := ask(nobody, st, version)
			require.NoError(t, err, "%s v%d, %s", apiName(key(st)), version, st.name)
			found = append(found, differ(answers, st, version)...)
			refused.add(key(st), version, answers)
			requests++
		}
	}
	refused.askMirrors(t, nobody[1])
	t.Logf("%d requests to each side, %d differences", requests, len(found))
	require.Equal(t, before, seen(t, root[1]), "nothing has changed")
	judge(t, found, append(rightsKnown(), knownDifferences()...), false)
	refused.check(t)
}

// rightsSetup makes what there is to be had.
func rightsSetup() []step { return slices.Concat(topicSteps(), produceSteps()) }

// rightsKnown are differences that only who has no rights sees.
func rightsKnown() []known {
	const first = "Who has no right is told that first; Kafka has looked at the request before."
	const top = "What is refused as a whole is told once, at the top."
	return []known{
		{key: 19, step: "an internal topic's name", path: "Topics[*].ErrorCode", kafka: "42 *", kagami: "29 *", why: first},
		{key: 0, path: "Topics[*].Partitions[*].ErrorCode", kafka: "2 *", kagami: "29 *", why: first},
		{key: 2, step: "a partition twice", why: "What is malformed is answered once, whoever sends it."},
		{key: 44, path: "Resources[*].ErrorCode", kafka: "42 *", kagami: "29 *", why: first},
		{key: 33, path: "Resources[*].ErrorCode", kafka: "42 *", kagami: "29 *", why: first},
		{key: 43, path: "Topics[*]", kagami: "absent", why: top},
		{key: 45, path: "Topics[*]", kagami: "absent", why: top},
		{key: 45, path: "AllowReplicationFactorChange", why: top},
		{key: 46, path: "Topics[*]", kagami: "absent", why: top},
		{key: 27, step: "without partitions", path: "Markers[*]", kagami: "absent", why: top},
		{key: 10, path: "Coordinators[*].ErrorMessage", kafka: "empty", kagami: "a text", why: "Texts say what is wrong where Kafka sends a code alone."},
		{key: 3, step: "by id", path: "Topics[*].ErrorCode", kafka: "29 *", kagami: "100 *", why: "Whether an id is a topic's isn't told either."},
		{key: 3, step: "by known and unknown id", path: "Topics[*].ErrorCode", kafka: "29 *", kagami: "100 *", why: "Whether an id is a topic's isn't told either."},
		{key: 3, step: "id and name", path: "Topics[*]", why: "Whether an id is a topic's isn't told either."},
		{key: 50, step: "a SCRAM user", path: "Results[*]", why: "Kafka leaves out whom the refusal is about."},
	}
}
