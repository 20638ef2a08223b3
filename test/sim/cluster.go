package sim

import (
	"slices"

	"kagami/fsm"
	"kagami/messages"
)

// link is how a cluster is connected to its source.
type link int8

const (
	linkUp link = iota + 1
	linkDown
	linkForeign // the addresses lead to another cluster (row 23)
)

// topicImage is what the metadata says of one partition (a topic of its own).
type topicImage struct {
	desired messages.Desired
	leader  int
	epoch   int32
}

// cluster is one side. What is durable: log, replicas, the image.
type cluster struct {
	w        *world
	name     string
	source   *cluster
	image    []topicImage // by partition; the controller's truth
	version  int
	replicas []*replica
	nodes    []*node
	coord    coordinator
	log      []fsm.Record // __mirror_state
	known    *fsm.Shard   // the fold over log: what any coordinator would know
	audits   []audit

	link   link
	blind  bool // look-ups of LMEs find nothing: the source's state is lost
	silent bool // look-ups of LMEs fail
	hints  bool // it names leaders in its errors (Fetch v16+)

	follower follower
	behind   map[int]bool // partitions that the follower has to cut yet
	support  bool
}

func newCluster(w *world, name string) *cluster {
	c := &cluster{w: w, name: name, link: linkUp, hints: true, follower: followerUp, behind: map[int]bool{}, known: fsm.NewShard(0)}
	for p := range simPartitions {
		c.image = append(c.image, topicImage{desired: messages.DesiredNone, leader: p % simNodes})
		c.replicas = append(c.replicas, newReplica())
		c.audits = append(c.audits, newAudit())
	}
	for id := range simNodes {
		c.nodes = append(c.nodes, newNode(c, id))
	}
	return c
}

// publish sends the image to every node; each applies the newest it has seen.
func (c *cluster) publish() {
	c.version++
	version, image := c.version, slices.Clone(c.image)
	for _, n := range c.nodes {
		n.local("image", func(bool) { n.see(version, image) })
	}
}

// bump is the controller's rule.
func (c *cluster) bump(p int, least int32) {
	c.image[p].epoch = max(least, c.image[p].epoch) + 1
	c.publish()
}

func (c *cluster) stored(p int) messages.PartitionState {
	return c.known.Get(simMirror, topicOf(p), messages.NoOffset)
}

// append stores one record of __mirror_state and checks what it claims.
func (c *cluster) append(r fsm.Record) {
	before := make([]messages.PartitionState, simPartitions)
	for p := range before {
		before[p] = c.stored(p)
	}
	c.log = append(c.log, r)
	if err := c.known.Apply(r); err != nil {
		c.w.fail(invRecord, "%s: %v", c.name, err)
	}
	for p := range before {
		c.recorded(p, r, before[p], c.stored(p))
	}
}

// described is what DescribeClusterMirrors says of a partition.
type described struct {
	listed bool // it is in a mirror here
	known  bool // somebody leads it, and so reports it
	state  messages.State
	lme    int32
}

// describe merges the answers of all nodes: who leads a partition reports it. One
// that is in a mirror and led by nobody at this moment isn't reported at all;
// whoever takes that for "in no mirror" cuts an original to zero while it is being
// copied (found by seed 4743 of an earlier generator).
func (c *cluster) describe(p int) described {
	d := described{listed: c.image[p].desired != messages.DesiredNone, lme: messages.NoEpoch}
	for _, n := range c.nodes {
		pt := n.parts[p]
		if v := pt.core.View(); d.listed && pt.epoch >= 0 && (!d.known || v.LME >= d.lme) {
			d.known, d.state, d.lme = true, v.State, v.LME
			if v.State == messages.StateStopped && !n.gates[p].open() {
				d.state = messages.StateStopping // stored, not opened yet
			}
		}
	}
	return d
}

// loops: a start or an alignment with this cluster as the source must not go on.
func (d described) loops() bool { return d.listed && d.state != messages.StateStopped }

// writable: clients may write by what the metadata and the log say.
func (c *cluster) writable(p int) bool {
	d := c.image[p].desired
	return d == messages.DesiredNone || d == messages.DesiredStopped && c.stored(p).State == messages.StateStopped
}
