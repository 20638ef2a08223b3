// Command kagami is a Kafka-protocol cluster that mirrors topics from other
// Kafka clusters (KIP-1279), and the tools that go with it: server, demo, query,
// verify.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

// errUsage: the command line is wrong; the text has been printed.
var errUsage = errors.New("usage")

// errDifferent: a comparison found a difference; the table has been printed.
var errDifferent = errors.New("different")

// command is one subcommand.
type command struct {
	name  string
	short string
	run   func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

func commands() []command {
	return []command{
		{"server", "run a node: kagami server [--config FILE] [--set key=value]", runServer},
		{"demo", "mirror, lag, failover and failback on this machine", runDemo},
		{"query", "ask a running node: kagami query partitions|mirrors|actors", runQuery},
		{"verify", "compare a mirror's topics with their source", runVerify},
		{"version", "print the version", func(_ context.Context, _ []string, stdout, _ io.Writer) error {
			_, err := fmt.Fprintln(stdout, "kagami", version())
			return err
		}},
	}
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "usage: kagami COMMAND [options]")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-8s %s\n", c.name, c.short)
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return 1
	}
	if args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		usage(stdout)
		return 0
	}
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		err := c.run(ctx, args[1:], stdout, stderr)
		switch {
		case err == nil:
			return 0
		case errors.Is(err, errUsage), errors.Is(err, errDifferent):
			return 1
		default:
			fmt.Fprintf(stderr, "kagami %s: %v\n", c.name, err)
			return 1
		}
	}
	fmt.Fprintf(stderr, "kagami: no command %q\n", args[0])
	usage(stderr)
	return 1
}
