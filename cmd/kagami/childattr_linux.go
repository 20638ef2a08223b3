package main

import "syscall"

// childAttr makes a child die with this process, even when it is killed.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
