package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"kagami/messages"
	"kagami/persistence"
)

// JetStream's own cluster has no name: a server that comes with the journal of
// another cluster takes part in its elections, and may win them with what it has.
// So a node asks, before its JetStream starts, whose cluster that is.

const (
	identSubject = "kagami.ident" // not below a cluster's id: that is what is asked for
	// journalIDFile is in the journal's folder and says whose it is.
	journalIDFile = "cluster.id"

	probeFor   = 3 * time.Second        // that a connected node may take to answer
	probeAlone = 500 * time.Millisecond // that nobody is connected
	probePause = 50 * time.Millisecond
)

// JournalID is the cluster id that a journal folder says it belongs to, "" if it is
// empty or new.
func JournalID(fsys persistence.FS, dir string) (string, error) {
	b, err := fsys.ReadFile(filepath.Join(dir, journalIDFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read whose journal it is: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// MarkJournal says in a journal folder whose it is, durably.
func MarkJournal(fsys persistence.FS, dir, id string) error {
	if have, err := JournalID(fsys, dir); err != nil || have == id {
		return err
	}
	path := filepath.Join(dir, journalIDFile)
	f, err := fsys.OpenFile(path+".part", true)
	if err != nil {
		return fmt.Errorf("say whose journal it is: %w", err)
	}
	_, err = f.WriteAt([]byte(id+"\n"), 0)
	err = errors.Join(err, f.Truncate(int64(len(id)+1)), f.Sync(), f.Close())
	if err == nil {
		err = errors.Join(fsys.Rename(path+".part", path), fsys.SyncDir(dir))
	}
	if err != nil {
		return fmt.Errorf("say whose journal it is: %w", err)
	}
	return nil
}

// Probe asks the other nodes for their cluster before this node's JetStream meets
// theirs. want is the id of what this node has stored. An error that wraps
// ErrForeignCluster names both, ErrTakenOut is that the others have taken this node out;
// no answer is none: then nobody is there yet.
func Probe(ctx context.Context, o ServerOptions, want string) error {
	o = o.withDefaults()
	options, err := natsOptions(o)
	if err != nil {
		return err
	}
	options.ServerName = "kagami-probe-" + messages.NewTopicID().String()
	options.JetStream, options.Tags = false, nil
	options.Cluster.Host, options.Cluster.Port, options.Cluster.NoAdvertise, options.Cluster.Advertise = "127.0.0.1", server.RANDOM_PORT, true, ""
	s, err := startServer(ctx, o, options)
	if err != nil {
		return fmt.Errorf("ask other nodes for their cluster: %w", err)
	}
	defer s.Close()
	conn, err := s.connect("probe", zap.NewNop())
	if err != nil {
		return fmt.Errorf("ask other nodes for their cluster: %w", err)
	}
	defer conn.Close()
	return s.probe(ctx, conn, want)
}

func (s *Server) probe(ctx context.Context, conn *nats.Conn, want string) error {
	payload, err := json.Marshal(formStatus{Version: formVersion, Node: s.opts.Node, Process: s.nats.Name(), Stored: want})
	if err != nil {
		return fmt.Errorf("encode status of this node: %w", err)
	}
	inbox := conn.NewRespInbox()
	answers, err := conn.SubscribeSync(inbox)
	if err == nil {
		err = conn.Publish(formSubject, payload)
	}
	if err != nil {
		return fmt.Errorf("ask other nodes for their cluster: %w", err)
	}
	began := s.opts.Clock.Now()
	for {
		if err := conn.PublishRequest(identSubject, inbox, payload); err != nil {
			return fmt.Errorf("ask other nodes for their cluster: %w", err)
		}
		wait, cancel := context.WithTimeout(ctx, probePause)
		m, err := answers.NextMsgWithContext(wait)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var other formStatus
		if err == nil && len(m.Data) > 0 && json.Unmarshal(m.Data, &other) == nil && other.want() != "" {
			if other.want() != want {
				return fmt.Errorf("node %d has data of cluster %s, node %d is of cluster %s: %w", s.opts.Node, want, other.Node, other.want(), ErrForeignCluster)
			}
			if other.Gone {
				return fmt.Errorf("node %d, says node %d: %w", s.opts.Node, other.Node, ErrTakenOut)
			}
			return nil
		}
		took := s.opts.Clock.Now().Sub(began)
		if took > probeFor || took > probeAlone && len(s.Connected()) == 0 {
			return nil
		}
	}
}

// ServeIdent tells probes of other nodes the cluster of this one, and whether they were
// taken out of it, until stop is called. gone must not block.
func (s *Streams) ServeIdent(clusterID string, gone func(messages.NodeID) bool) (stop func(), err error) {
	return s.serveIdent(formStatus{Version: formVersion, Node: s.server.Node(), Stored: clusterID}, gone)
}

func (s *Streams) serveIdent(status formStatus, gone func(messages.NodeID) bool) (stop func(), err error) {
	sub, err := s.read.Subscribe(identSubject, func(m *nats.Msg) {
		var asker formStatus
		answer := status
		answer.Gone = json.Unmarshal(m.Data, &asker) == nil && gone(asker.Node)
		payload, err := json.Marshal(answer)
		if err == nil {
			err = m.Respond(payload)
		}
		if err != nil {
			s.log.Debug("answer a probe", zap.Error(err))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("answer probes: %w", err)
	}
	return func() {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			s.log.Debug("answer probes no more", zap.Error(err))
		}
	}, nil
}
