//go:build faultpoints && unix

package invariant

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
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
	t := newPointTable(os.Getenv("KAGAMI_FAULT_POINT"), os.Getenv("KAGAMI_FAULT_LIST"))
	hold, fifo, _ := strings.Cut(os.Getenv("KAGAMI_FAULT_HOLD"), "=")
	t.hold, t.fifo = strings.Split(hold, ","), fifo
	return t
})

type pointTable struct {
	die  string   // name that ends the process, "" = none
	at   int      // the n-th time, from 1
	list string   // file, "" = none
	hold []string // names, or name:n, that wait at fifo
	fifo string   // "" = none

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
// file KAGAMI_FAULT_LIST. KAGAMI_FAULT_HOLD ("a,b:2=fifo") makes the callers wait
// there while the named pipe exists, until a writer has opened and closed it, so
// that a test can act in the middle. In other builds it does nothing and costs nothing.
// Any goroutine may call it.
func Reached(name string) {
	t := points()
	n := t.note(name)
	if t.ends(name, n) {
		die()
	}
	if t.fifo != "" && (slices.Contains(t.hold, name) || slices.Contains(t.hold, name+":"+strconv.Itoa(n))) {
		t.wait()
	}
}

// wait returns when the pipe has had a writer or isn't there.
func (t *pointTable) wait() {
	f, err := os.Open(t.fifo)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err == nil {
		_, err = io.Copy(io.Discard, f)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		panic(fmt.Sprintf("hold at a fault point: %v", err))
	}
}

// ends reports whether the process is to end where name is reached for the n-th time.
func (t *pointTable) ends(name string, n int) bool { return name == t.die && n == t.at }

// note counts and lists a point, and returns the count.
func (t *pointTable) note(name string) int {
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
	return n
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
