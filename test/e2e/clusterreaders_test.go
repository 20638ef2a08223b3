package e2e

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	"kagami/test/kafka"
	"kagami/test/kafka/proc"
)

// mirrorReaders are groups of two clients, Java's and librdkafka's, that read a mirror
// while its nodes die, and commit.
type mirrorReaders struct {
	w      *world
	topics []string
	java   *kafka.Java
	kcat   *proc.Process
}

// Groups of the readers; that of Java is the name of its job too.
const (
	javaReaders = "cf-java"
	kcatReaders = "cf-kcat"
)

// startReaders starts both groups on topics of the cluster.
func (w *world) startReaders(topics ...string) *mirrorReaders {
	w.t.Helper()
	kafka.RequireJava(w.t)
	kafka.RequireProgram(w.t, "kcat")
	r := &mirrorReaders{w: w, topics: topics}
	var err error
	r.java, err = kafka.StartJava(w.ctx, w.t.TempDir(), kafka.JavaJob{
		Kind: kafka.JavaGroup, Name: javaReaders, Bootstrap: w.nodes.Bootstrap(),
		Settings: map[string]string{"topics": strings.Join(topics, ",")},
		Client:   settings("group.id="+javaReaders, "auto.offset.reset=earliest", "enable.auto.commit=false", "default.api.timeout.ms=20000", "request.timeout.ms=5000"),
	})
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("--- Java:\n%s\n%s", r.java.Tail(15), strings.Join(last(40, r.java.ClientLog(javaReaders, "INFO|WARN|ERROR")), "\n"))
		}
		_ = r.java.Kill()
	})
	args := []string{
		"-b", w.nodes.Bootstrap(), "-G", kcatReaders, "-E", "-u", "-q", "-f", "@%t-%p %o\n", "-X", "auto.offset.reset=earliest", "-X", "check.crcs=true",
		"-X", "auto.commit.interval.ms=500", "-X", "socket.timeout.ms=5000", "-X", "topic.metadata.refresh.interval.ms=2000",
	}
	r.kcat, err = proc.Start(proc.Spec{Name: "kcat", Path: "kcat", Args: append(args, topics...), Log: filepath.Join(w.t.TempDir(), "kcat.log")})
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("--- kcat:\n%s", r.kcat.Tail(15))
		}
		_ = r.kcat.Kill()
	})
	return r
}

func last(n int, lines []string) []string { return lines[max(0, len(lines)-n):] }

var kcatLine = regexp.MustCompile(`(?m)^@(\S+) (\d+)$`)

// seen are the offsets that each group has got, by partition.
func (r *mirrorReaders) seen() map[string]map[string]map[int64]bool {
	out := map[string]map[string]map[int64]bool{javaReaders: {}, kcatReaders: {}}
	add := func(group, partition string, offset int64) {
		if out[group][partition] == nil {
			out[group][partition] = map[int64]bool{}
		}
		out[group][partition][offset] = true
	}
	for _, e := range r.java.Events(javaReaders, "record") {
		add(javaReaders, e.Fields[1], e.Int(2))
	}
	for _, m := range kcatLine.FindAllStringSubmatch(r.kcat.Log(), -1) {
		if offset, err := strconv.ParseInt(m[2], 10, 64); err == nil {
			add(kcatReaders, m[1], offset)
		}
	}
	return out
}

// committed: no group has committed beyond the end of a log. The ends are asked for
// later, and only grow.
func (r *mirrorReaders) committed() {
	r.w.t.Helper()
	offsets := map[string]map[string]int64{}
	require.NoError(r.w.t, kafka.Poll(r.w.ctx, func() error {
		for _, group := range []string{javaReaders, kcatReaders} {
			res, err := r.w.b.Admin.FetchOffsets(r.w.ctx, group)
			if err == nil {
				err = res.Error()
			}
			if err != nil {
				return fmt.Errorf("offsets of %s: %w", group, err)
			}
			offsets[group] = map[string]int64{}
			for topic, of := range res {
				for p, o := range of {
					offsets[group][fmt.Sprintf("%s-%d", topic, p)] = o.At
				}
			}
		}
		return nil
	}))
	for topic, ends := range r.w.allEnds(r.topics) {
		for p, e := range ends {
			at := fmt.Sprintf("%s-%d", topic, p)
			for group, of := range offsets {
				require.LessOrEqual(r.w.t, of[at], e.End, "%s has committed %s beyond its end", group, at)
			}
		}
	}
}

// everything waits until both groups have got all records of the topics, which have no
// gaps, and none that isn't there. It ends the readers.
func (r *mirrorReaders) everything() {
	r.w.t.Helper()
	ends := r.w.allEnds(r.topics)
	require.NoError(r.w.t, kafka.Poll(r.w.ctx, func() error {
		if broken := r.java.Events(javaReaders, "error"); len(broken) > 0 {
			require.Empty(r.w.t, broken[0].Fields, "Java broke")
		}
		if !r.kcat.Running() {
			require.True(r.w.t, r.kcat.Running(), "kcat has ended: %s", r.kcat.Tail(3))
		}
		seen := r.seen()
		for group, of := range seen {
			for topic, es := range ends {
				for p, e := range es {
					got := of[fmt.Sprintf("%s-%d", topic, p)]
					if int64(len(got)) < e.End {
						return fmt.Errorf("%s has got %d of %d records of %s-%d", group, len(got), e.End, topic, p)
					}
					if most := slices.Max(slices.Collect(maps.Keys(got))); most >= e.End {
						require.Less(r.w.t, most, e.End, "%s has got a record of %s-%d beyond its end", group, topic, p)
					}
				}
			}
		}
		return nil
	}))
	r.committed()
	require.NoError(r.w.t, r.java.Stop(nodeStopGrace))
	require.NoError(r.w.t, r.kcat.Stop(nodeStopGrace))
}
