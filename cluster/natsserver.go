package cluster

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/zap"
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
	s.SetLoggerV2(natsLogger{log: log.Named("nats").Sugar()}, false, false, false)
	s.Start()
	if !s.ReadyForConnections(natsReadyWait) {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, errors.New("start embedded NATS server: not ready in time")
	}
	return s, nil
}

// natsLogger is the server's log. Its notices are details for us.
type natsLogger struct{ log *zap.SugaredLogger }

func (l natsLogger) Noticef(format string, v ...any) { l.log.Debugf(format, v...) }
func (l natsLogger) Warnf(format string, v ...any)   { l.log.Warnf(format, v...) }
func (l natsLogger) Fatalf(format string, v ...any)  { l.log.Errorf(format, v...) }
func (l natsLogger) Errorf(format string, v ...any)  { l.log.Errorf(format, v...) }
func (l natsLogger) Debugf(format string, v ...any)  { l.log.Debugf(format, v...) }
func (l natsLogger) Tracef(format string, v ...any)  { l.log.Debugf(format, v...) }
