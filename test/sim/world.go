package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kagami/messages"
)

const (
	simMirror     = "m"
	simNodes      = 2 // of a cluster
	simPartitions = 2
)

// topics has one partition each.
var topics = []string{"t0", "t1"}

func topicOf(p int) messages.TopicPartition { return messages.TopicPartition{Topic: topics[p]} }

// world is the whole simulation: two clusters, a and b, each the other's source.
type world struct {
	clusters [2]*cluster
	actions  []*action // what may happen next, oldest first
	ids      uint32
	tracing  bool // keep every command
	trace    []string
	telling  bool // keep what scripts show
	events   []string
	broken   string // the first invariant that was broken, and how
}

// action is something that is on its way and can happen now.
type action struct {
	name string
	node *node // whose crash ends it; nil: a message, or no node's
	net  bool  // the network may lose or repeat it
	lost func()
	run  func(fault bool) // fault: it goes wrong, if it can
}

func newWorld() *world {
	w := &world{}
	w.clusters[0], w.clusters[1] = newCluster(w, "a"), newCluster(w, "b")
	w.clusters[0].source, w.clusters[1].source = w.clusters[1], w.clusters[0]
	for _, c := range w.clusters {
		c.coord.load(c)
		c.publish()
	}
	return w
}

func (w *world) note(format string, args ...any) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf(format, args...))
	}
}

// event is what scripts show.
func (w *world) event(format string, args ...any) {
	if w.tracing || w.telling {
		line := fmt.Sprintf(format, args...)
		w.note("    %s", line)
		w.events = append(w.events, line+"\n")
	}
}

func (w *world) later(a *action) { w.actions = append(w.actions, a) }

func (w *world) id() uint32 { w.ids++; return w.ids }

// nameOf is what commands call the i-th action: its name, and a number where
// older ones have the same.
func (w *world) nameOf(i int) string {
	nth := 1
	for _, a := range w.actions[:i] {
		if a.name == w.actions[i].name {
			nth++
		}
	}
	if nth == 1 {
		return w.actions[i].name
	}
	return w.actions[i].name + "#" + strconv.Itoa(nth)
}

func (w *world) find(name string) int {
	nth := 1
	if base, n, ok := strings.Cut(name, "#"); ok {
		name = base
		nth, _ = strconv.Atoi(n)
	}
	for i, a := range w.actions {
		if a.name != name {
			continue
		}
		if nth--; nth == 0 {
			return i
		}
	}
	return -1
}

// exec makes a command happen and checks every invariant. It reports whether the
// command had any meaning here and now; the rest of a shortened run goes on
// without it.
func (w *world) exec(command string) bool {
	f := strings.Fields(command)
	if len(f) == 0 {
		return false
	}
	w.note("%s", command)
	did := false
	switch f[0] {
	case "run", "fail", "lose", "twice":
		did = len(f) == 2 && w.act(f[0], f[1])
	default:
		if o, ok := outside[f[0]]; ok {
			did = o.run(w, f[1:])
		}
	}
	w.check()
	return did
}

// act lets something happen that is on its way.
func (w *world) act(how, name string) bool {
	i := w.find(name)
	if i < 0 {
		return false
	}
	a := w.actions[i]
	w.actions = slices.Delete(w.actions, i, i+1)
	switch {
	case how == "lose" && a.net:
		if a.lost != nil {
			a.lost()
		}
	case how == "twice" && a.net:
		again := *a
		w.later(&again)
		a.run(false)
	default:
		a.run(how == "fail")
	}
	return true
}

// drop forgets what a crashed node had begun.
func (w *world) drop(n *node) {
	w.actions = slices.DeleteFunc(w.actions, func(a *action) bool { return a.node == n })
}

func (w *world) cluster(name string) *cluster {
	for _, c := range w.clusters {
		if c.name == name {
			return c
		}
	}
	return nil
}
