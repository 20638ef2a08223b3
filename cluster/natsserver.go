package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"kagami/internal/clock"
	"kagami/messages"
)

const (
	// natsReadyWait bounds the start of the embedded server, which takes a few
	// milliseconds; with JetStream the recovery of its files is on top of that.
	natsReadyWait = 10 * time.Second
	natsReadyPoll = 5 * time.Millisecond
	// natsNoPort can't be listened on. A clustered server has no option to do
	// without a client listener: DontListen keeps its routes from starting. When
	// it can't open the client port it logs that and starts its routes.
	natsNoPort = 1 << 16
	// natsPendingMin: whoever has more than that on its way to it is cut off; an
	// answer to a follower that catches up must pass, whatever the largest message.
	natsPendingMin = 16 * catchUpBytes
	// natsStoreMax: JetStream would reserve from three quarters of the free disk;
	// our limit is that of the streams.
	natsStoreMax = 1 << 50
	// natsMemoryMax: nothing of ours is in memory streams.
	natsMemoryMax = 64 << 20
)

// natsName is the name of a node's server; JetStream knows peers by it.
func natsName(node messages.NodeID) string { return fmt.Sprintf("kagami-%d", node) }

// natsNode is the opposite of natsName.
func natsNode(name string) (messages.NodeID, bool) {
	digits, ok := strings.CutPrefix(name, "kagami-")
	id, err := strconv.ParseInt(digits, 10, 32)
	return messages.NodeID(id), ok && err == nil
}

// ServerOptions of OpenServer. Node and Logger are required.
type ServerOptions struct {
	Node messages.NodeID
	// Cluster is nil for a node that is alone.
	Cluster *Options
	// MessageBytesMax limits a message's payload. Default 20 MiB: records of 16
	// MiB pass.
	MessageBytesMax int
	// OnNodeIDTaken is told, possibly often, that a server of this node's id tried
	// to connect; the error wraps ErrNodeIDTaken. It must not block.
	OnNodeIDTaken func(error)
	Clock         clock.Clock // default clock.Wall
	Logger        *zap.Logger
}

func (o ServerOptions) withDefaults() ServerOptions {
	setDefault(&o.MessageBytesMax, 20<<20)
	if o.Clock == nil {
		o.Clock = clock.Wall{}
	}
	return o
}

// Server is the NATS server inside this process. Only connections from inside
// reach it; with Options it also listens for the servers of other nodes
// and runs JetStream. With Options.External it is the way to the servers of an
// existing NATS cluster instead.
type Server struct {
	opts     ServerOptions
	nats     *server.Server // nil with an external cluster
	external []nats.Option  // nil without one
	system   nkeys.KeyPair  // of the embedded server's system user; nil of one that is alone
	gone     time.Time      // since when JetStream is, see ReviveJournal
}

// OpenServer starts the server. It doesn't wait for other nodes.
func OpenServer(ctx context.Context, o ServerOptions) (*Server, error) {
	o = o.withDefaults()
	if o.Cluster != nil && o.Cluster.External != nil {
		return openExternal(ctx, o)
	}
	options, err := natsOptions(o)
	if err != nil {
		return nil, err
	}
	var key nkeys.KeyPair
	if o.Cluster != nil {
		if key, err = systemUsers(options); err != nil {
			return nil, err
		}
		setPeerRemoved()
	}
	s, err := startServer(ctx, o, options)
	if err != nil {
		return nil, err
	}
	s.system = key
	return s, nil
}

func startServer(ctx context.Context, o ServerOptions, options *server.Options) (*Server, error) {
	if o.Cluster != nil {
		if err := setElectionTimeout(o.Cluster.ElectionTimeout); err != nil {
			return nil, fmt.Errorf("check options of cluster: %w", err)
		}
	}
	srv, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("make embedded NATS server: %w", err)
	}
	logger := natsLogger{log: o.Logger.Named("nats"), taken: o.OnNodeIDTaken, node: o.Node, fatal: make(chan string, 1)}
	srv.SetLoggerV2(logger, false, false, false)
	s := &Server{opts: o, nats: srv}
	srv.Start()
	if err := s.waitReady(ctx, logger.fatal); err != nil {
		s.Close()
		return nil, fmt.Errorf("start embedded NATS server: %w", err)
	}
	return s, nil
}

// A connection to another server on which so many pings got no answer is replaced. By
// the server's own settings that takes a minute and a half, and packets that get lost for
// a while silence a connection for about as long again after it: TCP repeats them ever
// more seldom. Meanwhile the next loss of a node would leave the journal without a quorum,
// though two nodes are there.
const (
	routePingMin  = time.Second
	routePingsOut = 2
)

func natsOptions(o ServerOptions) (*server.Options, error) {
	payload := o.MessageBytesMax + 64<<10 // headers count too
	options := &server.Options{
		ServerName: natsName(o.Node),
		DontListen: true,
		NoSigs:     true,
		NoLog:      true, // ours is set by the caller
		MaxPayload: int32(payload),
		MaxPending: max(int64(payload)*8, natsPendingMin),
	}
	if o.Cluster == nil {
		return options, nil
	}
	c := o.Cluster.WithDefaults()
	if err := c.Validate(o.Node); err != nil {
		return nil, fmt.Errorf("check options of cluster: %w", err)
	}
	tlsConfig, err := c.tlsConfig(o.Logger)
	if err != nil {
		return nil, err
	}
	host, port, err := hostPort(c.Listen)
	if err != nil {
		return nil, err
	}
	user, password := c.credentials()
	options.DontListen, options.Host, options.Port = false, "127.0.0.1", natsNoPort
	options.Cluster = server.ClusterOpts{
		Name: c.Name, Host: host, Port: port, Advertise: c.Advertise,
		Username: user, Password: password, TLSConfig: tlsConfig, TLSTimeout: 5, AuthTimeout: 5,
		PingInterval: max(c.DeadAfter, routePingMin), MaxPingsOut: routePingsOut,
	}
	if port == 0 {
		options.Cluster.Port = server.RANDOM_PORT
	}
	options.Routes = c.routes(o.Node)
	options.Tags = []string{natsName(o.Node)}
	options.JetStream, options.DisableJetStreamBanner = true, true
	options.StoreDir = c.StoreDir
	options.JetStreamMaxStore, options.JetStreamMaxMemory = natsStoreMax, natsMemoryMax
	options.SyncInterval, options.SyncAlways = c.SyncInterval, c.SyncInterval == 0
	return options, nil
}

func hostPort(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil {
		return "", 0, fmt.Errorf("read address %q: %w", address, err)
	}
	return host, port, nil
}

func (s *Server) waitReady(ctx context.Context, fatal <-chan string) error {
	if s.opts.Cluster == nil {
		if !s.nats.ReadyForConnections(natsReadyWait) {
			return errors.New("not ready in time")
		}
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, natsReadyWait, messages.ErrTimedOut)
	defer cancel()
	for {
		select {
		case text := <-fatal:
			return errors.New(text)
		default:
		}
		if at := s.nats.ClusterAddr(); at != nil {
			if o := s.opts.Cluster; !o.mayListen(at.IP) {
				return fmt.Errorf("%w: %s is %s, which isn't a loopback address, and there is no TLS: set cluster.tls.*, or cluster.allow.clear=true", ErrBadOption, o.Listen, at)
			}
			return nil
		}
		if err := s.opts.Clock.Sleep(ctx, natsReadyPoll); err != nil {
			return fmt.Errorf("wait for the listener of other nodes: %w", err)
		}
	}
}

// Node is the node of this server.
func (s *Server) Node() messages.NodeID { return s.opts.Node }

// Clustered reports whether the server has routes and JetStream.
func (s *Server) Clustered() bool { return s.opts.Cluster != nil }

// ListenAddress is where other nodes connect to, "" for a node that is alone.
func (s *Server) ListenAddress() string {
	if s.nats == nil {
		return ""
	}
	if a := s.nats.ClusterAddr(); a != nil {
		return a.String()
	}
	return ""
}

// Connected lists the other nodes that a route exists to, by id.
func (s *Server) Connected() []messages.NodeID {
	if s.nats == nil {
		return nil
	}
	routes, err := s.nats.Routez(nil)
	if err != nil {
		return nil
	}
	var ids []messages.NodeID
	for _, r := range routes.Routes {
		if id, ok := natsNode(r.RemoteName); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Embedded reports whether the journal's servers are those of the nodes.
func (s *Server) Embedded() bool { return s.nats != nil }

// connect opens a connection: from inside the process, or to the external cluster.
func (s *Server) connect(name string, log *zap.Logger, more ...nats.Option) (*nats.Conn, error) {
	report := func(_ *nats.Conn, sub *nats.Subscription, err error) {
		subject := ""
		if sub != nil {
			subject = sub.Subject
		}
		log.Warn("bus connection reports an error", zap.String("subject", subject), zap.Error(err))
	}
	options := append([]nats.Option{
		nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond), nats.ErrorHandler(report),
	}, more...)
	if s.nats == nil {
		return s.opts.Cluster.External.dialExternal(append(append(options, stayConnected(log, report)...), s.external...))
	}
	conn, err := nats.Connect("", append(options, nats.InProcessServer(s.nats))...)
	if err != nil {
		return nil, fmt.Errorf("connect to embedded NATS server: %w", err)
	}
	return conn, nil
}

// Close stops the server and waits for it. Streams, bus and membership of this
// server are closed before it: it steps down from every stream that it leads,
// so that others go on within milliseconds. It may be called twice.
func (s *Server) Close() {
	if s.nats == nil {
		return
	}
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
}

// natsLogger is the server's log. Its notices are details for us, and its
// advice against large messages is known: records of 16 MiB have to pass.
type natsLogger struct {
	log   *zap.Logger
	node  messages.NodeID
	taken func(error)
	fatal chan string // what kept the server from starting
}

func (l natsLogger) write(level zapcore.Level, format string, v []any) {
	if e := l.log.Check(level, "embedded NATS server"); e != nil {
		e.Write(zap.String("text", fmt.Sprintf(format, v...)))
	}
}

func (l natsLogger) Noticef(format string, v ...any) { l.write(zap.DebugLevel, format, v) }
func (l natsLogger) Debugf(format string, v ...any)  { l.write(zap.DebugLevel, format, v) }
func (l natsLogger) Tracef(format string, v ...any)  { l.write(zap.DebugLevel, format, v) }

func (l natsLogger) Fatalf(format string, v ...any) {
	if strings.HasPrefix(format, "Error listening on port") {
		l.write(zap.DebugLevel, format, v) // natsNoPort
		return
	}
	l.write(zap.ErrorLevel, format, v)
	select {
	case l.fatal <- fmt.Sprintf(format, v...):
	default:
	}
}

// refusedWhy says in the words of our configuration what the server tells of a node
// that isn't let in, "" if the text is about something else.
func refusedWhy(text string) string {
	switch {
	case strings.Contains(text, "certificate has expired or is not yet valid"):
		return "the other node's certificate (cluster.tls.certificate.file there) isn't valid now"
	case strings.Contains(text, "x509: cannot validate certificate for"), strings.Contains(text, "x509: certificate is valid for"), strings.Contains(text, "x509: certificate is not valid for any names"):
		return "the other node's certificate (cluster.tls.certificate.file there) doesn't name its host or address in cluster.peers"
	case strings.Contains(text, "remote error: tls: "):
		return "the other node doesn't take this one's certificate (cluster.tls.*): its log says why"
	case strings.Contains(text, "TLS route handshake error"), strings.Contains(text, "tls: "):
		return "its certificate, the CA (cluster.tls.*) or TLS itself isn't the same on both"
	case strings.Contains(text, "authentication error"), strings.Contains(text, "Authorization Violation"), strings.Contains(text, "authentication timeout"):
		return "cluster.user and cluster.password, or TLS itself, aren't the same on both"
	default:
		return ""
	}
}

// Errorf also finds out that another process has this node's id: the server
// tells it to its log only.
func (l natsLogger) Errorf(format string, v ...any) {
	level := zap.ErrorLevel
	if strings.HasPrefix(format, "Error trying to connect to route") {
		level = zap.WarnLevel // it tries again, until the other node is there
	}
	if text := fmt.Sprintf(format, v...); refusedWhy(text) != "" {
		l.log.Log(level, "connection between nodes refused: "+refusedWhy(text), zap.String("text", text))
	} else {
		l.write(level, format, v)
	}
	if l.taken != nil && strings.Contains(format, "duplicate name") {
		l.taken(fmt.Errorf("node %d: %w", l.node, ErrNodeIDTaken))
	}
}

// Warnf leaves out what is so by our choice, the health of the client listener
// that we don't have among it; membership tells of missing nodes better.
func (l natsLogger) Warnf(format string, v ...any) {
	level := zap.WarnLevel
	for _, known := range []string{"Maximum payloads over", "Waiting for routing to be established", "failed to be ready for connections after 1ms: server("} {
		if strings.HasPrefix(format, known) || len(v) == 1 && strings.HasPrefix(fmt.Sprint(v...), known) {
			level = zap.DebugLevel
		}
	}
	l.write(level, format, v)
}
