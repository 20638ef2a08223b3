package actors

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"kagami/cluster"
	"kagami/messages"
	pb "kagami/messages/proto"
	"kagami/test/kafka/stub"
)

func ask(t *testing.T, n *mirrorNode, name string, q *pb.Query) (*pb.QueryResult, error) {
	t.Helper()
	b, err := proto.Marshal(q)
	require.NoError(t, err)
	out, err := n.HandleQuery(t.Context(), name, b)
	if err != nil {
		return nil, err
	}
	var res pb.QueryResult
	require.NoError(t, proto.Unmarshal(out, &res))
	return &res, nil
}

var (
	askPartition = &pb.Query{Query: &pb.Query_PartitionState{PartitionState: &pb.PartitionStateQuery{}}}
	askMirror    = &pb.Query{Query: &pb.Query_MirrorSummary{MirrorSummary: &pb.MirrorSummaryQuery{}}}
	askList      = &pb.Query{Query: &pb.Query_ActorList{ActorList: &pb.ActorListQuery{}}}
)

func TestHandleQuery(t *testing.T) {
	src := stubSource(t, 1, 2)
	src.Update(func(s *stub.State) { s.Topics["t"].Partitions[1].Epoch = 6 })
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t")
	id := messages.TopicID{1, 2, 3}
	n.await("lag is known", func() error {
		res, err := ask(t, n, PartitionActor(id, 1), askPartition)
		if err != nil {
			return err
		}
		s := res.GetPartitionState()
		if s.GetState() != "MIRRORING" || s.GetLag() != 0 || s.GetSourceHighWatermark() != 20 || s.GetLogEnd() != 20 ||
			s.GetSourceLeaderEpoch() != 6 || s.GetLeaderEpoch() <= 6 || s.GetMirror() != "m" || s.GetDesired() != "active" || s.GetFetcher() == nil {
			return fmt.Errorf("partition %v", s)
		}
		return nil
	})
	n.await("mirror is reachable", func() error {
		res, err := ask(t, n, MirrorActor("m"), askMirror)
		if err != nil {
			return err
		}
		s := res.GetMirrorSummary()
		if !s.GetSourceReachable() || s.GetSourceClusterId() != "source" || s.GetTopics() != 1 || s.GetPartitions() != 2 ||
			s.GetPartitionsByState()["MIRRORING"] != 2 || s.GetLag() != 0 || s.GetBootstrapServers() != src.Address() {
			return fmt.Errorf("mirror %v", s)
		}
		return nil
	})
	res, err := ask(t, n, NodeActor, askList)
	require.NoError(t, err)
	var names []string
	for _, a := range res.GetActorList().GetActors() {
		names = append(names, a.GetName())
	}
	list := strings.Join(names, " ")
	for _, want := range []string{"controller", "coordinator/2", "mirror/m", "fetcher/m/0-0", PartitionActor(id, 0), PartitionActor(id, 1)} {
		require.Contains(t, list, want)
	}
	res, err = ask(t, n, NodeActor, &pb.Query{Query: &pb.Query_ActorList{ActorList: &pb.ActorListQuery{NamePrefix: "partition/", Limit: 1}}})
	require.NoError(t, err)
	require.Len(t, res.GetActorList().GetActors(), 1)
	require.True(t, res.GetActorList().GetTruncated())

	for _, tc := range []struct {
		name, actor string
		query       *pb.Query
		want        error
	}{
		{"unknown mirror", MirrorActor("x"), askMirror, cluster.ErrUnknownActor},
		{"unknown topic id", PartitionActor(messages.TopicID{9}, 0), askPartition, cluster.ErrUnknownActor},
		{"no such partition", PartitionActor(id, 2), askPartition, messages.ErrNotLeader},
		{"not a partition", "partition/x", askPartition, messages.ErrInvalidRequest},
		{"not a number", "partition/" + id.String() + "/x", askPartition, messages.ErrInvalidRequest},
		{"wrong question", MirrorActor("m"), askPartition, cluster.ErrUnknownActor},
		{"no question", NodeActor, &pb.Query{}, cluster.ErrUnknownActor},
		{"no actor", "", askList, cluster.ErrUnknownActor},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := ask(t, n, tc.actor, tc.query); err == nil {
				t.Fatal("no error")
			} else {
				require.ErrorIs(t, err, tc.want)
			}
		})
	}
	_, err = n.HandleQuery(t.Context(), NodeActor, []byte{0xff})
	require.ErrorIs(t, err, messages.ErrInvalidRequest)
}
