//go:build !linux

package main

// diskBytes is known on Linux only.
func diskBytes(string) (total, usable int64) { return -1, -1 }
