package admin

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	stdlog "log"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"kagami/messages"
)

// ErrNotLoopback tells that an address isn't for this machine only, as it should be.
var ErrNotLoopback = errors.New("not a loopback address, as it was taken for")

// Queries is what the server asks of the node. Answers are marshalled to JSON.
type Queries interface {
	// Live returns nil when the node's parts run.
	Live(ctx context.Context) error
	// Ready returns nil when the node serves clients and its mirrors are close to
	// their sources.
	Ready(ctx context.Context) error
	// Query answers one of "partitions", "mirrors" and "actors" for the whole
	// cluster. args are the URL's parameters ("mirror", "topic", "node"). An
	// unknown name wraps messages.ErrInvalidRequest.
	Query(ctx context.Context, what string, args url.Values) (any, error)
}

// Config of a Server.
type Config struct {
	// Listen is host:port; port 0 takes a free one.
	Listen string
	// LoopbackOnly refuses to listen when Listen turns out to be another address: a name may
	// stand for any.
	LoopbackOnly bool
	// QueryTimeout bounds one query. Default 10 s; zero means the default.
	QueryTimeout time.Duration
	// HeaderTimeout bounds the TLS handshake, and then the head of a request. Default 10 s;
	// zero means the default.
	HeaderTimeout time.Duration
	// Pprof serves /debug/pprof. Default off.
	Pprof bool
	// TLS makes it https; nil: http.
	TLS *tls.Config
	// ClientCertificate asks for one that TLS has verified, but by /healthz and /readyz: the
	// handshake must not demand it.
	ClientCertificate bool
	// User and Password are asked for (basic authentication), but by /healthz and /readyz;
	// User "" asks for nobody.
	User, Password string
	// Metrics serves /metrics; nil leaves the page out.
	Metrics http.Handler
	// Level is shown and changed by /loglevel; nil leaves the page out.
	Level *zap.AtomicLevel
}

// Server answers HTTP requests.
type Server struct {
	http  *http.Server
	conns *connections
	ln    net.Listener
	done  chan struct{}
	log   *zap.Logger
}

// Start listens and serves until Close. The caller owns the Server.
func Start(cfg Config, q Queries, log *zap.Logger) (*Server, error) {
	if cfg.QueryTimeout == 0 {
		cfg.QueryTimeout = 10 * time.Second
	}
	if cfg.HeaderTimeout == 0 {
		cfg.HeaderTimeout = 10 * time.Second
	}
	ln, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for admin requests on %s: %w", cfg.Listen, err)
	}
	if at, ok := ln.Addr().(*net.TCPAddr); cfg.LoopbackOnly && (!ok || !at.IP.IsLoopback()) {
		return nil, errors.Join(fmt.Errorf("listen for admin requests on %s: %w: it is %s", cfg.Listen, ErrNotLoopback, ln.Addr()), ln.Close())
	}
	s := &Server{ln: ln, conns: newConnections(), done: make(chan struct{}), log: log}
	s.http = &http.Server{
		Handler:           guard(cfg, s.routes(cfg, q)),
		ReadHeaderTimeout: cfg.HeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytes,
		ConnState:         s.conns.track,
		ErrorLog:          stdlog.New(newErrorLog(log), "", 0),
	}
	if cfg.TLS != nil {
		ln = tls.NewListener(ln, cfg.TLS)
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(ln); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error("admin server ended", zap.Error(err))
		}
	}()
	return s, nil
}

// Addr is the address that the server listens on.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// Close stops serving and waits for requests under way until ctx ends. It may be
// called twice.
func (s *Server) Close(ctx context.Context) error {
	s.http.SetKeepAlivesEnabled(false)
	s.conns.closeSilent()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	<-s.done
	return err
}

func (s *Server) routes(cfg Config, q Queries) *http.ServeMux {
	mux := http.NewServeMux()
	check := func(f func(context.Context) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), cfg.QueryTimeout)
			defer cancel()
			if err := f(ctx); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			s.write(w, []byte("ok\n"))
		}
	}
	mux.HandleFunc("GET /healthz", check(q.Live))
	mux.HandleFunc("GET /readyz", check(q.Ready))
	mux.HandleFunc("GET /api/{what}", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), cfg.QueryTimeout)
		defer cancel()
		answer, err := q.Query(ctx, r.PathValue("what"), r.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		b, err := json.Marshal(answer)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		s.write(w, append(b, '\n'))
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), cfg.QueryTimeout)
		defer cancel()
		s.statusPage(ctx, w, q)
	})
	if cfg.Metrics != nil {
		mux.Handle("GET /metrics", cfg.Metrics)
	}
	if cfg.Level != nil {
		mux.Handle("/loglevel", cfg.Level)
	}
	if cfg.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, messages.ErrInvalidRequest):
		return http.StatusBadRequest
	case errors.Is(err, messages.ErrUnknownMirror), errors.Is(err, messages.ErrUnknownTopicOrPartition):
		return http.StatusNotFound
	case errors.Is(err, messages.ErrTimedOut), errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	default:
		return http.StatusInternalServerError
	}
}

func (s *Server) write(w http.ResponseWriter, b []byte) {
	if _, err := w.Write(b); err != nil && s.log.Core().Enabled(zapcore.DebugLevel) {
		s.log.Debug("admin answer not delivered", zap.Error(err))
	}
}

// statusRows is one table of the status page.
type statusRows struct {
	Title string
	Text  string
}

var statusTemplate = template.Must(template.New("status").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Kagami</title>
<style>body{font:14px sans-serif;margin:2em}pre{background:#f4f4f4;padding:1em;overflow:auto}</style></head>
<body><h1>Kagami</h1>
<p><a href="/healthz">health</a> <a href="/readyz">readiness</a> <a href="/metrics">metrics</a>
<a href="/api/partitions">partitions</a> <a href="/api/mirrors">mirrors</a> <a href="/api/actors">actors</a></p>
{{range .}}<h2>{{.Title}}</h2><pre>{{.Text}}</pre>{{end}}</body></html>
`))

func (s *Server) statusPage(ctx context.Context, w http.ResponseWriter, q Queries) {
	var rows []statusRows
	for _, what := range []string{"mirrors", "partitions"} {
		row := statusRows{Title: what}
		answer, err := q.Query(ctx, what, url.Values{"limit": {"200"}})
		if err == nil {
			var b []byte
			b, err = json.MarshalIndent(answer, "", "  ")
			row.Text = string(b)
		}
		if err != nil {
			row.Text = err.Error()
		}
		rows = append(rows, row)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := statusTemplate.Execute(w, rows); err != nil {
		s.log.Debug("status page not delivered", zap.Error(err))
	}
}
