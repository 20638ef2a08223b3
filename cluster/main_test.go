package cluster

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		os.Exit(runChild(text))
	}
	goleak.VerifyTestMain(m)
}
