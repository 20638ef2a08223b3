package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHost: tools of two releases in one JVM each say and return what they do alone, one
// call after the other.
func TestHost(t *testing.T) {
	for _, v := range []Version{V44, V39} {
		t.Run(string(v), func(t *testing.T) {
			RequireProgram(t, "javac")
			Require(t, v)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			h, err := StartHost(ctx, v)
			require.NoError(t, err)
			defer h.Close()
			for range 2 {
				res, err := h.Run(ctx, "", Topics, "--version")
				require.NoError(t, err)
				require.Zero(t, res.Code, res.Stderr)
				require.Contains(t, res.Stdout, string(v))
				res, err = h.Run(ctx, "", Configs, "--no-such-option")
				require.NoError(t, err)
				require.Equal(t, 1, res.Code)
				require.Contains(t, res.Stderr, "no-such-option")
			}
		})
	}
}
