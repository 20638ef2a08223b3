// Command kafka-configs describes and alters configs of topics, brokers, cluster mirrors and clients. All
// it does is in package tool; --help lists the options.
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
	code := tool.Configs(ctx, os.Args[1:], tool.Streams{Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
