package kafka

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// paths holds the class paths known to this process: Version -> string.
var paths sync.Map

// ClassPath returns the Java class path of a release. The first call on a machine
// asks Maven, which may take minutes; later ones read a file in the user's cache
// folder. Several test processes may call it at once: a lock file admits one.
func ClassPath(ctx context.Context, v Version) (string, error) {
	if cp, ok := paths.Load(v); ok {
		return cp.(string), nil
	}
	pom, err := v.pom()
	if err != nil {
		return "", err
	}
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(pom)
	file := filepath.Join(dir, string(v)+"-"+hex.EncodeToString(sum[:6])+".classpath")
	cp, ok := readClassPath(file)
	if !ok {
		if cp, err = resolve(ctx, dir, file, v, pom); err != nil {
			return "", err
		}
	}
	paths.Store(v, cp)
	return cp, nil
}

func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w", err)
	}
	dir := filepath.Join(base, "kagami", "kafka")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make cache folder: %w", err)
	}
	return dir, nil
}

// readClassPath returns the stored class path if every jar in it is still there.
func readClassPath(file string) (string, bool) {
	b, err := os.ReadFile(file)
	cp := strings.TrimSpace(string(b))
	if err != nil || cp == "" {
		return "", false
	}
	for jar := range strings.SplitSeq(cp, ":") {
		if st, err := os.Stat(jar); err != nil || st.Size() == 0 {
			return "", false
		}
	}
	return cp, true
}

func resolve(ctx context.Context, dir, file string, v Version, pom []byte) (string, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("open lock of class paths: %w", err)
	}
	defer lock.Close() // releases the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock class paths: %w", err)
	}
	if cp, ok := readClassPath(file); ok { // somebody else was faster
		return cp, nil
	}
	tmp, err := os.MkdirTemp(dir, "resolve-")
	if err != nil {
		return "", fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(tmp)
	pomFile, out := filepath.Join(tmp, "pom.xml"), filepath.Join(tmp, "classpath")
	if err := os.WriteFile(pomFile, pom, 0o644); err != nil {
		return "", fmt.Errorf("write pom: %w", err)
	}
	cmd := exec.CommandContext(ctx, "mvn", "-B", "-q", "-f", pomFile, "dependency:build-classpath", "-Dmdep.outputFile="+out)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("resolve Kafka %s: %w\n%s", v, err, said.String())
	}
	cp, ok := readClassPath(out)
	if !ok {
		return "", fmt.Errorf("resolve Kafka %s: no usable class path\n%s", v, said.String())
	}
	if err := os.Rename(out, file); err != nil {
		return "", fmt.Errorf("keep class path: %w", err)
	}
	return cp, nil
}
