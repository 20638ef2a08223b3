package broker

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// TestLogEnd: an operator is warned of what a client did wrong, not of one that went.
func TestLogEnd(t *testing.T) {
	for _, row := range []struct {
		name string
		err  error
		want zapcore.Level
	}{
		{"in order", nil, zap.DebugLevel},
		{"end of input", io.EOF, zap.DebugLevel},
		{"closed here", net.ErrClosed, zap.DebugLevel},
		{"idle", os.ErrDeadlineExceeded, zap.DebugLevel},
		{"gone while it was answered", fmt.Errorf("write response: %w", &net.OpError{Err: os.NewSyscallError("write", syscall.EPIPE)}), zap.DebugLevel},
		{"reset", fmt.Errorf("send log: %w", &net.OpError{Err: os.NewSyscallError("sendfile", syscall.ECONNRESET)}), zap.DebugLevel},
		{"gone within a request", fmt.Errorf("%w: %w", errFrameCut, io.EOF), zap.WarnLevel},
		{"nonsense", errors.New("frame of 3 GB"), zap.WarnLevel},
	} {
		t.Run(row.name, func(t *testing.T) {
			core, logs := observer.New(zap.DebugLevel)
			nc, _ := net.Pipe()
			log := zap.New(core)
			(&conn{log: log, nc: nc, listener: &listener{}, s: &Server{ends: newSampled(log)}}).logEnd(row.err)
			require.Len(t, logs.All(), 1)
			require.Equal(t, row.want, logs.All()[0].Level)
		})
	}
}
