// Command with starts a real Kafka broker, runs a command beside it, and ends
// both: go run ./test/kafka/with [-version 3.9.2] [-brokers 1] COMMAND ARGS...
// Every {} in the arguments becomes the bootstrap servers. The exit code is the
// command's. It needs Java 17 and Maven, and owns the broker it starts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"kagami/test/kafka"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("with", flag.ContinueOnError)
	fs.SetOutput(stderr)
	version := fs.String("version", string(kafka.Latest), "release of Apache Kafka")
	brokers := fs.Int("brokers", 1, "number of brokers")
	if err := fs.Parse(args); err != nil || fs.NArg() == 0 {
		fmt.Fprintln(stderr, "usage: with [-version V] [-brokers N] COMMAND ARGS..., {} = bootstrap servers")
		return 1
	}
	fmt.Fprintf(stderr, "starting Apache Kafka %s (the first time its jars are fetched) ...\n", *version)
	c, err := kafka.New(ctx, kafka.Options{Version: kafka.Version(*version), Brokers: *brokers})
	if err != nil {
		fmt.Fprintln(stderr, "start Kafka:", err)
		return 1
	}
	defer func() {
		if err := c.Close(); err != nil {
			fmt.Fprintln(stderr, "end Kafka:", err)
		}
	}()
	fmt.Fprintf(stderr, "Apache Kafka %s is up at %s\n", *version, c.Bootstrap())
	var full []string
	for _, a := range fs.Args() {
		full = append(full, strings.ReplaceAll(a, "{}", c.Bootstrap()))
	}
	cmd := exec.CommandContext(ctx, full[0], full[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	err = cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() >= 0 {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(stderr, "run command:", err)
		return 1
	}
	return 0
}
