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
func Require(tb testing.TB, versions ...Version) {
	tb.Helper()
	if len(versions) == 0 {
		versions = []Version{Latest}
	}
	RequireProgram(tb, "java")
	RequireProgram(tb, "mvn")
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	for _, v := range versions {
		if _, err := ClassPath(ctx, v); err != nil {
			missing(tb, err.Error())
		}
	}
}

// RequireProgram is Require for one program, kcat for example.
func RequireProgram(tb testing.TB, name string) {
	tb.Helper()
	if _, err := exec.LookPath(name); err != nil {
		missing(tb, name+" is not installed")
	}
}

func missing(tb testing.TB, what string) {
	tb.Helper()
	if os.Getenv("CI") == "true" {
		tb.Fatalf("needed in CI: %s", what)
	}
	tb.Skipf("skip %d for lack of a real Kafka: %s", skipped.Add(1), what)
}

// PrintSkipped tells how many tests Require has skipped. For TestMain.
func PrintSkipped(w io.Writer) {
	if n := skipped.Load(); n > 0 {
		fmt.Fprintf(w, "skipped %d tests that need a JDK 17, Maven and kcat\n", n)
	}
}
