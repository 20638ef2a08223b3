package fetch

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

// IsUnknownTopic reports whether err is the source's answer that it has no such
// topic or partition. A stale broker says the same: list all topics before you
// believe it (spec: workflows.md, Topic deleted or recreated).
func IsUnknownTopic(err error) bool {
	code, ok := errors.AsType[*CodeError](err)
	return ok && code.Code == codeUnknownTopic
}

// NewClient opens a plain client to a mirror's source with the mirror's own
// settings, for tools that read the source. The caller closes it.
func NewClient(c Config, clientID string, log *zap.Logger) (*kgo.Client, error) {
	client, err := newClient(clientOptions{
		config: c, clientID: clientID, seeds: c.Bootstrap, timeout: 30 * time.Second, retries: sourceRetries, log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("open connection to source %s: %w", c, err)
	}
	return client, nil
}
