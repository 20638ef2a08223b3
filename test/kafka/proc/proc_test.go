package proc

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProcess(t *testing.T) {
	rows := []struct {
		name   string
		script string
		end    func(*Process) error
		want   string // in the error of the end, or in how the process ended
		log    string
	}{
		{name: "ends by itself", script: "echo one; echo two >&2", log: "two"},
		{name: "exit code", script: "exit 3", want: "exit status 3"},
		{name: "stop", script: "echo up; exec sleep 60", end: func(p *Process) error { return p.Stop(10 * time.Second) }, want: "terminated"},
		{name: "kill", script: "exec sleep 60", end: (*Process).Kill, want: "killed"},
		{name: "kill takes the children along", script: "sleep 60 & wait", end: (*Process).Kill, want: "killed"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			p, err := Start(Spec{Name: "sh", Path: "sh", Args: []string{"-c", row.script}, Log: filepath.Join(t.TempDir(), "log")})
			require.NoError(t, err)
			if row.end != nil {
				require.True(t, p.Running())
				require.NoError(t, row.end(p))
				require.NoError(t, row.end(p), "twice")
			}
			<-p.Done()
			if row.want == "" {
				require.NoError(t, p.Err())
			} else {
				require.ErrorContains(t, p.Err(), row.want)
			}
			if !strings.Contains(p.Tail(1), row.log) {
				t.Fatalf("log %q, want %q", p.Log(), row.log)
			}
		})
	}
}

func TestStopKillsAfterGrace(t *testing.T) {
	p, err := Start(Spec{Name: "deaf", Path: "sh", Args: []string{"-c", "trap '' TERM; echo up; while true; do sleep 1; done"}, Log: filepath.Join(t.TempDir(), "log")})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(p.Log(), "up") }, 10*time.Second, 5*time.Millisecond)
	require.ErrorContains(t, p.Stop(50*time.Millisecond), "killed")
	require.False(t, p.Running())
}

func TestPorts(t *testing.T) {
	ports, err := Ports(20)
	require.NoError(t, err)
	seen := map[int]bool{}
	for _, port := range ports {
		require.False(t, seen[port])
		seen[port] = true
		l, err := net.Listen("tcp4", Addr(port))
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
}
