package messages

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// TestForwardedCommands: every command travels whole.
func TestForwardedCommands(t *testing.T) {
	value := "v"
	commands := []Command{
		CreateTopics{Topics: []NewTopic{{Name: "t", ID: TopicID{1}, Partitions: 3, ReplicationFactor: -1, Assignment: map[int32][]NodeID{0: {1, 2}}, Configs: map[string]*string{"k": &value, "n": nil}}}, ValidateOnly: true},
		DeleteTopics{Names: []string{"t", ""}, IDs: []TopicID{{}, {9}}},
		CreatePartitions{Topics: []PartitionCount{{Topic: "t", Count: 4, Assignment: [][]NodeID{{1}}}}, Mirror: true},
		AlterConfigs{Resources: []ResourceChange{{Type: ResourceTopic, Name: "t", Changes: []ConfigChange{{Name: "k", Op: ConfigAppend, Value: &value}}}}, Replace: true, Internal: true, Expect: map[string]string{"a": "b"}},
		CreateMirror{Name: "m", Configs: []ConfigChange{{Name: "k"}}},
		DeleteMirror{Name: "m"},
		StartMirrorTopics{Mirror: "m", Topics: []MirrorTopic{{Name: "t", ID: TopicID{3}, NumPartitions: 5}}, Include: []string{"a.*"}, Exclude: []string{"b"}},
		StopMirrorTopics{Mirror: "m", Topics: []MirrorTopic{{Name: "t"}}, Patterns: []string{".*"}},
		PauseMirrorTopics{Mirror: "m", Topics: []MirrorTopic{{Name: "t"}}},
		ResumeMirrorTopics{Mirror: "m", Topics: []MirrorTopic{{Name: "t"}}},
		BumpLeaderEpochs{Bumps: []EpochBump{{TopicID: TopicID{4}, Partition: 1, MinLeaderEpoch: -1}}},
		AllocateProducerIDs{Count: 10},
		RegisterNode{Node: Node{ID: 2, Rack: "r", Incarnation: TopicID{5}, Endpoints: []Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "::1", Port: 9}}}},
		UnregisterNode{ID: 4},
		AlterClientQuotas{Entries: []QuotaEntry{{Entity: QuotaEntity{User: QuotaPart{Set: true, Name: "u"}, ClientID: QuotaPart{Set: true, Default: true}}, Values: []QuotaValue{{Key: QuotaProduceRate, Value: new(1.5)}, {Key: QuotaFetchRate}}}}, ValidateOnly: true},
		UpdateFeatures{Updates: []FeatureUpdate{{Name: MirrorVersionFeature, Level: 1, Type: FeatureUpgrade}}, ValidateOnly: true},
		ElectLeaders{Elections: []Election{{TopicID: TopicID{8}, Partition: 1, Node: 2}}},
		ReassignPartitions{Changes: []Reassignment{{TopicID: TopicID{9}, Partition: 1, Replicas: []NodeID{1, 2}, InSync: []NodeID{1}, Resize: true}}},
		CreateACLs{Entries: []ACL{{Type: ACLTopic, Pattern: ACLPrefixed, Name: "t", Principal: "User:a", Host: "*", Operation: ACLRead, Permission: ACLDeny}}},
		FollowACLs{Mirror: "m", Expect: map[string]string{"k": "v"}, Changes: []ACLChange{{ACL: ACL{Type: ACLGroup, Pattern: ACLLiteral, Name: "g", Principal: "User:a", Host: "*", Operation: ACLRead, Permission: ACLAllow}, Gone: true}}},
		DeleteACLs{Filters: []ACLFilter{{Type: ACLTopic, Pattern: ACLPatternMatch, Name: &value, Operation: ACLAny, Permission: ACLPermissionAny}}},
		AlterScram{Changes: []ScramChange{{User: "u", Mechanism: ScramSHA512, Set: ScramCredential{Salt: []byte{1}, StoredKey: []byte{2}, ServerKey: []byte{3}, Iterations: 4096}}}, OnlyFirst: true},
		PlaceLeaders{Live: []NodeID{1}, Behind: map[NodeID][]PartitionKey{1: {{TopicID: TopicID{6}, CreatedAt: 7, Partition: 8}}}, Lagging: []NodeID{2}, Back: 1, Max: 2},
	}
	names := map[string]bool{}
	for _, c := range commands {
		names[reflect.TypeOf(c).Name()] = true
		sent := ForwardedCommand{From: 3, Who: Requester{Principal: "User:a", ClientID: "c"}, Command: c}
		b, err := sent.Encode()
		require.NoError(t, err)
		got, err := DecodeForwardedCommand(b)
		require.NoError(t, err)
		if d := cmp.Diff(sent, got); d != "" {
			t.Errorf("%T (-sent +got):\n%s", c, d)
		}
	}
	for name := range commandNames() {
		require.True(t, names[name], "no test of %s", name)
	}
	for _, bad := range []string{"", "{}", `{"Name":"Unheard","Command":{}}`, `{"Name":"DeleteMirror","Command":{"Name":"m","Newer":1}}`, `{"Name":"DeleteMirror","Command":{},"Newer":1}`} {
		_, err := DecodeForwardedCommand([]byte(bad))
		require.ErrorIs(t, err, ErrUnsupportedVersion, bad)
	}
}

func TestOutcomesTravel(t *testing.T) {
	sent := Outcome{Err: fmt.Errorf("%w: topic t", ErrTopicExists), Offset: 9, Items: []Item{
		{Name: "a", TopicID: TopicID{1}, Partitions: 2, Replication: 3}, {Name: "b", Err: fmt.Errorf("x: %w: %w", ErrTimedOut, ErrStorage)},
		{Partition: 4, FirstProducerID: 5, Count: 6, Err: errors.New("plain")},
	}}
	b, err := EncodeOutcome(sent)
	require.NoError(t, err)
	got, err := DecodeOutcome(b)
	require.NoError(t, err)
	require.ErrorIs(t, got.Err, ErrTopicExists)
	require.EqualError(t, got.Err, sent.Err.Error())
	require.EqualValues(t, 9, got.Offset)
	require.Equal(t, sent.Items[0], got.Items[0])
	require.ErrorIs(t, got.Items[1].Err, ErrTimedOut)
	require.ErrorIs(t, got.Items[1].Err, ErrStorage)
	require.NotErrorIs(t, got.Items[1].Err, ErrTopicExists)
	require.EqualError(t, got.Items[2].Err, "plain")
	require.EqualValues(t, 6, got.Items[2].Count)
}
