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
	Beats   bool // be a member, and tell when the process was away
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
	defer s.Close()
	if o.Beats {
		bus, err := OpenBus(context.Background(), BusOptions{ClusterID: testClusterID, Node: o.Node, Server: s, Logger: zap.NewNop()})
		if err != nil {
			return 1
		}
		defer bus.Close()
		m, err := OpenMembership(context.Background(), MembershipOptions{
			Bus: bus, Interval: 50 * time.Millisecond, DeadAfter: o.Cluster.DeadAfter, Logger: zap.NewNop(),
			OnAway: func(time.Duration) { _, _ = os.Stdout.WriteString("away\n") },
		})
		if err != nil {
			return 1
		}
		defer m.Close()
	}
	_, _ = os.Stdout.WriteString("ready\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

type child struct {
	tb      testing.TB
	command *exec.Cmd
	stdin   io.Closer
	stdout  *bufio.Reader
}

// startChild starts a node of the cluster as a process.
func (c *testCluster) startChild(id messages.NodeID, beats bool) *child {
	c.tb.Helper()
	text, err := json.Marshal(childOptions{id, *c.options(id).Cluster, beats})
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
	p.stdout = bufio.NewReader(stdout)
	p.says("ready")
	return p
}

func (p *child) says(text string) {
	p.tb.Helper()
	line, err := p.stdout.ReadString('\n')
	require.NoError(p.tb, err)
	require.Equal(p.tb, text+"\n", line)
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
	srv, second, third := c.start(1), c.startChild(2, false), c.startChild(3, false)
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
	second = c.startChild(2, false)
	publish(10)
	lead(3)
	publish(10)
	third.signal(syscall.SIGSTOP)
	publish(10)
	third.signal(syscall.SIGCONT)
	publish(50)
	second.kill()
	third.kill()
	c.startChild(3, false)
	publish(10)
	require.Equal(t, want, f.wait(t, len(want)))
	require.Equal(t, want, follow(t, st, 1, false).wait(t, len(want)), "as it is stored")
}

// TestMembershipOfStoppedProcess: it is dead for the others, and knows that it
// was when it runs again. One that ends in order says goodbye.
func TestMembershipOfStoppedProcess(t *testing.T) {
	c := newTestCluster(t, 2, func(o *ServerOptions) { o.Cluster.DeadAfter = 3 * time.Second })
	c.start(1)
	second := c.startChild(2, true)
	m := openTestMembership(t, c.bus(1), func(o *MembershipOptions) { o.DeadAfter = 3 * time.Second })
	eventually(t, "the other one", func() bool { return m.IsLive(2) })
	second.signal(syscall.SIGSTOP)
	eventually(t, "its death", func() bool { return !m.IsLive(2) })
	second.signal(syscall.SIGCONT)
	second.says("away")
	eventually(t, "the other one again", func() bool { return m.IsLive(2) })
	require.NoError(t, second.stdin.Close())
	eventually(t, "its goodbye", func() bool { return !m.IsLive(2) })
	b, _, _ := m.Beat(2)
	require.True(t, b.bye)
}
