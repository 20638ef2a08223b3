package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/pflag"

	"kagami/cmd/internal/audit"
	"kagami/internal/clock"
)

// runAudit prints what happened to a mirror, see package audit.
func runAudit(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	const line = "audit --mirror M [--at TIME] [--follow] [--json] [--bootstrap-server HOST:PORT | --data FOLDER]"
	fs := pflag.NewFlagSet("audit", pflag.ContinueOnError)
	o := audit.Options{Out: stdout, Err: stderr, Clock: clock.Wall{}}
	fs.StringVar(&o.Mirror, "mirror", "", "mirror to tell of (required)")
	fs.StringVar(&o.Bootstrap, "bootstrap-server", "localhost:9094", "cluster to read from")
	fs.StringVar(&o.CommandConfig, "command-config", "", "property file with settings of the client")
	fs.StringVar(&o.Data, "data", "", "read the files of this folder (log.dirs of a node, running or not) instead; never writes")
	fs.StringVar(&o.At, "at", "", "print the state at this moment instead: RFC 3339, or ms since 1970")
	fs.BoolVar(&o.Follow, "follow", false, "go on as records come, until interrupted")
	fs.BoolVar(&o.JSON, "json", false, "print one JSON object per line")
	if err := parse(fs, line, 0, args, stdout, stderr); err != nil {
		return err
	}
	if o.Data != "" && !fs.Changed("bootstrap-server") {
		o.Bootstrap = ""
	}
	err := audit.Run(ctx, o)
	if usage, ok := errors.AsType[audit.UsageError](err); ok {
		return usageFault(fs, line, stderr, usage.Error())
	}
	return err
}
