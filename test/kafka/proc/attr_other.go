//go:build unix && !linux

package proc

import "syscall"

// sysProcAttr: a process group of its own. Only Linux knows a death signal.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
