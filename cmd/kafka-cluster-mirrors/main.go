// Command kafka-cluster-mirrors steers cluster mirrors (KIP-1279) of the destination cluster. All
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
	code := tool.ClusterMirrors(ctx, os.Args[1:], tool.Streams{Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
