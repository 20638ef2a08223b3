package client

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"kagami/internal/clock"
	"kagami/messages/wire"
)

// Timing of requests.
const (
	// responseTimeout is how long a node may take over an admin request.
	responseTimeout = 30 * time.Second
	// A coordinator that moves or loads is asked again: attempts in all, and the
	// pause between two of them.
	attemptsMax  = 20
	attemptPause = 250 * time.Millisecond
)

// Client issues the KIP's admin requests.
type Client struct {
	kgo   *kgo.Client
	owned bool
	clock clock.Clock
}

// MaxVersions is the option that lets a kgo.Client send the KIP's requests,
// which it refuses otherwise.
func MaxVersions() kgo.Opt {
	v := kversion.Stable()
	wire.RaiseMaxVersions(v)
	return kgo.MaxVersions(v)
}

// New connects lazily to a destination cluster, with kgo's own options:
// kgo.SeedBrokers at least. The caller must Close it.
func New(opts ...kgo.Opt) (*Client, error) {
	all := append([]kgo.Opt{MaxVersions(), kgo.RequestTimeoutOverhead(responseTimeout), kgo.ClientID("kagami-admin")}, opts...)
	cl, err := kgo.NewClient(all...)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return &Client{kgo: cl, owned: true, clock: clock.Wall{}}, nil
}

// Wrap uses an existing client, which must have been made with [MaxVersions]
// and stays the caller's to close.
func Wrap(cl *kgo.Client) *Client { return &Client{kgo: cl, clock: clock.Wall{}} }

// Kgo is the client underneath.
func (c *Client) Kgo() *kgo.Client { return c.kgo }

// Close closes a client made by New. It may be called twice.
func (c *Client) Close() {
	if c.owned {
		c.kgo.Close()
	}
}

// request sends req to any node, again while the answer's top-level code says
// that the coordinator or controller is moving or loading.
func (c *Client) request(ctx context.Context, req kmsg.Request, code func(kmsg.Response) (int16, *string)) (kmsg.Response, error) {
	return c.repeat(ctx, req, func() (kmsg.Response, error) { return c.kgo.Request(ctx, req) }, code)
}

// repeat is request with the way to send it.
func (c *Client) repeat(ctx context.Context, req kmsg.Request, send func() (kmsg.Response, error), code func(kmsg.Response) (int16, *string)) (kmsg.Response, error) {
	for attempt := 1; ; attempt++ {
		resp, err := send()
		if err != nil {
			return nil, fmt.Errorf("send %s: %w", wire.KeyName(req.Key()), err)
		}
		n, text := code(resp)
		if !moving(n) || attempt == attemptsMax {
			return resp, topError(n, text)
		}
		if err := c.clock.Sleep(ctx, attemptPause); err != nil {
			return resp, errors.Join(topError(n, text), err)
		}
	}
}

// moving reports a code after which the same request works soon: 14 and 15 a
// coordinator loads or is being made, 16 and 41 it or the controller moved.
func moving(code int16) bool { return code == 14 || code == 15 || code == 16 || code == 41 }

func topError(code int16, text *string) error {
	if text == nil {
		return wire.ErrorForCode(code, "")
	}
	return wire.ErrorForCode(code, *text)
}

// CreateClusterMirror creates a mirror. A nil value means the key's default.
func (c *Client) CreateClusterMirror(ctx context.Context, name string, configs map[string]*string) error {
	req := wire.NewPtrCreateClusterMirrorRequest()
	req.MirrorName = name
	for key, value := range configs {
		cfg := wire.NewCreateClusterMirrorRequestClusterMirrorConfig()
		cfg.Name, cfg.Value = key, value
		req.Config = append(req.Config, cfg)
	}
	sort.Slice(req.Config, func(i, j int) bool { return req.Config[i].Name < req.Config[j].Name })
	_, err := c.request(ctx, req, func(r kmsg.Response) (int16, *string) {
		resp := r.(*wire.CreateClusterMirrorResponse)
		return resp.ErrorCode, resp.ErrorMessage
	})
	return err
}

// DeleteClusterMirror deletes a mirror all of whose partitions are STOPPED.
func (c *Client) DeleteClusterMirror(ctx context.Context, name string) error {
	req := wire.NewPtrDeleteClusterMirrorRequest()
	req.MirrorName = name
	_, err := c.request(ctx, req, func(r kmsg.Response) (int16, *string) {
		resp := r.(*wire.DeleteClusterMirrorResponse)
		return resp.ErrorCode, resp.ErrorMessage
	})
	return err
}

// ListedMirror is a mirror as [Client.ListClusterMirrors] shows it.
type ListedMirror struct {
	Name            string
	SourceBootstrap string // bootstrap.servers of the mirror
	SourceClusterID string // "" = not learned yet
	TopicCount      int32  // paused and stopped topics included
}

// ListClusterMirrors lists the mirrors that the caller may describe, by name.
func (c *Client) ListClusterMirrors(ctx context.Context) ([]ListedMirror, error) {
	raw, err := c.request(ctx, wire.NewPtrListClusterMirrorsRequest(), func(r kmsg.Response) (int16, *string) {
		resp := r.(*wire.ListClusterMirrorsResponse)
		return resp.ErrorCode, resp.ErrorMessage
	})
	if err != nil {
		return nil, err
	}
	var out []ListedMirror
	for _, m := range raw.(*wire.ListClusterMirrorsResponse).Mirrors {
		out = append(out, ListedMirror{m.MirrorName, m.SourceBootstrap, m.SourceClusterID, m.TopicCount})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

// TopicResult is the outcome for one topic; Err nil means accepted: the wish is
// stored, not that it has happened.
type TopicResult struct {
	Topic string
	Err   error
}

// TopicResults are in the order of the response.
type TopicResults []TopicResult

// Accepted lists the topics without error.
func (rs TopicResults) Accepted() []string {
	var out []string
	for _, r := range rs {
		if r.Err == nil {
			out = append(out, r.Topic)
		}
	}
	return out
}

// Failed lists the results with an error.
func (rs TopicResults) Failed() TopicResults {
	var out TopicResults
	for _, r := range rs {
		if r.Err != nil {
			out = append(out, r)
		}
	}
	return out
}

// Err joins the errors of all topics, each with its name; nil if there is none.
func (rs TopicResults) Err() error {
	var all []error
	for _, r := range rs.Failed() {
		all = append(all, fmt.Errorf("%s: %w", r.Topic, r.Err))
	}
	return errors.Join(all...)
}

// reason finds a topic's own text: it stands as one line `topic: text` in the
// top-level message of an answer whose top-level code is 0 (protocol.md).
func reason(message *string, topic string) string {
	if message == nil {
		return ""
	}
	for line := range strings.Lines(*message) {
		if text, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), topic+": "); ok {
			return text
		}
	}
	return ""
}
