package cluster

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// natsReadyWait bounds the start of the embedded server, which takes a few
// milliseconds without listeners.
const natsReadyWait = 10 * time.Second

// startServer runs a NATS server inside this process. With one node it listens
// nowhere, knows no other server and has no JetStream: the journal is direct.
func startServer(name string, messageBytesMax int, log *zap.Logger) (*server.Server, error) {
	s, err := server.NewServer(&server.Options{
		ServerName: name,
		DontListen: true,
		NoSigs:     true,
		NoLog:      true, // ours is set below
		MaxPayload: int32(messageBytesMax),
		MaxPending: int64(messageBytesMax) * 8,
	})
	if err != nil {
		return nil, fmt.Errorf("make embedded NATS server: %w", err)
	}
	s.SetLoggerV2(natsLogger{log: log.Named("nats")}, false, false, false)
	s.Start()
	if !s.ReadyForConnections(natsReadyWait) {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, errors.New("start embedded NATS server: not ready in time")
	}
	return s, nil
}

// natsLogger is the server's log. Its notices are details for us, and its
// advice against large messages is known: records of 16 MiB have to pass.
type natsLogger struct{ log *zap.Logger }

func (l natsLogger) write(level zapcore.Level, format string, v []any) {
	if e := l.log.Check(level, "embedded NATS server"); e != nil {
		e.Write(zap.String("text", fmt.Sprintf(format, v...)))
	}
}

func (l natsLogger) Noticef(format string, v ...any) { l.write(zap.DebugLevel, format, v) }
func (l natsLogger) Fatalf(format string, v ...any)  { l.write(zap.ErrorLevel, format, v) }
func (l natsLogger) Errorf(format string, v ...any)  { l.write(zap.ErrorLevel, format, v) }
func (l natsLogger) Debugf(format string, v ...any)  { l.write(zap.DebugLevel, format, v) }
func (l natsLogger) Tracef(format string, v ...any)  { l.write(zap.DebugLevel, format, v) }

func (l natsLogger) Warnf(format string, v ...any) {
	level := zap.WarnLevel
	if strings.HasPrefix(format, "Maximum payloads over") {
		level = zap.DebugLevel
	}
	l.write(level, format, v)
}
