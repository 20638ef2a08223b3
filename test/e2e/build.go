package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// buildTimeout bounds compiling every command, with a cold cache on two cores.
const buildTimeout = 8 * time.Minute

var (
	buildOnce sync.Once
	buildDir  string
	errBuild  error

	faultOnce sync.Once
	faultDir  string
	errFault  error
)

// FaultServer returns the path of the server with fault points in it (build tag
// faultpoints, see package invariant). The first call compiles it.
func FaultServer() (string, error) {
	faultOnce.Do(func() { faultDir, errFault = compile("./cmd/kagami", "-tags", "faultpoints") })
	return filepath.Join(faultDir, "kagami"), errFault
}

// Program returns the path of one of the commands in cmd/. The first call
// compiles all of them, with -race if KAGAMI_E2E_RACE is set. KAGAMI_E2E_BIN
// names a folder of finished programs instead.
func Program(name string) (string, error) {
	if dir := os.Getenv("KAGAMI_E2E_BIN"); dir != "" {
		return filepath.Join(dir, name), nil
	}
	buildOnce.Do(func() { buildDir, errBuild = compile("./cmd/...") })
	if errBuild != nil {
		return "", errBuild
	}
	path := filepath.Join(buildDir, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find program: %w", err)
	}
	return path, nil
}

// compile builds commands into a new folder.
func compile(what string, flags ...string) (dir string, err error) {
	dir, err = os.MkdirTemp("", "kagami-bin-")
	if err != nil {
		return "", fmt.Errorf("make folder of the programs: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), buildTimeout, errors.New("building takes too long"))
	defer cancel()
	root, err := moduleRoot(ctx)
	if err != nil {
		return dir, err
	}
	args := append([]string{"build", "-o", dir + string(os.PathSeparator)}, flags...)
	if os.Getenv("KAGAMI_E2E_RACE") != "" {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, what)...)
	cmd.Dir = root
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return dir, fmt.Errorf("build %s: %w\n%s", what, err, said.String())
	}
	return dir, nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// RemovePrograms removes what Program and FaultServer compiled. For TestMain.
func RemovePrograms() error {
	var errs []error
	for _, dir := range []string{buildDir, faultDir} {
		if dir != "" {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}
