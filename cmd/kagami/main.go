// Command kagami is a Kafka-protocol cluster that mirrors topics from other
// Kafka clusters (KIP-1279), and the tools that go with it: server, demo, query,
// audit, verify.
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

// parse reads the options of a subcommand that takes at most words arguments
// beside them: errHelp or errUsage when there is nothing left to do. line is the
// usage behind "kagami".
func parse(fs *pflag.FlagSet, line string, words int, args []string, stdout, stderr io.Writer) error {
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	err := fs.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		sayf(stdout, "usage: kagami %s\n%s", line, fs.FlagUsages())
		return errHelp
	}
	if err == nil && fs.NArg() > words {
		err = fmt.Errorf("unexpected argument %q", fs.Arg(words))
	}
	if err != nil {
		return usageFault(fs, line, stderr, err.Error())
	}
	return nil
}

// usageFault says what is wrong with the command line, then how it looks.
func usageFault(fs *pflag.FlagSet, line string, stderr io.Writer, why string) error {
	sayf(stderr, "kagami %s: %s\nusage: kagami %s\n%s", fs.Name(), why, line, fs.FlagUsages())
	return errUsage
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
		{"query", "ask a running node: kagami query partitions|mirrors|actors|nodes|journal|groups", runQuery},
		{"audit", "what happened to a mirror, and who asked for it", runAudit},
		{"verify", "compare a mirror's topics with their source", runVerify},
		{"secrets", "make a key that secrets of the metadata are encrypted with: kagami secrets new-key", runSecrets},
		{"version", "print the version", runVersion},
	}
}

func runVersion(_ context.Context, args []string, stdout, stderr io.Writer) error {
	if err := parse(pflag.NewFlagSet("version", pflag.ContinueOnError), "version", 0, args, stdout, stderr); err != nil {
		return err
	}
	_, err := fmt.Fprintln(stdout, "kagami", version())
	return err
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
