package cases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"kagami/test/e2e"
)

// TestMain ends the shared node and removes the programs.
func TestMain(m *testing.M) {
	code := m.Run()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, "end shared node:", err)
		code = 1
	}
	if err := e2e.RemovePrograms(); err != nil {
		fmt.Fprintln(os.Stderr, "remove programs:", err)
		code = 1
	}
	os.Exit(code)
}

// nodeProperties are quick: nothing waits longer than it must to be seen.
func nodeProperties() map[string]string {
	return map[string]string{
		"mirror.metadata.refresh.interval.ms":    "1000",
		"mirror.fetch.backoff.ms":                "100",
		"mirror.failed.retry.initial.backoff.ms": "50",
		"mirror.failed.retry.max.backoff.ms":     "1000",
		"mirror.failed.retry.max.attempts":       "0",
		"kagami.log.level":                       "debug",
	}
}

var (
	sharedMu   sync.Mutex
	sharedDir  string
	sharedOnce = sync.OnceValues(func() (*e2e.Node, error) {
		dir, err := os.MkdirTemp("", "kagami-cases-")
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		n, err := e2e.NewNode(ctx, e2e.NodeOptions{Dir: dir, Properties: nodeProperties()})
		sharedMu.Lock()
		defer sharedMu.Unlock()
		sharedDir, sharedStarted = dir, n
		return n, err
	})
	sharedStarted *e2e.Node
)

func closeShared() error {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	if sharedStarted != nil {
		if err := errors.Join(sharedStarted.Stop(), sane(sharedStarted)); err != nil {
			return err
		}
	}
	if sharedDir == "" || os.Getenv("KAGAMI_CASES_KEEP") != "" {
		return nil
	}
	return os.RemoveAll(sharedDir)
}

// sane is an error if a node's log tells of something that no input may cause.
func sane(n *e2e.Node) error {
	for line := range strings.Lines(n.Process().Log()) {
		for _, bad := range []string{"DATA RACE", "panic", "invariant"} {
			if strings.Contains(line, bad) {
				return fmt.Errorf("the node's log: %s", line)
			}
		}
	}
	return nil
}
