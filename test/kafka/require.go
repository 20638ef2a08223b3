package kafka

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"
)

// resolveTimeout bounds the first download of one release.
const resolveTimeout = 8 * time.Minute

var skipped atomic.Int64

// Require makes sure that the given releases ([Latest] if none are named) can be
// run. Where Java or Maven are missing the test is skipped and counted, with
// CI=true it fails.
func Require(t testing.TB, versions ...Version) {
	t.Helper()
	if len(versions) == 0 {
		versions = []Version{Latest}
	}
	RequireProgram(t, "java")
	RequireProgram(t, "mvn")
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	for _, v := range versions {
		if _, err := ClassPath(ctx, v); err != nil {
			missing(t, err.Error())
		}
	}
}

// RequireProgram is Require for one program, kcat for example.
func RequireProgram(t testing.TB, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		missing(t, name+" is not installed")
	}
}

func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("needed in CI: %s", what)
	}
	t.Skipf("skip %d for lack of a real Kafka: %s", skipped.Add(1), what)
}

// PrintSkipped tells how many tests Require has skipped. For TestMain.
func PrintSkipped(w io.Writer) {
	if n := skipped.Load(); n > 0 {
		fmt.Fprintf(w, "skipped %d tests that need Java 17, Maven and kcat\n", n)
	}
}
