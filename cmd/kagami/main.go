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

	"github.com/spf13/pflag"
)

// errUsage: the command line is wrong; the text has been printed.
var errUsage = errors.New("usage")

// errHelp: help was asked for and has been printed.
var errHelp = errors.New("help")

// errDifferent: a comparison found a difference; the table has been printed.
var errDifferent = errors.New("different")

// Exit codes. Scripts tell a difference that verify found from a comparison that
// couldn't be made.
const (
	exitOK        = 0
	exitFailed    = 1
	exitDifferent = 1
	exitNoVerdict = 2 // of verify
)

// parse reads options: errHelp or errUsage when there is nothing left to do.
func parse(fs *pflag.FlagSet, args []string) error {
	switch err := fs.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return errHelp
	case err != nil:
		return errUsage
	}
	return nil
}

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
	say(w, "usage: kagami COMMAND [options]\n")
	for _, c := range commands() {
		sayf(w, "  %-8s %s\n", c.name, c.short)
	}
}

// say writes to the terminal; that it is gone is no fault of the command.
func say(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

func sayf(w io.Writer, format string, args ...any) { say(w, fmt.Sprintf(format, args...)) }

func exitCode(command string, err error, stderr io.Writer) int {
	switch {
	case err == nil, errors.Is(err, errHelp):
		return exitOK
	case errors.Is(err, errDifferent):
		return exitDifferent
	case errors.Is(err, errUsage): // it has been said
	default:
		sayf(stderr, "kagami %s: %v\n", command, err)
	}
	if command == "verify" {
		return exitNoVerdict
	}
	return exitFailed
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return exitFailed
	}
	if args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		usage(stdout)
		return exitOK
	}
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		return exitCode(c.name, c.run(ctx, args[1:], stdout, stderr), stderr)
	}
	sayf(stderr, "kagami: no command %q\n", args[0])
	usage(stderr)
	return exitFailed
}
