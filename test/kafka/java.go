package kafka

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // the program
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"kagami/test/kafka/proc"
)

// The program of the jobs below.
//
//go:embed java/Client.java
var clientSource []byte

// Kinds of [JavaJob], as java/Client.java describes them.
const (
	JavaProduce  = "produce"
	JavaTransact = "transact"
	JavaConsume  = "consume"
	JavaGroup    = "group"
)

// JavaJob is one producer or consumer of Kafka's Java library.
type JavaJob struct {
	Kind      string
	Name      string // client.id, and what its events are found by; no spaces
	Bootstrap string
	Topic     string
	Settings  map[string]string // of the job
	Client    map[string]string // of Kafka's client; else everything has its default
}

func (j JavaJob) args() []string {
	args := []string{j.Kind, "name=" + j.Name, "bootstrap=" + j.Bootstrap, "topic=" + j.Topic}
	for _, k := range slices.Sorted(maps.Keys(j.Settings)) {
		args = append(args, k+"="+j.Settings[k])
	}
	for _, k := range slices.Sorted(maps.Keys(j.Client)) {
		args = append(args, "set."+k+"="+j.Client[k])
	}
	return args
}

// JavaEvent is something that happened to a job.
type JavaEvent struct {
	At     time.Time
	Job    string
	Kind   string // acked, failed, refused, record, position, done, error, ...
	Fields []string
}

// Int is a field as a number, -1 if it is none.
func (e JavaEvent) Int(field int) int64 {
	if field >= len(e.Fields) {
		return -1
	}
	n, err := strconv.ParseInt(e.Fields[field], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// Java is a JVM that runs jobs. Its methods may be called from any goroutine.
type Java struct {
	*proc.Process
	out, log string // files

	mu     sync.Mutex
	read   int64
	events []JavaEvent
}

// RequireJava is Require of [Latest] and of a Java compiler.
func RequireJava(tb testing.TB) {
	tb.Helper()
	Require(tb)
	RequireProgram(tb, "javac")
}

// StartJava starts a JVM with the clients of release [Latest]. Its two logs are
// in dir, which must exist and serve no other JVM.
func StartJava(ctx context.Context, dir string, jobs ...JavaJob) (*Java, error) {
	classes, err := javaClasses(ctx)
	if err != nil {
		return nil, err
	}
	jars, err := ClassPath(ctx, Latest)
	if err != nil {
		return nil, err
	}
	j := &Java{out: filepath.Join(dir, "events"), log: filepath.Join(dir, "clients.log")}
	const simple = "-Dorg.slf4j.simpleLogger."
	args := []string{
		"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx192m",
		simple + "logFile=" + j.log, simple + "showDateTime=true", simple + "defaultLogLevel=info",
		simple + "log.org.apache.kafka.clients.Metadata=debug", // counts refreshes
		simple + "log.org.apache.kafka.common=warn",            // not every setting
		"-cp", classes + ":" + jars, "Client",
	}
	for i, job := range jobs {
		if i > 0 {
			args = append(args, "--")
		}
		args = append(args, job.args()...)
	}
	if j.Process, err = proc.Start(proc.Spec{Name: "java clients", Path: "java", Args: args, Log: j.out}); err != nil {
		return nil, err
	}
	return j, nil
}

// javaClasses compiles the program of the jobs.
func javaClasses(ctx context.Context) (string, error) {
	return compileJava(ctx, Latest, map[string][]byte{"Client": clientSource})
}

// compileJava compiles classes against a release, once per machine and version of them.
func compileJava(ctx context.Context, v Version, classes map[string][]byte) (string, error) {
	jars, err := ClassPath(ctx, v)
	if err != nil {
		return "", err
	}
	base, err := cacheDir()
	if err != nil {
		return "", err
	}
	names := slices.Sorted(maps.Keys(classes))
	sum := sha256.New()
	fmt.Fprint(sum, jars)
	for _, name := range names {
		sum.Write(classes[name])
	}
	dir := filepath.Join(base, strings.ToLower(names[0])+"-"+hex.EncodeToString(sum.Sum(nil)[:6]))
	if isFile(filepath.Join(dir, names[0]+".class")) {
		return dir, nil
	}
	tmp, err := os.MkdirTemp(base, "compile-")
	if err != nil {
		return "", fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(tmp)
	// Annotations of libraries that aren't there are no fault of ours.
	args := []string{"-Xlint:all,-classfile", "-Werror", "-proc:none", "-cp", jars, "-d", tmp}
	for _, name := range names {
		source := filepath.Join(tmp, name+".java")
		if err := os.WriteFile(source, classes[name], 0o644); err != nil {
			return "", fmt.Errorf("write program: %w", err)
		}
		args = append(args, source)
	}
	said, err := exec.CommandContext(ctx, "javac", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compile Java clients: %w\n%s", err, said)
	}
	if err := os.Rename(tmp, dir); err != nil && !isFile(filepath.Join(dir, names[0]+".class")) { // nobody else was faster
		return "", fmt.Errorf("keep Java clients: %w", err)
	}
	return dir, nil
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// eventLine: @<milliseconds> <job> <event> <fields...>
var eventLine = regexp.MustCompile(`^@(\d+) (\S+) (\S+) ?(.*)$`)

// Events are the events of a job so far, those of the given kinds or all.
func (j *Java) Events(job string, kinds ...string) []JavaEvent {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.readEvents()
	var out []JavaEvent
	for _, e := range j.events {
		if e.Job == job && (len(kinds) == 0 || slices.Contains(kinds, e.Kind)) {
			out = append(out, e)
		}
	}
	return out
}

// readEvents takes in whole new lines. What can't be read now is read later.
func (j *Java) readEvents() {
	f, err := os.Open(j.out)
	if err != nil {
		return
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, j.read, 1<<40))
	if err != nil {
		return
	}
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	j.read += int64(len(b))
	for line := range strings.Lines(string(b)) {
		m := eventLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue // a stack trace
		}
		ms, _ := strconv.ParseInt(m[1], 10, 64) // it matched
		j.events = append(j.events, JavaEvent{At: time.UnixMilli(ms), Job: m[2], Kind: m[3], Fields: strings.Fields(m[4])})
	}
}

// Await waits until a job has had at least count events of a kind. It ends early,
// with an error, when a job breaks or the JVM ends without them.
func (j *Java) Await(ctx context.Context, job, kind string, count int) ([]JavaEvent, error) {
	var got []JavaEvent
	over := false
	err := Poll(ctx, func() error {
		ended := !j.Running()
		got = j.Events(job, kind)
		over = len(got) < count && j.broken(job, ended) != nil
		if over || len(got) >= count {
			return nil
		}
		return fmt.Errorf("job %s: %d of %d events %s", job, len(got), count, kind)
	})
	if over {
		err = j.broken(job, true)
	}
	return got, err
}

func (j *Java) broken(job string, ended bool) error {
	if broken := j.Events(job, "error"); len(broken) > 0 {
		return fmt.Errorf("job %s broke: %s", job, strings.Join(broken[0].Fields, " "))
	}
	if ended {
		return fmt.Errorf("the JVM has ended: %w", errors.Join(j.Err(), errors.New(j.Tail(20))))
	}
	return nil
}

// ClientLog are the lines that Kafka's library has logged for a job: those that
// match the expression.
func (j *Java) ClientLog(job, expression string) []string {
	b, err := os.ReadFile(j.log)
	if err != nil {
		return []string{err.Error()}
	}
	re := regexp.MustCompile(expression)
	var lines []string
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "clientId="+job+",") || strings.Contains(line, "clientId="+job+"]") {
			if re.MatchString(line) {
				lines = append(lines, strings.TrimRight(line, "\n"))
			}
		}
	}
	return lines
}
