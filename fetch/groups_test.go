package fetch_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/fetch"
	"kagami/messages"
	"kagami/test/kafka/stub"
)

func TestSourceGroups(t *testing.T) {
	for name, versions := range map[string]map[int16]stub.Range{"newest": stub.NewestVersions(), "2.1": stub.Versions21()} {
		t.Run(name, func(t *testing.T) {
			c := startStub(t, 2)
			c.Update(func(st *stub.State) {
				st.Versions = versions
				st.NewTopic("t", messages.TopicID{}, 2)
				st.Groups["g"] = &stub.Group{Type: "classic", State: "Empty", Offsets: map[messages.TopicPartition]stub.GroupOffset{
					tp("t", 0): {Offset: 5, Epoch: 2, Metadata: "m"}, tp("t", 1): {Offset: 0, Epoch: -1},
				}}
				st.Groups["s"] = &stub.Group{Type: "share", State: "Stable"}
			})
			s := newSource(t, c.Address())
			groups, err := s.Groups(t.Context())
			require.NoError(t, err)
			require.Len(t, groups, 2)
			if name == "newest" {
				require.Equal(t, fetch.SourceGroup{Name: "g", Type: "classic", State: "Empty", Protocol: "consumer"}, groups[0])
			}
			all := s.GroupsOffsets(t.Context(), []string{"g", "nobody"})
			require.Len(t, all, 2)
			require.NoError(t, all["g"].Err)
			require.Empty(t, all["nobody"].Offsets)
			offsets := all["g"].Offsets
			require.Equal(t, int64(5), offsets[tp("t", 0)].Offset)
			require.Equal(t, int64(0), offsets[tp("t", 1)].Offset)
			require.Equal(t, "m", offsets[tp("t", 0)].Metadata)
			require.Equal(t, int32(2), offsets[tp("t", 0)].LeaderEpoch)
			brokers, err := s.Brokers(t.Context())
			require.NoError(t, err)
			knows, err := s.KnowsShareGroups(t.Context(), brokers)
			require.NoError(t, err)
			require.False(t, knows)
			require.Zero(t, c.Dropped())

			c.Broker(1).Down()
			groups, err = s.Groups(t.Context())
			require.Error(t, err, "one broker is missing")
			require.Len(t, groups, 2, "those of the other one come anyway")
		})
	}
}

func TestSourceACLs(t *testing.T) {
	c := startStub(t, 1)
	s := newSource(t, c.Address())
	c.Update(func(st *stub.State) {
		r := kmsg.NewDescribeACLsResponseResource()
		r.ResourceType, r.ResourceName, r.ResourcePatternType = kmsg.ACLResourceTypeTopic, "pay", kmsg.ACLResourcePatternTypePrefixed
		a := kmsg.NewDescribeACLsResponseResourceACL()
		a.Principal, a.Host, a.Operation, a.PermissionType = "User:alice", "10.0.0.5", kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
		r.ACLs = append(r.ACLs, a)
		st.ACLs = append(st.ACLs, r)
	})
	acls, err := s.ACLs(t.Context())
	require.NoError(t, err)
	require.Equal(t, []fetch.SourceACL{{ResourceType: 2, ResourceName: "pay", PatternType: 4, Principal: "User:alice", Host: "10.0.0.5", Operation: 3, Permission: 3}}, acls)
	c.Edit(29, func(_ *stub.Request, resp kmsg.Response) { resp.(*kmsg.DescribeACLsResponse).ErrorCode = 54 })
	_, err = s.ACLs(t.Context())
	require.ErrorIs(t, err, fetch.ErrSecurityDisabled)
}
