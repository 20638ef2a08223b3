package audit

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// audited runs an audit of mirror m over a folder.
func audited(t *testing.T, dir string, o Options) (out, notes string, err error) {
	t.Helper()
	var o1, o2 bytes.Buffer
	if o.Mirror == "" {
		o.Mirror = "m"
	}
	o.Data, o.Out, o.Err, o.Clock = dir, &o1, &o2, clock.Wall{}
	err = Run(t.Context(), o)
	return o1.String(), o2.String(), err
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestGolden(t *testing.T) {
	f := newTestFolder(t)
	f.life()
	alive := f.millis
	f.death()
	for _, tc := range []struct {
		name string
		o    Options
	}{
		{"history.txt", Options{}},
		{"history.jsonl", Options{JSON: true}},
		{"created.txt", Options{At: timeText(began + 4000)}},
		{"mirroring.txt", Options{At: timeText(began + 9000)}},
		{"stopped.txt", Options{At: fmt.Sprint(alive - 1)}},
		{"stopped.jsonl", Options{At: fmt.Sprint(alive - 1), JSON: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, notes, err := audited(t, f.dir, tc.o)
			require.NoError(t, err)
			require.Empty(t, notes)
			require.NotContains(t, out, "s3cret")
			golden(t, tc.name, out)
		})
	}
}

func TestErrors(t *testing.T) {
	f := newTestFolder(t)
	f.life()
	f.death()
	for _, tc := range []struct {
		name string
		o    Options
		is   error
		want string
	}{
		{"unknown mirror", Options{Mirror: "x"}, ErrUnknownMirror, "nothing is recorded of x (there are: another, m)"},
		{"unknown mirror at a time", Options{Mirror: "x", At: fmt.Sprint(began)}, ErrUnknownMirror, ""},
		{"before the mirror", Options{At: timeText(began)}, ErrNoSuchTime, "begins at 2026-03-01T12:00:01.000Z"},
		{"after the mirror", Options{At: fmt.Sprint(f.millis)}, ErrNoSuchTime, "did not exist then"},
		{"future", Options{At: "9999-01-01T00:00:00Z"}, ErrNoSuchTime, "in the future"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, _, err := audited(t, f.dir, tc.o)
			require.ErrorIs(t, err, tc.is)
			require.ErrorContains(t, err, tc.want)
			require.Empty(t, out)
		})
	}
}

// TestManySegments: a segment for each record tells the same.
func TestManySegments(t *testing.T) {
	one, many := newTestFolder(t), newTestFolder(t)
	many.rollAlways = true
	for _, f := range []*testFolder{one, many} {
		f.life()
		f.death()
	}
	segs, err := segments(filepath.Join(many.dir, stateFolder))
	require.NoError(t, err)
	require.Greater(t, len(segs), 15)
	for _, o := range []Options{{}, {JSON: true}, {At: timeText(began + 9000)}} {
		want, _, err := audited(t, one.dir, o)
		require.NoError(t, err)
		got, notes, err := audited(t, many.dir, o)
		require.NoError(t, err)
		require.Empty(t, notes)
		require.Equal(t, want, got)
	}
}

// TestTopicMadeAgain: two topics of one name are told apart by their ids.
func TestTopicMadeAgain(t *testing.T) {
	f := newTestFolder(t)
	f.life()
	who := messages.Requester{Principal: "User:dave"}
	f.change(who, remove(1))
	f.change(who, append(topicRecords("t", 7, 1), config(messages.ResourceTopic, "t", messages.MirrorNameConfig, "m"))...)
	out, _, err := audited(t, f.dir, Options{})
	require.NoError(t, err)
	require.Contains(t, out, `topic deleted                     detail="id `+messages.TopicID{15: 1}.String())
	require.Contains(t, out, `detail="topic created, id `+messages.TopicID{15: 7}.String()+`, partitions: 1"`)
}

// TestCompactedHistory: where superseded records are gone, the history says from
// when it is complete, and doesn't guess about the time before.
func TestCompactedHistory(t *testing.T) {
	f := newTestFolder(t)
	f.life()
	f.next[stateFolder] += 3
	hole := timeText(f.millis)
	f.state("m", "t", 0, messages.StateLogTruncation, messages.StateUnknown, 0)
	out, notes, err := audited(t, f.dir, Options{})
	require.NoError(t, err)
	require.Contains(t, out, "STOPPED -> LOG_TRUNCATION")
	require.Equal(t, "Note: states are complete from "+hole+" on: superseded records before are gone (mirror.state.audit.retention.ms)\n", notes)
	_, _, err = audited(t, f.dir, Options{At: timeText(f.millis - 2000)})
	require.ErrorIs(t, err, ErrNoSuchTime)
	require.ErrorContains(t, err, "complete only from "+hole)
	out, _, err = audited(t, f.dir, Options{At: hole})
	require.NoError(t, err)
	require.Contains(t, out, "LOG_TRUNCATION")
}

// TestMetadataSnapshot: a snapshot stands for the requests that are gone.
func TestMetadataSnapshot(t *testing.T) {
	f := newTestFolder(t)
	f.state("m", "t", 0, messages.StateMirroring, messages.StateUnknown, 0)
	f.state("m", "t", 0, messages.StatePausing, messages.StateUnknown, 0)
	records := append(topicRecords(messages.MirrorStateTopic, 9, 1), topicRecords("t", 1, 1)...)
	f.snapshot(100, append(records, mirrorConfig("bootstrap.servers", "a:1"), config(messages.ResourceTopic, "t", messages.MirrorNameConfig, "m.paused"))...)
	out, notes, err := audited(t, f.dir, Options{})
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(out, "\n"))
	require.Equal(t, "Note: no requests are known: a snapshot replaced the metadata log\n", notes)

	known := timeText(f.millis)
	f.change(messages.Requester{Principal: "User:eve"}, config(messages.ResourceTopic, "t", messages.MirrorNameConfig, "m"))
	out, notes, err = audited(t, f.dir, Options{})
	require.NoError(t, err)
	require.Contains(t, out, "resume requested                  by=User:eve")
	require.Equal(t, "Note: requests are known from "+known+" on: the metadata log before is gone, a snapshot replaced it\n", notes)
	out, _, err = audited(t, f.dir, Options{At: known})
	require.NoError(t, err)
	require.Contains(t, out, "PAUSING")
	_, _, err = audited(t, f.dir, Options{At: fmt.Sprint(began)})
	require.ErrorIs(t, err, ErrNoSuchTime)
	require.ErrorContains(t, err, "begins at "+known)
	_, _, err = audited(t, f.dir, Options{Mirror: "x"})
	require.ErrorContains(t, err, "nothing is recorded of x (there are: m)")
}

// TestClockThatWentBack: the order of a log is the order of what happened.
func TestClockThatWentBack(t *testing.T) {
	f := newTestFolder(t)
	f.life()
	last := f.millis
	f.millis -= 20_000
	f.state("m", "t", 0, messages.StateLogTruncation, messages.StateUnknown, 0)
	out, _, err := audited(t, f.dir, Options{})
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Contains(t, lines[len(lines)-1], "STOPPED -> LOG_TRUNCATION")
	out, _, err = audited(t, f.dir, Options{At: fmt.Sprint(last)})
	require.NoError(t, err)
	require.Contains(t, out, "LOG_TRUNCATION")
}

func TestDamage(t *testing.T) {
	t.Run("a record of nobody knows which mirror", func(t *testing.T) {
		f := newTestFolder(t)
		f.life()
		whole, _, err := audited(t, f.dir, Options{})
		require.NoError(t, err)
		f.append(stateFolder, batch.Record{Key: []byte{0, 2, 0}, Value: []byte{1}})
		out, notes, err := audited(t, f.dir, Options{})
		require.NoError(t, err)
		require.Equal(t, whole, out)
		require.Contains(t, notes, "1 records of __mirror_state can't be read, the first at offset 15")
	})
	t.Run("a batch that isn't whole yet", func(t *testing.T) {
		f := newTestFolder(t)
		f.life()
		whole, _, err := audited(t, f.dir, Options{})
		require.NoError(t, err)
		f.raw(stateFolder, batch.Single(f.millis, stateKey("m"), []byte("x"))[:70])
		f.raw(metaFolder, make([]byte, 9))
		for _, at := range []string{"", fmt.Sprint(f.millis - 1)} {
			out, notes, err := audited(t, f.dir, Options{At: at})
			require.NoError(t, err)
			if at == "" {
				require.Equal(t, whole, out)
			}
			require.Equal(t, 2, strings.Count(notes, "hold no whole batch"), notes)
			require.Contains(t, notes, "the last 9 bytes of "+filepath.Join(f.dir, metaFolder))
			require.Contains(t, notes, "the last 70 bytes of "+filepath.Join(f.dir, stateFolder))
		}
	})
	t.Run("bytes of a crash behind a good batch of the last segment", func(t *testing.T) {
		f := newTestFolder(t)
		f.life()
		whole, _, err := audited(t, f.dir, Options{})
		require.NoError(t, err)
		bad := batch.Single(f.millis, stateKey("m"), []byte("x"))
		bad[len(bad)-1]++ // all there, but not what was written
		f.raw(stateFolder, bad)
		out, notes, err := audited(t, f.dir, Options{})
		require.NoError(t, err)
		require.Equal(t, whole, out)
		require.Contains(t, notes, fmt.Sprintf("the last %d bytes", len(bad)))
	})
	t.Run("in the middle", func(t *testing.T) {
		f := newTestFolder(t)
		f.life()
		segs, err := segments(filepath.Join(f.dir, stateFolder))
		require.NoError(t, err)
		require.Len(t, segs, 2)
		b, err := os.ReadFile(segs[0].path)
		require.NoError(t, err)
		b[len(b)-3]++
		require.NoError(t, os.WriteFile(segs[0].path, b, 0o644))
		_, _, err = audited(t, f.dir, Options{})
		require.ErrorIs(t, err, persistence.ErrCorrupt)
		require.ErrorContains(t, err, segs[0].path)
	})
}

// growing hands over lines, and the interrupt when the last one is there.
type growing struct {
	lines chan string
	buf   []byte
}

func (g *growing) Write(b []byte) (int, error) {
	g.buf = append(g.buf, b...)
	for {
		line, rest, ok := bytes.Cut(g.buf, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		g.lines <- string(line)
		g.buf = rest
	}
}

// TestFollowFiles: over a batch that is being written, and a new segment.
func TestFollowFiles(t *testing.T) {
	f := newTestFolder(t)
	f.life()
	whole, _, err := audited(t, f.dir, Options{})
	require.NoError(t, err)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	g, ended := &growing{lines: make(chan string, 100)}, make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Mirror: "m", Data: f.dir, Follow: true, Out: g, Err: &bytes.Buffer{}, Clock: clock.Wall{}})
	}()
	next := func() string {
		t.Helper()
		select {
		case l := <-g.lines:
			return l
		case err := <-ended:
			t.Fatalf("ended: %v", err)
		case <-time.After(30 * time.Second):
			t.Fatal("no line")
		}
		return ""
	}
	for range strings.Count(whole, "\n") {
		next()
	}
	f.state("m", "t", 0, messages.StateLogTruncation, messages.StateUnknown, 0)
	require.Contains(t, next(), "STOPPED -> LOG_TRUNCATION")
	f.roll(stateFolder)
	f.state("m", "t", 0, messages.StateMirroring, messages.StateUnknown, 0)
	require.Contains(t, next(), "LOG_TRUNCATION -> MIRRORING")
	f.change(messages.Requester{Principal: "User:dave"}, config(messages.ResourceTopic, "t", messages.MirrorNameConfig, "m"))
	require.Contains(t, next(), "by=User:dave")
	interrupt()
	require.NoError(t, <-ended)
}
