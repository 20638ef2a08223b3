package broker

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"kagami/messages"
)

// Faults of a Config.
var (
	ErrNoListener    = errors.New("no listener")
	ErrBadListener   = errors.New("bad listener")
	ErrBadLimit      = errors.New("bad limit")
	ErrBadNode       = errors.New("bad node id")
	ErrNotSupported  = errors.New("not supported")
	ErrServerClosed  = errors.New("server is closed")
	errMissingWiring = errors.New("missing dependency")
)

// Config of a Server. The zero value of a limit means its default.
type Config struct {
	NodeID    messages.NodeID
	Listeners []Listener

	RequestBytesMax      int           // largest frame, bytes; default 104857600 (socket.request.max.bytes)
	SmallRequestBytesMax int           // largest frame of a request other than Produce; default 8388608
	RequestBytesQueued   int           // bytes of requests held on all connections, at least RequestBytesMax; default 268435456 (queued.max.request.bytes), negative = no bound
	AnswerBytesQueued    int           // bytes of answers held on all connections; default 268435456 (kagami.queued.max.answer.bytes), negative = no bound
	ConnectionsMax       int           // open connections on all listeners; default 10000
	ConnectionsPerIPMax  int           // open connections per client address; 0 = no limit
	IdleTimeout          time.Duration // a connection without a byte read for this long is closed; default 10m (connections.max.idle.ms)
	FrameTimeout         time.Duration // a client that has begun a request and sends no byte of it for this long is closed; default 60s
	WriteTimeout         time.Duration // a client that takes no byte for this long is closed; default 60s
	FetchBytesMax        int           // largest Fetch response, bytes; default 57671680 (fetch.max.bytes)
	FetchSessionsMax     int           // incremental fetch sessions kept; default 1000 (max.incremental.fetch.session.cache.slots)
	FetchSessionMinAge   time.Duration // a session younger than this is evicted only for a bigger one; default 2m
	FetchWaitMax         time.Duration // upper bound of a client's max wait; default 5m
	QuotaWindow          time.Duration // what a client hasn't used of its quota for this long it may use at once; default 10s

	// StaticConfigs are the node's own settings by Kafka's names, from its file:
	// shown by DescribeConfigs, and the base under dynamic broker configs.
	StaticConfigs map[string]string

	// Live tells the nodes that clients may be sent to; nil: all. A client waits for a
	// dead one's answer until its time-out.
	Live func(messages.NodeID) bool
	// InSync looks once who is alive and whole, and says it of replicas; nil: the ISR
	// is the image's.
	InSync func() func(messages.NodeID, messages.PartitionKey) bool

	// LogLevel is the level of the node's log, to be read and set as the config of a broker
	// logger; nil: it can't be.
	LogLevel *zap.AtomicLevel

	// LogDir describes the data folder, for DescribeLogDirs; nil: nothing is told of it.
	LogDir func() LogDir

	// NoSendfile copies file ranges through memory even on plain TCP.
	NoSendfile bool
}

func (c Config) withDefaults() Config {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	defTime := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.RequestBytesMax, 100<<20)
	def(&c.SmallRequestBytesMax, 8<<20)
	def(&c.RequestBytesQueued, max(256<<20, c.RequestBytesMax))
	def(&c.AnswerBytesQueued, 256<<20)
	def(&c.ConnectionsMax, 10000)
	def(&c.FetchBytesMax, 55<<20)
	def(&c.FetchSessionsMax, 1000)
	defTime(&c.IdleTimeout, 10*time.Minute)
	defTime(&c.FrameTimeout, time.Minute)
	defTime(&c.WriteTimeout, time.Minute)
	defTime(&c.FetchSessionMinAge, 2*time.Minute)
	defTime(&c.FetchWaitMax, 5*time.Minute)
	defTime(&c.QuotaWindow, 10*time.Second)
	return c
}

// Validate reports every fault of c at once.
func (c Config) Validate() error {
	var errs []error
	if c.NodeID < 0 {
		errs = append(errs, fmt.Errorf("%w: %d", ErrBadNode, c.NodeID))
	}
	if len(c.Listeners) == 0 {
		errs = append(errs, ErrNoListener)
	}
	names := map[string]bool{}
	for _, l := range c.Listeners {
		if l.Name == "" || names[l.Name] {
			errs = append(errs, fmt.Errorf("%w: name %q is empty or used twice", ErrBadListener, l.Name))
		}
		names[l.Name] = true
		if err := l.validate(); err != nil {
			errs = append(errs, err)
		}
	}
	for _, limit := range []struct {
		name  string
		value int
	}{
		{"RequestBytesMax", c.RequestBytesMax},
		{"SmallRequestBytesMax", c.SmallRequestBytesMax},
		{"ConnectionsMax", c.ConnectionsMax},
		{"ConnectionsPerIPMax", c.ConnectionsPerIPMax},
		{"FetchBytesMax", c.FetchBytesMax},
		{"FetchSessionsMax", c.FetchSessionsMax},
	} {
		if limit.value < 0 {
			errs = append(errs, fmt.Errorf("%w: %s is %d", ErrBadLimit, limit.name, limit.value))
		}
	}
	if q := c.RequestBytesQueued; q > 0 && q < c.withDefaults().RequestBytesMax {
		errs = append(errs, fmt.Errorf("%w: RequestBytesQueued is %d, less than the largest request (%d)", ErrBadLimit, q, c.withDefaults().RequestBytesMax))
	}
	for _, limit := range []struct {
		name  string
		value time.Duration
	}{
		{"IdleTimeout", c.IdleTimeout},
		{"WriteTimeout", c.WriteTimeout},
		{"FrameTimeout", c.FrameTimeout},
		{"FetchSessionMinAge", c.FetchSessionMinAge},
		{"FetchWaitMax", c.FetchWaitMax},
		{"QuotaWindow", c.QuotaWindow},
	} {
		if limit.value < 0 {
			errs = append(errs, fmt.Errorf("%w: %s is %s", ErrBadLimit, limit.name, limit.value))
		}
	}
	return errors.Join(errs...)
}
