package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// job is what the command line says. Keys: bootstrap, name (client id), topic, and
//
//	produce   count, from, mode=plain|idempotent, codec: writes key k<i mod 7>, value
//	          v<i>, header n=<i>, and prints "acked PARTITION OFFSET VALUE"
//	transact  id, group, input: commits c0-c2, aborts a0 and a1, commits c3 and c4; copies
//	          the first five records of input-0 as p<value> with their offset, and five
//	          more in a transaction that it aborts; then another producer takes the id,
//	          and the old one must be refused: "fenced ERROR"
//	members   group: does "join NAME" and "leave NAME" from standard input, and prints
//	          "record NAME PARTITION OFFSET VALUE" and "left NAME"
//	admin     phase=make|remove, topic, records, group: prints "did STEP DETAIL..." for
//	          each step and "lacks STEP" for one that the library doesn't offer
type job struct {
	settings map[string]string

	mu sync.Mutex
}

func parse(args []string) (*job, error) {
	j := &job{settings: map[string]string{}}
	for _, arg := range args {
		k, v, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, fmt.Errorf("not key=value: %s", arg)
		}
		j.settings[k] = v
	}
	return j, nil
}

func (j *job) text(key string) string { return j.settings[key] }

func (j *job) bootstrap() []string { return strings.Split(j.text("bootstrap"), ",") }

func (j *job) number(key string) int {
	n, _ := strconv.Atoi(j.text(key)) // a test wrote it
	return n
}

// say prints one event.
func (j *job) say(fields ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Println(fields...)
}

// written is a record as all clients write it.
type written struct{ key, value, header string }

func (j *job) records() []written {
	var out []written
	for i := j.number("from"); len(out) < j.number("count"); i++ {
		out = append(out, written{fmt.Sprint("k", i%7), fmt.Sprint("v", i), fmt.Sprint(i)})
	}
	return out
}

// transactions are those of the job transact: values, and whether they are committed.
var transactions = []struct {
	values []string
	commit bool
}{{[]string{"c0", "c1", "c2"}, true}, {[]string{"a0", "a1"}, false}, {[]string{"c3", "c4"}, true}}

// copied is how many records a transaction of the job transact copies.
const copied = 5

// members runs members of a group as standard input says, and ends with it.
func members(ctx context.Context, j *job, run func(context.Context, *job, string) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	leave := map[string]func(){}
	failed := make(chan error, 1)
	orders := make(chan string)
	go func() {
		defer close(orders)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			orders <- in.Text()
		}
	}()
	for {
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		case order, ok := <-orders:
			if !ok {
				return nil
			}
			what, name, _ := strings.Cut(order, " ")
			if what == "leave" {
				leave[name]()
				continue
			}
			member, stop := context.WithCancel(ctx)
			leave[name] = stop
			all.Go(func() {
				if err := run(member, j, name); err != nil {
					select {
					case failed <- fmt.Errorf("member %s: %w", name, err):
					default:
					}
					return
				}
				j.say("left", name)
			})
		}
	}
}

// step reports a step of the job admin.
func (j *job) step(name string, err error, detail ...any) error {
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	j.say(append([]any{"did", name}, detail...)...)
	return nil
}

// errNotFenced: the job transact must end in a refusal.
var errNotFenced = errors.New("a producer whose id was taken over could commit")
