package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"kagami/messages"
)

// Renew has puts work again after a failed write or fsync, if the disk is well again:
// the file is written anew, with every put that was told to be done, and without those
// that failed. A page that a failed fsync dropped may be gone from memory too: then
// records are damaged, and only a restart goes on without them. Without a failure it
// does nothing.
func (c *Checkpoints) Renew() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil || c.closed || c.syncing {
		return nil
	}
	if err := c.renewLocked(); err != nil {
		return fmt.Errorf("renew checkpoint file %s: %w: %w", c.path, messages.ErrStorage, err)
	}
	c.log.Warn("checkpoint file renewed after a failure of its disk", zap.NamedError("failure", c.failed))
	c.failed, c.void, c.replaced, c.synced = nil, nil, false, c.written
	return nil
}

func (c *Checkpoints) renewLocked() error {
	b, err := c.fs.ReadFile(c.path)
	if err != nil {
		return err
	}
	if !c.replaced {
		if int64(len(b)) < c.size {
			return fmt.Errorf("%w: it has %d bytes of %d", ErrDamaged, len(b), c.size)
		}
		b = withoutStretches(b[:c.size], c.void)
	}
	live, _, damaged, err := replayCheckpoints(b)
	if err == nil && damaged > 0 {
		err = fmt.Errorf("%w: %d records", ErrDamaged, damaged)
	}
	if err != nil {
		return err
	}
	old := c.file
	if err := c.rewriteLocked(live); err != nil {
		c.replaced = c.replaced || !errors.Is(err, errNotReplaced)
		return err
	}
	_ = old.Close() // what it has to say of its pages is known
	return nil
}

// withoutStretches leaves ranges out of b, which it changes.
func withoutStretches(b []byte, out []stretch) []byte {
	out = slices.SortedFunc(slices.Values(out), func(a, b stretch) int { return cmp.Compare(b.from, a.from) })
	for _, s := range out {
		b = slices.Delete(b, int(s.from), int(s.to))
	}
	return b
}
