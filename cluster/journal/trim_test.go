package journal

import (
	"slices"
	"testing"

	"kagami/messages"
)

// A node that has never come (a wrong peer in the configuration, one that was taken
// out) doesn't keep a dead one from being given up.
func TestTrimGivesUpBesideTheUnknown(t *testing.T) {
	nodes := []Progress{{Node: 1, Needs: 90, Live: true}, {Node: 2, Needs: 20}, {Node: 3, Needs: 50}, {Node: 9}}
	keep, givenUp := Trim(10, 200, 100, nodes)
	if keep != 50 || !slices.Equal(givenUp, []messages.NodeID{9, 2}) {
		t.Errorf("keeps from %d, gives up %v", keep, givenUp)
	}
	if keep, givenUp = Trim(50, 200, 100, nodes); keep != 90 || !slices.Equal(givenUp, []messages.NodeID{9, 3}) {
		t.Errorf("then keeps from %d, gives up %v", keep, givenUp)
	}
	if keep, givenUp = Trim(10, 50, 100, nodes); keep != 10 || len(givenUp) > 0 {
		t.Errorf("below the limit it keeps from %d, gives up %v", keep, givenUp)
	}
}

// TestTrimBesideAnUnknownHole: a live node whose report is below the stream's first
// message has replicas that miss something, and doesn't say so yet. Nobody may be given
// up because of them.
func TestTrimBesideAnUnknownHole(t *testing.T) {
	nodes := []Progress{{Node: 1, Needs: 40}, {Node: 2, Needs: 90, Live: true}, {Node: 3, Needs: 20, Live: true}}
	keep, givenUp := Trim(30, 100, 10, nodes)
	if keep != 40 || len(givenUp) > 0 {
		t.Fatal(keep, givenUp)
	}
	nodes[2].Needs = 80 // it has met its hole, and its replicas are known to be behind or copied
	keep, givenUp = Trim(30, 100, 10, nodes)
	if keep != 80 || len(givenUp) != 1 {
		t.Fatal(keep, givenUp)
	}
}
