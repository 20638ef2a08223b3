package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/cluster"
	"kagami/messages"
	"kagami/persistence/metadata"
)

// purged waits until the journal of the metadata has lost its first messages and
// the metadata log its beginning.
func (c *testNodes) purged(by messages.NodeID) {
	c.t.Helper()
	await(c.t, "trimmed metadata journal", func() error {
		st, err := c.nodes[by].streams.Lookup(c.t.Context(), cluster.MetadataJournal)
		if err != nil {
			return err
		}
		first, _, err := st.Bounds(c.t.Context())
		if start := c.nodes[by].metaReplica.Log().LogStart(); err == nil && (first == 1 || start == 0) {
			err = fmt.Errorf("journal from %d, log from %d", first, start)
		}
		return err
	})
}

// A fourth node comes when the journal's beginning is gone: it copies the metadata
// log and its snapshot, is a member, gets partitions of new topics and leads some.
// It goes and comes again.
func TestSeveralNodesFourthJoins(t *testing.T) {
	c := newTestNodes(t, []messages.NodeID{1, 2, 3}, "metadata.log.max.record.bytes.between.snapshots=3000")
	c.start(1, 2, 3)
	_, cl, adm := c.connect(1)
	for i := range 30 {
		c.create(adm, fmt.Sprint("old-", i), 2)
	}
	produce(t, cl, "old-0", 20)
	c.purged(1)

	c.peers[4] = testAddress(t)
	c.start(4)
	require.NotZero(t, c.nodes[4].metaReplica.Log().LogStart())
	require.NotNil(t, c.nodes[4].store.Image().Topic("old-7"))
	await(t, "node 4 in everybody's metadata", func() error {
		for id, n := range c.nodes {
			if n.store.Image().Node(4) == nil || !slices.Contains(n.members.Live(), 4) {
				return fmt.Errorf("node %d doesn't know it", id)
			}
		}
		return nil
	})
	c.create(adm, "new", 64) // ids are random: with 16 it leads none in one run of a hundred
	await(t, "the new topic on node 4", func() error {
		if c.nodes[4].store.Image().Topic("new") == nil {
			return errors.New("it isn't known there")
		}
		return nil
	})
	has := 0
	for p, part := range c.nodes[4].store.Image().Topic("new").Partitions {
		if part.Leader == 4 {
			has++
			await(t, "leader of its partition", func() error {
				_, err := c.nodes[4].replicas.Leading(messages.TopicPartition{Topic: "new", Partition: int32(p)}, messages.TopicID{})
				return err
			})
		}
	}
	require.Positive(t, has)

	c.stop(4)
	c.create(adm, "while-away", 2)
	c.start(4)
	require.NotNil(t, c.nodes[4].store.Image().Topic("while-away"))
}

// A node comes back with an empty disk: it copies everything and leads again.
func TestSeveralNodesWipedDisk(t *testing.T) {
	c := newTestNodes(t, []messages.NodeID{1, 2, 3}, "metadata.log.max.record.bytes.between.snapshots=3000")
	c.start(1, 2, 3)
	_, cl, adm := c.connect(1)
	for i := range 20 {
		c.create(adm, fmt.Sprint("t-", i), 2)
	}
	produce(t, cl, "t-0", 50)
	c.purged(1)
	id := c.nodes[1].clusterID

	c.stop(2)
	require.NoError(t, os.RemoveAll(c.folder(2)))
	produce(t, cl, "t-0", 50)
	c.start(2)
	require.Equal(t, id, c.nodes[2].clusterID)
	for i := range 20 {
		c.equal(fmt.Sprint("t-", i), 2, 1, 2)
	}
	require.EqualValues(t, 100, end(t, adm, "t-0"))
	await(t, "it leads its share again", func() error {
		for i := range 20 {
			for p := range c.nodes[1].store.Image().Topic(fmt.Sprint("t-", i)).Partitions {
				if _, err := c.nodes[2].replicas.Leading(messages.TopicPartition{Topic: fmt.Sprint("t-", i), Partition: int32(p)}, messages.TopicID{}); err == nil {
					return nil
				}
			}
		}
		return fmt.Errorf("it leads nothing")
	})
}

// A folder of another cluster is refused before it reaches the journal of the
// others, and so is a journal folder of another cluster; both ids are named.
func TestSeveralNodesForeignFolders(t *testing.T) {
	c := newTestNodes(t, []messages.NodeID{1, 2, 3})
	c.start(1, 2, 3)
	id := c.nodes[1].clusterID
	c.stop(3)
	own := c.folder(3) + "-own"
	require.NoError(t, os.Rename(c.folder(3), own))

	alone, err := tryNode(t, c.folder(3), "node.id=3")
	require.NoError(t, err)
	foreign := alone.clusterID
	stopTestNode(t, alone)
	err = c.try(3)
	require.ErrorIs(t, err, cluster.ErrForeignCluster)
	require.ErrorContains(t, err, id)
	require.ErrorContains(t, err, foreign)
	require.NoDirExists(t, filepath.Join(c.folder(3), journalFolder, "jetstream"), "it didn't even open a journal")

	// The right data with a journal of elsewhere.
	other := newTestNodes(t, []messages.NodeID{1, 2, 3})
	other.start(1, 2, 3)
	strange := other.nodes[1].clusterID
	other.stop(3)
	require.NoError(t, os.Rename(filepath.Join(own, journalFolder), filepath.Join(c.dir, "kept")))
	require.NoError(t, os.CopyFS(filepath.Join(own, journalFolder), os.DirFS(filepath.Join(other.folder(3), journalFolder))))
	require.NoError(t, os.RemoveAll(c.folder(3)))
	require.NoError(t, os.Rename(own, c.folder(3)))
	err = c.try(3)
	require.ErrorIs(t, err, cluster.ErrForeignCluster)
	require.ErrorContains(t, err, id)
	require.ErrorContains(t, err, strange)

	// With its own folders it is taken.
	require.NoError(t, os.RemoveAll(filepath.Join(c.folder(3), journalFolder)))
	require.NoError(t, os.Rename(filepath.Join(c.dir, "kept"), filepath.Join(c.folder(3), journalFolder)))
	c.start(3)
	require.Equal(t, id, c.nodes[3].clusterID)
}

// A node that was away until the journal went on without it, and the metadata log
// with it, takes a snapshot and copies what it missed.
func TestSeveralNodesAwayForLong(t *testing.T) {
	c := newTestNodes(t, []messages.NodeID{1, 2, 3}, "metadata.log.max.record.bytes.between.snapshots=20000", "kagami.journal.max.bytes=1048576")
	c.start(1, 2, 3)
	_, cl, adm := c.connect(1)
	c.create(adm, "t", 1)
	c.stop(3)
	has := c.nodes[1].store.Image().Offset()
	st, err := c.nodes[1].streams.Lookup(t.Context(), cluster.MetadataJournal)
	require.NoError(t, err)
	_, had, err := st.Bounds(t.Context())
	require.NoError(t, err)
	produce(t, cl, "t", 10)
	big := *c.nodes[1].store.Image().Node(1)
	for i := range 30 { // more than the half of what the journal may hold
		big.Rack = strings.Repeat(fmt.Sprint(i%10), 30000)
		out := c.nodes[1].controller.Submit(t.Context(), messages.Requester{}, messages.RegisterNode{Node: big})
		require.NoError(t, errors.Join(out.Err, itemErrors(out.Items)))
	}
	await(t, "journal and metadata log that begin above what node 3 has", func() error {
		first, _, err := st.Bounds(t.Context())
		if start := c.nodes[1].metaReplica.Log().LogStart(); err == nil && (start <= has || first <= had+1) {
			err = fmt.Errorf("they begin at %d and %d, node 3 has %d and %d", first, start, had, has)
		}
		return err
	})
	c.start(3)
	require.Equal(t, big.Rack, c.nodes[3].store.Image().Node(1).Rack)
	require.Greater(t, c.nodes[3].metaReplica.Log().LogStart(), has)
	c.equal("t", 1, 1, 3)
}

// A running node whose metadata goes on without it takes a snapshot of another node and
// goes on from there, topics that came and went in between included.
func TestSeveralNodesMissMetadata(t *testing.T) {
	c := newTestNodes(t, []messages.NodeID{1, 2, 3}, "metadata.log.max.record.bytes.between.snapshots=20000")
	c.start(1, 2, 3)
	_, cl, adm := c.connect(1)
	for _, name := range []string{"stays", "goes", "again"} {
		c.create(adm, name, 3)
		produce(t, cl, name, 5)
	}
	slow := messages.NodeID(3)
	if c.nodes[1].store.Image().Controller() == slow {
		slow = 2
	}
	n := c.nodes[slow]
	hold, held := make(chan struct{}), make(chan struct{}, 1)
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	has := n.store.Image().Offset()
	cancel := n.store.Subscribe(func(d metadata.Delta) {
		if d.New.Offset() > has {
			select {
			case held <- struct{}{}:
			default:
			}
			<-hold
		}
	})
	defer cancel()
	c.create(adm, "comes", 3)
	<-held
	at := n.store.Image().Offset()
	for _, name := range []string{"goes", "again"} {
		_, err := adm.DeleteTopic(t.Context(), name)
		require.NoError(t, err)
	}
	c.create(adm, "again", 3)
	big := *c.nodes[1].store.Image().Node(1)
	var start int64
	change := 0
	await(t, "a metadata log of others that begins above the image", func() error {
		// A snapshot is begun by a change, and not while another one is written.
		big.Rack = strings.Repeat(fmt.Sprint(change%10), 15000)
		change++
		out := c.nodes[1].controller.Submit(t.Context(), messages.Requester{}, messages.RegisterNode{Node: big})
		require.NoError(t, errors.Join(out.Err, itemErrors(out.Items)))
		if start = c.nodes[1].metaReplica.Log().LogStart(); start <= at+1 {
			return fmt.Errorf("it begins at %d, the image is at %d", start, at)
		}
		return nil
	})
	await(t, "what the others have", func() error {
		if end := n.metaReplica.Log().End(); end <= start {
			return fmt.Errorf("it ends at %d", end)
		}
		return nil
	})
	require.NoError(t, n.metaReplica.RaiseLogStart(t.Context(), start)) // as a copy of theirs would begin
	release()
	await(t, "the image of the others", func() error {
		if img := n.store.Image(); img.Offset() < c.nodes[1].store.Image().Offset() {
			return fmt.Errorf("it is at %d", img.Offset())
		}
		return nil
	})
	require.Equal(t, big.Rack, n.store.Image().Node(1).Rack)
	require.Nil(t, n.store.Image().Topic("goes"))
	require.Equal(t, c.nodes[1].store.Image().Topic("again").ID, n.store.Image().Topic("again").ID)
	_, cl, _ = c.connect(1)
	for _, name := range []string{"stays", "again", "comes"} {
		produce(t, cl, name, 10)
		c.equal(name, 3, 1, slow)
	}
	require.Len(t, n.ended, 0)
	require.Len(t, c.logs.FilterMessage("metadata goes on from a snapshot of another node").All(), 1)
}

// A node that is gone for good is taken out by Kafka's own request: its replicas go to
// the others, which have them whole, and it is refused with its old folder.
func TestSeveralNodesUnregister(t *testing.T) {
	c := newTestNodes(t, []messages.NodeID{1, 2, 3, 4})
	c.start(1, 2, 3, 4)
	_, cl, adm := c.connect(1)
	c.create(adm, "t", 8)
	produce(t, cl, "t", 50)
	unregister := func() error {
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = 4
		resp, err := req.RequestWith(t.Context(), cl)
		if err != nil {
			return err
		}
		if resp.ErrorCode != 0 {
			return fmt.Errorf("%w: %s", kerr.ErrorForCode(resp.ErrorCode), *resp.ErrorMessage)
		}
		return nil
	}
	require.ErrorContains(t, unregister(), "node 4 is alive")
	c.stop(4)
	await(t, "node 4 is dead for the controller", func() error { return unregister() })
	require.ErrorIs(t, unregister(), kerr.BrokerIDNotRegistered)
	await(t, "three replicas on the others", func() error {
		for p, part := range c.nodes[1].store.Image().Topic("t").Partitions {
			if slices.Contains(part.Replicas, 4) || part.Leader == 4 || len(part.Replicas) != 3 {
				return fmt.Errorf("partition %d is on %v", p, part.Replicas)
			}
		}
		return nil
	})
	c.equal("t", 8, 1, 2)
	c.equal("t", 8, 1, 3)
	produce(t, cl, "t", 10)
	require.EqualValues(t, 60, end(t, adm, "t"))

	await(t, "the journal without node 4's server", func() error {
		has, err := c.nodes[2].natsServer.JournalServers([]messages.NodeID{1, 2, 3, 4})
		if err == nil && slices.Contains(has, 4) {
			err = fmt.Errorf("it is on %v", has)
		}
		return err
	})
	for _, name := range []string{cluster.MetadataJournal, "0", "7", "15"} {
		st, err := c.nodes[1].streams.Lookup(t.Context(), name)
		require.NoError(t, err)
		await(t, "three copies of journal "+name, func() error {
			state, err := st.State(t.Context())
			if err == nil && (len(state.Current) != 3 || slices.Contains(state.Current, 4)) {
				err = fmt.Errorf("copies on %v", state.Current)
			}
			return err
		})
	}

	// With its old folder it is refused before its journal meets the others'; with one
	// without partitions, too: its journal is of before.
	err := c.try(4)
	require.ErrorIs(t, err, errLeftovers)
	require.ErrorIs(t, err, cluster.ErrTakenOut)
	require.NoError(t, os.RemoveAll(filepath.Join(c.folder(4), "meta.properties")))
	require.ErrorIs(t, c.try(4), cluster.ErrTakenOut)
	require.NoError(t, os.RemoveAll(c.folder(4)))
	c.start(4)
	await(t, "node 4's server in the journal", func() error {
		has, err := c.nodes[2].natsServer.JournalServers([]messages.NodeID{4})
		if err == nil && len(has) == 0 {
			err = errors.New("it isn't")
		}
		return err
	})
	require.Empty(t, c.nodes[4].store.Image().Gone())
}
