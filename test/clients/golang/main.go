// Command golang does one job with a Go client of Kafka, for test/e2e:
//
//	golang CLIENT JOB key=value...
//
// The jobs and what they print are those of job.go; clients in other languages beside
// this folder do the same. `golang versions` prints the clients and their versions.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

// client is what one library offers; nil is a job that it can't do.
type client struct {
	module   string
	produce  func(context.Context, *job) error
	transact func(context.Context, *job) error
	member   func(ctx context.Context, j *job, name string) error // until ctx ends; it leaves the group then
	admin    func(context.Context, *job) error
}

var clients = map[string]client{
	"franz-go":  {"github.com/twmb/franz-go", franzProduce, franzTransact, franzMember, franzAdmin},
	"sarama":    {"github.com/IBM/sarama", saramaProduce, saramaTransact, saramaMember, saramaAdmin},
	"segmentio": {"github.com/segmentio/kafka-go", segmentioProduce, nil, segmentioMember, segmentioAdmin},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 1 && args[0] == "versions" {
		return versions()
	}
	if len(args) < 2 {
		return fmt.Errorf("usage: golang versions | CLIENT JOB key=value...")
	}
	c, ok := clients[args[0]]
	if !ok {
		return fmt.Errorf("unknown client: %s", args[0])
	}
	j, err := parse(args[2:])
	if err != nil {
		return err
	}
	do := map[string]func(context.Context, *job) error{
		"produce": c.produce, "transact": c.transact, "admin": c.admin,
		"members": func(ctx context.Context, j *job) error { return members(ctx, j, c.member) },
	}[args[1]]
	if do == nil {
		return fmt.Errorf("%s has no %s", args[0], args[1])
	}
	return do(ctx, j)
}

func versions() error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return fmt.Errorf("the program doesn't know what it is made of")
	}
	for name, c := range clients {
		for _, dep := range info.Deps {
			if dep.Path == c.module {
				fmt.Println(name, dep.Version)
			}
		}
	}
	return nil
}
