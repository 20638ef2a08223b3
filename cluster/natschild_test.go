package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/messages"
)

// Some servers of a test are processes of their own, that can be killed and
// stopped: the test binary again, which finds its options in the environment.
const childEnv = "KAGAMI_TEST_CHILD_SERVER"

type childOptions struct {
	Node    messages.NodeID
	Cluster Options
}

// runChild is a child's main; it ends with its parent.
func runChild(text string) int {
	var o childOptions
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return 2
	}
	s, err := OpenServer(context.Background(), ServerOptions{Node: o.Node, Cluster: &o.Cluster, Logger: zap.NewNop()})
	if err != nil {
		_, _ = os.Stdout.WriteString(err.Error() + "\n")
		return 1
	}
	_, _ = os.Stdout.WriteString("ready\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.Close()
	return 0
}

type child struct {
	tb      testing.TB
	command *exec.Cmd
	stdin   io.Closer
}

// startChild starts a node of the cluster as a process.
func (c *testCluster) startChild(id messages.NodeID) *child {
	c.tb.Helper()
	text, err := json.Marshal(childOptions{id, *c.options(id).Cluster})
	require.NoError(c.tb, err)
	p := &child{tb: c.tb, command: exec.Command(os.Args[0])}
	p.command.Env = append(os.Environ(), childEnv+"="+string(text))
	stdin, err := p.command.StdinPipe()
	require.NoError(c.tb, err)
	p.stdin = stdin
	stdout, err := p.command.StdoutPipe()
	require.NoError(c.tb, err)
	require.NoError(c.tb, p.command.Start())
	c.tb.Cleanup(p.kill)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(c.tb, err)
	require.Equal(c.tb, "ready\n", line)
	return p
}

func (p *child) signal(s syscall.Signal) {
	p.tb.Helper()
	require.NoError(p.tb, p.command.Process.Signal(s))
}

// kill ends it at once, and may be called twice.
func (p *child) kill() {
	if p.command.ProcessState != nil {
		return
	}
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
	_ = p.stdin.Close()
}

// TestStreamSurvivesKills: the stream's leader is killed, and another is stopped
// for longer than an election and goes on believing that it leads.
func TestStreamSurvivesKills(t *testing.T) {
	c := newTestCluster(t, 3, nil)
	srv, second, third := c.start(1), c.startChild(2), c.startChild(3)
	s := openTestStreams(t, srv, func(o *StreamsOptions) { o.PublishTimeout = 3 * time.Second })
	st, err := s.Open(testContext(t), "0", 3)
	require.NoError(t, err)
	f := follow(t, st, 1, false)
	var want []string
	publish := func(n int) {
		texts := numbered(len(want)+1, len(want)+n)
		want = append(want, texts...)
		publishSafely(t, st, texts...)
	}
	lead := func(id messages.NodeID) {
		t.Helper()
		eventually(t, "the lead of a node", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if st.StepDown(ctx, id) != nil {
				return false
			}
			got, err := st.Leader(ctx)
			return err == nil && got == id
		})
	}
	publish(10)
	lead(2)
	publish(10)
	second.kill()
	publish(10)
	second = c.startChild(2)
	publish(10)
	lead(3)
	publish(10)
	third.signal(syscall.SIGSTOP)
	publish(10)
	third.signal(syscall.SIGCONT)
	publish(50)
	second.kill()
	third.kill()
	c.startChild(3)
	publish(10)
	require.Equal(t, want, f.wait(t, len(want)))
	require.Equal(t, want, follow(t, st, 1, false).wait(t, len(want)), "as it is stored")
}
