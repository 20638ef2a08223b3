package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/test/kafka"
)

func TestRun(t *testing.T) {
	kafka.Require(t)
	rows := []struct {
		name   string
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{name: "no command", code: 1, stderr: "usage"},
		{name: "unknown release", args: []string{"-version", "0.8", "true"}, code: 1, stderr: "find Kafka 0.8"},
		{name: "bootstrap", args: []string{"echo", "at {}"}, stdout: "at 127.0.0.1:"},
		{name: "exit code", args: []string{"sh", "-c", "exit 7"}, code: 7},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.Equal(t, row.code, run(t.Context(), row.args, nil, &stdout, &stderr), "%s", stderr.String())
			require.Contains(t, stdout.String(), row.stdout)
			require.Contains(t, stderr.String(), row.stderr)
		})
	}
}
