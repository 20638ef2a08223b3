package proc

import "syscall"

// sysProcAttr: a process group of its own, and death with the test process.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
