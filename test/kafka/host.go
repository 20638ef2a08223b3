package kafka

import (
	"bufio"
	"context"
	_ "embed" // the program
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Programs of a [Host]: the one that runs tools, and one that does the jobs of the
// clients under test/clients with Java's.
var (
	//go:embed java/Host.java
	hostSource []byte
	//go:embed java/Matrix.java
	matrixSource []byte
)

// Matrix is the class of the jobs that test/clients/golang/job.go describes.
const Matrix = "Matrix"

// Host is a JVM that runs the command line tools of one release one after the other,
// which saves each the start of a JVM. Run may be called from any goroutine.
type Host struct {
	version Version
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	log     strings.Builder // what the JVM itself says; read when it has ended

	mu sync.Mutex
}

// renamed are classes that the tools have in releases before 4.0, written in Scala.
var renamed = map[string]string{
	ConsoleProducer: "kafka.tools.ConsoleProducer",
	Configs:         "kafka.admin.ConfigCommand",
}

// hostJars are the class path with our programs, and those of its jars that hold tools.
func hostJars(ctx context.Context, v Version) (all string, tools []string, err error) {
	jars, err := ClassPath(ctx, v)
	if err != nil {
		return "", nil, err
	}
	classes, err := compileJava(ctx, v, map[string][]byte{"Host": hostSource, "Matrix": matrixSource})
	if err != nil {
		return "", nil, err
	}
	kept := []string{classes}
	for jar := range strings.SplitSeq(jars, ":") {
		name := filepath.Base(jar)
		if strings.HasPrefix(name, "kafka-tools-"+string(v)) || strings.HasPrefix(name, "kafka_2.13-") {
			tools = append(tools, jar)
			continue
		}
		kept = append(kept, jar)
	}
	return strings.Join(kept, ":"), tools, nil
}

// log4jTools: warnings on standard error, as the scripts of the tools have it.
const log4jTools = `log4j.rootLogger=WARN, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.follow=true
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%p %m (%c)%n
`

// javaFlags are for a JVM of ours with the release's logging.
func javaFlags(v Version) ([]string, error) {
	dir, err := cacheDir()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "log4j-tools.properties")
	if b, err := os.ReadFile(file); err != nil || string(b) != log4jTools {
		if err := os.WriteFile(file, []byte(log4jTools), 0o644); err != nil {
			return nil, fmt.Errorf("write settings of the log: %w", err)
		}
	}
	return append(append([]string{}, toolFlags...), "-Dlog4j.configuration=file:"+file), nil
}

// StartHost starts a JVM with the tools of a release; the caller closes it.
func StartHost(ctx context.Context, v Version) (*Host, error) {
	jars, tools, err := hostJars(ctx, v)
	if err != nil {
		return nil, err
	}
	flags, err := javaFlags(v)
	if err != nil {
		return nil, err
	}
	h := &Host{version: v}
	h.cmd = exec.Command("java", append(append(flags, "--add-opens=java.base/java.lang=ALL-UNNAMED", "-cp", jars, "Host"), tools...)...)
	h.cmd.Stderr = &h.log
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start host of tools: %w", err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start host of tools: %w", err)
	}
	h.out = bufio.NewReader(out)
	if err := h.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start host of tools: %w", err)
	}
	return h, nil
}

// Run runs a tool, or [Matrix], with a standard input. An exit code other than 0 is no
// error. When ctx ends before the tool does, the JVM is ended.
func (h *Host) Run(ctx context.Context, in, class string, args ...string) (Result, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if old, ok := renamed[class]; ok && h.version < "4" {
		class = old
	}
	stop := context.AfterFunc(ctx, func() { _ = h.cmd.Process.Kill() })
	defer stop()
	call := []string{base64.StdEncoding.EncodeToString([]byte(in)), base64.StdEncoding.EncodeToString([]byte(class))}
	for _, arg := range args {
		call = append(call, base64.StdEncoding.EncodeToString([]byte(arg)))
	}
	_, wrote := io.WriteString(h.in, strings.Join(call, " ")+"\n")
	line, err := h.out.ReadString('\n')
	if err := errors.Join(wrote, err); err != nil {
		return Result{}, fmt.Errorf("run %s in the host of tools: %w", class, errors.Join(err, ctx.Err()))
	}
	parts := strings.Split(strings.TrimSuffix(line, "\n"), " ")
	if len(parts) != 3 {
		return Result{}, fmt.Errorf("run %s in the host of tools: it answered %q", class, line)
	}
	code, errCode := strconv.Atoi(parts[0])
	out, errOut := base64.StdEncoding.DecodeString(parts[1])
	said, errSaid := base64.StdEncoding.DecodeString(parts[2])
	return Result{Stdout: string(out), Stderr: string(said), Code: code}, errors.Join(errCode, errOut, errSaid)
}

// Close ends the JVM.
func (h *Host) Close() {
	_ = h.in.Close()
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait() // it was killed
}

// MatrixCommand is a command line that runs [Matrix] in a JVM of its own.
func MatrixCommand(ctx context.Context, v Version, args ...string) ([]string, error) {
	jars, tools, err := hostJars(ctx, v)
	if err != nil {
		return nil, err
	}
	flags, err := javaFlags(v)
	if err != nil {
		return nil, err
	}
	line := append([]string{"java"}, flags...)
	return append(append(line, "-cp", strings.Join(append([]string{jars}, tools...), ":"), Matrix), args...), nil
}
