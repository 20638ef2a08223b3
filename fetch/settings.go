package fetch

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"kagami/internal/clock"
	"kagami/messages"
)

// WorkerConfig of one [Worker].
type WorkerConfig struct {
	Source       Config          // connection of the mirror
	Mirror       string          // mirror name
	Node         messages.NodeID // this node, for the client id
	SourceBroker messages.NodeID // broker id on the source
	Address      string          // host:port of that broker
	Number       int32           // fetcher number, see messages.FetcherNumber
	// ClusterID is the source's: nothing is taken from a broker of another cluster, which
	// may be at that address by now (OP-26). "" if the source gives none: not checked.
	ClusterID string

	// MaxWait is replica.fetch.wait.max.ms; default 500 ms.
	MaxWait time.Duration
	// MinBytes is replica.fetch.min.bytes; default 1.
	MinBytes int32
	// MaxBytes is replica.fetch.response.max.bytes; default 10485760.
	MaxBytes int32
	// PartitionMaxBytes is replica.fetch.max.bytes; default 1048576. A first batch
	// that is larger arrives whole.
	PartitionMaxBytes int32
	// WindowMaxBytes is kagami.fetch.window.max.bytes: a request to a source that is
	// far asks for so much instead, of a partition and together. Default 0: it doesn't.
	WindowMaxBytes int32
	// Backoff is mirror.fetch.backoff.ms; at least 10 ms, so that a source which
	// refuses at once costs no core.
	Backoff time.Duration
	// RequestTimeout is replica.socket.timeout.ms; default 30 s.
	RequestTimeout time.Duration
	// Credit is the bytes of one partition that may wait for their append before
	// it is left out of the next request; default two times PartitionMaxBytes. At least
	// what a request asks for, so that one is on its way while another is appended.
	Credit int
	// Appenders is how many partitions may be appending at once; default 8.
	Appenders int
	// AppendersMore may append at once while less than AppendersBytes are on their way
	// to the logs; for logs whose appends wait long and compute little. Default none.
	AppendersMore int

	Budget   *Budget  // of the node; nil = no limit
	Throttle Throttle // of the node; nil = none
	Stats    *Stats   // of the node; nil = one of its own
	Clock    clock.Clock
	Log      *zap.Logger
}

func (c WorkerConfig) withDefaults() WorkerConfig {
	if c.MaxWait == 0 {
		c.MaxWait = 500 * time.Millisecond
	}
	if c.MinBytes == 0 {
		c.MinBytes = 1
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 10 << 20
	}
	if c.PartitionMaxBytes == 0 {
		c.PartitionMaxBytes = 1 << 20
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = 30 * time.Second
	}
	if c.Credit == 0 {
		c.Credit = 2 * int(c.PartitionMaxBytes)
	}
	if c.Appenders == 0 {
		c.Appenders = 8
	}
	c.AppendersMore = max(c.AppendersMore, c.Appenders)
	if c.Budget == nil {
		c.Budget = NewBudget(1 << 62)
	}
	if c.Stats == nil {
		c.Stats = NewStats(c.Clock)
	}
	c.Backoff = max(c.Backoff, backoffMin)
	return c
}

// AppendersBytes is up to how many bytes on their way there may be AppendersMore.
const AppendersBytes = 4 << 20

const backoffMin = 10 * time.Millisecond

var errWorkerConfig = errors.New("worker config")

// Validate reports every fault.
func (c WorkerConfig) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: "+format, append([]any{errWorkerConfig}, args...)...))
		}
	}
	check(c.Clock != nil, "no clock")
	check(c.Log != nil, "no logger")
	check(c.Address != "", "no address of source broker %d", c.SourceBroker)
	check(c.MaxWait >= 0, "max wait %s is negative", c.MaxWait)
	check(c.Backoff >= 0, "backoff %s is negative", c.Backoff)
	check(c.MaxBytes >= 0 && c.PartitionMaxBytes >= 0 && c.MinBytes >= 0 && c.WindowMaxBytes >= 0, "negative fetch sizes")
	return errors.Join(faults...)
}

// ClientID is what a worker calls itself towards the source (spec: fetcher.md
// "Workers"); quotas on the source go by it.
func (c WorkerConfig) ClientID() string {
	return fmt.Sprintf("broker-%d-fetcher-%d-mirror-%s", c.Node, c.Number, c.Mirror)
}

// Name is the worker's name in logs and metrics.
func (c WorkerConfig) Name() string {
	return fmt.Sprintf("MirrorFetcherThread-%d-%d-%s", c.Number, c.SourceBroker, c.Mirror)
}
