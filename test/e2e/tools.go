package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"

	"kagami/test/kafka"
)

// Run runs one of Kagami's own tools. An exit code other than 0 is no error: it
// is in the result, for the caller to judge.
func Run(ctx context.Context, name string, args ...string) (kafka.Result, error) {
	path, err := Program(name)
	if err != nil {
		return kafka.Result{}, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return kafka.Result{}, fmt.Errorf("run %s: %w", name, err)
	}
	return kafka.Result{Stdout: out.String(), Stderr: errs.String(), Code: cmd.ProcessState.ExitCode()}, nil
}

// Tool runs one of Kagami's tools against the node.
func (n *Node) Tool(ctx context.Context, name string, args ...string) (kafka.Result, error) {
	return Run(ctx, name, append([]string{"--bootstrap-server", n.Bootstrap()}, args...)...)
}

// Mirrors runs kafka-cluster-mirrors against the node.
func (n *Node) Mirrors(ctx context.Context, args ...string) (kafka.Result, error) {
	return n.Tool(ctx, "kafka-cluster-mirrors", args...)
}

// JavaTool runs one of Kafka's Java tools against the node.
func (n *Node) JavaTool(ctx context.Context, class string, args ...string) (kafka.Result, error) {
	return kafka.Tool(ctx, class, append([]string{"--bootstrap-server", n.Bootstrap()}, args...)...)
}
