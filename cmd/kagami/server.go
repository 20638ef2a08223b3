package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"kagami/persistence"
)

// runServer runs a node until ctx ends.
func runServer(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := pflag.NewFlagSet("server", pflag.ContinueOnError)
	file := fs.String("config", "", "property file; without one the defaults hold (docs/configuration.md lists the keys)")
	overrides := fs.StringArray("set", nil, "key=value, wins over the file; may be repeated")
	if err := parse(fs, "server [options]", 0, args, stdout, stderr); err != nil {
		return err
	}
	s, err := loadSettings(*file, *overrides)
	if err != nil {
		return err
	}
	log, level := newLogger(s, stderr)
	for _, key := range s.unknown {
		log.Warn("config key is not known and has no effect", zap.String("key", key))
	}
	n, err := startNode(ctx, s, log, level)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w: is another node running? Otherwise choose free ports with listeners and kagami.admin.listen", err)
	case errors.Is(err, persistence.ErrLocked):
		return fmt.Errorf("%w: is another node running? Otherwise choose another folder with log.dirs", err)
	case err != nil:
		return err
	}
	for _, ep := range s.advertised {
		sayf(stdout, "kagami node %d of cluster %s: %s at %s\n", s.nodeID, n.clusterID, ep.Listener, n.broker.Addr(ep.Listener))
	}
	sayf(stdout, "kagami node %d: admin at %s, data in %s\n", s.nodeID, n.adminURL(), s.dataDir)
	var ended error
	select {
	case <-ctx.Done():
	case ended = <-n.ended:
	}
	log.Info("stopping")
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := errors.Join(ended, n.close(closing)); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	log.Info("stopped")
	return nil
}

func newLogger(s settings, w io.Writer) (*zap.Logger, zap.AtomicLevel) {
	level := zap.NewAtomicLevelAt(s.level)
	ec := zap.NewProductionEncoderConfig()
	ec.EncodeTime = zapcore.ISO8601TimeEncoder
	ec.EncodeDuration = zapcore.StringDurationEncoder
	enc := zapcore.NewConsoleEncoder(ec)
	if s.logJSON {
		enc = zapcore.NewJSONEncoder(ec)
	}
	return zap.New(zapcore.NewCore(enc, zapcore.Lock(zapcore.AddSync(w)), level)), level
}
