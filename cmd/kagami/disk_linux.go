package main

import "syscall"

// diskBytes is the size of a folder's disk, and what of it can be used; -1 if unknown.
func diskBytes(dir string) (total, usable int64) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return -1, -1
	}
	return int64(s.Blocks) * s.Bsize, int64(s.Bavail) * s.Bsize
}
