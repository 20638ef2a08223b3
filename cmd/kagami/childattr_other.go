//go:build !linux

package main

import "syscall"

// childAttr has nothing to add where a child can't be tied to its parent.
func childAttr() *syscall.SysProcAttr { return nil }
