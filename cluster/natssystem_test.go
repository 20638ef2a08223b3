package cluster

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/internal/clock"
	"kagami/messages"
)

// peersOf are the nodes whose servers have a copy of a stream.
func peersOf(t *testing.T, st *Stream) (peers []messages.NodeID, leader messages.NodeID) {
	t.Helper()
	info := new(jetstream.StreamInfo)
	if err := st.streams.tryAPI(testContext(t), "STREAM.INFO."+st.stream, nil, info); err != nil || info.Cluster == nil {
		return nil, messages.NoNode
	}
	leader, _ = natsNode(info.Cluster.Leader)
	peers = append(peers, leader)
	for _, p := range info.Cluster.Replicas {
		id, _ := natsNode(p.Name)
		peers = append(peers, id)
	}
	slices.Sort(peers)
	return slices.Compact(peers), leader
}

// A dead server is taken out: its streams get other copies, two of the three that are
// left are a majority again, and an empty one of its name is let in again.
func TestServerRemoved(t *testing.T) {
	c := startTestCluster(t, 4, nil)
	all := []messages.NodeID{1, 2, 3, 4}
	s := openTestStreams(t, c.servers[1], nil)
	var streams []*Stream
	for _, name := range []string{"0", "1", "2", "3", "4", "5"} {
		st, err := s.Open(testContext(t), name, 3)
		require.NoError(t, err)
		streams = append(streams, st)
	}
	var had []*Stream
	for _, st := range streams {
		eventually(t, "peers of "+st.Name(), func() bool { peers, _ := peersOf(t, st); return len(peers) == 3 })
		if peers, _ := peersOf(t, st); slices.Contains(peers, 4) {
			had = append(had, st)
		}
	}
	require.NotEmpty(t, had)
	members, err := c.servers[1].JournalServers(append(all, 9))
	require.NoError(t, err)
	require.Equal(t, all, members)

	c.stop(4)
	eventually(t, "node 4 is taken out", func() bool {
		if err := c.servers[1].RemoveServer(testContext(t), 4); err != nil {
			t.Log(err)
			return false
		}
		members, err := c.servers[2].JournalServers(all)
		return err == nil && slices.Equal(members, []messages.NodeID{1, 2, 3})
	})
	require.NoError(t, c.servers[1].RemoveServer(testContext(t), 4), "again")
	for _, st := range streams {
		eventually(t, "copies of "+st.Name(), func() bool {
			peers, _ := peersOf(t, st)
			state, err := st.State(testContext(t))
			return slices.Equal(peers, []messages.NodeID{1, 2, 3}) && err == nil && len(state.Current) == 3
		})
	}
	c.stop(3) // two of three make streams
	_, err = s.Open(testContext(t), "two", 1)
	require.NoError(t, err)
	c.start(3)

	c.dir = t.TempDir() // node 4 comes with an empty folder
	c.start(4)
	eventually(t, "node 4 is one of them again", func() bool {
		members, err := c.servers[1].JournalServers(all)
		return err == nil && slices.Equal(members, all)
	})
	other := openTestStreams(t, c.servers[4], nil)
	node := messages.NodeID(4)
	st, err := other.OpenStream(testContext(t), StreamOptions{Name: "on-4", Replicas: 1, Leader: &node})
	require.NoError(t, err)
	eventually(t, "a stream on node 4", func() bool { _, leader := peersOf(t, st); return leader == 4 })
}

// Copies and leads of the streams follow the servers: a fourth and a fifth get their
// share, and give it back when they are taken out.
func TestJournalCopiesFollowServers(t *testing.T) {
	c := startTestCluster(t, 3, nil)
	s := openTestStreams(t, c.servers[1], nil)
	j := &Journal{opts: JournalOptions{Streams: s}, log: zap.NewNop(), clock: clock.Wall{}, shards: map[int32]*shard{}}
	for id := range int32(8) {
		st, err := s.Open(testContext(t), ShardName(id), 3)
		require.NoError(t, err)
		j.shards[id] = &shard{id: id, stream: st}
	}
	v := PeersView{Turn: true}
	settle := func(nodes ...messages.NodeID) (copies, leads map[messages.NodeID]int) {
		t.Helper()
		v.Nodes, v.Live = nodes, nodes
		eventually(t, fmt.Sprint("copies on ", nodes), func() bool {
			err := j.keepPeers(testContext(t), v)
			require.True(t, err == nil || retriable(err), "%v", err)
			copies, leads = map[messages.NodeID]int{}, map[messages.NodeID]int{}
			for _, sh := range j.shards {
				state, err := sh.stream.State(testContext(t))
				if err != nil || state.Moving || len(state.Current) != 3 {
					return false
				}
				leads[state.Leader]++
				for _, id := range state.Current {
					copies[id]++
				}
			}
			low, high, fewest, most := 99, 0, 99, 0
			for _, id := range nodes {
				low, high, fewest, most = min(low, copies[id]), max(high, copies[id]), min(fewest, leads[id]), max(most, leads[id])
			}
			return len(copies) == len(nodes) && high-low <= 2 && most-fewest <= 2
		})
		return copies, leads
	}
	settle(1, 2, 3)
	c.peers[4] = freeAddress(t)
	c.start(4)
	copies, leads := settle(1, 2, 3, 4)
	t.Log(copies, leads)
	c.peers[5] = freeAddress(t)
	c.start(5)
	copies, leads = settle(1, 2, 3, 4, 5)
	t.Log(copies, leads)
	c.stop(4)
	v.Gone = []messages.NodeID{4}
	copies, leads = settle(1, 2, 3, 5)
	t.Log(copies, leads)
}

func TestDecidePeers(t *testing.T) {
	nodes := func(ids ...messages.NodeID) []messages.NodeID { return ids }
	whole := func(leader messages.NodeID, on ...messages.NodeID) StreamState {
		return StreamState{Leader: leader, Replicas: 3, Current: on}
	}
	none := peersAction{remove: messages.NoNode, evacuate: messages.NoNode, lead: messages.NoNode}
	act := func(f func(*peersAction)) *peersAction { a := none; f(&a); return &a }
	even := map[int32]StreamState{0: whole(1, 1, 2, 3), 1: whole(2, 1, 2, 3), 2: whole(3, 1, 2, 3)}
	moving := whole(3, 1, 2, 3)
	moving.Moving = true
	for name, row := range map[string]struct {
		v       PeersView
		servers []messages.NodeID
		streams map[int32]StreamState
		want    *peersAction
	}{
		"even":                        {PeersView{Live: nodes(1, 2, 3)}, nodes(1, 2, 3), even, nil},
		"taken out":                   {PeersView{Live: nodes(1, 2), Gone: nodes(3)}, nodes(1, 2, 3), even, act(func(a *peersAction) { a.remove = 3 })},
		"taken out, another is away":  {PeersView{Live: nodes(1), Gone: nodes(3)}, nodes(1, 2, 3), even, act(func(a *peersAction) { a.remove = 3 })},
		"taken out and alive":         {PeersView{Live: nodes(1, 2, 3), Gone: nodes(3)}, nodes(1, 2, 3), even, nil},
		"taken out already":           {PeersView{Live: nodes(1, 2, 3), Gone: nodes(9)}, nodes(1, 2, 3), even, nil},
		"a fourth":                    {PeersView{Live: nodes(1, 2, 3, 4)}, nodes(1, 2, 3, 4), even, act(func(a *peersAction) { a.shard, a.evacuate = 0, 2 })},
		"a fourth, another is away":   {PeersView{Live: nodes(1, 2, 4)}, nodes(1, 2, 3, 4), even, nil},
		"a fourth, one moves already": {PeersView{Live: nodes(1, 2, 3, 4)}, nodes(1, 2, 3, 4), map[int32]StreamState{0: even[0], 1: even[1], 2: moving}, nil},
		"a copy isn't whole":          {PeersView{Live: nodes(1, 2, 3, 4)}, nodes(1, 2, 3, 4), map[int32]StreamState{0: even[0], 1: even[1], 2: whole(1, 1, 2)}, nil},
		"leads":                       {PeersView{Live: nodes(1, 2, 3)}, nodes(1, 2, 3), map[int32]StreamState{0: whole(1, 1, 2, 3), 1: whole(1, 1, 2, 3)}, act(func(a *peersAction) { a.shard, a.lead = 0, 2 })},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := decidePeers(row.v, row.servers, row.streams)
			require.Equal(t, row.want != nil, ok)
			if ok {
				require.Equal(t, *row.want, got)
			}
		})
	}
}
