package persistence

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// canSyncAll: since Linux 5.8 syncfs tells write errors.
func canSyncAll() bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	var major, minor int
	if n, _ := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major > 5 || major == 5 && minor >= 8
}

// syncAll makes everything on the file system of f durable.
func syncAll(f *os.File) error {
	for {
		err := unix.Syncfs(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("syncfs", err)
		}
	}
}

// sameFileSystem finds out whether a file is on the file system of root: a
// folder of the data folder can be another one, mounted or linked there.
func sameFileSystem(root *os.File) (func(name string) bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &st); err != nil {
		return nil, err
	}
	return func(name string) bool {
		var other unix.Stat_t
		return unix.Stat(name, &other) == nil && other.Dev == st.Dev
	}, nil
}
