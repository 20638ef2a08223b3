package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"kagami/messages"
)

// A cluster is formed once: by the stream of its metadata log, which carries the
// cluster's id. Making that stream is one step that JetStream's own quorum orders,
// so of two founders one wins and the other joins it, and one that is killed has
// either founded or not. Nodes tell one another what their folders hold only to
// know when it is right to found:
//
//	the stream is there         join, if the own folder is empty or has that id
//	the folder has an id        found with that id: a node that was alone grows
//	a peer's folder has an id   wait for that peer to found
//	all folders are empty,      the lowest node founds with a new id
//	and all peers said so
//
// This file decides, formationrun.go asks and acts.

// formStatus is what a node that looks for its cluster tells the others.
type formStatus struct {
	Version    int             `json:"version"`
	Node       messages.NodeID `json:"node"`
	Process    string          `json:"process"`        // random
	Stored     string          `json:"stored"`         // cluster id in the data folder; "" if it is empty
	Configured string          `json:"configured"`     // cluster id that the configuration demands
	Gone       bool            `json:"gone,omitempty"` // of an answer: the asker was taken out of the cluster
}

const formVersion = 1

// want is the cluster id that the node insists on, "" if it takes any.
func (s formStatus) want() string { return cmp.Or(s.Stored, s.Configured) }

// formView is what a node knows at one moment.
type formView struct {
	self  formStatus
	peers []messages.NodeID // the other configured nodes
	heard map[messages.NodeID]formStatus
	// stream of the metadata log: whether JetStream could say anything, and the
	// cluster id of the stream, "" if there is none.
	streamKnown bool
	streamID    string
}

type formAction int

const (
	formWait  formAction = iota + 1 // ask again
	formJoin                        // the cluster of streamID
	formFound                       // make the stream with this id; "" for a new one
)

func (a formAction) String() string {
	switch a {
	case formWait:
		return "wait"
	case formJoin:
		return "join"
	case formFound:
		return "found"
	default:
		return fmt.Sprintf("action %d", int(a))
	}
}

// formDecision is what to do; why is for people, and says for whom a wait is.
type formDecision struct {
	action formAction
	id     string
	why    string
}

// decideFormation is pure. An error is final: this node can't be in that cluster.
func decideFormation(v formView) (formDecision, error) {
	if v.streamID != "" {
		if want := v.self.want(); want != "" && want != v.streamID {
			return formDecision{}, fmt.Errorf("node %d %s: the cluster of its peers is %s: %w",
				v.self.Node, v.self.insists(), v.streamID, ErrForeignCluster)
		}
		return formDecision{formJoin, v.streamID, "the cluster is there"}, nil
	}
	for _, id := range sortedKeys(v.heard) {
		if peer := v.heard[id]; peer.want() != "" && v.self.want() != "" && peer.want() != v.self.want() {
			return formDecision{}, fmt.Errorf("node %d %s, node %d %s: %w",
				v.self.Node, v.self.insists(), id, peer.insists(), ErrForeignCluster)
		}
	}
	missing := slices.DeleteFunc(slices.Clone(v.peers), func(id messages.NodeID) bool { _, ok := v.heard[id]; return ok })
	switch {
	case !v.streamKnown && len(missing) > 0:
		return formDecision{formWait, "", "the journal has no quorum; nothing was heard of " + nodeList(missing)}, nil
	case !v.streamKnown:
		return formDecision{formWait, "", "the journal has no leader yet"}, nil
	case v.self.Stored != "":
		return formDecision{formFound, v.self.Stored, "this node has data"}, nil
	default:
		return decideEmpty(v, missing), nil
	}
}

// decideEmpty is for a node with an empty folder and no stream. It never founds
// while a node may have data: what is missing may be all that is left.
func decideEmpty(v formView, missing []messages.NodeID) formDecision {
	founder, configured := v.self.Node, v.self.Configured
	var withData []messages.NodeID
	for _, id := range sortedKeys(v.heard) {
		peer := v.heard[id]
		if peer.Stored != "" {
			withData = append(withData, id)
		}
		if slices.Contains(v.peers, id) {
			founder = min(founder, id)
			configured = cmp.Or(configured, peer.Configured)
		}
	}
	switch {
	case len(withData) > 0:
		return formDecision{formWait, "", nodeList(withData) + " has data and founds the cluster"}
	case len(missing) > 0:
		return formDecision{formWait, "", "this node is empty; a cluster is founded when all have said so, nothing was heard of " + nodeList(missing)}
	case founder != v.self.Node:
		return formDecision{formWait, "", fmt.Sprintf("node %d founds the cluster", founder)}
	default:
		return formDecision{formFound, configured, "all nodes are empty"}
	}
}

// insists says why the node takes no other id.
func (s formStatus) insists() string {
	if s.Stored != "" {
		return "has data of cluster " + s.Stored
	}
	return "is configured for cluster " + s.Configured
}

func nodeList(ids []messages.NodeID) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = fmt.Sprint(id)
	}
	if len(ids) == 1 {
		return "node " + words[0]
	}
	return "nodes " + strings.Join(words, ", ")
}
