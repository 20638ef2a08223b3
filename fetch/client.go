package fetch

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/plugin/kzap"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"kagami/messages/wire"
)

const (
	// frameBytesMax bounds one response of the source, and with it the largest
	// batch that can be copied.
	frameBytesMax = 256 << 20
	// dialTimeout bounds a dial with its TLS handshake.
	dialTimeout = 10 * time.Second
	// What we call ourselves in ApiVersions (KIP-511).
	softwareName, softwareVersion = "kagami", "1"
	// fetchVersionMin is the first Fetch version with record batches (magic 2).
	fetchVersionMin = 4
)

// clientOptions are the kgo options of one connection of a mirror.
type clientOptions struct {
	config   Config
	clientID string
	seeds    []string
	timeout  time.Duration // replica.socket.timeout.ms
	retries  int           // of a request that isn't sent to one broker
	log      *zap.Logger
	// quiet silences kgo while it says true: during an outage we have said what is
	// wrong, and kgo would say it again with every attempt. nil = never.
	quiet func() bool
	wait  *waitMeter // of its connections; nil = none
}

func (o clientOptions) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := o.config.dial(ctx, network, address)
	if o.wait == nil {
		return c, err
	}
	return o.wait.wrap(c, err)
}

func (o clientOptions) level() kgo.LogLevel {
	if o.quiet != nil && o.quiet() {
		return kgo.LogLevelNone
	}
	return kgo.LogLevelWarn
}

// newClient makes a kgo client that only carries requests of ours: no group, no
// producing, no retries of its own.
func newClient(o clientOptions) (*kgo.Client, error) {
	if o.config.unusable != nil {
		return nil, o.config.unusable
	}
	versions := kversion.Stable()
	wire.RaiseMaxVersions(versions) // kgo refuses keys that its table lacks
	lowest := &kversion.Versions{}
	lowest.SetMaxKeyVersion(1, fetchVersionMin)
	opts := []kgo.Opt{
		kgo.SeedBrokers(o.seeds...),
		kgo.ClientID(o.clientID),
		kgo.SoftwareNameAndVersion(softwareName, softwareVersion),
		kgo.MaxVersions(versions),
		kgo.MinVersions(lowest),
		kgo.RequestRetries(o.retries),
		kgo.RetryTimeout(o.timeout),
		kgo.RequestTimeoutOverhead(max(o.timeout, time.Second)),
		kgo.BrokerMaxReadBytes(frameBytesMax),
		kgo.DisableClientMetrics(),
		kgo.WithLogger(kzap.New(o.log.WithOptions(zap.AddStacktrace(zapcore.DPanicLevel)), kzap.LevelFn(o.level))),
		kgo.Dialer(o.dial),
	}
	return kgo.NewClient(append(opts, o.config.login()...)...)
}

// dial opens a connection, with TLS if the mirror says so.
func (c Config) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: dialTimeout}
	if c.tls == nil {
		return dialer.DialContext(ctx, network, address)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	settings, err := c.tls.config(host)
	if err != nil {
		return nil, err
	}
	return (&tls.Dialer{NetDialer: dialer, Config: settings}).DialContext(ctx, network, address)
}
