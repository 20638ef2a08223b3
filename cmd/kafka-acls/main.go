// Command kafka-acls adds, removes and lists ACLs, those on cluster mirrors among them. All it does is in
// package tool; --help lists the options.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"kagami/cmd/internal/tool"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := tool.ACLs(ctx, os.Args[1:], tool.Streams{Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
