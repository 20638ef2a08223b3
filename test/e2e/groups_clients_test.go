package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/kafka"
)

// clients is the folder of clients that aren't ours.
func clients(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "clients", name))
	require.NoError(t, err)
	return dir
}

// runIn runs a program in a folder and returns what it printed.
func runIn(ctx context.Context, t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "%s %v: %s%s", name, args, out.String(), errs.String())
	return out.String()
}

// goClients builds the Go ones, a module of their own.
func goClients(ctx context.Context, t *testing.T) []string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "clients")
	runIn(ctx, t, clients(t, "golang"), "go", "build", "-o", program, ".")
	return []string{program}
}

// nodeClient installs kafkajs beside a copy of the program.
func nodeClient(ctx context.Context, t *testing.T) []string {
	t.Helper()
	kafka.RequireProgram(t, "node")
	kafka.RequireProgram(t, "npm")
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "main.js"} {
		b, err := os.ReadFile(filepath.Join(clients(t, "js"), name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	runIn(ctx, t, dir, "npm", "ci", "--no-audit", "--no-fund")
	return []string{"node", filepath.Join(dir, "main.js")}
}

// TestGroupsOtherClients: sarama, segmentio/kafka-go and kafkajs, two members each:
// all records are read, each member has some, what was read is committed, and the
// members leave in order.
func TestGroupsOtherClients(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	n := StartNode(t, NodeOptions{Properties: quickGroups(nil)})
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Bootstrap()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	goProgram := goClients(ctx, t)
	for _, row := range []struct {
		name    string
		program func() []string
	}{
		{"sarama", func() []string { return append(goProgram, "sarama") }},
		{"segmentio", func() []string { return append(goProgram, "segmentio") }},
		{"kafkajs", func() []string { return nodeClient(ctx, t) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			const records, partitions = 100, 4
			resp, err := adm.CreateTopic(ctx, partitions, 1, nil, row.name)
			require.NoError(t, err)
			require.NoError(t, resp.Err)
			producing, stop := context.WithCancel(ctx)
			defer stop()
			produced := make(chan int, 1)
			go func() { // until all members have had some
				i := 0
				for producing.Err() == nil {
					if cl.ProduceSync(producing, &kgo.Record{Topic: row.name, Partition: int32(i % partitions), Value: fmt.Appendf(nil, "v%06d", i)}).FirstErr() == nil {
						i++
					}
				}
				produced <- i
			}()
			program := row.program()
			out := runIn(ctx, t, ".", program[0], append(program[1:], n.Bootstrap(), row.name, row.name, "2", fmt.Sprint(records))...)
			stop()
			require.Greater(t, <-produced, records-1)
			next, members := map[string]int{}, map[string]bool{}
			for line := range strings.Lines(out) {
				f := strings.Fields(line)
				require.Len(t, f, 4, line)
				members[f[0]] = true
				var offset int
				_, err := fmt.Sscan(f[2], &offset)
				require.NoError(t, err)
				require.LessOrEqual(t, offset, next[f[1]], "partition %s: a record is left out", f[1])
				next[f[1]] = max(next[f[1]], offset+1)
			}
			require.Len(t, members, 2)
			require.GreaterOrEqual(t, len(next), 2, "a partition for each")
			offsets, err := adm.FetchOffsets(ctx, row.name)
			require.NoError(t, err)
			for p, want := range next {
				var number int32
				_, err := fmt.Sscan(p, &number)
				require.NoError(t, err)
				o, ok := offsets.Lookup(row.name, number)
				require.True(t, ok)
				require.InDelta(t, want, o.At, 1, "partition %s", p) // the last one may have been read while the member left
			}
			leaving, done := context.WithTimeout(ctx, convergeTimeout)
			defer done()
			require.NoError(t, kafka.Poll(leaving, func() error {
				groups, err := adm.DescribeGroups(leaving, row.name)
				if state := groups[row.name].State; err == nil && state != "Empty" {
					err = fmt.Errorf("the group is %s", state)
				}
				return err
			}), "they have left")
		})
	}
}
