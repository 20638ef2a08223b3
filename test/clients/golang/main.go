// Command golang reads a topic as members of a group with a Go client that isn't ours:
//
//	golang sarama|segmentio BOOTSTRAP TOPIC GROUP MEMBERS COUNT
//
// It prints "MEMBER PARTITION OFFSET VALUE" for each record, commits, and leaves the
// group when COUNT records have been read by all members together and each member has
// read one at least.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// job is what the command line says.
type job struct {
	bootstrap    []string
	topic, group string
	members      int
	enough       func()

	mu   sync.Mutex
	left int
	seen map[int]bool
}

// record prints one and says when there are enough.
func (j *job) record(member int, partition int32, offset int64, value []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Println(member, partition, offset, string(value))
	j.seen[member] = true
	if j.left--; j.left <= 0 && len(j.seen) == j.members {
		j.enough()
	}
}

func main() {
	if len(os.Args) != 7 {
		fmt.Fprintln(os.Stderr, "usage: golang sarama|segmentio BOOTSTRAP TOPIC GROUP MEMBERS COUNT")
		os.Exit(2)
	}
	members, errM := strconv.Atoi(os.Args[5])
	count, errC := strconv.Atoi(os.Args[6])
	if errM != nil || errC != nil {
		fmt.Fprintln(os.Stderr, "members and count are numbers")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	j := &job{bootstrap: strings.Split(os.Args[2], ","), topic: os.Args[3], group: os.Args[4], members: members, left: count, seen: map[int]bool{}, enough: enough}
	run := map[string]func(context.Context, *job, int) error{"sarama": saramaMember, "segmentio": segmentioMember}[os.Args[1]]
	if run == nil {
		fmt.Fprintln(os.Stderr, "unknown client:", os.Args[1])
		os.Exit(2)
	}
	var all sync.WaitGroup
	failed := make(chan error, members)
	for m := range members {
		all.Go(func() {
			if err := run(ctx, j, m); err != nil {
				failed <- fmt.Errorf("member %d: %w", m, err)
				enough()
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	default:
	}
}
