// Package proc starts and ends the processes of whole-process tests: brokers,
// tools, Kagami itself. Its main type is [Process]. A process belongs to the one
// who started it; all of them die with the test process, however that ends. The
// package never looks for processes by name and never signals one it didn't start.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Spec says what to start.
type Spec struct {
	Name string   // shown in errors
	Path string   // program, looked up in PATH if it has no slash
	Args []string // without the program itself
	Env  []string // KEY=VALUE, added to the environment of the test process
	Dir  string   // working directory; empty = that of the test process
	Log  string   // file that stdout and stderr are appended to; required
}

// Process is one running or ended process. All methods may be called from any goroutine.
type Process struct {
	spec Spec
	cmd  *exec.Cmd
	done chan struct{} // closed after the process has been waited for
	err  error         // valid after done

	stop sync.Mutex // one Stop at a time
}

// Start starts the process. It returns as soon as the process exists.
func Start(spec Spec) (*Process, error) {
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", spec.Name, err)
	}
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Dir = spec.Dir
	cmd.Env = append(os.Environ(), spec.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = sysProcAttr()
	p := &Process{spec: spec, cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The death signal of sysProcAttr is bound to the thread that forks: it
		// must live as long as the child, so the goroutine keeps it for itself.
		runtime.LockOSThread()
		defer close(p.done)
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err != nil {
			p.err = err
			return
		}
		p.err = cmd.Wait()
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	return p, nil
}

// Name is the name given at start.
func (p *Process) Name() string { return p.spec.Name }

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err tells how the process ended; nil while it runs or after exit code 0.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Running reports whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal to the process and its children.
func (p *Process) Signal(sig syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	if err := syscall.Kill(-p.Pid(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s: %w", p.spec.Name, err)
	}
	return nil
}

// Kill ends the process at once (kill -9) and waits for its end.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	if err == nil {
		<-p.done
	}
	return err
}

// Stop asks the process to end (SIGTERM) and waits; after grace it is killed and
// an error says so. Stopping an ended process does nothing.
func (p *Process) Stop(grace time.Duration) error {
	p.stop.Lock()
	defer p.stop.Unlock()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	if err := p.Kill(); err != nil {
		return err
	}
	return fmt.Errorf("%s did not end within %s of SIGTERM: killed", p.spec.Name, grace)
}

// Log is everything the process has printed so far.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.spec.Log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Tail is the last lines of the log.
func (p *Process) Tail(lines int) string {
	all := strings.Split(strings.TrimRight(p.Log(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// CPU is the processor time (user and system) used so far. Linux only.
func (p *Process) CPU() (time.Duration, error) {
	if !p.Running() {
		if st := p.cmd.ProcessState; st != nil {
			return st.UserTime() + st.SystemTime(), nil
		}
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
	if err != nil {
		return 0, fmt.Errorf("read processor time of %s: %w", p.spec.Name, err)
	}
	// The second field is the name in brackets and may hold spaces: count from its end.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("read processor time of %s: %d fields", p.spec.Name, len(fields))
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read processor time of %s: %w", p.spec.Name, err)
		}
		ticks += n
	}
	const ticksPerSecond = 100 // USER_HZ, the same on every Linux that Go runs on
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// Memory is the resident memory in bytes. Linux only.
func (p *Process) Memory() (int64, error) { return p.status("VmRSS:") }

// MemoryPeak is the largest resident memory so far, in bytes. Linux only.
func (p *Process) MemoryPeak() (int64, error) { return p.status("VmHWM:") }

func (p *Process) status(key string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		return 0, fmt.Errorf("read memory of %s: %w", p.spec.Name, err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read memory of %s: %w", p.spec.Name, err)
			}
			return n << 10, nil
		}
	}
	return 0, fmt.Errorf("read memory of %s: no %s", p.spec.Name, key)
}
