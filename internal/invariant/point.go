//go:build faultpoints && unix

package invariant

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// FaultPoints tells whether this build has fault points. It is a constant, so
// that what only makes up a point's name costs nothing in other builds.
const FaultPoints = true

// points is what the environment says of fault points, and how often each was
// reached by this process.
var points = sync.OnceValue(func() *pointTable {
	return newPointTable(os.Getenv("KAGAMI_FAULT_POINT"), os.Getenv("KAGAMI_FAULT_LIST"))
})

type pointTable struct {
	die  string // name that ends the process, "" = none
	at   int    // the n-th time, from 1
	list string // file, "" = none

	mu      sync.Mutex
	reached map[string]int
}

func newPointTable(point, list string) *pointTable {
	t := &pointTable{die: point, at: 1, list: list, reached: map[string]int{}}
	if name, n, ok := strings.Cut(point, ":"); ok {
		at, err := strconv.Atoi(n)
		if err != nil || at < 1 {
			panic(fmt.Sprintf("KAGAMI_FAULT_POINT=%q: want name or name:n", point))
		}
		t.die, t.at = name, at
	}
	return t
}

// Reached marks a point between two effects. In builds with the tag
// "faultpoints" the process kills itself there if KAGAMI_FAULT_POINT names it
// ("name", or "name:n" for the n-th time), and writes "name:n" as a line of the
// file KAGAMI_FAULT_LIST. In other builds it does nothing and costs nothing. Any
// goroutine may call it.
func Reached(name string) {
	if t := points(); t.note(name) {
		die()
	}
}

// note counts and lists a point, and reports whether the process is to end here.
func (t *pointTable) note(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reached[name]++
	n := t.reached[name]
	if t.list != "" {
		f, err := os.OpenFile(t.list, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = fmt.Fprintf(f, "%s:%d\n", name, n)
			_ = f.Close()
		}
		if err != nil {
			panic(fmt.Sprintf("list fault points: %v", err))
		}
	}
	return name == t.die && n == t.at
}

// die is kill -9: nothing is flushed, nothing deferred runs. Not by package os:
// its first look for a process forks, which a process that is being stopped by a
// signal at that moment didn't survive in one piece ("morestack on gsignal").
func die() {
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		panic(fmt.Sprintf("end at a fault point: %v", err))
	}
	select {} // the signal is on its way
}
