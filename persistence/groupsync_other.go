//go:build !linux

package persistence

import (
	"errors"
	"os"
)

func canSyncAll() bool { return false }

func syncAll(*os.File) error { return errors.ErrUnsupported }

func sameFileSystem(*os.File) (func(string) bool, error) { return nil, errors.ErrUnsupported }
