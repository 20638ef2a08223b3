package cluster

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// reviveRoom is the room that the journal's folder must have before JetStream is started
// again; with less it would give up at once.
const reviveRoom = 4 << 20

// reviveAfter is for how long JetStream must have been gone: parts of it end a little later.
const reviveAfter = 2 * time.Second

// ReviveJournal starts the journal's part of the embedded server again, if it has given
// it up because its disk was full, and there is room. It reports whether it did. Not to
// be called during or after Close, or by two at a time.
func (s *Server) ReviveJournal() (bool, error) {
	if s.nats == nil || !s.Clustered() || !s.nats.Running() || s.nats.JetStreamConfig() != nil {
		s.gone = time.Time{}
		return false, nil
	}
	now := s.opts.Clock.Now()
	if s.gone.IsZero() {
		s.gone = now
	}
	if now.Sub(s.gone) < reviveAfter {
		return false, nil
	}
	c := s.opts.Cluster.WithDefaults()
	if err := hasRoom(c.StoreDir, reviveRoom); err != nil {
		return false, fmt.Errorf("the journal on this node stands still until its folder has room: %w", err)
	}
	err := s.nats.EnableJetStream(&server.JetStreamConfig{
		StoreDir: c.StoreDir, MaxMemory: natsMemoryMax, MaxStore: natsStoreMax,
		SyncInterval: c.SyncInterval, SyncAlways: c.SyncInterval == 0, Strict: true,
	})
	if err != nil {
		return false, errors.Join(fmt.Errorf("start the journal on this node again: %w", err), s.nats.ShutdownJetStream())
	}
	return true, nil
}

// hasRoom finds out by writing.
func hasRoom(dir string, bytes int) error {
	f, err := os.CreateTemp(dir, "room-*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, bytes))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}
